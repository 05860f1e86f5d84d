"""Moving elements."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import stored
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import (
    BroadcastNode,
    ConcatNode,
    PadNode,
    ReshapeNode,
    SaveNode,
    SliceNode,
    SplatNode,
    TransposeNode,
)
from glowpy.support.symbolic import static

__all__: list[str] = []


@to_onnx(SaveNode)
def _save(g: OnnxGraph, n: SaveNode) -> None:
    """Most values have the output's name already; those that do not get a second one."""
    value, output = g.operand(n.input), g.operand(n.output)
    if value != output:
        g.add_all("Identity", value, outputs=[output])


@to_onnx(ReshapeNode)
def _reshape(g: OnnxGraph, n: ReshapeNode) -> None:
    """A 0 would mean the dimension of the input."""
    literal = {"allowzero": 1} if 0 in n.type.shape else {}
    g.result("Reshape", g.operand(n.input), g.ints("shape", n.type.extents), **literal)


@to_onnx(TransposeNode)
def _transpose(g: OnnxGraph, n: TransposeNode) -> None:
    g.result("Transpose", g.operand(n.input), perm=n.shuffle)


@to_onnx(ConcatNode)
def _concat(g: OnnxGraph, n: ConcatNode) -> None:
    g.result("Concat", *[g.operand(value) for value in n.inputs], axis=n.axis)


@to_onnx(SliceNode)
def _slice(g: OnnxGraph, n: SliceNode) -> None:
    """ONNX counts ends below 0 from the end, so that what reaches before the first element is told by a lower one."""
    starts, ends, axes, steps = [], [], [], []
    source = n.input.type.extents
    for axis, (start, step, count) in enumerate(
        zip(static(n.starts), n.steps, n.type.extents, strict=True)
    ):
        if (start, step, count) == (0, 1, source[axis]):
            continue
        end = start + step * count
        axes.append(axis)
        starts.append(start if count else 0)
        ends.append(0 if not count else end if end >= 0 else -source[axis] - 1)
        steps.append(step if count else 1)
    if not axes:
        g.result("Identity", g.operand(n.input))
        return
    vectors = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    g.result("Slice", g.operand(n.input), *[g.ints(name, v) for name, v in vectors.items()])


@to_onnx(PadNode)
def _pad(g: OnnxGraph, n: PadNode) -> None:
    """A pad of stored integers is the one nearest to the number, by which the parameters of channels may differ."""
    element = stored(n.type, n.value)
    if element.ndim:
        g.refuse("its pads differ by channel")
        return
    value = g.constant("value", np.asarray(element, n.type.kind.dtype))
    g.result("Pad", g.operand(n.input), g.ints("pads", static(n.pads)), value)


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
    g.result("Expand", g.operand(n.input), g.ints("shape", n.type.extents))
