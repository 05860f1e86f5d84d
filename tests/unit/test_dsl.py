"""The language of the specs: each thing forgotten is one error that names the operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from classgen import dsl
from classgen.dsl import DISCRETE, FLOATS, Elementwise, InstOnly, NodeOnly, Op, SpecError, real
from classgen.generate import _load_package


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> list[dsl.Operator]:
    """An empty registry."""
    registry: list[dsl.Operator] = []
    monkeypatch.setattr(dsl, "REGISTRY", registry)
    return registry


def _softsign(**arguments: object) -> None:
    Elementwise("Softsign", 1, "x / (1 + |x|)", "input", "input", FLOATS, **arguments)  # type: ignore[arg-type]


FORGOTTEN: dict[str, tuple[Callable[[], None], str]] = {
    "derivative": (_softsign, "Softsign: expected derivative=.* or no_derivative=the reason, got neither"),
    "one of two derivatives": (
        lambda: Elementwise("Sum", 2, "lhs + rhs", "lhs + rhs", "lhs + rhs", FLOATS, derivative=("g",)),
        "Sum: expected 2 derivatives, got 1",
    ),
    "which of both": (
        lambda: _softsign(derivative=("g",), no_derivative=DISCRETE),
        "Softsign: expected a derivative or no_derivative, got both",
    ),
    "doc": (lambda: NodeOnly("Twice", "", inputs=["input"]), "Twice: a doc string is required"),
    "that element-wise operators are everybody's": (
        lambda: Op("MyNeg", "-input", inputs=["input"], traits=["elementwise"], backend="mine"),
        "MyNeg: element-wise operators belong to every backend",
    ),
    "function of the importer": (
        lambda: NodeOnly(
            "Elu", "A bend.", inputs=["input"], attrs=[real("alpha")], traits=["elementwise"], onnx="Elu"
        ),
        "Elu: onnx names element-wise operators without attributes; others need a function",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_what_is_forgotten_is_named(forgotten: str) -> None:
    declare, message = FORGOTTEN[forgotten]
    with pytest.raises(SpecError, match=message):
        declare()


def test_an_operator_is_declared_once(registry: list[dsl.Operator]) -> None:
    _softsign(derivative=("g",), onnx="Softsign", onnx_since=22)
    assert (registry[0].onnx, registry[0].onnx_since) == ("Softsign", 22)
    with pytest.raises(SpecError, match="Softsign is declared twice"):
        _softsign(derivative=("g",))


def test_a_backend_may_have_the_instruction_of_a_node_that_others_lower() -> None:
    NodeOnly("Bend", "A bend.", inputs=["input"])
    InstOnly("Bend", "A bend.", inputs=["input"], results=["result"], backend="mine")
    with pytest.raises(SpecError, match="Bend is declared twice"):
        Op("Bend", "A bend.", inputs=["input"], backend="mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected the declarations of the package in .*specs.py"),
        ("", "expected operators of one backend of the package's own, got no operators"),
        ('Op("A", "a", inputs=["x"])', 'got ""'),
        ('Op("A", "a", inputs=["x"], backend="b")\nOp("C", "c", inputs=["x"], backend="d")', 'got "b", "d"'),
        ('Op("Relu", "a", inputs=["x"], backend="b")', "Relu is declared twice"),
    ],
)  # fmt: skip
def test_wrong_specs_of_a_package_are_named(
    text: str | None, message: str, tmp_path: Path, registry: list[dsl.Operator]
) -> None:
    if text is not None:
        (tmp_path / "specs.py").write_text(f"from classgen.dsl import Op\n{text}\n")
    NodeOnly("Relu", "max(input, 0)", inputs=["input"])
    with pytest.raises(SpecError, match=message):
        _load_package(tmp_path)
    assert len(registry) == 1
