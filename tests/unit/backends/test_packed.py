"""The interpreter runs the CPU backend's own instructions, and packed weights lie where libjit looks for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import glowpy
import glowpy.backends.cpu.operations  # the meaning of instructions
from glowpy.backend import Program
from glowpy.backends.cpu import packing
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.insts_gen import (
    INSTS,
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuMatmulInst,
    CpuPackMatrixInst,
    CpuRowMatmulInst,
)
from glowpy.backends.cpu.strategy.depthwise import share_vectors
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array
from glowpy.core.type import MAX_RANK, Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Operand, Placeholder
from glowpy.ir.inst import Instruction

Network = Callable[[Function, Placeholder], Operand]


def floats(*shape: int) -> Array:
    generator = np.random.default_rng(list(shape))
    return generator.standard_normal(shape, dtype=np.float32)


def network(type: str, build: Network) -> Module:
    """A module with one function from placeholder `x` to placeholder `y`."""
    module = Module()
    x = module.create_placeholder("x", parse_type(type))
    f = module.create_function("main")
    node = build(f, x)
    value = getattr(node, "result", node)
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


def cpu_program(module: Module, inst: type[Instruction]) -> Program:
    """The program the CPU backend would compile, which must have an instruction of that class."""
    program = compilation(module, "cpu").program
    assert any(isinstance(instruction, inst) for instruction in program.ir.instructions)
    return program


def check(module: Module, inst: type[Instruction]) -> None:
    """The interpreter computes the same from the CPU backend's IR as from its own."""
    program = cpu_program(module, inst)
    backend = InterpreterBackend()
    packed = backend.function(program)
    inputs = {"x": floats(*packed.inputs["x"].extents)}
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    np.testing.assert_allclose(packed(inputs)["y"], expected, rtol=1e-5, atol=1e-5)


def convolution(
    type: str,
    outputs: int,
    kernels: tuple[int, ...],
    strides: tuple[int, ...] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    dilation: tuple[int, ...] = (1, 1),
    group: int = 1,
) -> Module:
    def build(f: Function, x: Placeholder) -> Operand:
        filter = floats(outputs, *kernels, x.type.extents[-1] // group)
        weights = f.module.create_constant("k", filter)
        bias = f.module.create_constant("b", floats(outputs))
        return f.create_convolution(
            "conv", x, weights, bias, kernels, strides, pads, dilation, group
        )

    return network(type, build)


def product(
    left: tuple[int, ...], right: tuple[int, ...], *, constant: bool
) -> tuple[Module, dict[str, Array]]:
    """A network of one product from `x`, and from `w` unless that is constant; and numbers for both."""
    module = Module()
    f = module.create_function("main")
    inputs = {"x": floats(*left), "w": floats(*right)}
    x = module.create_placeholder("x", Type(ElemKind.F32, left))
    w = (
        module.create_constant("w", inputs["w"])
        if constant
        else module.create_placeholder("w", Type(ElemKind.F32, right))
    )
    value = f.create_mat_mul("product", x, w).result
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module, inputs


def test_every_instruction_of_the_backend_has_a_meaning() -> None:
    assert not interpret.missing(INSTS)


@pytest.mark.parametrize(
    "module",
    [
        convolution("f32[1x1x1x1]", 1, (1, 1)),
        convolution("f32[2x7x5x3]", 5, (3, 2)),
        convolution("f32[1x9x11x6]", 34, (3, 3), pads=(1, 1, 1, 1)),
        convolution("f32[1x9x11x5]", 17, (3, 5), (2, 3), (0, 2, 1, 0)),
        convolution("f32[3x10x9x4]", 7, (2, 3), (1, 2), (3, 0, 0, 4), (2, 3)),
        convolution("f32[2x6x7x6]", 51, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3),
        convolution("f32[1x8x8x8]", 66, (2, 2), (2, 1), (1, 0, 0, 1), (1, 2), 2),
        convolution("f32[1x5x5x4]", 68, (3, 3), group=4),
    ],
    ids=["one", "odd", "padded", "strided", "dilated", "grouped", "all", "multiplier"],
)
def test_convolution(module: Module) -> None:
    check(module, CpuConvInst)


@pytest.mark.parametrize(
    "module",
    [
        convolution("f32[1x5x7x2]", 2, (3, 3), group=2),
        convolution("f32[2x9x6x19]", 19, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2), 19),
        convolution("f32[1x12x12x33]", 33, (5, 5), (3, 3), (2, 2, 2, 2), (2, 2), 33),
    ],
    ids=["small", "strided", "dilated"],
)
def test_depthwise_convolution(module: Module) -> None:
    check(module, CpuDepthwiseConvInst)


@pytest.mark.parametrize(
    ("channels", "outputs", "group"),
    [(10, 10, 5), (40, 40, 10), (6, 12, 6), (18, 18, 6), (12, 6, 6)],
)
def test_groups_that_share_vectors(channels: int, outputs: int, group: int) -> None:
    """Where two of them fit into a vector; parts of short vectors are not loaded at once."""
    module = convolution(
        f"f32[2x5x6x{channels}]", outputs, (3, 2), (2, 1), (1, 0, 1, 1), group=group
    )
    machine = CpuBackend().target.variant.machine_for(ElemKind.F32)
    shares = share_vectors(channels // group, outputs // group, machine)
    check(module, CpuDepthwiseConvInst if shares else CpuConvInst)
    inputs = {"x": floats(2, 5, 6, channels)}
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    np.testing.assert_allclose(
        glowpy.compile(module, "cpu")(inputs)["y"], expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("type", "columns"),
    [("f32[1x1]", 1), ("f32[3x5]", 7), ("f32[13x31]", 65), ("f32[2x3x17]", 33), ("f32[1x64]", 10),
     ("f32[37x20]", 1), ("f32[2x3x5]", 1)],
)  # fmt: skip
def test_matrix_product(type: str, columns: int) -> None:
    """One column meets the rows where they lie: packed, it would be padded to a vector."""

    def build(f: Function, x: Placeholder) -> Operand:
        weights = f.module.create_constant("w", floats(x.type.extents[-1], columns))
        return f.create_mat_mul("product", x, weights)

    check(network(type, build), CpuMatmulInst if columns > 1 else CpuRowMatmulInst)


def test_an_epilogue_after_packed_products_runs_too() -> None:
    def build(f: Function, x: Placeholder) -> Operand:
        weights = f.module.create_constant("w", floats(9, 21))
        bias = f.module.create_constant("b", floats(21))
        product = f.create_mat_mul("product", x, weights)
        return f.create_relu("relu", f.create_add("biased", product, bias))

    check(network("f32[4x9]", build), CpuMatmulInst)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5), (5, 7)),
        ((2, 3, 5), (2, 5, 17)),
        ((2, 3, 5), (1, 5, 9)),
        ((2, 1, 3, 4), (3, 4, 33)),
        ((4, 9), (2, 9, 8)),
    ],
    ids=["plain", "batch", "one for all", "broadcast both", "broadcast left"],
)
@pytest.mark.parametrize("constant", [True, False])
def test_right_sides_are_packed_whether_constant_or_computed(
    left: tuple[int, ...], right: tuple[int, ...], constant: bool
) -> None:
    module, inputs = product(left, right, constant=constant)
    program = cpu_program(module, CpuMatmulInst)
    packs = [inst for inst in program.ir.instructions if isinstance(inst, CpuPackMatrixInst)]
    assert len(packs) == (0 if constant else 1)
    expected = np.matmul(inputs["x"], inputs["w"])
    fed = {"x": inputs["x"]} if constant else inputs
    for run in (
        InterpreterBackend().function(program),
        glowpy.compile(module, "cpu"),
    ):
        np.testing.assert_allclose(run(fed)["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("constant", [True, False])
def test_right_sides_of_the_highest_rank_lose_a_dimension(constant: bool) -> None:
    """Packed they would have one too many."""
    left, right = (1, 2, 1, 1, 2, 1, 2, 3), (2, 1, 1, 3, 1, 1, 3, 5)
    module, inputs = product(left, right, constant=constant)
    (inst,) = [
        inst
        for inst in cpu_program(module, CpuMatmulInst).ir.instructions
        if isinstance(inst, CpuMatmulInst)
    ]
    assert inst.rhs.type.rank == MAX_RANK
    actual = glowpy.compile(module, "cpu")({"x": inputs["x"]} if constant else inputs)["y"]
    np.testing.assert_allclose(actual, np.matmul(inputs["x"], inputs["w"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 8, 13, 16])
def test_matrix_elements_lie_where_libjit_looks(columns: int) -> None:
    matrix, block = floats(2, 5, columns), 8
    packed = packing.pack_matrix(matrix, block)
    assert packed.shape == packing.packed_shape(matrix.shape, block)
    assert packed.shape == (2, -(-columns // block), 5, block)
    for number, k, n in np.ndindex(*matrix.shape):
        assert packed[number, n // block, k, n % block] == matrix[number, k, n]
    assert np.count_nonzero(packed) == matrix.size
    np.testing.assert_array_equal(packing.unpack_matrix(packed, columns), matrix)


@pytest.mark.parametrize(("outputs", "group"), [(5, 1), (8, 1), (12, 3), (22, 2)])
def test_filter_elements_lie_where_libjit_looks(outputs: int, group: int) -> None:
    filter, block, per_group = floats(outputs, 3, 2, 4), 8, outputs // group
    packed = packing.pack_filter(filter, group, block)
    assert packed.shape == (group, -(-per_group // block), 3, 2, 4, block)
    for o, h, w, i in np.ndindex(*filter.shape):
        own = o % per_group
        assert packed[o // per_group, own // block, h, w, i, own % block] == filter[o, h, w, i]
    assert np.count_nonzero(packed) == filter.size
    np.testing.assert_array_equal(packing.unpack_filter(packed, outputs), filter)


def test_depthwise_elements_lie_where_libjit_looks() -> None:
    filter = floats(8, 3, 2, 2)
    packed = packing.pack_depthwise_filter(filter)
    for c, h, w, i in np.ndindex(8, 3, 2, 2):
        assert packed[h, w, i, c] == filter[c, h, w, i]
    np.testing.assert_array_equal(packing.unpack_depthwise_filter(packed), filter)


@pytest.mark.parametrize(
    ("pads", "stride", "dilation", "depth"),
    [(1, 1, 1, 5), (2, 2, 1, 5), (2, 1, 2, 5), (0, 1, 1, 4), (3, 1, 1, 2), (9, 1, 1, 2)],
)
def test_volumes_are_not_padded(pads: int, stride: int, dilation: int, depth: int) -> None:
    """Planes of the kernel that would meet the padding are left out, with no copy as large as the image."""

    def build(f: Function, x: Placeholder) -> Operand:
        filter = f.module.create_constant("filter", floats(4, 3, 3, 3, 2))
        bias = f.module.create_constant("bias", floats(4))
        ends = (pads, 1, 1, pads, 1, 1)
        lists = (3, 3, 3), (stride, 1, 1), ends, (dilation, 1, 1)
        return f.create_convolution("conv", x, filter, bias, *lists, 1)

    module = network(f"f32[1x{depth}x6x7x2]", build)
    check(module, CpuConvInst)
    program = cpu_program(module, CpuConvInst)
    moved = [inst for inst in program.ir.instructions if inst.has(Trait.SHAPE_ONLY)]
    assert not any(inst.operands[1].value.base.name == "x" for inst in moved)
