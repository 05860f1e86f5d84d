"""Products with weights of few bits: what onnxruntime computes, on integers that stay stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from tests.onnx.contrib_cases import RNG, Case, f32, i32


def packed(rows: int, columns: int, bits: int) -> Array:
    """Random bytes for rows of so many integers, each of which begins with a byte."""
    return RNG.integers(0, 256, (rows, -(-columns * bits // 8)), np.uint8, endpoint=False)


def product(
    bits: int, block: int, depth: int, columns: int, *, zeros: bool, bias: bool, level: int = 0
) -> Case:
    blocks = -(-depth // block)
    weights = packed(columns, blocks * block, bits).reshape(columns, blocks, block * bits // 8)
    inputs: list[Array | None] = [
        f32(2, 3, depth),
        weights,
        np.abs(f32(columns * blocks)) / 20,
        packed(columns, blocks, bits).reshape(-1) if zeros else None,
        None,
        f32(columns) if bias else None,
    ]
    given = [i for i, array in enumerate(inputs) if i and array is not None]
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    attributes["accuracy_level"] = level
    title = (
        f"{bits} bits in {block} of {depth}x{columns}, zeros {zeros}, bias {bias}, level {level}"
    )
    return Case("MatMulNBits", inputs[: max(given) + 1], attributes, title, known=given)


def cases() -> Iterator[Case]:
    yield product(4, 32, 96, 40, zeros=False, bias=False)
    yield product(4, 32, 96, 40, zeros=True, bias=False)
    yield product(4, 16, 77, 7, zeros=True, bias=True)
    yield product(4, 128, 256, 65, zeros=False, bias=True)
    yield product(8, 32, 96, 40, zeros=True, bias=False)
    yield product(8, 64, 70, 33, zeros=False, bias=False)
    yield product(4, 32, 96, 40, zeros=False, bias=False, level=4)
    yield product(4, 32, 100, 40, zeros=True, bias=True, level=4)
    yield product(4, 128, 256, 65, zeros=False, bias=True, level=4)
    yield product(8, 32, 96, 40, zeros=False, bias=False, level=4)
    yield product(4, 32, 96, 40, zeros=False, bias=False, level=1)


def four_bits(form: int, block: int, depth: int, columns: int, dtype: type) -> Case:
    """Weights of bitsandbytes: FP4 is the form 0, NF4 the form 1."""
    x: Array = f32(2, 3, depth).astype(dtype)
    codes = RNG.integers(0, 256, -(-depth * columns // 2), np.uint8, endpoint=False)
    largest: Array = np.abs(f32(-(-depth * columns // block))).astype(dtype)
    attributes = {"K": depth, "N": columns, "block_size": block, "quant_type": form}
    title = f"bitsandbytes {form} in {block} of {depth}x{columns}, {dtype.__name__}"
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return Case("MatMulBnb4", [x, codes, largest], attributes, title, known=[1, 2], outputs=(kind,))


CASES = [
    *cases(),
    *(four_bits(form, 16, 48, 7, np.float32) for form in (0, 1)),
    four_bits(1, 64, 31, 5, np.float32),
    four_bits(0, 32, 33, 9, np.float32),
]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_product(case: Case, backend: str) -> None:
    (expected,) = case.expected()
    x = case.inputs[0]
    assert x is not None
    result = glowpy.InferenceSession(case.model(), backend=backend).run(None, case.feeds)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_weights_stay_stored() -> None:
    program = compilation(glowpy.load(CASES[0].model())).program
    assert [inst.SCHEMA.mnemonic for inst in program.ir.instructions] == ["cpu_block_matmul"]
    sizes = sum(tensor.type.room for tensor in program.constants.values())
    assert sizes < 96 * 40 * 4 / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 3}, "3 bits is not supported"),
        ({"weight_prepacked": 1}, "weight_prepacked is not supported"),
        ({"block_size": 0}, "expected K, N and blocks of whole bytes, got 96, 40, 0"),
        ({"N": 41}, "expected 41 x 48 bytes as 'in1'"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, int], message: str) -> None:
    case = CASES[0]
    model = Case(case.op_type, case.inputs, {**case.attributes, **change}, known=case.known).model()
    with pytest.raises(glowpy.GlowError, match=message):
        glowpy.load(model)


def test_an_index_of_groups_is_refused() -> None:
    case = CASES[0]
    inputs = [*case.inputs, None, i32(*range(96))]
    model = Case(case.op_type, inputs, case.attributes, known=[1, 2, 4]).model()
    with pytest.raises(glowpy.GlowError, match="g_idx is not supported"):
        glowpy.load(model)


def test_weights_of_4_bits_in_blocks_stay_stored() -> None:
    """Small ones, too, which would be computed while the file is read."""
    integers, scales = RNG.integers(0, 16, (40, 64)), np.abs(f32(40, 2))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=32),
        helper.make_node("Gemm", ["x", "d"], ["y"], transB=1),
    ]
    weights = helper.make_tensor("w", TensorProto.UINT4, [40, 64], integers.reshape(-1).tolist())
    known = [weights, numpy_helper.from_array(scales, "s")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 40])]
    graph = helper.make_graph(nodes, "blocks", inputs, outputs, known)
    opset = [helper.make_opsetid("", 21)]
    module = glowpy.load(helper.make_model(graph, opset_imports=opset, ir_version=10))
    instructions = compilation(module).program.ir.instructions
    assert [inst.SCHEMA.mnemonic for inst in instructions] == ["cpu_block_matmul"]
    x = f32(3, 64)
    expected = x @ (integers * np.repeat(scales, 32, 1)).T
    result = glowpy.compile(module)({"x": x})["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)
