"""Where a weighted sum of gathers is one instruction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import helper

import glowpy
from glowpy import Module, parse_type
from glowpy.backends.cpu.insts_gen import CpuWeightedGatherInst
from glowpy.backends.cpu.nodes_gen import CpuWeightedGatherNode, create_cpu_weighted_gather
from glowpy.backends.cpu.passes.fuse_resize import FuseResizePass
from glowpy.engine import compilation, evaluate
from glowpy.graph.node import NodeValue
from glowpy.graph.verifier import verify_module
from glowpy.ir.insts_gen import GatherInst
from glowpy.measuring.roofline import efforts
from glowpy.passes import PassContext
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from tests.onnx.comparison import graph_model, info
from tests.unit.networks import arrays_for, check_on_cpu

SYMBOLS = {name: symbol(name, 1, 9) for name in "nw"}


def network(
    input: str,
    axes: Sequence[int],
    *,
    count: int = 5,
    weighted: bool = True,
    twice: bool = False,
    computed: bool = False,
    into: int = 0,
    single: bool = False,
) -> Module:
    """A sum of gathers along axes, which may become some channels of a concat; of a `single` slice the first."""
    module = Module()
    x = module.create_placeholder("x", parse_type(input, SYMBOLS))
    f = module.create_function("main")
    rng = np.random.default_rng(count)
    source = f.create_exp("exp", x).result
    total: NodeValue | None = None
    for number, axis in enumerate(axes):
        places = rng.integers(-2, 2, 1 if single and number == 0 else count)
        indices = (
            module.create_placeholder("i", parse_type(f"i64[{count}]")).value
            if computed
            else module.create_constant("i", 4 * places).value  # some are out of range
        )
        term = f.create_gather("g", source, indices, axis).result
        if twice:
            f.create_save("save", term, module.create_placeholder("z", term.type))
        if weighted:
            shape = (count, *(1,) * (x.type.rank - 1 - axis))
            weights = rng.standard_normal(shape).astype(x.type.kind.dtype)
            term = f.create_mul("m", term, module.create_constant("w", weights)).result
        total = term if total is None else f.create_add("a", total, term).result
    assert total is not None
    if into:
        total = f.create_concat("c", [f.create_neg("n", total), total], into).result
    f.create_save("save", total, module.create_placeholder("y", total.type))
    return module


def weighed(module: Module, reasons: list[str] | None = None) -> list[int]:
    """How many gathers each of the instructions stands for."""
    ctx = PassContext(evaluate, explain=None if reasons is None else reasons.append)
    FuseResizePass().run(module.main, ctx)
    nodes = [node for node in module.main.nodes if isinstance(node, CpuWeightedGatherNode)]
    return [node.indices.type.extents[1] for node in nodes]


@pytest.mark.parametrize(
    ("module", "gathers"),
    [
        (network("f32[2x3x5x19]", (1, 1)), 2),
        (network("f32[2x3x5x19]", (2, 2, 2, 2)), 4),
        (network("f32[2x3x5x19]", (1, 1), into=3), 2),
        (network("f32[2x3x5x1]", (1, 1), into=3), 2),
        (network("f64[4x7]", (0, 0, 0), weighted=False), 3),
        (network("f32[n x 4 x w x 6]", (1, 1)), 2),
        (network("f32[3x0x6]", (0, 0)), 2),
    ],
)
def test_a_sum_is_one_instruction(module: Module, gathers: int) -> None:
    assert weighed(module.clone()) == [gathers]
    check_on_cpu(module, arrays_for(module.placeholders, 0, {"n": 2, "w": 7}))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (network("f32[2x3x5x4]", (1, 1), computed=True), ""),
        (network("f32[2x3x5x4]", (1, 1), twice=True), ""),
        (network("f32[2x3x3x4]", (1, 2), count=3), "not of one tensor along one dimension"),
        (network("f32[2x5]", (1, 1)), "slices have single elements"),
        (network("i32[2x3x5x4]", (1, 1), weighted=False), ""),
        (network("f32[2x3x5x4]", (1, 1), single=True), "slices of one gather are repeated"),
        (network("f32[2x3x5x4]", (1, 1), weighted=False, single=True), "slices of one gather"),
    ],
)
def test_what_is_left_alone(module: Module, reason: str) -> None:
    reasons: list[str] = []
    assert weighed(module.clone(), reasons) == []
    assert reason in "\n".join(reasons)


@pytest.mark.parametrize(("mode", "taps"), [("linear", 2), ("cubic", 4)])
def test_resizing_is_an_instruction_for_each_dimension(mode: str, taps: int) -> None:
    """And the interpreter runs the lowered program as well."""
    x = np.random.default_rng(0).standard_normal((1, 8, 9, 3), np.float32)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    scales = {"scales": np.array([1, 1.5, 2, 1], np.float32)}
    output = helper.make_empty_tensor_value_info("y")
    module = glowpy.load(graph_model([node], [info("x", x)], [output], 19, scales))
    program = compilation(module, "cpu").program
    gathers = [inst for inst in program.ir.instructions if isinstance(inst, CpuWeightedGatherInst)]
    assert [inst.weights.type.extents for inst in gathers] == [(18, taps), (12, taps)]
    assert not any(isinstance(inst, GatherInst) for inst in program.ir.instructions)
    lowered = glowpy.InterpreterBackend().function(program)
    (result,), (expected,) = (run({"x": x}).values() for run in (lowered, glowpy.compile(module)))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lines", "bytes"), [(100, 5 * 2 * 7 * 4), (8, 8 * 7 * 4)])
def test_what_is_read_is_counted_once(lines: int, bytes: int) -> None:
    """Of a long input only what slices are made of."""
    program = compilation(network(f"f32[{lines}x7]", (0, 0)), "cpu").program
    effort = efforts(program, {})[-1]
    assert isinstance(effort.run.head, CpuWeightedGatherInst)
    assert next(move.bytes for move in effort.moves if move.access == "read") == bytes


@pytest.mark.parametrize(
    ("types", "axis", "message"),
    [
        ("f32[4x3] f32[5x3] i64[5x2] f32[5x2]", 1, "expected an axis from 0 to 0, got 1"),
        ("f32[0x3] f32[5x3] i64[5x2] f32[5x2]", 0, "expected something to gather"),
        ("f32[4x3] f32[5x3] i32[5x2] f32[5x2]", 0, "expected indices of i64"),
        ("f32[4x3] f32[5x3] i64[5x2] f64[5x2]", 0, "and weights of f32"),
        ("f32[4x3] f32[5x3] i64[5x2] f32[5x1]", 0, "indices and weights for each slice"),
        ("f32[4x3] f32[6x3] i64[5x2] f32[5x2]", 0, "expected a result of f32.5x3."),
    ],
)
def test_types_are_verified(types: str, axis: int, message: str) -> None:
    module = Module()
    input, result, indices, weights = map(parse_type, types.split())
    operands = [module.create_placeholder("x", one) for one in (input, indices, weights)]
    create_cpu_weighted_gather(module.create_function("main"), "g", result, *operands, axis=axis)
    with pytest.raises(UserError, match=message):
        verify_module(module)
