"""Random weights for an ONNX model that has none worth computing with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from glowpy.core.tensor import Array

__all__ = ["with_random_weights"]


def with_random_weights(file: Path, seed: int) -> onnx.ModelProto:
    """The model in a file with other floats for all of its f32 initializers and constants of one value.

    The networks in the onnx package have the same number in every weight, and most give the same output for every
    class: a wrong kernel would not show. Here matrices and filters keep activations at about their size
    (He et al. 2015), and vectors, which are biases, scales and variances, are between 0.1 and 0.2. The same seed gives
    the same weights.
    """
    model = onnx.load(file)
    model.ir_version = max(model.ir_version, 4)  # before, an initializer had to be an input as well
    graph, rng = model.graph, np.random.default_rng(seed)
    transposed = {node.input[1] for node in graph.node if _is_transposed(node)}
    weights = list(_weights(graph))
    _remove_constants(graph, [name for name, _ in weights])  # first: it copies what stays
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for name, shape in weights:
        tensor = numpy_helper.from_array(_random(shape, name in transposed, rng), name)
        if name in stored:
            stored[name].CopyFrom(tensor)
        else:
            graph.initializer.append(tensor)
    return model


def _remove_constants(graph: onnx.GraphProto, weights: Iterable[str]) -> None:
    """Removes the nodes whose results become initializers, and the shapes that only they read."""
    stored = {*weights, *(tensor.name for tensor in graph.initializer)}
    nodes = [node for node in graph.node if node.output[0] not in stored]
    shapes = {name for node in graph.node if node.output[0] in stored for name in node.input}
    shapes -= {name for node in nodes for name in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name not in shapes]
    inputs = [info for info in graph.input if info.name not in {*shapes, *stored}]
    for field, rest in (("node", nodes), ("initializer", initializers), ("input", inputs)):
        graph.ClearField(field)
        getattr(graph, field).extend(rest)


def _weights(graph: onnx.GraphProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and shape of everything that is to have other numbers, in the order of the model."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for tensor in list(graph.initializer):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            yield tensor.name, tuple(tensor.dims)
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            value = [attribute.t.data_type for attribute in node.attribute]
            if value in ([], [onnx.TensorProto.FLOAT]):
                yield node.output[0], tuple(numpy_helper.to_array(stored[node.input[0]]).tolist())


def _is_transposed(node: onnx.NodeProto) -> bool:
    """Whether a node multiplies by a matrix that has its outputs along the first dimension."""
    return node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute)


def _random(shape: tuple[int, ...], transposed: bool, rng: np.random.Generator) -> Array:
    count = int(np.prod(shape))
    if count <= max(shape, default=1):
        return np.asarray(0.1 + 0.1 * rng.random(shape), np.float32)
    outputs = shape[-1] if len(shape) == 2 and not transposed else shape[0]
    deviation = np.float32(np.sqrt(2 * outputs / count))
    array = rng.standard_normal(shape, np.float32)
    array *= deviation
    return array
