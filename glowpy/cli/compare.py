"""Running a model elsewhere, and how far our outputs are from the ones that gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glowpy.core.tensor import Array
from glowpy.engine import compile
from glowpy.graph.function import Function
from glowpy.importer.onnx.reference import evaluate_reference
from glowpy.quantization.fidelity import Fidelity
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["CHECKERS", "Difference", "compare", "expected_outputs"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one output is from what was expected; both errors are infinite where the shapes differ."""

    name: str
    absolute: float
    relative: float
    within: bool
    """Whether every element is within absolute + relative tolerance, NaNs and infinities in the same places."""
    decibels: float
    """Signal to noise of the finite elements; minus infinity where the shapes differ."""


def compare(
    got: Mapping[str, Array], expected: Mapping[str, Array], rtol: float, atol: float
) -> list[Difference]:
    """The difference of every expected output; |got - expected| <= atol + rtol * |expected| is within."""
    return [_difference(name, got.get(name), want, rtol, atol) for name, want in expected.items()]


def _difference(name: str, got: Array | None, want: Array, rtol: float, atol: float) -> Difference:
    if got is None or got.shape != want.shape or got.dtype != want.dtype:
        return Difference(name, np.inf, np.inf, within=False, decibels=-np.inf)
    left, right = got.astype(np.float64), want.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(same, 0.0, np.abs(left - right))
        relative = np.where(same, 0.0, error / np.abs(right))
    error, relative = (np.nan_to_num(e, nan=np.inf, posinf=np.inf) for e in (error, relative))
    within = bool(np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True).all())
    errors = float(error.max(initial=0.0)), float(relative.max(initial=0.0))
    return Difference(name, *errors, within, Fidelity().plus(right, left, None).decibels)


def expected_outputs(
    checker: str, model: str, function: Function, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """What `checker` (a key of CHECKERS) computes from the inputs.

    Raises UserError where the checker is not installed or cannot run the model, or needs an ONNX file and `model` is
    none.
    """
    return CHECKERS[checker](model, function, inputs)


@contextmanager
def _running(checker: str, path: Path) -> Iterator[None]:
    """Makes whatever another runtime raises a UserError: it may not know the model's operators or opset."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"{checker} cannot run the model: {error}",
            loc=Loc(str(path)),
            note="check with another",
        ) from error


def _onnx_file(model: str) -> Path:
    if not model.endswith(".onnx"):
        raise UserError(
            "expected an ONNX file to check with another runtime",
            loc=Loc(model),
            note="--check-with interpreter works for text",
        )
    return Path(model)


def _with_onnxruntime(
    model: str, function: Function, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    del function
    path = _onnx_file(model)
    try:
        import onnxruntime  # noqa: PLC0415 - optional and heavy
    except ImportError:
        raise UserError(
            "onnxruntime is not installed",
            note="pip install onnxruntime, or --check-with reference",
        ) from None
    with _running("onnxruntime", path):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _with_reference(
    model: str, function: Function, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    del function
    path = _onnx_file(model)
    with _running("reference", path):
        return evaluate_reference(path, inputs)


def _with_interpreter(
    model: str, function: Function, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    del model
    compiled = compile(function, "interpreter")
    state = compiled.state()
    for port in compiled.state_ports:
        state[port.name] = inputs[port.name]
    return compiled({name: inputs[name] for name in compiled.inputs}, state=state)


CHECKERS: Mapping[str, Callable[[str, Function, Mapping[str, Array]], dict[str, Array]]] = {
    "onnxruntime": _with_onnxruntime,
    "reference": _with_reference,
    "interpreter": _with_interpreter,
}
"""What `glowpy run --check-with` knows: onnxruntime, onnx's reference evaluator, and our own interpreter."""
