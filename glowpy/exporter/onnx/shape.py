"""Moving elements."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import stored
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import (
    BroadcastNode,
    ConcatNode,
    ExtentsNode,
    PadNode,
    ReshapeNode,
    SaveNode,
    SliceNode,
    SplatNode,
    TransposeNode,
)
from glowpy.support.symbolic import Dim, Expr, UndecidedError, lowest

__all__: list[str] = []


@to_onnx(SaveNode)
def _save(g: OnnxGraph, n: SaveNode) -> None:
    """Most values have the output's name already; those that do not get a second one."""
    value, output = g.operand(n.input), g.operand(n.output)
    if value != output:
        g.add_all("Identity", value, outputs=[output])


@to_onnx(ReshapeNode)
def _reshape(g: OnnxGraph, n: ReshapeNode) -> None:
    """A 0 means the dimension of the input, unless zeros are allowed."""
    shape = _known_shape(n)
    if shape is not None:
        g.result("Reshape", g.operand(n.input), g.ints("shape", shape))
        return
    literal = {"allowzero": 1} if any(lowest(dim) == 0 for dim in n.type.shape) else {}
    g.result("Reshape", g.operand(n.input), g.ints("shape", n.type.shape), **literal)


def _known_shape(n: ReshapeNode) -> list[int] | None:
    """A shape in numbers: 0 for symbolic dimensions that the input has there, -1 for the only other one; else None.

    What -1 is can be told where all others are positive.
    """
    source, sizes = n.input.type.shape, []
    for axis, dim in enumerate(n.type.shape):
        if lowest(dim) == 0 and not isinstance(dim, Expr):
            return None
        is_kept = axis < len(source) and source[axis] == dim
        sizes.append(dim if isinstance(dim, int) else 0 if is_kept else -1)
    zeros = any(not size and not lowest(n.type.shape[axis]) for axis, size in enumerate(sizes))
    return None if sizes.count(-1) > 1 or (zeros and -1 in sizes) else sizes


@to_onnx(TransposeNode)
def _transpose(g: OnnxGraph, n: TransposeNode) -> None:
    g.result("Transpose", g.operand(n.input), perm=n.shuffle)


@to_onnx(ConcatNode)
def _concat(g: OnnxGraph, n: ConcatNode) -> None:
    g.result("Concat", *[g.operand(value) for value in n.inputs], axis=n.axis)


@to_onnx(SliceNode)
def _slice(g: OnnxGraph, n: SliceNode) -> None:
    """ONNX counts ends below 0 from the end, so that what reaches before the first element is told by a lower one."""
    starts, ends, axes, steps = list[Dim](), list[Dim](), list[Dim](), list[Dim]()
    source = n.input.type.shape
    for axis, (start, step, count) in enumerate(zip(n.starts, n.steps, n.type.shape, strict=True)):
        if (start, step, count) == (0, 1, source[axis]):
            continue
        axes.append(axis)
        empty = count == 0
        starts.append(0 if empty else start)
        ends.append(0 if empty else _end(g, n, start + step * count, source[axis]))
        steps.append(1 if empty else step)
    if not axes:
        g.result("Identity", g.operand(n.input))
        return
    vectors = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    g.result("Slice", g.operand(n.input), *[g.ints(name, v) for name, v in vectors.items()])


def _end(g: OnnxGraph, n: SliceNode, end: Dim, size: Dim) -> Dim:
    try:
        return end if end >= 0 else -size - 1
    except UndecidedError as error:
        g.refuse(str(error))
        return 0


@to_onnx(PadNode)
def _pad(g: OnnxGraph, n: PadNode) -> None:
    """A pad of stored integers is the one nearest to the number, by which the parameters of channels may differ."""
    element = stored(n.type, n.value)
    if element.ndim:
        g.refuse("its pads differ by channel")
        return
    value = g.constant("value", np.asarray(element, n.type.kind.dtype))
    g.result("Pad", g.operand(n.input), g.ints("pads", n.pads), value)


@to_onnx(SplatNode)
def _splat(g: OnnxGraph, n: SplatNode) -> None:
    """A tensor, which needs no operator, unless it is a result."""
    element = stored(n.type, n.value)
    if element.ndim:
        g.be(g.constant(n.name, np.broadcast_to(element, n.type.extents)))
    else:
        g.be(g.filled(n.name, n.type, element.item()))


@to_onnx(BroadcastNode)
def _broadcast(g: OnnxGraph, n: BroadcastNode) -> None:
    """Writes Expand with 1 for every dimension that the input has already."""
    pairs = zip(n.input.type.shape, n.type.shape, strict=True)
    sizes = [
        1 if isinstance(dim, Expr) and dim == size_of_input else dim for size_of_input, dim in pairs
    ]
    g.result("Expand", g.operand(n.input), g.ints("shape", sizes))


@to_onnx(ExtentsNode)
def _extents(g: OnnxGraph, n: ExtentsNode) -> None:
    g.result("Identity", g.ints(n.name, n.values))
