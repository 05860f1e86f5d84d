"""Import of rotary position embeddings: pairs of elements are turned by angles that depend on the position."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import concat, convert, reshape, slice_axis
from glowpy.importer.kit.numbers import counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.heads import check_type, joined, split
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__ = ["gathered", "rotated"]


def gathered(n: OnnxNode, index: int, positions: Value) -> NodeValue:
    """Rows of input `index`, a table of cosines or sines, for positions [batch, length], for all heads alike."""
    if n.type(index).rank != 2:
        raise UserError(f"expected a matrix as input {index}, got {n.type(index)}")
    rows = n.f.create_gather(n.name, n.input(index), n.operand(positions), 0).result
    batch, length, half = rows.type.shape
    return n.operand(reshape(n, rows, (batch, 1, length, half)))


def rotated(
    n: OnnxNode, x: NodeValue, cosine: NodeValue, sine: NodeValue, *, interleaved: bool
) -> NodeValue:
    """The first elements of each head turned in pairs (Su et al. 2021), the rest as it is.

    A pair is neighbours if `interleaved`, else an element of the first half and one of the second.
    """
    batch, heads, length, _ = x.type.shape
    size, half = x.type.extent(-1), cosine.type.extent(-1)
    if 2 * half > size:
        raise UserError(f"expected at most {size // 2} angles for heads of {size}, got {half}")
    turned = slice_axis(n, x, 3, 0, 2 * half, 1)
    if interleaved:
        pairs = reshape(n, turned, (batch, heads, length, half, 2))
        picked = (slice_axis(n, pairs, 4, i, 1, 1) for i in (0, 1))
        first, second = (reshape(n, item, (batch, heads, length, half)) for item in picked)
    else:
        first, second = (slice_axis(n, turned, 3, i * half, half, 1) for i in (0, 1))
    f, a, b = n.f, n.operand(first), n.operand(second)
    across = f.create_sub(n.name, f.create_mul(n.name, a, cosine), f.create_mul(n.name, b, sine))
    along = f.create_add(n.name, f.create_mul(n.name, b, cosine), f.create_mul(n.name, a, sine))
    results: list[Value] = [across.result, along.result]
    if interleaved:
        columns = [reshape(n, item, (batch, heads, length, half, 1)) for item in results]
        results = [reshape(n, concat(n, columns, 4), (batch, heads, length, 2 * half))]
    if 2 * half < size:
        results.append(slice_axis(n, x, 3, 2 * half, size - 2 * half, 1))
    return n.operand(concat(n, results, 3))


@from_onnx("RotaryEmbedding", domain=CONTRIB)
def _rotary_embedding(n: OnnxNode) -> Value:
    """Input [batch, length, heads * size] or [batch, heads, length, size]."""
    if n.real("scale", 1.0) != 1.0:
        raise n.unsupported(f"scale {n.real('scale', 1.0):g}")
    type = n.type(0)
    if type.rank not in (3, 4):
        raise UserError(f"expected an input of rank 3 or 4, got {type}")
    x = n.input(0) if type.rank == 4 else split(n, n.value(0), _heads(n))
    batch, _, length, _ = x.type.shape
    positions = _positions(n, batch, length)
    half = (n.integer("rotary_embedding_dim", 0) or x.type.extent(-1)) // 2
    for index in (2, 3):
        if n.type(index).rank != 2 or n.type(index).extent(-1) != half:
            raise UserError(f"expected {half} columns as input {index}, got {n.type(index)}")
    check_places(n, positions, 0, n.type(2).shape[0] - 1)
    cosine, sine = (gathered(n, index, positions) for index in (2, 3))
    result = rotated(n, x, cosine, sine, interleaved=n.flag("interleaved"))
    return result if type.rank == 4 else joined(n, result)


def _heads(n: OnnxNode) -> int:
    """By `num_heads`; without it the rows of the tables are half a head."""
    heads, width = n.integer("num_heads", 0), n.type(2).extent(-1) if n.type(2).rank else 0
    if n.integer("rotary_embedding_dim", 0) and not heads:
        raise UserError("attribute 'num_heads': expected it beside 'rotary_embedding_dim'")
    return heads or n.type(0).extent(-1) // max(2 * width, 1)


def _positions(n: OnnxNode, batch: Dim, length: Dim) -> Value:
    """Input 1: positions for all, or that of the first element."""
    if n.type(1).shape != (1,):
        check_type(n, 1, (batch, length))
        return n.value(1)
    steps = counted(n, length).reshaped(1, length).value
    first = n.operand(convert(n, n.value(1), ElemKind.I64))
    return n.f.create_add(n.name, first, n.operand(steps, f"{n.name}_steps")).result
