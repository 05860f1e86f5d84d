"""What is known of values when a network is compiled: the elements of constants and splats."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array, stored
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import SplatNode

__all__ = ["is_all", "known"]


def known(value: NodeValue) -> Array | None:
    """The elements of `value`, as they are stored, if it is a constant or a splat, whose array has zero strides."""
    constant = value.constant
    if constant is not None:
        return constant.array if constant.has_elements else None
    if isinstance(value.node, SplatNode):
        return np.broadcast_to(stored(value.type, value.node.value), value.type.shape)
    return None


def is_all(value: NodeValue, expected: float | Array) -> bool:
    """Whether every element of `value` is known to be `wanted`, bit for bit; -0.0 is not 0.0."""
    elements = known(value)
    if elements is None or elements.size == 0:
        return False
    if not any(elements.strides):
        elements = elements[(slice(0, 1),) * elements.ndim]
    exact = np.asarray(expected).astype(elements.dtype)
    first = elements[(0,) * elements.ndim]
    if first != exact or not (elements == exact).all():
        return False
    if exact:
        return True
    signs = np.signbit(elements.astype(np.float64))
    return bool((signs == np.signbit(exact.astype(np.float64))).all())
