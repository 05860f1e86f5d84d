"""Rules of random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.initial import philox
from glowpy.core.tensor import Tensor
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
