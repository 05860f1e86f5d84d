"""Running a model elsewhere, and how far the outputs of the whole are from the ones that gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glowpy.core.tensor import Array
from glowpy.engine import compile
from glowpy.graph.function import Function
from glowpy.importer import is_onnx
from glowpy.onnx_package.evaluator import evaluate_reference
from glowpy.quantization.fidelity import Fidelity
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["CHECKERS", "Difference", "Interpret", "compare", "expected_outputs", "interpreted"]

Interpret = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Runs a model on our interpreter: outputs of inputs."""


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
    got: Mapping[str, Any],
    expected: Mapping[str, Any],
    rtol: float,
    atol: float,
    share: float = 0.0,
) -> list[Difference]:
    """The difference of every expected output; |got - expected| <= atol + rtol * |expected| is within.

    Outputs are arrays, or what a session gives besides: lists, dicts, None, and arrays of strings, which differ by 0 or
    infinitely. `share` is what may be added to `atol`, as a share of the largest finite element of an output of floats.
    """
    return [
        _difference(name, got.get(name, _MISSING), want, (rtol, atol, share))
        for name, want in expected.items()
    ]


_MISSING = object()


def _difference(
    name: str, got: Any, want: Any, tolerances: tuple[float, float, float]
) -> Difference:
    pairs = _pairs(got, want)
    if pairs is None:
        return Difference(name, np.inf, np.inf, within=False, decibels=-np.inf)
    rtol, atol, share = tolerances
    absolute = relative = 0.0
    within, fidelity = True, Fidelity()
    for left, right, whole in pairs:
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where(same, 0.0, np.abs(left - right))
            ratio = np.where(same, 0.0, error / np.abs(right))
        finite = np.isfinite(right) & (not whole)
        largest = float(np.max(np.abs(right), initial=0.0, where=finite))
        errors = (np.nan_to_num(e, nan=np.inf, posinf=np.inf) for e in (error, ratio))
        maxima = (float(e.max(initial=0.0)) for e in errors)
        absolute, relative = map(max, (absolute, relative), maxima)
        close = np.isclose(left, right, rtol=rtol, atol=atol + share * largest, equal_nan=True)
        within = within and bool(close.all())
        fidelity = fidelity.plus(right, left, None)
    return Difference(name, absolute, relative, within, fidelity.decibels)


def _pairs(got: Any, want: Any) -> list[tuple[Array, Array, bool]] | None:
    """The numbers of two values side by side, in f64, and whether they are integers.

    None if the values are of different form, or strings differ.
    """
    if isinstance(want, Mapping):
        if not isinstance(got, Mapping) or got.keys() != want.keys():
            return None
        return _pairs([got[key] for key in want], [*want.values()])
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return None
        pairs = [_pairs(left, right) for left, right in zip(got, want, strict=True)]
        return None if None in pairs else [pair for some in pairs for pair in some or ()]
    if got is None or want is None:
        return [] if got is want else None
    left, right = np.asarray(got), np.asarray(want)
    if left.shape != right.shape:
        return None
    if right.dtype.kind in "OUS":
        return [] if left.astype(object).tolist() == right.astype(object).tolist() else None
    if left.dtype != right.dtype:
        return None
    return [(left.astype(np.float64), right.astype(np.float64), right.dtype.kind in "iub")]


def expected_outputs(
    checker: str, model: str, interpret: Interpret, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Computes outputs by `checker` (a key of CHECKERS); `interpret` runs the model on our interpreter.

    Raises UserError where the checker is not installed or cannot run the model, or needs an ONNX file and `model` is
    none.
    """
    return CHECKERS[checker](model, interpret, inputs)


@contextmanager
def _running(checker: str, path: Path) -> Iterator[None]:
    """Makes whatever another runtime raises a UserError: it may not know the model's operators or opset."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"{checker} cannot run the model: {str(error).strip()}",
            loc=Loc(str(path)),
            note="check with another",
        ) from error


def _onnx_file(model: str) -> Path:
    if not is_onnx(model):
        raise UserError(
            "expected an ONNX file to check with another runtime",
            loc=Loc(model),
            note="--check-with interpreter works for text",
        )
    return Path(model)


def _with_onnxruntime(
    model: str, interpret: Interpret, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    del interpret
    path = _onnx_file(model)
    try:
        import onnxruntime  # noqa: PLC0415 - optional and heavy
    except ImportError:
        raise UserError(
            "onnxruntime is not installed",
            note="pip install onnxruntime, or --check-with reference",
        ) from None
    with _running("onnxruntime", path):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is in the exception
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _with_reference(model: str, interpret: Interpret, inputs: Mapping[str, Any]) -> dict[str, Any]:
    del interpret
    path = _onnx_file(model)
    with _running("reference", path):
        return evaluate_reference(path, inputs)


def _with_interpreter(
    model: str, interpret: Interpret, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    del model
    return interpret(inputs)


def interpreted(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Computes a function on our interpreter, from its inputs and variables. Raises what compiling it raises."""
    compiled = compile(function, "interpreter")
    state = compiled.state()
    for port in compiled.state_ports:
        state[port.name] = inputs[port.name]
    return compiled({name: inputs[name] for name in compiled.inputs}, state=state)


CHECKERS: Mapping[str, Callable[[str, Interpret, Mapping[str, Any]], dict[str, Any]]] = {
    "onnxruntime": _with_onnxruntime,
    "reference": _with_reference,
    "interpreter": _with_interpreter,
}
"""Checkers of `glowpy run --check-with`: onnxruntime, onnx's reference evaluator, and our own interpreter."""
