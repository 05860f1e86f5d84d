"""Who is right where two runtimes disagree, by what onnx's reference computes in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from glowpy.core.tensor import Array

__all__ = ["judged"]

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_TRIES = 8
_MARGIN = 8.0
"""The multiple of what inputs and weights off by up to a unit in the last place, and one way of rounding, move."""


def judged(
    model: onnx.ModelProto, feeds: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """The floats of a model in float64, and by how much rounding may move each of their elements.

    A number that is small because large ones cancel, or that is divided by one near zero, is moved by far more than
    the last place of the largest result. So is what each node rounds, where halves are added to a mask of -65504:
    onnxruntime computes some nodes of halves in floats, and rounds only what they give in the end. None where the
    reference fails.
    """
    given = {
        **{tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer},
        **feeds,
    }
    numbers = np.random.default_rng(0)
    try:
        evaluator = ReferenceEvaluator(_widened(model))
        exact = _floats(evaluator, {name: _wide(array) for name, array in given.items()})
        moved = [
            _floats(evaluator, {name: _nudged(array, numbers) for name, array in given.items()})
            for _ in range(_TRIES)
        ]
        moved.append(_floats(ReferenceEvaluator(model), feeds))
        spread = {
            name: _MARGIN * np.max([abs(other[name] - array) for other in moved], axis=0)
            for name, array in exact.items()
        }
    except Exception:  # noqa: BLE001 - it lacks operators, and moved numbers may be as many others
        return None
    return exact, spread


def _floats(evaluator: ReferenceEvaluator, given: Mapping[str, Array]) -> dict[str, Array]:
    results = evaluator.run(None, dict(given))
    named = zip(evaluator.output_names, map(np.asarray, results), strict=True)
    return {name: array for name, array in named if array.dtype.kind == "f"}


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _nudged(array: Array, numbers: np.random.Generator) -> Array:
    """Each number, up or down by at most a unit in its last place."""
    if array.dtype.kind != "f":
        return array
    parts = numbers.uniform(-1, 1, array.shape)
    return array.astype(np.float64) * (1 + parts * float(np.finfo(array.dtype).eps))


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 for its floats, and with its constants as inputs."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    graph = wide.graph
    for tensor in graph.initializer:
        graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    del graph.initializer[:], graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE
    return wide
