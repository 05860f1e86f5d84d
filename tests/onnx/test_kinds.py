"""Every operator in every element kind that ONNX allows for it: against onnx's reference evaluator, and both backends.

A case of onnx's own is tried with other kinds, on its own elements, rounded and limited where a kind has no others.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.elements import kind_of
from tests.onnx.comparison import value_of
from tools import operators

TEMPLATES = operators.templates()

_UNKNOWN = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What the reference evaluator raises where it was not made for a kind."""

INTEGERS = frozenset(kind for kind in ElemKind if kind.is_integer)
CODES = frozenset(kind for kind in ElemKind if kind.is_code)
_BODY = "what the body computes is not of this kind"
REFUSED: dict[str, tuple[frozenset[ElemKind], str]] = {
    "BitCast": (frozenset(ElemKind) - {ElemKind.F32, ElemKind.I32, ElemKind.U32}, "is as wide"),
    "LinearAttention": (frozenset({ElemKind.F16, ElemKind.BF16}), "the state is declared in f32"),
    "Loop": (frozenset(ElemKind) - {ElemKind.F32}, _BODY),
    "OptionalGetElement": (frozenset(ElemKind) - {ElemKind.F32}, "the output is declared in f32"),
    "Resize": (frozenset({ElemKind.BOOL}), "what is between two of them is no bool"),
    "Scan": (
        frozenset({ElemKind.I8, ElemKind.I16, ElemKind.U8, ElemKind.U16, ElemKind.BOOL}),
        _BODY,
    ),
    "SoftmaxCrossEntropyLoss": (frozenset({ElemKind.BF16}), "ONNX defines it by one without bf16"),
}
"""The kinds in which an operator's case may be refused, and why."""

OTHERWISE: dict[str, tuple[frozenset[ElemKind], str]] = {
    "CastLike": (INTEGERS | {ElemKind.F8E8M0}, "infinities and NaN are no integers"),
    "DequantizeLinear": (CODES, "zero points of codes are zero"),
    "GridSample": (INTEGERS, "the reference rounds weights to the kind of the image"),
    "QuantizeLinear": (CODES, "zero points of codes are zero"),
}
"""The kinds in which the reference evaluator says something else, and why."""


def variants(name: str) -> list[tuple[ElemKind, onnx.ModelProto, dict[str, Array]]]:
    """The kinds, the model in each, and what to run it with."""
    case = TEMPLATES[name]
    assert case.data_sets is not None
    arrays = [value_of(item) for item in case.data_sets[0][0]]
    return [(kind, model, feeds(model, arrays)) for kind, model in operators.variants(case)]


def feeds(model: onnx.ModelProto, arrays: list[Array]) -> dict[str, Array]:
    infos = [(info.name, info.type.tensor_type.elem_type) for info in model.graph.input]
    return {
        name: converted(array, kind_of(elem_type))
        for (name, elem_type), array in zip(infos, arrays, strict=False)
    }


def converted(array: Array, kind: ElemKind) -> Array:
    """Floats become small integers, which are not negative where the kind has no sign."""
    with np.errstate(all="ignore"):
        if ElemKind.of(array.dtype).has_fractions and kind.is_integer:
            array = np.clip(np.round(np.nan_to_num(array.astype(np.float64)) * 3), -100, 100)
            array = array if kind.is_signed else np.abs(array)
        return array.astype(kind.dtype)


def run(model: onnx.ModelProto, arrays: Mapping[str, Array], backend: str) -> list[Array]:
    with np.errstate(all="ignore"):
        return list(glowpy.InferenceSession(model, backend=backend).run(None, dict(arrays)))


def reference(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array] | None:
    """What onnx computes; None of what it cannot."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(arrays))
    except _UNKNOWN:
        return None
    return [np.asarray(result) for result in results]


def agree(got: Array, expected: Array, kind: ElemKind, context: str) -> None:
    assert got.shape == expected.shape, context
    rounding = {ElemKind.F16: 4e-3, ElemKind.BF16: 3e-2}.get(kind, 0.15 if kind.is_code else 1e-4)
    wide, wanted = (np.asarray(array).astype(np.float64) for array in (got, expected))
    np.testing.assert_allclose(wide, wanted, rounding, rounding, err_msg=context)


def is_in(table: Mapping[str, tuple[frozenset[ElemKind], str]], name: str, kind: ElemKind) -> bool:
    return name in table and kind in table[name][0]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_kind_is_computed(name: str) -> None:
    for kind, model, arrays in variants(name):
        context = f"{name} of {kind.value}"
        if is_in(REFUSED, name, kind):
            with pytest.raises(glowpy.UserError):
                run(model, arrays, "interpreter")
            continue
        results = run(model, arrays, "interpreter")
        expected = reference(model, arrays)
        if expected is not None and not is_in(OTHERWISE, name, kind):
            for got, wanted in zip(results, expected, strict=True):
                agree(got, wanted, kind, context)


def on_cpu(name: str, *, every: bool) -> None:
    """One kind of each operator, chosen by its name, or every kind."""
    known = [item for item in variants(name) if not is_in(REFUSED, name, item[0])]
    some = known if every else known[zlib.crc32(name.encode()) % len(known) :][:1] if known else []
    for kind, model, arrays in some:
        pairs = zip(run(model, arrays, "cpu"), run(model, arrays, "interpreter"), strict=True)
        for got, wanted in pairs:
            assert got.dtype == wanted.dtype
            agree(got, wanted, kind, f"{name} of {kind.value}")


@pytest.mark.parametrize("name", sorted(TEMPLATES)[::3])
def test_some_kind_is_computed_on_cpu(name: str) -> None:
    on_cpu(name, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_kind_is_computed_on_cpu(name: str) -> None:
    on_cpu(name, every=True)
