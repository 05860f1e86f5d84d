"""Large constants of networks: in memory once in a process, and mapped from the cache, so that processes share them.

Artifacts name them by a digest of what their elements follow from. So networks share the weights that they have in
common, such as one model compiled for several shapes.
"""

from __future__ import annotations

from typing import final
from weakref import WeakValueDictionary

import numpy as np

from glowpy.core.tensor import Array, Tensor
from glowpy.runtime.host_memory import aligned_array, write_tensor
from glowpy.support.cache import Key, mapped, writing
from glowpy.support.cache_folder import cache_folder, cache_limit
from glowpy.support.forks import Lock
from glowpy.support.identity import package_identity

__all__ = ["Weights", "find_weights", "weights_of"]


@final
class Weights:
    """A large constant in memory: the bytes of its elements, in row-major order."""

    __slots__ = ("__weakref__", "key", "memory")

    def __init__(self, key: str, memory: Array) -> None:
        self.key = key
        self.memory = memory


_shared: WeakValueDictionary[str, Weights] = WeakValueDictionary()
_lock = Lock()


def weights_of(tensor: Tensor, *, use_cache: bool) -> Weights:
    """The elements of a tensor: found, or else read or computed now, and put into the cache if it is used."""
    key = Key.of("weights", tensor.key, package_identity())
    weights = find_weights(key.digest, use_cache=use_cache)
    if weights is None and use_cache and _put(key, tensor):
        weights = _mapped(key)
    if weights is None:
        memory = aligned_array(tensor.type.room)
        write_tensor(memory, tensor)
        weights = _share(Weights(key.digest, memory))
    return weights


def find_weights(key: str, *, use_cache: bool) -> Weights | None:
    """The weights with this key that a network of this process has or, if it is used, the cache."""
    with _lock:
        weights = _shared.get(key)
    if weights is None and use_cache:
        weights = _mapped(Key("weights", key))
    return weights


def _mapped(key: Key) -> Weights | None:
    """The weights in the cache, as memory that processes share."""
    content = mapped(key)
    if content is None:
        return None
    return _share(Weights(key.digest, np.frombuffer(content, np.uint8)))


def _put(key: Key, tensor: Tensor) -> bool:
    """Writes the elements into the cache, piece by piece; whether there is one that has room for them."""
    if cache_folder() is None or tensor.type.size >= cache_limit():
        return False
    with writing(key) as file:
        for piece in tensor.raw_pieces():
            file.write(piece.data)
    return True


def _share(weights: Weights) -> Weights:
    """Returns these weights, or equal ones that another thread was faster to make."""
    with _lock:
        return _shared.setdefault(weights.key, weights)
