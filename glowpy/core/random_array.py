"""Random elements to try a network with."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array
from glowpy.core.type import Type

__all__ = ["random_array"]


def random_array(type: Type, rng: np.random.Generator) -> Array:
    """Elements to try a network with: floats from [0, 1), integers and booleans 0 or 1.

    So small an integer is a legal index nearly everywhere. Open dimensions are as large as is likely.
    """
    if type.kind.has_fractions:
        return np.asarray(rng.random(type.likely), type.kind.dtype)
    return rng.integers(0, 2, type.likely).astype(type.kind.dtype)
