"""Rules of random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.nodes_gen import RandomBitsNode
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import RandomBitsInst

__all__: list[str] = []


@verify(RandomBitsNode)
def _verify_random_bits(n: RandomBitsNode) -> Iterator[str]:
    if n.type.kind is not ElemKind.U32:
        yield f"expected a result of kind u32, got {n.type}"
    if len(n.key) != 2 or not all(0 <= word < 1 << 31 for word in n.key):
        yield f"expected two numbers of 31 bits as key, got {list(n.key)}"


@interpret(RandomBitsInst)
def _random_bits(result: Tensor, *, key: Sequence[int]) -> None:
    size = result.array.size
    result.array[...] = philox(size, key)[:size].reshape(result.array.shape)


_LOW = np.uint64(0xFFFFFFFF)


def philox(size: int, key: Sequence[int]) -> Array:
    """Philox 4x32-10 of the counters 0, 1, 2 and so on: u32[at least size]."""
    counters = np.arange(-(-size // 4), dtype=np.uint64)
    a, b = counters & _LOW, counters >> np.uint64(32)
    c = d = np.zeros_like(counters)
    first, second = key
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, c = (
            right >> np.uint64(32) ^ b ^ np.uint64(first),
            left >> np.uint64(32) ^ d ^ np.uint64(second),
        )
        b, d = right & _LOW, left & _LOW
        first, second = (first + 0x9E3779B9) % (1 << 32), (second + 0xBB67AE85) % (1 << 32)
    return np.stack([a, b, c, d], axis=1).astype(np.uint32).reshape(-1)
