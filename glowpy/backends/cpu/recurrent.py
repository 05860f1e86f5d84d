"""Types of the CPU backend's recurrent cells: those that every backend knows, with packed matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glowpy.backends.cpu.insts_gen import CpuGruInst, CpuLstmInst, CpuRnnInst
from glowpy.backends.cpu.nodes_gen import CpuGruNode, CpuLstmNode, CpuRnnNode
from glowpy.backends.cpu.packing import packed_shape
from glowpy.backends.cpu.strategy.recurrent import MAX_ROWS, MAX_VECTORS
from glowpy.core.type import Type
from glowpy.graph.infer import infer, infer_types
from glowpy.graph.nodes_gen import GruNode, LstmNode, RnnNode
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst
from glowpy.irgen import scratch
from glowpy.support.errors import UserError

__all__ = ["plain_attrs"]

_Node = CpuLstmNode | CpuGruNode | CpuRnnNode
_Inst = CpuLstmInst | CpuGruInst | CpuRnnInst


def _unpacked(gates: Type, recurrence: Type, initial_h: Type) -> Type:
    """The type of the matrices that are packed."""
    if recurrence.rank != 4 or not recurrence.is_static or initial_h.rank != 2:
        raise UserError(
            f"expected packed matrices and a state of rank 2, got {recurrence} and {initial_h}"
        )
    units, count = initial_h.shape[1], recurrence.extents[0]
    plain = gates.with_shape((count, units, units))
    block = recurrence.extents[3]
    expected = packed_shape(plain.shape, block) if block else ()
    if recurrence.kind is not gates.kind or recurrence.shape != expected:
        raise UserError(f"expected recurrence packed to {list(expected)}, got {recurrence}")
    return plain


def plain_attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the cell that every backend knows: all but the decisions."""
    return {name: item for name, item in attrs.items() if not name.startswith("tile_")}


@infer(CpuLstmNode)
def _infer_lstm(gates: Type, recurrence: Type, *others: Type, **attrs: Any) -> tuple[Type, ...]:
    plain = _unpacked(gates, recurrence, others[2])
    return infer_types(LstmNode, [gates, plain, *others], plain_attrs(attrs))


@infer(CpuGruNode)
def _infer_gru(gates: Type, recurrence: Type, *others: Type, **attrs: Any) -> tuple[Type, ...]:
    plain = _unpacked(gates, recurrence, others[2])
    return infer_types(GruNode, [gates, plain, *others], plain_attrs(attrs))


@infer(CpuRnnNode)
def _infer_rnn(gates: Type, recurrence: Type, *others: Type, **attrs: Any) -> tuple[Type, ...]:
    plain = _unpacked(gates, recurrence, others[1])
    return infer_types(RnnNode, [gates, plain, *others], plain_attrs(attrs))


@verify(CpuLstmNode, CpuGruNode, CpuRnnNode)
@verify_inst(CpuLstmInst, CpuGruInst, CpuRnnInst)
def _verify_tile(n: _Node | _Inst) -> Iterator[str]:
    if not 1 <= n.tile_rows <= MAX_ROWS or not 1 <= n.tile_vectors <= MAX_VECTORS:
        yield (
            f"expected tile_rows from 1 to {MAX_ROWS} and tile_vectors from 1 to {MAX_VECTORS}, "
            f"got {n.tile_rows} and {n.tile_vectors}"
        )


@scratch(CpuLstmNode, CpuGruNode, CpuRnnNode)
def _sums(n: _Node) -> tuple[Type, ...]:
    """The sums of a step: those of each gate of each sequence, in whole blocks."""
    gates, blocks, _, block = n.recurrence.type.shape
    return (n.gates.type.with_shape((n.gates.type.shape[1], gates, blocks, block)),)
