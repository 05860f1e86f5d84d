"""Every operator refuses quantized operands, or means by them what it means by the numbers they stand for.

The reference is the same operator on dequantized floats, on the interpreter; its own tests compare that with others.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.core import channel_axis
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Quantized
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Type, parse_type
from glowpy.engine import BACKENDS
from glowpy.graph.infer import infer_types
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    NODES,
    BroadcastNode,
    CallNode,
    ConcatNode,
    DequantizeNode,
    IfNode,
    LookupTableNode,
    LoopNode,
    MaxNode,
    PadNode,
    QuantizeNode,
    ReduceMaxNode,
    RescaleNode,
    ReshapeNode,
    SaturateNode,
    SaveNode,
    SliceNode,
    StorageCastNode,
    SubtractOffsetNode,
    SumPoolNode,
    TransposeNode,
)
from glowpy.graph.verifier import verify_function
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability
from glowpy.ir.verifier import verify_irfunction
from glowpy.support.text import Attr
from tests.ops.harness import Case, Row, run
from tests.unit.samples import ALL_INSTS, ALL_NODES, attrs_of, inst_of, node_of

WHOLE = parse_type("i8[2x3](s=0.5,o=3)")
CHANNELS = parse_type("i8[2x3](s=[0.5,0.25],o=[3,0],axis=0)")
REFUSED = "expected operands that are not quantized, got .*i8"

CONVERTING = (
    DequantizeNode,
    LookupTableNode,
    QuantizeNode,
    StorageCastNode,
    RescaleNode,
    SaturateNode,
    SubtractOffsetNode,
    SumPoolNode,
)
"""Between stored integers and numbers; test_quantized_arithmetic.py has them, and all arithmetic."""

CALLING = (CallNode, IfNode, LoopNode)
"""What their functions compute with, they hand over; test_control.py and test_call.py hand quantized elements over."""

KEPT = [
    cls
    for cls in NODES
    if cls.SCHEMA.quant in (Quantized.SAME, Quantized.RULE)
    and cls not in (*CONVERTING, *CALLING, SaveNode)
]


def _id(cls: type[object]) -> str:
    return cls.__name__


# Refused, at both levels and whoever asks.


@pytest.mark.parametrize("type", [WHOLE, CHANNELS], ids=["whole", "channels"])
@pytest.mark.parametrize(
    "cls",
    [cls for cls in ALL_NODES if cls.SCHEMA.quant is Quantized.REFUSED and cls.SCHEMA.inputs],
    ids=_id,
)
def test_node_refuses_quantized_operands(cls: type[Node], type: Type) -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    count = 6 if cls.SCHEMA.variadic else len(cls.SCHEMA.inputs)
    values = [module.create_placeholder(f"x{i}", type).value for i in range(count)]
    with pytest.raises(glowpy.UserError, match=rf"{cls.SCHEMA.mnemonic}: {REFUSED}") as caught:
        f.create(cls, "n", values, attrs_of(cls.SCHEMA.attrs), type)
    assert caught.value.diagnostics[0].context.startswith(f"%n = {cls.SCHEMA.mnemonic}(%x0")
    assert "compute on floats" in caught.value.diagnostics[0].note
    f.add(node_of(cls, values))
    with pytest.raises(glowpy.VerifyError, match=REFUSED) as verified:
        verify_function(f)
    assert len(verified.value.diagnostics) == 1
    assert "compute on floats" in verified.value.diagnostics[0].note


def test_quantized_results_are_refused_at_once() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 3)))
    q = module.create_placeholder("q", WHOLE)
    with pytest.raises(glowpy.UserError, match=REFUSED):
        f.create_convert("c", WHOLE, x)
    with pytest.raises(glowpy.UserError, match=r"quantization parameters, got .*, result i8\[2x1"):
        f.create_reduce_max("r", q, (1,), result_type=parse_type("i8[2x1](s=0.5,o=4)"))
    assert not f.nodes


@pytest.mark.parametrize(
    "cls", [cls for cls in ALL_INSTS if cls.SCHEMA.quant is Quantized.REFUSED], ids=_id
)
def test_instruction_refuses_quantized_operands(cls: type[Instruction]) -> None:
    f = IRFunction("main")
    values = [
        f.create_weight(f"w{i}", CHANNELS, Mutability.MUTABLE)
        for i in range(len(cls.SCHEMA.operands))
    ]
    inst_of(f, cls, values)
    with pytest.raises(glowpy.VerifyError, match=REFUSED) as caught:
        verify_irfunction(f)
    assert len(caught.value.diagnostics) == 1


# Kept: the cases of the operators' rows, with scales.


@dataclass(frozen=True)
class Quantization:
    """A case with some of its operands quantized, and what that makes its results."""

    case: Case
    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} {dict(self.case.attrs)}"

    @property
    def per_channel(self) -> bool:
        types = (*self.inputs, *self.results)
        return any(type.quant is not None and type.quant.axis is not None for type in types)


TYPED: dict[type[Node], Callable[[Type, Case, Type], Type]] = {
    ReshapeNode: lambda source, case, result: channel_axis.reshaped(source, result.shape),
    BroadcastNode: lambda source, case, result: channel_axis.resized(source, result.shape),
    SliceNode: lambda source, case, result: channel_axis.sliced(
        source, case.attrs["starts"], result.shape, case.attrs["steps"]
    ),
}
"""The result type that a typed node is to have."""


@cache
def _rows() -> dict[type[Node], Row]:
    rows: dict[type[Node], Row] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for row in getattr(importlib.import_module(f"tests.ops.{path.stem}"), "ROWS", []):
            rows.setdefault(row.cls, row)
    return rows


def _quantizations(cls: type[Node]) -> Iterator[Quantization]:
    """As a whole, and along every axis that the operator can handle, cases of the row for i8."""
    for case in _rows()[cls].cases(ElemKind.I8):
        number = case.attrs.get("value", 0.0)
        if math.isnan(number) or (math.isfinite(number) and number != round(number)):
            continue  # no element stands for NaN, and fractions are rounded to what one stands for
        types = [Tensor.of(array).type for array in case.inputs]
        data = [type for type in types if type.kind is ElemKind.I8]
        rank = max([type.rank for type in (*data, case.result_type) if type is not None])
        for axis in (None, *range(rank)):
            inputs = tuple(_quantized(t, axis) if t.kind is ElemKind.I8 else t for t in types)
            try:
                yield Quantization(case, inputs, _results(cls, case, inputs, axis))
            except glowpy.UserError:
                assert axis is not None, f"{cls.SCHEMA.mnemonic} of {inputs}"


def _results(
    cls: type[Node], case: Case, inputs: Sequence[Type], axis: int | None
) -> tuple[Type, ...]:
    result = case.result_type
    if result is not None:
        typed = TYPED.get(cls)
        result = typed(inputs[0], case, result) if typed is not None else _quantized(result, axis)
    return infer_types(cls, inputs, case.attrs, result)


def _quantized(type: Type, axis: int | None) -> Type:
    """Scales are powers of two, by which floats divide exactly."""
    if axis is None or axis >= type.rank:
        return replace(type, quant=Quant((0.5,), (3,)))
    channels = range(type.extents[axis])
    scales = tuple(2.0 ** -(channel % 5) for channel in channels)
    return replace(type, quant=Quant(scales, tuple(3 - channel % 7 for channel in channels), axis))


def _numbers(elements: Array, type: Type) -> Array:
    """What quantized elements stand for: scale * (q - offset)."""
    quant = type.quant
    if quant is None:
        return elements
    trailing = type.rank - 1 - quant.axis if quant.axis is not None else 0
    scales = np.array(quant.scales).reshape(-1, *(1,) * trailing)
    offsets = np.array(quant.offsets).reshape(-1, *(1,) * trailing)
    numbers: Array = (elements.astype(np.float64) - offsets) * scales
    return numbers.reshape(type.extents).astype(np.float32)


def _limited(numbers: Array, type: Type) -> Array:
    """The largest of no elements is infinitely small; the lowest element stands for that."""
    if type.quant is None:
        return numbers
    low, high = (_numbers(np.full(type.extents, limit), type) for limit in (-128, 127))
    return np.clip(numbers, low, high)


def _run(
    cls: type[Node], members: Sequence[Quantization], backend: str, *, constant: bool
) -> list[list[Array]]:
    """The elements of the results, all computed by one function."""
    module = glowpy.Module()
    f = module.create_function("main")
    feeds: dict[str, Array] = {}
    names: list[list[str]] = []
    for number, member in enumerate(members):
        inputs: list[glowpy.Constant | glowpy.Placeholder] = []
        for index, (array, type) in enumerate(zip(member.case.inputs, member.inputs, strict=True)):
            name = f"in{number}_{index}"
            if constant:
                inputs.append(module.create_constant(name, Tensor(type, array)))
            else:
                inputs.append(module.create_placeholder(name, type))
                feeds[name] = array
        node = f.create(cls, f"n{number}", inputs, member.case.attrs, member.results[0])
        names.append([f"out{number}_{index}" for index in range(len(node.results))])
        for name, result in zip(names[-1], node.results, strict=True):
            f.create_save(f"save_{name}", result, module.create_placeholder(name, result.type))
    compiled = glowpy.compile(f, backend, glowpy.CompileOptions(verify_each=True, cache=False))
    outputs = compiled(feeds)
    return [[outputs[name] for name in group] for group in names]


def _expected(cls: type[Node], members: Sequence[Quantization]) -> list[list[Array]]:
    """The same operator on floats."""
    cases = []
    for member in members:
        arrays = [_numbers(a, t) for a, t in zip(member.case.inputs, member.inputs, strict=True)]
        result = member.case.result_type
        cases.append(
            replace(
                member.case,
                inputs=arrays,
                result_type=result and Type(ElemKind.F32, result.shape),
                constants=frozenset(),
            )
        )
    return run(cls, cases, "interpreter")


@pytest.mark.parametrize("mode", ["cpu", "interpreter", "constant"])
@pytest.mark.parametrize("cls", KEPT, ids=_id)
def test_quantized_results_stand_for_the_numbers(cls: type[Node], mode: str) -> None:
    backend = mode if mode in BACKENDS else "interpreter"
    members = sorted(_quantizations(cls), key=lambda member: member.per_channel)
    assert not members[0].per_channel
    assert members[-1].per_channel
    if mode == "cpu":  # LLVM takes its time for each shape
        members = [*members[:2], *members[-3:]]
    failures = []
    results = _run(cls, members, backend, constant=mode == "constant")
    for member, got, floats in zip(members, results, _expected(cls, members), strict=True):
        for elements, type, expected in zip(got, member.results, floats, strict=True):
            numbers = _limited(expected, type)
            if not np.array_equal(_numbers(elements, type), numbers):
                failures.append(f"{member}: expected {numbers}, got {elements} of {type}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_splat_is_a_number(backend: str) -> None:
    """Whether it is in memory or an immediate operand of machine code."""
    type = parse_type("u8[2x3](s=0.5,o=10)")
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", type)
    none = module.create_placeholder("none", parse_type("u8[0](s=0.5,o=10)"))
    low = f.create_pad("low", none, (1, 0), -1.3)  # nothing folds it
    high = f.create_splat("high", parse_type("u8[3](s=0.5,o=10)"), 1.25)
    limited = f.create_min("min", f.create_max("max", x, low), high)
    f.create_save("save", limited, module.create_placeholder("y", type))
    stored = np.array([[0, 7, 8], [9, 12, 255]], np.uint8)
    result = glowpy.compile(f, backend)({"x": stored, "none": np.zeros(0, np.uint8)})["y"]
    assert result.tolist() == [[7, 7, 8], [9, 12, 12]]  # 12 is the even one of 12 and 13


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_channels(backend: str) -> None:
    """Parts quantized as a whole are joined to channels, taken out again, and single channels are joined."""
    module = glowpy.Module()
    f = module.create_function("main")
    whole = module.create_placeholder("whole", parse_type("i8[2x2](s=0.5,o=0)"))
    apart = module.create_placeholder("apart", parse_type("i8[2x2](s=[0.5,0.25],o=[0,1],axis=1)"))
    none = module.create_placeholder("none", parse_type("i8[2x0](s=4.0,o=0)"))
    joined = f.create_concat("joined", [whole, none, apart], 1)
    out = f.create_slice("out", whole.type, joined, (0, 0), (1, 1))
    columns = [
        f.create_slice(
            f"column{i}", channel_axis.sliced(apart.type, (0, i), (2, 1)), apart, (0, i), (1, 1)
        )
        for i in (0, 1)
    ]
    again = f.create_concat("again", columns, 1)
    assert again.type == apart.type
    for value in (joined, out, again):
        f.create_save("save", value, module.create_placeholder(f"y_{value.name}", value.type))
    options = glowpy.CompileOptions(verify_each=True, cache=False)
    feeds = {
        "whole": np.array([[1, 2], [3, 4]], np.int8),
        "apart": np.array([[5, 6], [7, 8]], np.int8),
        "none": np.zeros((2, 0), np.int8),
    }
    results = glowpy.compile(f, backend, options)(feeds)
    assert results["y_joined"].tolist() == [[1, 2, 5, 6], [3, 4, 7, 8]]
    assert results["y_out"].tolist() == [[1, 2], [3, 4]]
    assert results["y_again"].tolist() == [[5, 6], [7, 8]]


# Chains of operators that move elements: the passes that reorder and merge them keep the parameters.


class _Twins:
    """One network twice: on quantized values, and on the numbers they stand for."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.module = glowpy.Module()
        self.quantized = self.module.create_function("quantized")
        self.floats = self.module.create_function("floats")
        shape = tuple(int(size) for size in self._rng.integers(2, 5, 3))
        axis = (None, 0, 1, 2)[self._rng.integers(4)]
        type = _quantized(Type(ElemKind.I8, shape), axis)
        self.elements = self._rng.integers(-128, 128, shape).astype(np.int8)
        self.numbers = _numbers(self.elements, type)
        q: NodeValue = self.module.create_placeholder("q", type).value
        x: NodeValue = self.module.create_placeholder("x", Type(ElemKind.F32, shape)).value
        for _ in range(8):
            step = (self._transpose, self._reshape, self._slice, self._pad, self._join, self._pick)[
                self._rng.integers(6)
            ]
            with contextlib.suppress(glowpy.UserError):  # the channels do not stay apart
                q, x = step(q, x)
        self.type = q.type
        for f, value, name in ((self.quantized, q, "p"), (self.floats, x, "y")):
            f.create_save("save", value, self.module.create_placeholder(name, value.type))

    def _both(
        self,
        cls: type[Node],
        values: Sequence[tuple[NodeValue, NodeValue]],
        attrs: Mapping[str, Attr],
        type: Type | None = None,
    ) -> tuple[NodeValue, NodeValue]:
        q = self.quantized.create(cls, "q", [q for q, _ in values], attrs, type)
        plain = None if type is None else Type(ElemKind.F32, type.shape)
        return q.result, self.floats.create(cls, "x", [x for _, x in values], attrs, plain).result

    def _transpose(self, q: NodeValue, x: NodeValue) -> tuple[NodeValue, NodeValue]:
        shuffle = tuple(int(axis) for axis in self._rng.permutation(q.type.rank))
        return self._both(TransposeNode, [(q, x)], {"shuffle": shuffle})

    def _reshape(self, q: NodeValue, x: NodeValue) -> tuple[NodeValue, NodeValue]:
        shape = list(q.type.shape)
        at = int(self._rng.integers(len(shape)))
        if self._rng.integers(2) and at:
            shape[at - 1 : at + 1] = [shape[at - 1] * shape[at]]
        else:
            shape.insert(at, 1)
        if len(shape) > 5:
            shape = [size for size in shape if size != 1]
        type = channel_axis.reshaped(q.type, shape)
        return self._both(ReshapeNode, [(q, x)], {}, type)

    def _slice(self, q: NodeValue, x: NodeValue) -> tuple[NodeValue, NodeValue]:
        starts, steps, shape = [], [], []
        for size in q.type.shape:
            step = int(self._rng.choice([1, 1, -1]))
            shape.append(max(size - int(self._rng.integers(2)), min(size, 1)))
            starts.append(size - 1 if step < 0 else size - shape[-1])
            steps.append(step)
        attrs: dict[str, Attr] = {"starts": tuple(starts), "steps": tuple(steps)}
        type = channel_axis.sliced(q.type, starts, shape, steps)
        return self._both(SliceNode, [(q, x)], attrs, type)

    def _pad(self, q: NodeValue, x: NodeValue) -> tuple[NodeValue, NodeValue]:
        pads = tuple(int(pad) for pad in self._rng.integers(-1, 2, 2 * q.type.rank))
        return self._both(PadNode, [(q, x)], {"pads": pads, "value": -2.0})

    def _join(self, q: NodeValue, x: NodeValue) -> tuple[NodeValue, NodeValue]:
        axis = int(self._rng.integers(q.type.rank))
        if q.type.count > 200:
            return self._both(MaxNode, [(q, x), (q, x)], {})
        return self._both(ConcatNode, [(q, x), (q, x)], {"axis": axis})

    def _pick(self, q: NodeValue, x: NodeValue) -> tuple[NodeValue, NodeValue]:
        axis = int(self._rng.integers(q.type.rank))
        return self._both(ReduceMaxNode, [(q, x)], {"axes": (axis,)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_chains_keep_the_numbers(backend: str) -> None:
    options = glowpy.CompileOptions(verify_each=True, cache=False)
    for seed in range(4 if backend == "cpu" else 60):
        twins = _Twins(seed)
        expected = glowpy.compile(twins.floats, "interpreter", options)({"x": twins.numbers})["y"]
        actual = glowpy.compile(twins.quantized, backend, options)({"q": twins.elements})["p"]
        numbers = _limited(expected, twins.type)
        np.testing.assert_array_equal(_numbers(actual, twins.type), numbers, f"seed {seed}")
