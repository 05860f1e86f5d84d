"""The CPU backend's attention: what it has to keep to, and its scratch memory."""

from __future__ import annotations

from collections.abc import Iterator

from glowpy.backends.cpu.insts_gen import CpuAttentionInst
from glowpy.backends.cpu.nodes_gen import CpuAttentionNode
from glowpy.backends.cpu.strategy.product import MAX_PIXELS, MAX_SUMS
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst
from glowpy.irgen import scratch
from glowpy.support.symbolic import ceil_div, static

__all__ = ["multiplied_kind", "no_mask"]

_Attention = CpuAttentionNode | CpuAttentionInst


def no_mask(type: Type) -> bool:
    """Whether there is no bias, or no mask: it is empty, of one dimension."""
    return type.shape == (0,)


def multiplied_kind(inst: CpuAttentionInst) -> ElemKind:
    """The kind of the numbers that both products multiply."""
    return ElemKind.BF16 if inst.in_bf16 else ElemKind.F32


@scratch(CpuAttentionNode)
def _work(n: CpuAttentionNode) -> tuple[Type, ...]:
    """Scratch memory of a unit: queries, a tile of keys, scores, sums, largest scores and sums of weights.

    Values are there as well where their rows may be no whole vectors. In bf16 it is a block of keys and of values, of
    which two numbers take as much as one here.
    """
    depth, width = static([n.query.type.shape[3], n.value.type.shape[3]])
    padded = ceil_div(width, n.group) * n.group
    score_rows = ceil_div(n.block, n.tile_keys) * n.tile_keys
    if n.in_bf16:
        keys, values = score_rows * ceil_div(depth, 2), ceil_div(n.block, 2) * padded
    else:
        keys, values = n.tile_keys * depth, n.block * padded if width != padded else 0
    size = n.rows * depth + keys + values + score_rows * n.group + n.rows * (padded + 2)
    return (n.type.with_shape((n.units, size)),)


@verify(CpuAttentionNode)
@verify_inst(CpuAttentionInst)
def _verify(n: _Attention) -> Iterator[str]:
    operands = {
        name: getattr(n, name).type for name in ("query", "key", "value", "bias", "mask", "result")
    }
    for name, type in operands.items():
        if type.kind is not ElemKind.F32:
            yield f"expected {name} of f32, got {type}"
        if type.rank != 4 and not (name in ("bias", "mask") and no_mask(type)):
            yield f"expected {name} of rank 4, got {type}"
            return
    yield from _shapes(operands)
    for name in ("units", "rows", "block", "tile_keys", "tile_rows", "group"):
        if getattr(n, name) < 1:
            yield f"expected {name} of at least 1, got {getattr(n, name)}"
            return
    if n.rows % n.group or n.tile_rows > n.group:
        yield (
            f"expected rows that are a multiple of group, and tile_rows of at most that, "
            f"got {n.rows}, {n.tile_rows} and {n.group}"
        )
    if max(n.tile_keys, n.tile_rows) > MAX_PIXELS or 2 * n.tile_rows > MAX_SUMS:
        yield f"expected tiles of at most {MAX_PIXELS} x 1 and {MAX_SUMS // 2} x 2 sums"


def _shapes(types: dict[str, Type]) -> Iterator[str]:
    """Yields mismatches between the shapes of operands of rank 4."""
    batch, heads, queries, depth = types["query"].shape
    _, shared, _, keys = types["key"].shape
    width = types["value"].shape[3]
    expected = {
        "key": (batch, shared, depth, keys),
        "value": (batch, shared, keys, width),
        "result": (batch, heads, queries, width),
    }
    for name, shape in expected.items():
        if types[name].shape != shape:
            yield f"expected {name} of {list(shape)}, got {types[name]}"
    if not all(isinstance(size, int) for size in (heads, shared, depth, width)):
        yield f"expected heads, depth and width that are known, got {types['query']} and {types['value']}"
    elif not shared or heads % shared:
        yield f"expected heads that are a multiple of {shared}, got {heads}"
    for name in ("bias", "mask"):
        pairs = zip(types[name].shape, (batch, heads, keys, queries), strict=False)
        if not no_mask(types[name]) and any(
            size not in (1, expected_size) for size, expected_size in pairs
        ):
            yield f"expected {name} of {[batch, heads, keys, queries]}, or 1 for any, got {types[name]}"
