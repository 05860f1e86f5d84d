"""How the products of a recurrent cell's step are tiled: some sequences times some vectors of a gate's columns."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.support.symbolic import ceil_div

__all__ = ["MAX_ROWS", "MAX_VECTORS", "RecurrentDecision", "choose_recurrent"]

# The bounds of libjit/include/tile.h.
MAX_ROWS = 32
MAX_VECTORS = 8


@dataclass(frozen=True, slots=True)
class RecurrentDecision:
    """Decisions about a recurrent product.

    Attributes:
        packed: Vectors of a packed block, whatever the batch is: a model has its weights once.
        rows: Sequences of a tile.
        vectors: Vectors of a tile, of which a block is a multiple.
    """

    packed: int
    rows: int
    vectors: int


def choose_recurrent(units: int, batch: int, machine: Machine, *, small: bool) -> RecurrentDecision:
    """The tile of the least cycles for a step of depth; sums, and what multiplies them, have to fit into the registers.

    Blocks of a gate are about equal. A single sequence takes as many vectors as there are: their sums do not wait for
    each other.
    """
    if small:
        return RecurrentDecision(1, 1, 1)
    total = ceil_div(units, machine.lanes)
    packed = ceil_div(total, ceil_div(total, MAX_VECTORS))
    costs: dict[tuple[float, int], RecurrentDecision] = {}
    for vectors in (size for size in range(1, packed + 1) if packed % size == 0):
        fitting = [
            rows
            for rows in range(1, min(max(batch, 1), MAX_ROWS // vectors) + 1)
            if rows * vectors + min(rows, vectors) < machine.vector_registers
        ]
        tiles = ceil_div(max(batch, 1), max(fitting, default=1))
        rows = ceil_div(max(batch, 1), tiles)
        if rows * vectors > MAX_ROWS:
            continue
        cycles = max(
            rows * vectors / machine.multiplies, (rows + vectors) / machine.loads, machine.latency
        )
        decision = RecurrentDecision(packed, rows, vectors)
        costs[tiles * (packed // vectors) * cycles, -vectors] = decision
    return costs[min(costs)]
