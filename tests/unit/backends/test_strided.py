"""Every instruction that takes strided operands, on both backends, in several layouts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from glowpy.backend import Program
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.schema import Access, Layout, Trait
from glowpy.core.strides import canonical_strides, span_of, strides_of
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type, parse_type
from glowpy.engine import BACKENDS, backend_of
from glowpy.ir import insts_gen as insts
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.runs import form_runs
from glowpy.ir.value import Mutability, Value
from glowpy.recipe import plan_memory
from glowpy.runtime.ports import Port, Ports
from glowpy.support.symbolic import static
from glowpy.support.text import Attr


@dataclass(frozen=True)
class Row:
    """An instruction, the types of its operands, its attributes."""

    cls: type[Instruction]
    types: str
    attrs: Mapping[str, Attr] = field(default_factory=dict)


_POOL: dict[str, Attr] = {
    "kernels": (3, 2),
    "strides": (2, 1),
    "pads": (1, 0, 1, 1),
    "dilation": (1, 1),
    "ceil": False,
}

ROWS = [
    Row(insts.SplatInst, "f32[3x4x5]", {"value": 2.5}),
    Row(insts.CopyInst, "f32[3x4x5] f32[3x4x5]"),
    Row(insts.CopyInst, "i8[7] i8[7]"),
    Row(insts.CopyInst, "f32[] f32[]"),
    Row(insts.TransposeInst, "f32[5x3x4] f32[3x4x5]", {"shuffle": (2, 0, 1)}),
    Row(insts.TransposeInst, "i8[17x33] i8[33x17]", {"shuffle": (1, 0)}),
    Row(insts.TransposeInst, "f32[2x9x3x5] f32[2x3x9x5]", {"shuffle": (0, 2, 1, 3)}),
    Row(insts.BroadcastInst, "f32[3x4x5] f32[3x1x5]"),
    Row(insts.BroadcastInst, "f64[3x4x5] f64[1x4x1]"),
    Row(insts.InsertTensorInst, "f32[3x4x5] f32[2x4x3]", {"offsets": (1, 0, 2)}),
    Row(insts.ExtractTensorInst, "f32[2x2x5] f32[3x4x5]", {"offsets": (2, 1, 0), "steps": (-1, 2, 1)}),
    Row(insts.MaxPoolInst, "f32[2x4x4x9] f32[2x7x4x9]", _POOL),
    Row(insts.MaxPoolInst, "u8[2x4x4x9] u8[2x7x4x9]", _POOL),
    Row(insts.AvgPoolInst, "f32[2x4x4x9] f32[2x7x4x9]", {**_POOL, "count_include_pads": False}),
    Row(insts.SumPoolInst, "i32[2x4x4x37] u8[2x7x4x37]", _POOL),
    Row(insts.ReduceAddInst, "f32[3x1x5] f32[3x70x5]", {"axes": (1,)}),
    Row(insts.ReduceAddInst, "f32[3x4x1] f32[3x4x150]", {"axes": (2,)}),
    Row(insts.ReduceAddInst, "i32[1x4x1] i32[3x4x5]", {"axes": (0, 2)}),
    Row(insts.ReduceMulInst, "f32[1x4x33] f32[3x4x33]", {"axes": (0,)}),
    Row(insts.ReduceMaxInst, "f32[1x1x1] f32[3x4x5]", {"axes": (0, 1, 2)}),
    Row(insts.ReduceMinInst, "i8[3x4x5] i8[3x4x5]", {"axes": ()}),
    Row(insts.SoftmaxInst, "f32[3x4x70] f32[3x4x70]", {"axis": 2}),
    Row(insts.SoftmaxInst, "f32[3x4x70] f32[3x4x70]", {"axis": 0}),
    Row(insts.LogSoftmaxInst, "f32[3x4x5] f32[3x4x5]", {"axis": 1}),
    Row(insts.AddInst, "f32[3x4x5] f32[3x4x5] f32[4x1]"),
    Row(insts.NegInst, "f32[2x3x4x17] f32[2x3x4x17]"),
    Row(insts.SelectInst, "i8[3x4x5] bool[3x4x5] i8[5] i8[]"),
    Row(insts.ExtentsInst, "i64[4]", {"values": (3, 0, 2**40, 5)}),
    Row(insts.ConvertInst, "i8[3x4x5] f32[1x4x5]"),
]  # fmt: skip


def channels_of(type: Type) -> Shape:
    """Some channels of a larger image."""
    return strides_of((*type.shape[:-1], type.shape[-1] + 3)) if type.rank else ()


def holes(type: Type) -> Shape:
    """Gaps along every dimension, between channels too."""
    return tuple(2 * stride for stride in strides_of([size + 1 for size in type.shape]))


def permuted(type: Type) -> Shape:
    """The last dimension outermost."""
    shape = type.shape[-1:] + type.shape[:-1]
    return strides_of(shape)[1:] + strides_of(shape)[:1]


def plain(type: Type) -> Shape:
    return strides_of(type.shape)


Spacing = Callable[[Type], Shape]
LAYOUTS: list[tuple[Spacing, Spacing]] = [
    (channels_of, plain), (plain, channels_of), (channels_of, channels_of), (holes, holes), (permuted, channels_of),
]  # fmt: skip
"""Of the results, and of the inputs."""


def test_every_instruction_with_strided_operands_has_a_row() -> None:
    rows = {row.cls for row in ROWS}
    for cls in insts.INSTS:
        strided = any(operand.layout is not Layout.DENSE for operand in cls.SCHEMA.operands)
        if strided and cls not in rows and cls is not insts.ViewInst:
            assert Trait.ELEMENTWISE in cls.SCHEMA.traits, cls.SCHEMA.mnemonic


def operand_of(f: IRFunction, type: Type, layout: Spacing) -> Value:
    """A value of its own memory that begins at element 1."""
    strides = canonical_strides(type.shape, layout(type))
    memory = Type(type.kind, (span_of(type.shape, strides) + 2,))
    weight = f.create_weight(f.fresh_name("w"), memory, Mutability.MUTABLE)
    return f.create_view("v", type, weight, 1, strides).value


def _run(f: IRFunction, backend: str, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    ports = tuple(Port(name, name, weight.type) for name, weight in f.weights.items())
    program = Program(f, plan_memory(f), {}, Ports(ports, ports))
    return backend_of(backend).function(program)(arrays)


def random_array(type: Type, seed: int) -> Array:
    numbers = np.random.default_rng(seed).integers(0, 9, type.extents)
    return np.asarray(numbers).astype(type.kind.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_operands(backend: str) -> None:
    """What the instruction computes of arrays without gaps goes where the elements lie, and nowhere else."""
    f = IRFunction("main")
    steps: list[tuple[Row, Instruction]] = []
    for number, (row, layouts) in enumerate(itertools.product(ROWS, LAYOUTS)):
        if backend == "cpu" and number % 3:  # LLVM takes long for a kernel
            continue
        results, inputs = layouts
        operands = [
            operand_of(f, parse_type(text), inputs if spec.access is Access.IN else results)
            for spec, text in zip(row.cls.SCHEMA.operands, row.types.split(" "), strict=True)
        ]
        steps.append((row, f.add(row.cls(operands, row.attrs))))
    arrays = {name: random_array(w.type, seed) for seed, (name, w) in enumerate(f.weights.items())}
    expected = {name: array.copy() for name, array in arrays.items()}
    for _, inst in steps:
        compute(inst, expected)
    outcome = _run(f, backend, arrays)
    for row, inst in steps:
        for ref in inst.operands:
            name = ref.value.base.name
            np.testing.assert_allclose(
                outcome[name].astype(np.float64),
                expected[name],
                rtol=2e-6,
                atol=1e-6,
                err_msg=str((row, inst.operands)),
            )


def compute(inst: Instruction, memories: Mapping[str, Array]) -> None:
    """Runs the instruction on copies, and puts what it wrote element by element where it belongs."""
    places = [_places(ref.value) for ref in inst.operands]
    tensors = [
        Tensor(ref.value.type, np.array(memories[ref.value.base.name][place], order="C"))
        for ref, place in zip(inst.operands, places, strict=True)
    ]
    interpret[type(inst)](*tensors, **inst.attrs)
    for ref, place, tensor in zip(inst.operands, places, tensors, strict=True):
        if ref.access.writes:
            memories[ref.value.base.name][place] = tensor.array


def _places(value: Value) -> Array:
    """Which element of its weight each element of a view is."""
    places = np.full(value.type.extents, 1)
    for axis, (size, stride) in enumerate(
        zip(value.type.extents, static(value.strides), strict=True)
    ):
        places += stride * np.arange(size).reshape(-1, *(1,) * (value.type.rank - axis - 1))
    return places


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_splat_of_channels_with_gaps(backend: str) -> None:
    f = IRFunction("main")
    for shape, axis in (((6, 4, 2), 2), ((6, 2, 4), 1)):
        whole = parse_type(f"i8[{'x'.join(map(str, shape))}](s=[0.5,0.25],o=[0,1],axis={axis})")
        weight = f.create_weight(f.fresh_name("w"), whole, Mutability.MUTABLE)
        part = Type(whole.kind, (3, *shape[1:]), whole.quant)
        view = f.create_view("v", part, weight, 0, (16, shape[2], 1)).value
        f.create_splat(view, 2.0)
    arrays = {name: np.zeros(w.type.extents, np.int8) for name, w in f.weights.items()}
    for name, array in _run(f, backend, arrays).items():
        assert not array[1::2].any()
        axis = 2 if array.shape[2] == 2 else 1
        channels = np.moveaxis(array[::2], axis, 0).reshape(2, -1).tolist()
        assert channels == [[4] * 12, [9] * 12], name


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_over_strided_values(backend: str) -> None:
    """In one loop: what a member wrote is read by the next one, in place, beside what is left alone."""
    f = IRFunction("main")
    x = f.create_weight("x", parse_type("f32[4x6]"), Mutability.MUTABLE)
    bias = f.create_weight("bias", parse_type("f32[2]"), Mutability.MUTABLE)
    left = f.create_view("l", parse_type("f32[4x2]"), x, 0, (6, 1)).value
    again = f.create_view("a", parse_type("f32[4x2]"), x, 0, (6, 1)).value
    right = f.create_view("r", parse_type("f32[4x2]"), x, 4, (6, 1)).value
    f.create_add(left, left, bias)
    f.create_neg(right, again)
    f.create_mul(left, again, right)
    form_runs(f)
    assert len(f.runs) == 1
    start = np.arange(24, dtype=np.float32).reshape(4, 6)
    added = np.array([10, 20], np.float32)
    expected = start.copy()
    expected[:, 4:] = -(start[:, :2] + added)
    expected[:, :2] = -np.square(start[:, :2] + added)
    outcome = _run(f, backend, {"x": start.copy(), "bias": added})
    np.testing.assert_array_equal(outcome["x"], expected)
