"""How operators are tested: rows of a table, with cases for every kind, on every backend.

A case is one node on given inputs with what a reference that shares no code with glowpy expects.
All cases of a row go into one function, because machine code is made for a function at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.engine import BACKENDS, backend_of, unsupported
from glowpy.graph.node import Node
from glowpy.llvm.scalars_gen import SCALARS

HALVES = (ElemKind.F16, ElemKind.BF16)
FLOATS = (*HALVES, ElemKind.F32, ElemKind.F64)
SIGNED = (ElemKind.I8, ElemKind.I16, ElemKind.I32, ElemKind.I64)
UNSIGNED = (ElemKind.U8, ElemKind.U16, ElemKind.U32, ElemKind.U64)
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, ElemKind.BOOL)


@dataclass(frozen=True)
class Tolerance:
    """How far a float may be off: units in the last place, plus epsilons of a given scale."""

    ulps: float = 0
    epsilons: float = 0
    scale: float = 1
    zero_sign: bool = True
    """Whether 0 and -0 are different."""


EXACT = Tolerance()
EXACT_BUT_ZERO = Tolerance(zero_sign=False)


@dataclass(frozen=True)
class Case:
    """One node. `expected` may be of a wider kind than the results; it is rounded. What is masked may be anything."""

    inputs: Sequence[Array]
    expected: Sequence[Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    result_type: Type | None = None
    tolerance: Tolerance = EXACT
    constants: frozenset[int] = frozenset()
    """Which inputs are known when the function is compiled."""


@dataclass(frozen=True)
class Row:
    """An operator, the element kinds it is tried with, and its cases for one of them."""

    cls: type[Node]
    kinds: tuple[ElemKind, ...]
    cases: Callable[[ElemKind], Iterable[Case]]
    title: str = ""
    thinned: bool = True
    """Whether machine code is made for only some of the cases of each kind but the first."""

    def __str__(self) -> str:
        return self.title or self.cls.SCHEMA.mnemonic

    def kinds_of(self, backend: str) -> list[ElemKind]:
        """The kinds that a backend says it supports."""
        return [kind for kind in self.kinds if not self.refused(kind, backend)]

    def refused(self, kind: ElemKind, backend: str) -> list[str]:
        """Why a backend does not run the cases of a kind: what it says of the first of them."""
        first = next(iter(self.cases(kind)), None)
        return [] if first is None else unsupported(node_of(self.cls, first), bound(backend))

    def cases_of(self, backend: str) -> Iterator[Case]:
        """The cases to run on a backend.

        LLVM takes a tenth of a second for each kernel on each shape, and the kernels of all kinds
        are one source: the first kind gets every case, each other kind the first case and a
        sixth of the rest, another one each time.
        """
        for number, kind in enumerate(self.kinds_of(backend)):
            for index, case in enumerate(self.cases(kind)):
                sparse = backend == "cpu" and self.thinned and number > 0
                if not sparse or index == 0 or index % 6 == number % 6:
                    yield case


@cache
def bound(backend: str) -> Backend:
    """A backend, one for all tests."""
    return backend_of(backend)


def node_of(cls: type[Node], case: Case) -> Node:
    """The node of a case, in a function of its own."""
    module = glowpy.Module()
    f = module.create_function("main")
    operands: list[glowpy.Constant | glowpy.Placeholder] = []
    for index, array in enumerate(case.inputs):
        if index in case.constants:
            operands.append(module.create_constant(f"in{index}", array))
        else:
            operands.append(module.create_placeholder(f"in{index}", Tensor.of(array).type))
    return f.create(cls, "node", operands, case.attrs, case.result_type)


def scalar_suffixes(mnemonic: str) -> tuple[str, ...]:
    """The suffixes of the kinds that a scalar kernel exists for."""
    return SCALARS[mnemonic].kinds[0][1]


def on_every_backend(rows: Sequence[Row]) -> pytest.MarkDecorator:
    """Parametrizes a test over `row` and `backend`."""
    pairs = [
        pytest.param(row, backend, id=f"{row}-{backend}") for row in rows for backend in BACKENDS
    ]
    return pytest.mark.parametrize(("row", "backend"), pairs)


def check_row(row: Row, backend: str) -> None:
    """Runs every case of every kind the backend supports, and reports all that are wrong."""
    if not row.kinds_of(backend):
        pytest.skip(f"the {backend} backend has no kernels for any kind")
    cases = list(row.cases_of(backend))
    assert cases, f"{row} has no cases"
    failures = []
    for case, actual in zip(cases, run(row.cls, cases, backend), strict=True):
        for index, (got, expected) in enumerate(zip(actual, case.expected, strict=True)):
            mismatch = difference(got, expected, case.tolerance)
            if mismatch:
                operands = ", ".join(str(Tensor.of(array).type) for array in case.inputs)
                failures.append(f"{row}({operands}) {dict(case.attrs)} result {index}: {mismatch}")
    assert not failures, "\n".join(failures)


def run(cls: type[Node], cases: Sequence[Case], backend: str) -> list[list[Array]]:
    """The results of each case, all computed by one function."""
    module = glowpy.Module()
    f = module.create_function("main")
    feeds: dict[str, Array] = {}
    names: list[list[str]] = []
    for number, case in enumerate(cases):
        operands: list[glowpy.Constant | glowpy.Placeholder] = []
        for index, array in enumerate(case.inputs):
            name = f"in{number}_{index}"
            if index in case.constants:
                operands.append(module.create_constant(name, array))
            else:
                operands.append(module.create_placeholder(name, Tensor.of(array).type))
                feeds[name] = array
        node = f.create(cls, f"n{number}", operands, case.attrs, case.result_type)
        names.append([f"out{number}_{index}" for index in range(len(node.results))])
        for name, result in zip(names[-1], node.results, strict=True):
            f.create_save(f"save_{name}", result, module.create_placeholder(name, result.type))
    sanitize = bool(os.environ.get("GLOWPY_SANITIZED_ROWS"))  # `pytest --sanitize`
    options = glowpy.CompileOptions(verify_each=True, cache=False, sanitize=sanitize)
    compiled = glowpy.compile(f, backend, options)
    outputs = compiled(feeds)
    return [[outputs[name] for name in group] for group in names]


def difference(actual: Array, expected: Array, tolerance: Tolerance = EXACT) -> str:
    """What is wrong with `actual`; empty if nothing is."""
    if actual.shape != expected.shape:
        return f"expected shape {expected.shape}, got {actual.shape}"
    if isinstance(expected, np.ma.MaskedArray):
        actual, expected = actual[~np.ma.getmaskarray(expected)], expected.compressed()
    with np.errstate(all="ignore"):
        rounded = np.asarray(expected).astype(actual.dtype)
        if ElemKind.of(actual.dtype).is_code:
            wrong = actual.view(np.uint8) != rounded.view(np.uint8)
        elif not ElemKind.of(actual.dtype).is_float:
            wrong = actual != rounded
        else:
            wrong = _far(actual, rounded, np.asarray(expected), tolerance)
    if not wrong.any():
        return ""
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ, the first at {place}: "
        f"expected {expected[place]!r}, got {actual[place]!r}"
    )


def _far(actual: Array, rounded: Array, expected: Array, tolerance: Tolerance) -> Array:
    """Where floats are not the same special value and too far apart."""
    if tolerance.ulps == tolerance.epsilons == 0:
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        signs = np.signbit(actual) == np.signbit(rounded)
        return np.asarray(~(same & (signs | np.isnan(rounded) | (not tolerance.zero_sign))))
    info = float_limits(actual.dtype)
    wide, reference = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(rounded.astype(np.float64))
    sizes = np.where(finite & (reference != 0), reference, float(info.smallest_normal))
    exponent = np.frexp(sizes)[1].astype(np.float64) - 1
    unit = np.exp2(np.maximum(exponent, float(info.minexp)) - info.nmant)
    allowed = tolerance.ulps * unit + tolerance.epsilons * float(info.eps) * tolerance.scale
    distance = np.abs(wide - reference)
    # A reference close to the largest float may round to infinity or not.
    near_top = np.abs(reference) > float(info.max) * (1 - 4 * float(info.eps))
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    close = finite & np.isfinite(wide) & (distance <= allowed)
    overflow = near_top & np.isinf(wide) & (np.sign(wide) == np.sign(reference))
    return np.asarray(~(same | close | overflow))


def float_limits(dtype: np.dtype[Any]) -> Any:
    """numpy's finfo, for bfloat16 too."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def sum_tolerance(kind: ElemKind, terms: int) -> Tolerance:
    """For sums of products of numbers around 1: halves are added in f32 and rounded once."""
    if not kind.is_float:
        return EXACT
    wide = np.dtype(np.float32) if kind in HALVES else kind.dtype
    epsilon = float(float_limits(wide).eps) / float(float_limits(kind.dtype).eps)
    return Tolerance(ulps=1, epsilons=4 * epsilon, scale=terms)


def random_array(kind: ElemKind, shape: Sequence[int], seed: int = 0) -> Array:
    """Numbers of one or two digits that every kind holds exactly; small ones in small kinds."""
    rng = np.random.default_rng([seed, *shape])
    if kind is ElemKind.BOOL:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    low = -8 if kind.is_signed else 0
    whole = np.asarray(rng.integers(low, 9, shape))
    return (whole / 4 if kind.has_fractions else whole).astype(kind.dtype)


def normal_array(kind: ElemKind, shape: Sequence[int], seed: int = 0) -> Array:
    """Normally distributed floats."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(
        kind.dtype
    )


def onnx_model(
    op: str, inputs: Sequence[Array], outputs: int, opset: int, attrs: Mapping[str, Any]
) -> onnx.ModelProto:
    """A model of one node; its outputs have no shapes."""
    names = [f"i{index}" for index in range(len(inputs))]
    results = [f"o{index}" for index in range(outputs)]
    values = [
        helper.make_tensor_value_info(
            name, numpy_helper.from_array(array).data_type, list(array.shape)
        )
        for name, array in zip(names, inputs, strict=True)
    ]
    kinds = [values[0].type.tensor_type.elem_type, onnx.TensorProto.INT64]
    result_infos = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(results, kinds[:outputs], strict=True)
    ]
    node = helper.make_node(op, names, results, **attrs)
    graph = helper.make_graph([node], "one", values, result_infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def onnx_reference(
    op: str, inputs: Sequence[Array], *, outputs: int = 1, opset: int = 22, **attrs: Any
) -> list[Array]:
    """What the reference evaluator of the onnx package computes."""
    model = onnx_model(op, inputs, outputs, opset, attrs)
    feeds = {f"i{index}": array for index, array in enumerate(inputs)}
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(result) for result in results]


def channels_first(array: Array) -> Array:
    """N, spatial..., C to N, C, spatial...; filters likewise."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def channels_last(array: Array) -> Array:
    """N, C, spatial... to N, spatial..., C."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))
