"""Weights in blocks of few bits, as in onnxruntime, and integers of 4 and 2 bits in files and sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.importer.elements import NARROW
from glowpy.importer.onnx.narrow import unpacked
from tests.onnx.comparison import graph_model, info
from tests.onnx.contrib_cases import Case, f32

RNG = np.random.default_rng(6)


def packed(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def steps(*shape: int) -> Array:
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def products() -> Iterator[Case]:
    for bits in (2,):
        for depth, block in ((64, 32), (40, 16)):
            blocks = -(-depth // block)
            sizes = {"N": 5, "K": depth, "bits": bits, "block_size": block}
            weights, scales = packed(5, blocks, block * bits // 8), steps(5, blocks)
            zeros = packed(5, -(-blocks * bits // 8))
            x, title = f32(2, 3, depth), f"{bits} bits of {depth}"
            node = Case("MatMulNBits", [x, weights, scales], sizes, title, known=[1, 2])
            yield node
            yield replace(
                node, inputs=[*node.inputs, zeros], known=[1, 2, 3], title=f"{title}, zeros"
            )
    offsets = RNG.uniform(0, 15, (5, 3)).astype(np.float32)
    x, weights, scales = f32(3, 40), packed(5, 3, 8), steps(5, 3)
    sizes = {"N": 5, "K": 40, "bits": 4, "block_size": 16}
    inputs = [x, weights, scales.reshape(-1), offsets, None, f32(5)]
    yield Case("MatMulNBits", inputs, sizes, "offsets in floats, and a bias", known=[1, 2, 3, 5])


def tables() -> Iterator[Case]:
    indices = np.array([[3, 0, 6], [-1, 2, 2]])
    for bits in (4, 8):
        data, scales, zeros = packed(7, 64 * bits // 8), steps(7, 4), packed(7, 4 * bits // 8)
        sizes = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
        node = Case("GatherBlockQuantized", [data, indices, scales], sizes, f"{bits}", known=[0, 2])
        yield node
        yield replace(
            node, inputs=[*node.inputs, zeros], known=[0, 2, 3], title=f"{bits} bits, zeros"
        )
    for dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        lowest = -8 if dtype is ml_dtypes.int4 else 0
        codes = RNG.integers(lowest, lowest + 16, (7, 40)).astype(dtype)
        for axis, shape in ((1, (7, 3)), (0, (1, 40))):
            zeros = RNG.integers(lowest, lowest + 16, shape).astype(dtype)
            yield Case(
                "GatherBlockQuantized",
                [codes, indices, steps(*shape), zeros],
                {"block_size": 16, "quantize_axis": axis},
                f"{np.dtype(dtype)} by {axis}",
                known=[0, 2, 3],
            )


CASES = [replace(node, rtol=1e-4, atol=1e-4) for node in (*products(), *tables())]


@pytest.mark.parametrize("node", CASES, ids=str)
def test_blocks(node: Case) -> None:
    node.check("interpreter", node.expected())


@pytest.mark.parametrize("node", [CASES[4], CASES[-1]], ids=str)
def test_blocks_on_cpu(node: Case) -> None:
    node.check("cpu", node.expected())


@pytest.mark.parametrize(
    ("node", "attributes", "message"),
    [
        (CASES[5], {"block_size": 24}, "a power of 2 from 16 on, got 24"),
        (CASES[5], {"bits": 3}, "3 bits is not supported"),
        (CASES[5], {"gather_axis": 1, "quantize_axis": 0}, "before the packed dimension, got 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused(node: Case, attributes: dict[str, Any], message: str) -> None:
    merged = {**node.attributes, **attributes}
    assert message in replace(node, attributes=merged).error()


# Integers of 4 and 2 bits.


def numbers(dtype: np.dtype[Any], *shape: int) -> Array:
    low, high = next(narrow.limits for narrow in NARROW.values() if narrow.dtype == dtype)
    return RNG.integers(low, high, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("narrow", NARROW.values(), ids=lambda narrow: narrow.name)
@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_unpacked(narrow: Any, count: int) -> None:
    array = numbers(narrow.dtype, count)
    raw = np.frombuffer(numpy_helper.from_array(array).raw_data, np.uint8)
    got = unpacked(raw, narrow.bits, signed=narrow.kind.is_signed)[:count]
    assert got.dtype == narrow.kind.dtype
    np.testing.assert_array_equal(got, array.astype(np.int8).astype(got.dtype))


def stored_forms(array: Array, folder: Path) -> Iterator[TensorProto]:
    """Raw, in the field of its type, and in a file."""
    raw = numpy_helper.from_array(array, "w")
    yield raw
    field = TensorProto(name="w", data_type=raw.data_type, dims=raw.dims)
    alone = array.dtype.name.startswith("float6")  # in a field these are not packed
    field.int32_data.extend(array.tobytes() if alone else raw.raw_data)
    yield field
    (folder / "w.bin").write_bytes(b"----" + raw.raw_data)
    outside = TensorProto(name="w", data_type=raw.data_type, dims=raw.dims)
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "4"), ("length", str(len(raw.raw_data)))):
        outside.external_data.add(key=key, value=value)
    yield outside


@pytest.mark.parametrize("narrow", NARROW.values(), ids=lambda narrow: narrow.name)
def test_weights_of_few_bits(narrow: Any, tmp_path: Path) -> None:
    """In blocks, with zero points of few bits, in every form in which files have them."""
    weights, zeros, scales = numbers(narrow.dtype, 5, 7), numbers(narrow.dtype, 5, 3), steps(5, 3)
    node = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1, block_size=3)
    product = helper.make_node("MatMul", ["x", "d"], ["y"])
    x = f32(2, 5)
    wide = [np.repeat(part.astype(np.float32), 3, axis=1)[:, :7] for part in (zeros, scales)]
    expected = x @ ((weights.astype(np.float32) - wide[0]) * wide[1])
    for form in stored_forms(weights, tmp_path):
        model = graph_model([node, product], [info("x", x)], [], 25, {"s": scales, "z": zeros})
        model.graph.initializer.append(form)
        model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 7)))
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        session = glowpy.InferenceSession(tmp_path / "m.onnx", backend="interpreter")
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def moved() -> onnx.ModelProto:
    x = numbers(np.dtype(ml_dtypes.int4), 2, 3)
    node = helper.make_node("Transpose", ["x"], ["y"])
    return graph_model([node], [info("x", x)], [info("y", x.T)], 25)


def test_session_takes_and_gives_integers_of_few_bits() -> None:
    session = glowpy.InferenceSession(moved(), backend="interpreter")
    assert [port.type for port in (*session.get_inputs(), *session.get_outputs())] == [
        "tensor(int4)"
    ] * 2
    x = numbers(np.dtype(ml_dtypes.int4), 2, 3)
    (got,) = session.run(None, {"x": x})
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x.T)
    with pytest.raises(glowpy.UserError, match="'x': expected int4, got int8"):
        session.run(None, {"x": x.astype(np.int8)})
    with pytest.raises(glowpy.UserError, match="out: 'y' is of int4"):
        session.run(None, {"x": x}, out={"y": np.empty((3, 2), ml_dtypes.int4)})


def test_output_of_another_width_is_refused() -> None:
    model = moved()
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    with pytest.raises(glowpy.UserError, match=r"declared as tensor\(int8\), but computed as int4"):
        glowpy.load(model)
