"""Products over views of open extents, compiled once: dimensions that are one loop at some extents only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.symbolic import symbol

RNG = np.random.default_rng(0)

RANGES = {"N": (1, 9), "H": (1, 7), "W": (1, 7), "R": (2, 8), "C": (2, 8)}
DIMS = {name: symbol(name, *bounds) for name, bounds in RANGES.items()}
EXTENTS = [(9, 7, 7), (1, 1, 1), (2, 1, 3), (1, 5, 1), (3, 4, 1), (1, 2, 7), (2, 7, 2), (9, 1, 1)]

TURNED = "v = Transpose<perm = [1, 0, 2]>(x)"
PRODUCTS = {
    "turned": ("float[N, 13, 24] x", TURNED, "MatMul(v, w)"),
    "turned, with an epilogue": ("float[N, 13, 24] x", TURNED, "MatMul(v, w) r = Add(p, b) s = Relu(r) y = Mul(s, b)"),
    "turned doubles": ("double[N, 13, 24] x", TURNED, "MatMul(v, w)"),
    "a part of each row": (
        "float[N, H, 30] x",
        "v = Slice(x, from, to, axis)",
        "MatMul(v, w)",
    ),
    "two open dimensions": ("float[N, H, 24] x", TURNED, "MatMul(v, w)"),
    "three in another order": (
        "float[N, H, W, 24] x",
        "v = Transpose<perm = [2, 0, 1, 3]>(x)",
        "MatMul(v, w)",
    ),
    "times matrices of a batch": (
        "float[N, H, 24] x",
        f"{TURNED} m = Expand(w, batch)",
        "MatMul(v, m)",
    ),
    "turned integers": ("uint8[N, 13, 24] x", TURNED, "MatMulInteger(v, i)"),
    "a convolution of all but a column": (
        "float[N, 24, R, C] x",
        "c = Conv(x, g) v = Slice(c, one, most, last)",
        "Conv(v, f)",
    ),
    "a convolution of all but a row": (
        "float[N, 24, R, C] x",
        "c = Conv(x, g) v = Slice(c, one, most, axis)",
        "Conv(v, f)",
    ),
}  # fmt: skip


def _model(declared: str, before: str, product: str) -> onnx.ModelProto:
    kind = np.float64 if declared.startswith("double") else np.float32
    tail = "" if "y =" in product else "y = Identity(p)"
    result = "int32" if "Integer" in product else declared.partition("[")[0]
    text = f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
    net ({declared}) => ({result} y)
    <int64[1] from = {{3}}, int64[1] to = {{27}}, int64[1] axis = {{2}}, int64[3] batch = {{1, 24, 37}},
     int64[1] one = {{1}}, int64[1] most = {{100}}, int64[1] last = {{3}}>
    {{ {before} p = {product} {tail} }}"""
    model = onnx.parser.parse_model(text)
    shapes = {"w": (24, 37), "b": (37,), "f": (37, 24, 1, 1), "g": (24, 24, 1, 1)}
    stored: dict[str, Array] = {
        **{name: RNG.standard_normal(shape).astype(kind) for name, shape in shapes.items()},
        "i": RNG.integers(-128, 128, (24, 37)).astype(np.int8),
        "q": RNG.integers(0, 256, (37, 2, 8)).astype(np.uint8),
        "scales": RNG.standard_normal((37, 2)).astype(np.float32),
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    model.graph.initializer.extend(tensors)
    return model


def _inputs(model: onnx.ModelProto, extents: Mapping[str, int]) -> dict[str, Array]:
    (port,) = model.graph.input
    dims = port.type.tensor_type.shape.dim
    shape = [extents.get(dim.dim_param, dim.dim_value) for dim in dims]
    kind = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
    return {"x": (8 * RNG.standard_normal(shape)).astype(kind)}


@pytest.mark.parametrize("title", PRODUCTS)
def test_products_over_views_at_extents_of_one(title: str) -> None:
    model = _model(*PRODUCTS[title])
    names = {dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim} & set(DIMS)
    module = glowpy.load(model, dims={name: DIMS[name] for name in names})
    compiled = glowpy.compile(module, "cpu")
    reference: Any = ReferenceEvaluator(model)
    for numbers in EXTENTS:
        batch, height, width = numbers
        extents = {"N": batch, "H": height, "W": width, "R": height + 1, "C": width + 1}
        inputs = _inputs(model, extents)
        (expected,) = reference.run(None, inputs)
        np.testing.assert_allclose(
            compiled(inputs)["y"], expected, 1e-4, 1e-4, err_msg=str(numbers)
        )


def test_a_product_of_a_view_and_weights_of_four_bits() -> None:
    """onnx's reference knows no such weights: the interpreter does."""
    product = "com.microsoft.MatMulNBits<K = 24, N = 37, bits = 4, block_size = 16>(v, q, scales)"
    model = _model("float[N, 13, 24] x", TURNED, product)
    module = glowpy.load(model, dims={"N": DIMS["N"]})
    compiled, interpreted = (glowpy.compile(module, backend) for backend in ("cpu", "interpreter"))
    for batch in (9, 1, 2):
        inputs = _inputs(model, {"N": batch})
        np.testing.assert_allclose(compiled(inputs)["y"], interpreted(inputs)["y"], 1e-3, 1e-3)
