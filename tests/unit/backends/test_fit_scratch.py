"""Scratch memory of products: fewer units where it would make the arena larger, and the same bits."""

import numpy as np
import pytest

import glowpy
from glowpy.backend import CompileOptions, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.insts_gen import CpuByteWinogradInst, CpuStrassenInst, CpuWinogradInst
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.strategy.winograd import fewer_units
from glowpy.core.schema import Access
from glowpy.core.tensor import Tensor
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from tests.unit.backends.test_packed import floats

_AVX2 = CpuOptions("x86-64-v3")
_WITHOUT = CompileOptions(disabled=("fit-scratch",))


def convolved(f: Function, name: str, x: NodeValue) -> NodeValue:
    channels = x.type.extents[3]
    filter = f.module.create_constant(f"{name}_w", floats(channels, 3, 3, channels) / channels)
    bias = f.module.create_constant(f"{name}_b", floats(channels))
    ones = (1, 1)
    return f.create_convolution(name, x, filter, bias, (3, 3), ones, (1,) * 4, ones, 1).result


def with_skip(x: str, *, wide: bool = False) -> Module:
    """Two convolutions whose result is added to what they begin with; with `wide`, what ends it has larger values."""
    module = Module()
    f = module.create_function("main")
    begin = f.create_exp("begin", module.create_placeholder("x", parse_type(x))).result
    first = f.create_relu("active", convolved(f, "first", begin)).result
    value = f.create_add("sum", convolved(f, "second", first), begin).result
    if wide:
        value = f.create_softmax("wide", f.create_concat("joined", [value] * 9, 3), 3).result
        value = f.create_transpose("moved", value, (0, 3, 1, 2)).result
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


def of_bytes() -> Module:
    """A convolution of 8-bit integers that is all of its network."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("i8[1x224x224x64](s=0.5,o=3)"))
    filter = Tensor(parse_type("i8[64x3x3x64](s=0.25,o=0)"), floats(64, 3, 3, 64).astype(np.int8))
    bias = Tensor(parse_type("i32[64](s=0.125,o=0)"), np.zeros(64, np.int32))
    ones = (1, 1)
    dot = f.create_convolution(
        "dot", x, module.create_constant("w", filter), module.create_constant("b", bias),
        (3, 3), ones, (1,) * 4, ones, 1,
        result_type=parse_type("i32[1x224x224x64](s=0.125,o=0)"),
    )  # fmt: skip
    f.create_save("save", dot, module.create_placeholder("y", dot.result.type))
    return module


def strassen() -> Module:
    """A product in a network that needs little other memory."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[200x1120]"))
    weights = module.create_constant("w", floats(1120, 1024) / 1120)
    dot = f.create_mat_mul("dot", f.create_exp("begin", x), weights)
    total = f.create_reduce_add("sum", f.create_softmax("share", dot, 1), (0,)).result
    f.create_save("save", total, module.create_placeholder("y", total.type))
    return module


def program(module: Module, options: CompileOptions | None = None) -> Program:
    return compilation(module, CpuBackend(_AVX2), options).program


def units(compiled: Program) -> list[int]:
    """How many parts the scratch memory of each product has."""
    products = CpuWinogradInst | CpuByteWinogradInst | CpuStrassenInst
    return [
        inst.those(Access.SCRATCH)[0].type.extents[0]
        for inst in compiled.ir.instructions
        if isinstance(inst, products)
    ]


@pytest.mark.parametrize(
    "module",
    [with_skip("f32[1x64x64x16]"), of_bytes(), strassen()],
    ids=["conv", "bytes", "dot"],
)
def test_scratch_memory_makes_no_arena_larger(module: Module) -> None:
    fitted, plain = program(module), program(module, _WITHOUT)
    assert all(
        2 <= count <= before for count, before in zip(units(fitted), units(plain), strict=True)
    )
    assert units(fitted) != units(plain)
    assert fitted.plan.peak == fitted.plan.lower_bound < plain.plan.peak


def test_what_has_room_keeps_its_units() -> None:
    module = with_skip("f32[1x64x64x16]", wide=True)
    fitted, plain = program(module), program(module, _WITHOUT)
    assert units(fitted) == units(plain)
    assert min(units(plain)) > 2
    assert fitted.plan.peak == plain.plan.peak


@pytest.mark.parametrize("module", [with_skip("f32[2x40x40x16]"), strassen()], ids=["conv", "dot"])
def test_bits_are_the_same(module: Module) -> None:
    x = {"x": floats(*module.placeholders[0].type.extents) / 8}
    expected = glowpy.compile(module, CpuBackend(), _WITHOUT)(x)["y"]
    for threads in (1, 2, 3):
        result = glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))(x)["y"]
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("bands", range(1, 9))
@pytest.mark.parametrize("count", range(1, 10))
def test_units_become_fewer_and_none_is_left_out(bands: int, count: int) -> None:
    for share in range(1, count + 1):
        for most in range(2, bands * -(-count // share) + 1):
            fewer, larger = fewer_units(bands, share, count, most)
            assert 1 <= fewer <= bands
            assert share <= larger <= count
            assert fewer * -(-count // larger) <= most
