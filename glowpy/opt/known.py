"""Values that are known when a network is compiled: the elements of constants and splats."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array, Tensor, stored
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import SplatNode

__all__ = ["is_all", "is_known", "known", "known_tensor"]


def is_known(value: NodeValue) -> bool:
    """Whether `value` is a splat or a constant with elements."""
    constant = value.constant
    if constant is not None:
        return constant.has_elements
    return isinstance(value.node, SplatNode) and value.type.is_static


def known_tensor(value: NodeValue) -> Tensor | None:
    """The elements of `value`, as they are stored, if it is a constant or a splat, whose array has zero strides."""
    if not is_known(value):
        return None
    if value.constant is not None:
        return value.constant.tensor
    assert isinstance(value.node, SplatNode)
    elements = np.broadcast_to(stored(value.type, value.node.value), value.type.extents)
    return Tensor(value.type, elements)


def known(value: NodeValue) -> Array | None:
    """The elements of `value`, as `known_tensor` has them; those of weights are read now."""
    tensor = known_tensor(value)
    return None if tensor is None else tensor.array


def is_all(value: NodeValue, expected: float | Array) -> bool:
    """Whether every element of `value` is known to be `expected`, bit for bit; -0.0 is not 0.0."""
    tensor = known_tensor(value)
    if tensor is None or tensor.is_deferred or tensor.type.is_empty:
        return False  # large tensors of one number are no deferred ones
    elements = tensor.array
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
