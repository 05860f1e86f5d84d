"""Skeletons: ONNX models whose large weights have a shape and no elements, small enough for a repository.

What a network comes to in instructions and bytes follows from its graph, its shapes and its small tensors, such as
scales, permutations and masks. The elements of weights are random numbers wherever they are needed.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from glowpy.core.tensor import Array

__all__ = ["filled", "save_skeleton"]

_SMALL = 256
"""Tensors of no more elements keep them."""

_MARK = "random"
"""The doc_string of a tensor without elements."""

_RANDOM = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT8)


def save_skeleton(model: ModelProto, path: Path) -> None:
    """Writes the model without the elements of its large weights, and without what else no compiler reads."""
    for tensor in _tensors(model.graph):
        if _is_weight(tensor):
            bare = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
            bare.doc_string = _MARK
            tensor.CopyFrom(bare)
    _forget_texts(model.graph)
    path.write_bytes(gzip.compress(model.SerializeToString(deterministic=True), mtime=0))


def filled(path: Path) -> ModelProto:
    """The model of a skeleton with random weights; the same ones every time."""
    model = onnx.load_from_string(gzip.decompress(path.read_bytes()))
    rng = np.random.default_rng(0)
    for tensor in _tensors(model.graph):
        if tensor.doc_string != _MARK:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        shape = tuple(tensor.dims)
        array: Array
        if dtype.kind in "iu":
            array = rng.integers(0, 100, shape)
        elif len(shape) == 1:  # a bias, or a scale or variance, which is positive
            array = 0.1 + 0.1 * rng.random(shape, np.float32)
        else:
            array = rng.standard_normal(shape, np.float32) * 0.05
        array = array.astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The stored tensors of a graph and of those within it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                yield from _tensors(inner)


def _is_weight(tensor: TensorProto) -> bool:
    """Whether the elements are many and of many values; masks and tables of positions are of few."""
    if np.prod(tensor.dims) <= _SMALL or tensor.data_type not in _RANDOM:
        return False
    array = numpy_helper.to_array(tensor)
    values = len(np.unique(array[np.isfinite(array)] if array.dtype.kind == "f" else array))
    return bool(values > min(array.size // 4, 64))


def _forget_texts(graph: GraphProto) -> None:
    """Drops what exporters note for people: sources of nodes, shapes of intermediate results."""
    graph.ClearField("value_info")
    for node in graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _forget_texts(attribute.g)
