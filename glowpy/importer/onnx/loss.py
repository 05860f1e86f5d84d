"""Import of what trains: Gradient, of the preview training domain."""

from __future__ import annotations

from glowpy.autodiff.differentiate import gradients
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.data_movement import full
from glowpy.importer.onnx.node import OnnxNode, Result, Value, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


@from_onnx("Gradient", domain="ai.onnx.preview.training")
def _gradient(n: OnnxNode) -> tuple[Result, ...]:
    """The derivatives of y by each of xs, at the values the graph itself gives them; other points are not supported."""
    xs, zs, name = n.texts("xs"), n.texts("zs"), n.text("y", "")
    if list(n.proto.input) != [*xs, *zs]:
        raise n.unsupported(
            "a gradient at other values than those of 'xs' and 'zs' in the graph",
            note="give the tensors named in 'xs' and 'zs' as inputs",
        )
    y = n.scope.environment.get(name)
    if not isinstance(y, NodeValue | Tensor):
        raise UserError(f"attribute 'y': expected a tensor of the graph, got '{name}'")
    points: list[Value] = [n.value(index) for index in range(len(xs))]
    if isinstance(y, Tensor):
        return tuple(full(point.type, 0.0) for point in points)
    computed = [point for point in points if isinstance(point, NodeValue)]
    values = iter(gradients(n.f, y, computed))
    return tuple(
        next(values) if isinstance(point, NodeValue) else full(point.type, 0.0) for point in points
    )
