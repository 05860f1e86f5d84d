"""Recurrent cells of the CPU backend: how their products are tiled, what packed matrices must be, where results go."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions, Module, UserError
from glowpy.backend import Operation
from glowpy.backends.cpu.nodes_gen import CpuRnnNode, create_cpu_rnn
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.recurrent import RecurrentDecision, choose_recurrent
from glowpy.backends.cpu.variant import variant_named
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.infer import infer_types
from glowpy.graph.verifier import verify_module
from glowpy.support.errors import VerifyError

WIDE, NARROW = (
    variant_named(name).machine_for(ElemKind.F32) for name in ("x86_64_v4", "x86_64_v2")
)


@pytest.mark.parametrize(
    ("units", "batch", "decision"),
    [
        (256, 1, RecurrentDecision(8, 1, 8)),
        (256, 8, RecurrentDecision(8, 4, 4)),
        (100, 1, RecurrentDecision(7, 1, 7)),  # 7 vectors are one block
        (144, 1, RecurrentDecision(5, 1, 5)),  # 9 vectors are two
        (3, 1, RecurrentDecision(1, 1, 1)),
        (3, 5, RecurrentDecision(1, 5, 1)),
    ],
)
def test_tiles(units: int, batch: int, decision: RecurrentDecision) -> None:
    assert choose_recurrent(units, batch, WIDE, small=False) == decision


@pytest.mark.parametrize("machine", [WIDE, NARROW, replace(NARROW, vector_registers=6)])
@pytest.mark.parametrize("units", [1, 7, 64, 100, 300])
def test_a_model_has_its_weights_once_and_tiles_fit_into_registers(
    machine: Machine, units: int
) -> None:
    blocks = set()
    for batch in (0, 1, 2, 3, 7, 8, 33, 100):
        decision = choose_recurrent(units, batch, machine, small=False)
        blocks.add(decision.packed)
        assert decision.packed % decision.vectors == 0
        assert decision.rows <= max(batch, 1)
        if decision.rows > 1:
            sums = decision.rows * decision.vectors
            assert sums + min(decision.rows, decision.vectors) < machine.vector_registers
    assert len(blocks) == 1


def test_small_code_has_the_smallest_tile() -> None:
    assert choose_recurrent(300, 8, NARROW, small=True) == RecurrentDecision(1, 1, 1)


ATTRS: dict[str, Any] = {
    "functions": (1,),
    "limit": math.inf,
    "reverse": False,
    "tile_rows": 1,
    "tile_vectors": 1,
}
TYPES = [parse_type(t) for t in ("f32[5x2x3]", "f32[1x1x3x16]", "i32[0]", "f32[2x3]", "f32[1x2]")]


@pytest.mark.parametrize(
    ("index", "text", "message"),
    [
        (1, "f32[1x3x16]", "expected packed matrices and a state of rank 2, got f32[1x3x16]"),
        (1, "f32[1x2x3x16]", "expected recurrence packed to [1, 1, 3, 16], got f32[1x2x3x16]"),
        (1, "f64[1x1x3x16]", "expected recurrence packed to [1, 1, 3, 16], got f64[1x1x3x16]"),
        (1, "f32[1x1x3x0]", "expected recurrence packed to [], got f32[1x1x3x0]"),
        (3, "f32[3]", "expected packed matrices and a state of rank 2, got f32[1x1x3x16] and f32[3]"),
        (4, "f32[2x2]", "expected coefficients f32[1x2], got f32[2x2]"),
    ],
)  # fmt: skip
def test_matrices_that_are_packed_otherwise_are_refused(
    index: int, text: str, message: str
) -> None:
    types = list(TYPES)
    types[index] = parse_type(text)
    with pytest.raises(UserError) as error:
        infer_types(CpuRnnNode, types, ATTRS)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "number"), [("tile_rows", 33), ("tile_rows", 0), ("tile_vectors", 9)]
)
def test_tiles_have_bounds(name: str, number: int) -> None:
    module = Module()
    f = module.create_function("main")
    values = [module.create_placeholder(f"v{i}", type) for i, type in enumerate(TYPES)]
    cell = create_cpu_rnn(f, "cell", *values, **{**ATTRS, name: number})
    f.create_save("save", cell.result, module.create_placeholder("y", cell.type))
    with pytest.raises(
        VerifyError, match="expected tile_rows from 1 to 32 and tile_vectors from 1 to 8"
    ):
        verify_module(module)


def test_matrices_for_another_processor_are_refused() -> None:
    names = ("gates", "recurrence", "lengths", "initial_h", "coefficients")
    operation = Operation(
        "cpu_rnn", dict(zip(names, TYPES, strict=True)), {**ATTRS, "tile_vectors": 2}
    )
    backend = CpuBackend(CpuOptions(cpu="x86-64-v4"))
    assert "expected blocks that are a multiple of 2 x 16 numbers" in backend.unsupported(operation)


def test_both_directions_write_to_what_joins_them() -> None:
    """As exporters join directions: nothing is copied or moved but the input."""
    module = Module()
    f = module.create_function("main")
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> glowpy.Constant:
        return module.create_constant(name, rng.standard_normal(shape).astype(np.float32))

    x = module.create_placeholder("x", parse_type("f32[5x2x8]"))
    none = module.create_constant("none", np.zeros(0, np.int32))
    cells = [
        f.create_rnn(
            name, f.create_mat_mul("sums", x, weights("w", 8, 6)), weights("r", 1, 6, 6), none, weights("h", 2, 6),
            weights("c", 1, 2), (1,), math.inf, reverse=name == "back",
        )
        for name in ("forth", "back")
    ]  # fmt: skip
    joined = f.create_concat("joined", [cell.results[0] for cell in cells], 2)
    f.create_save("save", joined, module.create_placeholder("y", joined.result.type))
    program = compilation(module, "cpu").program.ir
    executed = [inst.SCHEMA.mnemonic for inst in program.instructions]
    assert not {"insert_tensor", "copy", "transpose"} & set(executed)
    assert executed.count("cpu_rnn") == 2
