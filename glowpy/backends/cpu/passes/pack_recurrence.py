"""Packs the recurrent matrices of cells, and decides how their products are tiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from glowpy.backend import Operation
from glowpy.backends.cpu.nodes_gen import (
    create_cpu_gru,
    create_cpu_lstm,
    create_cpu_pack_matrix,
    create_cpu_rnn,
)
from glowpy.backends.cpu.packing import matrix_pieces, packed_shape
from glowpy.backends.cpu.strategy.recurrent import RecurrentDecision, choose_recurrent
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Operand
from glowpy.graph.nodes_gen import GruNode, LstmNode, RnnNode
from glowpy.passes import GraphPass, PassContext
from glowpy.support.symbolic import likely_extent

__all__ = ["PackRecurrencePass", "is_cell"]

_Cell = LstmNode | GruNode | RnnNode


def is_cell(operation: Operation) -> bool:
    """Whether the pass turns an operation into one of the backend's own: cells of floats and doubles."""
    floats = (ElemKind.F32, ElemKind.F64)
    names = {cls.SCHEMA.mnemonic for cls in (LstmNode, GruNode, RnnNode)}
    return operation.mnemonic in names and operation.types["gates"].kind in floats


@dataclass(frozen=True)
class PackRecurrencePass(GraphPass):
    """Turns recurrent cells into the backend's own nodes, which read packed matrices.

    Each gate's matrix is packed as the right side of a product, here to 8 numbers of AVX2.

    Before:
        %gates, %y : f32[5x1x2]
        %h, %last : f32[1x2]
        %r : f32[1x2x2] = [1.0, 2.0, 3.0, 4.0]
        %n : i32[0] = []
        %c : f32[1x2] = [0.0, 0.0]
        %cell, %cell.last_h = rnn(%gates, %r, %n, %h, %c) {functions=[1], limit=inf, reverse=false}
            : f32[5x1x2], f32[1x2]
        save(%cell, %y)
        save(%cell.last_h, %last)
    After:
        %gates, %y : f32[5x1x2]
        %h, %last : f32[1x2]
        %r : f32[1x2x2] = [1.0, 2.0, 3.0, 4.0]
        %n : i32[0] = []
        %c : f32[1x2] = [0.0, 0.0]
        %cell_packed : f32[1x1x2x8] = [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        %cell, %cell.last_h = cpu_rnn(%gates, %cell_packed, %n, %h, %c) {functions=[1], limit=inf, reverse=false,
            tile_rows=1, tile_vectors=1} : f32[5x1x2], f32[1x2]
        save(%cell, %y)
        save(%cell.last_h, %last)
    """

    variant: Variant
    small: bool = False
    name: ClassVar[str] = "pack-recurrence"
    is_required: ClassVar[bool] = True

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Packs every cell that the backend computes; True iff there was any."""
        del ctx
        changed = False
        for node in f.topological():
            if not isinstance(node, _Cell) or not is_cell(Operation.of_node(node)):
                continue
            before = f.num_nodes
            with f.replacing(node):
                results = self._replaced(f, node)
            f.replace(node, results, f.newest(f.num_nodes - before))
            changed = True
        return changed

    def _replaced(self, f: Function, n: _Cell) -> Sequence[Operand]:
        """The results of the packed cell; where there is no step, the states are what they were."""
        if n.type.is_empty:
            states = [n.initial_h, n.initial_c] if isinstance(n, LstmNode) else [n.initial_h]
            return [f.create_splat(n.name, n.type, 0.0), *states]
        decision = self._decision(n)
        name, packed = n.name, self._packed(f, n, decision)
        attrs: dict[str, Any] = {
            **n.attrs,
            "tile_rows": decision.rows,
            "tile_vectors": decision.vectors,
        }
        if isinstance(n, LstmNode):
            return create_cpu_lstm(
                f, name, n.gates, packed, n.peepholes, n.lengths, n.initial_h, n.initial_c, n.coefficients,
                **attrs,
            ).results  # fmt: skip
        if isinstance(n, GruNode):
            return create_cpu_gru(
                f, name, n.gates, packed, n.bias, n.lengths, n.initial_h, n.coefficients,
                **attrs,
            ).results  # fmt: skip
        return create_cpu_rnn(
            f, name, n.gates, packed, n.lengths, n.initial_h, n.coefficients, **attrs
        ).results

    def _decision(self, n: _Cell) -> RecurrentDecision:
        batch, units = n.type.shape[1:]
        machine = self.variant.machine_for(n.type.kind)
        return choose_recurrent(
            likely_extent(units), likely_extent(batch), machine, small=self.small
        )

    def _packed(self, f: Function, n: _Cell, chosen: RecurrentDecision) -> Operand:
        block = chosen.packed * self.variant.machine_for(n.type.kind).lanes
        source = n.recurrence
        type = source.type.with_shape(packed_shape(source.type.shape, block))
        if source.constant is None:
            return create_cpu_pack_matrix(f, source.name, type, source, block=block)
        tensor = Tensor.derived(
            type, "pack", [source.constant.tensor], lambda matrix: matrix_pieces(matrix, block)
        )
        return f.module.create_constant(f"{n.name}_packed", tensor, loc=n.loc)
