"""Which values of a network leave the range of a kind of 16 bits, measured on samples."""

from __future__ import annotations

from collections.abc import Iterable

import ml_dtypes

from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function
from glowpy.quantization.profiling import Sample, profile

__all__ = ["out_of_range"]

_ROOM = 4
"""Other inputs may make a value so many times as large."""


def out_of_range(
    f: Function, kind: ElemKind, samples: Iterable[Sample], backend: str | Backend
) -> dict[str, str]:
    """Why nodes of an optimized function should stay in f32, by name: what they read or give does not fit the kind.

    A value does not fit if its largest element is near the largest number, or less than what has all digits.
    """
    info = ml_dtypes.finfo(kind.dtype)  # type: ignore[no-untyped-call]
    most, least = float(info.max) / _ROOM, float(info.smallest_normal)
    wrong: dict[str, str] = {}
    for value in profile(f, samples, backend=backend).values.values():
        size = max(-value.statistics.low, value.statistics.high)
        if (
            value.statistics.count
            and not value.part_of
            and not (size == 0 or least <= size <= most)
        ):
            wrong[value.name] = f"{size:.3g} on the samples, which {kind.value} does not hold well"
    return {
        node.name: f"%{names[0]} is up to {wrong[names[0]]}"
        for node in f.nodes
        if (names := [v.name for v in (*node.results, *node.inputs) if v.name in wrong])
    }
