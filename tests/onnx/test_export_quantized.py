"""Quantized networks as files: onnxruntime computes them on integers, to the answers that we give."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import glowpy
from glowpy import quantization
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import parse_type
from glowpy.graph.nodes_gen import DequantizeNode
from glowpy.quantization import Options, Profile, Schema, quant_of_range
from tests.onnx.test_export import interpreted, on_onnxruntime, operators
from tests.onnx.test_quantized_models import inputs, written
from tests.unit.quantization import test_convert
from tests.unit.quantization.digits import cnn, digits, mlp

ort = pytest.importorskip("onnxruntime")

COUNT = 1000


@cache
def profiled(name: str) -> Profile:
    known, _ = digits()
    sample = {"x": np.resize(known.images, (COUNT, *known.images.shape[1:]))}
    return quantization.profile(network(name), [sample], backend="interpreter")


def network(name: str) -> glowpy.Module:
    return {"cnn": cnn, "mlp": mlp}[name](COUNT)


def last_step(module: glowpy.Module) -> float:
    """The scale of what is dequantized as the network's output."""
    (save,) = module.main.saves
    assert isinstance(save.input.node, DequantizeNode)
    quant = save.input.node.input.type.quant
    assert quant is not None
    return max(quant.scales)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cnn", Options()),
        ("mlp", Options()),
        ("cnn", Options(activations=ElemKind.I8)),
        ("cnn", Options(schema=Schema.SYMMETRIC)),
        ("cnn", Options(per_channel=False)),
        ("mlp", Options(bias=ElemKind.I16)),
    ],
)
def test_digits_are_told_alike(name: str, options: Options, tmp_path: Path) -> None:
    """On 1,000 random images: the same digit, and scores within two steps of what they are sums of."""
    module = quantization.quantize(network(name), profiled(name), options)
    path = tmp_path / "quantized.onnx"
    glowpy.save(module, path)
    feeds = {"x": np.random.default_rng(1).random((COUNT, 8, 8, 1)).astype(np.float32)}
    got, expected = on_onnxruntime(path, feeds)["y"], interpreted(module, feeds)["y"]
    np.testing.assert_array_equal(got.argmax(1), expected.argmax(1))
    assert np.abs(got - expected).max() <= 2 * last_step(module)
    kinds = {t.name: t.data_type for t in onnx.load(path).graph.initializer}
    weights = [name for name in kinds if name.startswith(("filter", "weights"))]
    assert len(weights) == {"cnn": 3, "mlp": 2}[name]
    assert {kinds[name] for name in weights} == {onnx.TensorProto.INT8}


@pytest.mark.parametrize("options", [Options(), Options(schema=Schema.POWER_OF_TWO)])
def test_all_that_is_quantized_is_written(options: Options, tmp_path: Path) -> None:
    """Tables, residual sums, means, limits and concatenations.

    The file gives the same numbers in onnxruntime and here, within two steps of 8 bits of those of the network: what
    something is added to is rounded before.
    """
    module = quantization.quantize(test_convert.network(), test_convert.profiled(), options)
    path = tmp_path / "quantized.onnx"
    glowpy.save(module, path)
    assert not {"Max", "Min"} & operators(path).keys()
    fused = run_on_integers(path, tmp_path)
    assert (fused["QLinearConv"], fused["QLinearAdd"]) == (4, 1)
    assert not {"Conv", "FusedConv", "Add"} & fused.keys()
    known, loaded = test_convert.profiled()["dense"], glowpy.load(path)
    (step,) = quant_of_range(known.low, known.high, ElemKind.U8, options.schema).scales
    for sample in test_convert.samples(count=4):
        expected, got = interpreted(loaded, sample)["y"], on_onnxruntime(path, sample)["y"]
        assert np.abs(got - expected).max() <= 2 * last_step(module)
        assert np.abs(got - interpreted(module, sample)["y"]).max() <= 2 * step


def test_sums_are_rounded_as_onnxruntime_does(tmp_path: Path) -> None:
    """Where a result lies in the middle between two integers, the last bit of the ratio of scales decides."""
    module = glowpy.Module()
    f = module.create_function("main")
    step, weight, rounded = (float(np.float32(scale)) for scale in (0.05, 0.1, 0.01))
    x = module.create_placeholder("x", parse_type(f"u8[1x16x16x1](s={step},o=0)"))
    one = Tensor(parse_type(f"i8[1x1x1x1](s={weight},o=0)"), np.ones((1, 1, 1, 1), np.int8))
    bias = Tensor(parse_type(f"i32[1](s={step * weight},o=0)"), np.zeros(1, np.int32))
    result = parse_type(f"u8[1x16x16x1](s={rounded},o=0)")
    node = f.create_convolution(
        "c", x, module.create_constant("w", one), module.create_constant("b", bias),
        (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, result_type=result,
    )  # fmt: skip
    f.create_save("save", node, module.create_placeholder("y", result))
    path = tmp_path / "quantized.onnx"
    glowpy.save(module, path)
    assert run_on_integers(path, tmp_path)["QLinearConv"] == 1
    feeds: dict[str, Array] = {"x": np.arange(256).astype(np.uint8).reshape(1, 16, 16, 1)}
    expected = interpreted(module, feeds)["y"]
    np.testing.assert_array_equal(on_onnxruntime(path, feeds)["y"], expected)


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_mean_between_products_runs_on_integers(dilation: int, tmp_path: Path) -> None:
    """onnxruntime's operator for it knows no `dilations`, not even those that change nothing: others run on floats."""
    f, x = test_convert.started()
    first = test_convert.conv(f, "first", x, (4, 4), 3)
    pool = f.create_avg_pool("pool", first, (2, 2), (2, 2), (0, 0, 0, 0), (dilation,) * 2, False)
    model = test_convert.saved(f, test_convert.conv(f, "last", pool, (4, 4), 1))
    module = quantization.quantize(model, test_convert.profile_of(model))
    path = tmp_path / "quantized.onnx"
    glowpy.save(module, path)
    names = run_on_integers(path, tmp_path)
    assert (names["QLinearAveragePool"], names["AveragePool"]) == (2 - dilation, dilation - 1)
    again = quantization.inspect(glowpy.load(path))
    assert [node.kind for node in again.nodes if not node.reason].count("avg_pool") == 1
    for sample in test_convert.samples(count=2):
        expected, got = interpreted(module, sample)["y"], on_onnxruntime(path, sample)["y"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def run_on_integers(path: Path, folder: Path) -> Counter[str]:
    """The operators that onnxruntime makes of a file."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return operators(folder / "optimized.onnx")


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    ("form", "activations", "weights", "per_channel"),
    [
        ("QDQ", "u8", "i8", True),
        ("QDQ", "i8", "i8", False),
        ("QDQ", "u8", "u8", False),
        ("QOperator", "u8", "i8", True),
    ],
)
def test_files_of_onnxruntime_survive(
    form: str, activations: str, weights: str, per_channel: bool, optimize: bool, tmp_path: Path
) -> None:
    """As many products are integer as in the first file, and results are within a step of those of the first file."""
    source = written(tmp_path, form, activations, weights, per_channel=per_channel)
    path = tmp_path / "exported.onnx"
    module = glowpy.load(source)
    glowpy.save(module, path, optimize=optimize)
    theirs, ours = run_on_integers(source, tmp_path), run_on_integers(path, tmp_path)
    assert theirs["QLinearConv"] >= 2  # of i8, which onnxruntime turns into u8 here and there
    assert ours["QLinearConv"] == theirs["QLinearConv"]
    assert ours["QGemm"] == theirs["QGemm"] == 1
    assert "Transpose" not in operators(path)
    scale = max_scale(source)
    for array in inputs(4):
        feeds: dict[str, Array] = {"x": array}
        (got,) = on_onnxruntime(path, feeds).values()
        (first,) = on_onnxruntime(source, feeds).values()
        (expected,) = interpreted(module, feeds).values()
        for other in (first, expected):
            assert np.abs(got - other).max() <= 2.01 * scale
        assert got.argmax() == expected.argmax()


def max_scale(path: Path) -> float:
    """One step of the output."""
    graph = onnx.load(path).graph
    return max(
        float(onnx.numpy_helper.to_array(tensor))
        for tensor in graph.initializer
        if tensor.name == "y_scale"
    )


def test_integers_of_32_bits_have_zero_points(tmp_path: Path) -> None:
    """Which ONNX's operator does not take."""
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder(
        "x", parse_type("i32[2x3](s=[0.5,0.25,2.0],o=[7,0,-40000],axis=1)")
    )
    y = f.create_dequantize("y", parse_type("f32[2x3]"), x).result
    f.create_save("save", y, module.create_placeholder("out", y.type))
    path = tmp_path / "wide.onnx"
    glowpy.save(module, path)
    feeds = {"x": np.array([[7, 4, -40000], [-100000, 70000, 3]], np.int32)}
    expected = (feeds["x"] - np.array([7, 0, -40000])) * np.array([0.5, 0.25, 2], np.float32)
    np.testing.assert_array_equal(interpreted(module, feeds)["out"], expected)
    np.testing.assert_array_equal(on_onnxruntime(path, feeds)["out"], expected)


@pytest.mark.parametrize(
    ("shape", "weights"),
    [
        ((3, 5, 6), (3, 6, 7)),
        ((5, 6), (3, 6, 7)),
        ((2, 3, 5, 6), (2, 3, 6, 7)),
        ((3, 5, 6), (1, 6, 7)),
    ],
)
def test_several_matrices_keep_their_scales(
    shape: tuple[int, ...], weights: tuple[int, ...], tmp_path: Path
) -> None:
    """onnxruntime computes products of bytes with scales of columns for one matrix alone."""
    rng = np.random.default_rng(0)
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type(f"f32[{'x'.join(map(str, shape))}]"))
    w = module.create_constant("w", rng.standard_normal(weights).astype(np.float32))
    node = f.create_mat_mul("product", x, w)
    f.create_save("save", node, module.create_placeholder("y", node.result.type))
    feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
    profile = quantization.profile(module, [feeds], backend="interpreter")
    quantized = quantization.quantize(module, profile)
    path = tmp_path / "quantized.onnx"
    glowpy.save(quantized, path)
    expected = interpreted(quantized, feeds)["y"]
    np.testing.assert_allclose(on_onnxruntime(path, feeds)["y"], expected, 1e-5, 1e-5)
    again = quantization.inspect(glowpy.load(path))
    assert [node.reason for node in again.nodes if node.kind == "mat_mul"] == [""]
