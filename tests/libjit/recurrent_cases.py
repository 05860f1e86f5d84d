"""What the kernels of recurrent cells are called with: cases of the cells' rows in `tests/ops`, with packed matrices.

Tiles are of all of a block and of a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from glowpy.core.tensor import Array
from tests.libjit.kernel_cases import Case, Maker
from tests.libjit.row_cases import cases_of_row
from tests.ops.test_recurrent import ROWS

_TILES = ((1, 1, 1), (2, 3, 2), (4, 6, 2), (3, 8, 3), (8, 1, 8))
"""Vectors of a block, sequences and vectors of a tile."""


def _packed(matrices: Array, block: int) -> Array:
    """[gates, K, N] to [gates, ceil(N / block), K, block], as libjit/README.md says."""
    gates, depth, columns = matrices.shape
    blocks = -(-columns // block)
    packed = np.zeros((gates, blocks, depth, block), matrices.dtype)
    for column in range(columns):
        packed[:, column // block, :, column % block] = matrices[:, :, column]
    return packed


def _maker(index: int) -> Maker:
    def make(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
        for number, case in enumerate(cases_of_row(ROWS[index], suffixes[0])):
            vectors, rows, tile = _TILES[number % len(_TILES)]
            packed = _packed(case.operands["recurrence"], vectors * lanes)
            batch = case.operands["gates"].shape[1]
            gates, blocks, _, block = packed.shape
            sums = np.zeros((batch, gates, blocks, block), packed.dtype)
            if not case.expected["result"].size:
                continue  # there are no steps, and no units
            yield replace(
                case,
                operands={**case.operands, "recurrence": packed, "sums": sums},
                attrs={**case.attrs, "tile_rows": rows, "tile_vectors": tile},
            )

    return make


MAKERS: dict[str, Maker] = {
    "cpu_lstm": _maker(0),
    "cpu_gru": _maker(1),
    "cpu_rnn": _maker(2),
}
"""The cases of each cell, by mnemonic, for its suffixes and so many of its elements in a vector."""
