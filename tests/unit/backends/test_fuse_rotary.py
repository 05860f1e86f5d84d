"""Rotary position embeddings, which exporters write with half of the elements negated and swapped in memory."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions, Module, parse_type
from glowpy.backends.cpu.passes.fuse_rotary import FuseRotaryPass
from glowpy.engine import compilation, evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConcatNode
from glowpy.graph.verifier import verify_module
from glowpy.ir.insts_gen import CopyInst, ExtractTensorInst, InsertTensorInst, SubInst
from glowpy.passes import PassContext
from glowpy.support.symbolic import static, symbol
from tests.unit.networks import arrays_for, check_on_cpu

SYMBOLS = {"n": symbol("n", 1, 9)}


def part(f: Function, x: NodeValue, start: int, size: int, step: int = 1) -> NodeValue:
    *rest, _ = x.type.shape
    type = x.type.with_shape((*rest, size))
    return f.create_slice(
        "s", type, x, (*(0 for _ in rest), start), (*(1 for _ in rest), step)
    ).result


def swapped(f: Function, x: NodeValue, *, adjoin: bool) -> NodeValue:
    """As exporters of networks like Llama write it, or like GPT-J."""
    last, (size,) = x.type.rank - 1, static(x.type.shape[-1:])
    half = size // 2
    if not adjoin:
        negated = f.create_neg("neg", part(f, x, half, half))
        return f.create_concat("swapped", [negated, part(f, x, 0, half)], last).result
    column = x.type.with_shape((*x.type.shape[:-1], half, 1))
    columns = [
        f.create_reshape("column", column, value)
        for value in (f.create_neg("neg", part(f, x, 1, half, 2)), part(f, x, 0, half, 2))
    ]
    return f.create_reshape("swapped", x.type, f.create_concat("pairs", columns, last + 1)).result


def rotary(
    type: str, angles: str, *, adjoin: bool = False, rest: int = 0, into: int | None = None
) -> Module:
    """Queries turned by angles; some of a head may stay as they are, and keys of the past may come first."""
    module = Module()
    f = module.create_function("main")
    whole, cosines, sines = (
        module.create_placeholder(name, parse_type(text, SYMBOLS)).value
        for name, text in (("x", type), ("cosines", angles), ("sines", angles))
    )
    *_, size = static(whole.type.shape[-1:])
    x = part(f, whole, 0, size - rest) if rest else whole
    along = f.create_mul("along", cosines, x)
    across = f.create_mul("across", swapped(f, x, adjoin=adjoin), sines)
    result = f.create_add("turned", along, across).result
    if rest:
        kept = part(f, whole, size - rest, rest)
        result = f.create_concat("whole", [result, kept], whole.type.rank - 1).result
    if into is not None:
        past = module.create_placeholder("past", whole.type)
        result = f.create_concat("cache", [past, result], into).result
    f.create_save("save", result, module.create_placeholder("y", result.type))
    return module


@pytest.mark.parametrize("adjoin", [False, True])
@pytest.mark.parametrize(
    ("type", "angles", "rest", "into"),
    [
        ("f32[2x3x5x16]", "f32[1x1x5x16]", 0, None),
        ("f32[1x4x1x64]", "f32[64]", 0, 2),
        ("f32[7x34]", "f32[7x1]", 0, None),
        ("f32[2x3x5x50]", "f32[1x1x5x22]", 28, None),
        ("f64[3x18]", "f64[]", 0, None),
    ],
)
def test_pairs_are_turned_in_one_loop(
    type: str, angles: str, rest: int, into: int | None, adjoin: bool
) -> None:
    """Nothing is swapped in memory, and only what is kept is copied."""
    module = rotary(type, angles, adjoin=adjoin, rest=rest, into=into)
    ir = compilation(module, CpuBackend()).program.ir
    copies = (InsertTensorInst, ExtractTensorInst, CopyInst)
    copied = sum(isinstance(inst, copies) for inst in ir.instructions)
    if not adjoin:  # an output is seen as pairs, into which they are copied
        assert copied == bool(rest) + (into is not None)
    (run,) = (run for run in ir.runs if any(isinstance(inst, SubInst) for inst in run.members))
    assert len(run.members) == 6
    check_on_cpu(module, arrays_for(module.placeholders, 5))


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_halves_of_floats_keep_their_bits(type: str) -> None:
    """Every step is rounded, as it was."""
    module = rotary(f"{type}[3x5x34]", f"{type}[5x34]")
    inputs = arrays_for(module.placeholders[:3], 3)
    actual, expected = (
        glowpy.compile(module, name)(inputs)["y"] for name in ("cpu", "interpreter")
    )
    assert actual.tobytes() == expected.tobytes()


def test_the_length_of_a_sequence_is_open() -> None:
    module = rotary("f32[2 x 3 x n x 16]", "f32[1 x 1 x n x 16]")
    compiled, reference = (glowpy.compile(module, name) for name in ("cpu", "interpreter"))
    rng = np.random.default_rng(0)
    for length in (1, 4, 9):
        inputs = {"x": rng.standard_normal((2, 3, length, 16)).astype(np.float32)}
        for name in ("cosines", "sines"):
            inputs[name] = rng.standard_normal((1, 1, length, 16)).astype(np.float32)
        np.testing.assert_allclose(
            compiled(inputs)["y"], reference(inputs)["y"], rtol=1e-5, atol=1e-5
        )


def test_special_values_and_threads() -> None:
    """Infinities, NaNs and signed zeros stay in their places, and threads change no bit."""
    module = rotary("f32[64x8x32]", "f32[64x1x32]")
    inputs = arrays_for(module.placeholders[:3], 3)
    x = inputs["x"].reshape(-1)
    x[::7], x[1::11], x[2::13], x[3::17] = np.inf, -np.inf, np.nan, -0.0
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    several = [
        glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))(inputs)["y"]
        for threads in (1, 2, 3, 7)
    ]
    np.testing.assert_allclose(several[0], expected, rtol=1e-5, atol=1e-5)
    assert len({array.tobytes() for array in several}) == 1


def almost(number: int) -> Module:
    """What looks like it: other halves, another axis, neither negated, swapped values that others read."""
    module = Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, parse_type("f32[16x16]")).value for name in "xy")
    a, b = part(f, x, 0, 8), part(f, x, 7 if number == 0 else 8, 8)
    negated = b if number == 1 else f.create_neg("neg", b).result
    pairs = f.create_concat("c", [a, negated] if number == 2 else [negated, a], 1).result
    across = f.create_mul("across", pairs, y)
    stays = f.create_mul("along", pairs if number == 3 else x, x if number == 3 else y)
    if number == 4:
        stays = f.create_mul("along", f.create_relu("r", x), y)
    result = f.create_add("turned", stays, across).result
    f.create_save("save", result, module.create_placeholder("z", result.type))
    return module


@pytest.mark.parametrize("number", range(6))
def test_only_pairs_are_turned(number: int) -> None:
    module = almost(number)
    check_on_cpu(module, arrays_for(module.placeholders, 5))
    assert FuseRotaryPass(small=True).run(module.main, PassContext(evaluate)) is False
    assert FuseRotaryPass().run(module.main, PassContext(evaluate)) == (number == 5)
    verify_module(module)
    (save,) = (node for node in module.main.topological() if not node.results)
    assert isinstance(save.inputs[0].node, ConcatNode) == (number == 5)


def test_pairs_of_several_rows_in_one_are_not_turned() -> None:
    """Two rows of four, of an array whose own rows are longer, are what one row of eight has."""
    module = Module()
    f = module.create_function("main")
    whole = module.create_placeholder("whole", parse_type("f32[4x8]")).value
    cosines, sines = (
        module.create_placeholder(name, parse_type("f32[2x4]")).value for name in ("c", "s")
    )
    x = f.create_slice("x", cosines.type, whole, (0, 0), (1, 1)).result
    firsts, seconds = (
        f.create_slice("s", parse_type("f32[1x4]"), whole, (0, start), (1, 2)).result
        for start in (0, 1)
    )
    columns = [
        f.create_reshape("column", parse_type("f32[1x4x1]"), value)
        for value in (f.create_neg("neg", seconds), firsts)
    ]
    pairs = f.create_reshape("swapped", x.type, f.create_concat("pairs", columns, 2))
    along, across = f.create_mul("along", x, cosines), f.create_mul("across", pairs, sines)
    result = f.create_add("sum", along, across).result
    f.create_save("save", result, module.create_placeholder("y", result.type))
    assert FuseRotaryPass().run(module.main, PassContext(evaluate)) is False
    check_on_cpu(module, arrays_for(module.placeholders, 5))
