"""One way to compute a product, as a network of its own that is run and timed."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.runtime.compiled import CompiledFunction

__all__ = ["timed_runs"]

_MOST_BETWEEN = 64 << 20
"""The most memory that is read between two runs: caches hold less."""


def timed_runs(compiled: CompiledFunction, between: int) -> Callable[[], float]:
    """Returns a function that times one run of a static network, after reading `between` bytes and writing inputs.

    So weights come from where they come from in a network that has so many, and the input from a cache.
    """
    random = np.random.default_rng(0)
    feeds = {
        name: _random(port.type, random)
        for name, port in zip(compiled.inputs, compiled.input_ports, strict=True)
    }
    others = np.zeros(min(between, _MOST_BETWEEN) // 8, np.int64)
    instance = compiled.instance()

    def run() -> float:
        others.sum()
        for name, array in feeds.items():
            instance.write(name, array)
        start = time.thread_time()
        instance.run()
        return time.thread_time() - start

    return run


def _random(type: Type, random: np.random.Generator) -> Array:
    """Numbers of a type: of integers the whole range."""
    if type.kind.is_float:
        return random.standard_normal(type.extents, np.float32).astype(type.kind.dtype)
    return np.frombuffer(random.bytes(type.room), type.kind.dtype).reshape(type.extents)
