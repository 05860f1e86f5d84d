"""The language of the specs: each thing forgotten is one error that names the operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from classgen import dsl
from classgen.dsl import (
    DISCRETE,
    FLOATS,
    NUMBERS,
    Elementwise,
    InstOnly,
    NodeOnly,
    Op,
    SpecError,
    real,
)
from classgen.generate import _graph_expression, _load_package
from glowpy.core.schema import Quantized, Trait


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
    "kernel of a backend": (
        lambda: Op("MyNeg", "-input", inputs=["input"], backend="mine", no_derivative=DISCRETE),
        "MyNeg: expected kernel=.*, got none",
    ),
    "reason of a backend": (
        lambda: Op("MyNeg", "-input", inputs=["input"], backend="mine", kernel={"input": FLOATS}),
        "MyNeg: expected no_derivative=the reason, .*, got none",
    ),
    "C for integers": (
        lambda: Elementwise("Hypot", 2, "a length", {"float": "lhs"}, "lhs", NUMBERS, no_derivative=DISCRETE),
        "Hypot: no C expression for int, expected one of 'any', 'int'",
    ),
    "inputs": (
        lambda: Op("Foo", "foo"),  # type: ignore[call-arg]
        "Foo: Op: missing a required .*'inputs'",
    ),
}  # fmt: skip

MISSPELLED: dict[str, tuple[Callable[[], None], str]] = {
    "trait": (
        lambda: _softsign(derivative=("g",), traits=("comutative",)),
        "Softsign: expected traits of elementwise, .*, got comutative$",
    ),
    "operand": (
        lambda: Op("Foo", "foo", inputs=["input"], kernel={"inptu": FLOATS}),
        "Foo: expected operands in kernel of result, input, got inptu",
    ),
    "operand of another kind": (
        lambda: Op(
            "Foo", "foo", inputs=["input"], kernel={"input": ("u8",)}, mixed={"u8": {"inptu": "i8"}}
        ),
        "Foo: expected operands in mixed of result, input, got inptu",
    ),
    "kernel with operands of other kinds": (
        lambda: Op(
            "Foo", "foo", inputs=["input"], kernel={"input": ("u8",)}, mixed={"i8": {"input": "i8"}}
        ),
        "Foo: expected kinds of a kernel in mixed of u8, got i8",
    ),
    "other kind": (
        lambda: Op(
            "Foo", "foo", inputs=["input"], kernel={"input": ("u8",)}, mixed={"u8": {"input": "i9"}}
        ),
        "Foo: expected an element kind, got 'i9'",
    ),
    "kind": (
        lambda: Op("Foo", "foo", inputs=["input"], kernel={"input": ("f23",)}),
        "Foo: expected an element kind, got 'f23'",
    ),
    "kind of a scalar kernel": (
        lambda: Elementwise("Foo", 1, "foo", "input", "input", ("f32", "x32"), derivative=("g",)),
        "Foo: expected an element kind, got 'x32'",
    ),
    "family": (
        lambda: Elementwise("Foo", 1, "foo", {"flaot": "input"}, "input", FLOATS, derivative=("g",)),
        "Foo: expected C expressions of any, float, int, unsigned, bool, got flaot",
    ),
    "arity": (
        lambda: Elementwise("Foo", 4, "foo", "input", "input", FLOATS, derivative=("g",)),
        "Foo: expected 1, 2 or 3 inputs, got 4",
    ),
    "strided": (
        lambda: Op("Foo", "foo", inputs=["input"], strided=["inptu"]),
        "Foo: strided names inptu, which are no operands",
    ),
    "rows": (
        lambda: Op("Foo", "foo", inputs=["input"], rows=["inptu"]),
        "Foo: rows names inptu, which are no operands",
    ),
    "quant": (
        lambda: NodeOnly("Foo", "foo", inputs=["input"], quant="samee"),
        "Foo: expected quant of refused, same, numbers, rule, got samee",
    ),
    "keyword": (
        lambda: Op("Foo", "foo", inputs=["input"], kernal={"input": FLOATS}),  # type: ignore[call-arg]
        "Foo: expected arguments of name, doc, inputs, .*, got kernal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_what_is_forgotten_is_named(forgotten: str) -> None:
    declare, message = FORGOTTEN[forgotten]
    with pytest.raises(SpecError, match=message):
        declare()


@pytest.mark.parametrize("misspelled", MISSPELLED)
def test_what_is_misspelled_is_named(misspelled: str, registry: list[dsl.Operator]) -> None:
    declare, message = MISSPELLED[misspelled]
    with pytest.raises(SpecError, match=message):
        declare()
    assert not registry


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("quot(g, input)", "expected the mnemonic of an element-wise operator in a derivative, got quot"),
        ("softsign(g, input)", "expected 1 arguments of softsign in a derivative, got 2"),
        ("softsign(x)", "cannot read the derivative 'softsign\\(x\\)'"),
        ("softsign(g", "cannot read the derivative 'softsign\\(g'"),
    ],
)  # fmt: skip
def test_wrong_derivative_is_named(
    expression: str, message: str, registry: list[dsl.Operator]
) -> None:
    _softsign(derivative=(expression,))
    with pytest.raises(SpecError, match=f"Softsign: {message}"):
        _graph_expression(expression, registry[0])


def test_classgen_knows_the_words_of_schemas() -> None:
    assert tuple(trait.value for trait in Trait) == dsl.TRAITS
    assert tuple(quant.value for quant in Quantized) == dsl.QUANTIZED


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
        ('InstOnly("A", "a", inputs=["x"], backend="b")\nInstOnly("C", "c", backend="d")', 'got "b", "d"'),
        ('Op("Relu", "a", inputs=["x"], backend="b")', "Relu is declared twice"),
    ],
)  # fmt: skip
def test_wrong_specs_of_a_package_are_named(
    text: str | None, message: str, tmp_path: Path, registry: list[dsl.Operator]
) -> None:
    if text is not None:
        (tmp_path / "specs.py").write_text(f"from classgen.dsl import InstOnly, Op\n{text}\n")
    NodeOnly("Relu", "max(input, 0)", inputs=["input"])
    with pytest.raises(SpecError, match=message):
        _load_package(tmp_path)
    assert len(registry) == 1
