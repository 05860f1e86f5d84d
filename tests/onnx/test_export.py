"""Exported files: they mean what the module does, to us and to onnxruntime."""

from __future__ import annotations

import io
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import glowpy
from glowpy import quantization
from glowpy.cli.main import run
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.engine import context
from glowpy.exporter.onnx.channels_first import ChannelsFirstPass
from glowpy.exporter.onnx.qdq import EncloseMovesPass, QdqPass
from glowpy.exporter.onnx.qoperator import QOperatorPass
from glowpy.exporter.onnx.registry import FAMILIES, to_onnx
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import NODES, TreeEnsembleNode
from glowpy.graph.printer import print_function
from glowpy.importer.needs import ValueNeededError
from glowpy.importer.onnx.host.model import OnnxHostedModel
from glowpy.importer.onnx.opening import open_onnx
from glowpy.passes import RewritePass
from tests.onnx.comparison import check_session, value_of
from tests.onnx.test_node import CASES, PASSING, has_halves
from tests.ops.test_ml import grown
from tests.unit.networks import RandomNetwork, arrays_for, execute, same_numbers, unoptimized
from tests.unit.test_pass_docstrings import examples, graph
from tools import zoo

ort = pytest.importorskip("onnxruntime")


def on_onnxruntime(
    path: Path, feeds: Mapping[str, Array], *, optimize: bool = True
) -> dict[str, Array]:
    options = ort.SessionOptions()
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def interpreted(module: Module, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return glowpy.compile(module, "interpreter")(feeds)


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


NEWER = frozenset({"BitCast", "CumProd", "LinearAttention"})
"""Operators of opsets after the one that is written."""

WHOLE_FAMILIES = ("Pool", "Conv", "Quantize", "QLinear", "Integer", "Pad", "Slice")


def node_cases() -> list[str]:
    """The first case of every operator; of those with many forms, all. A module is of numbers alone."""
    names: list[str] = []
    known: set[str] = set()
    for name in sorted(PASSING):
        model = CASES[name].model
        assert model is not None
        if len(model.graph.node) != 1 or has_halves(model) or has_narrow_ports(model):
            continue
        operator = model.graph.node[0].op_type
        is_wanted = operator not in known or any(part in operator for part in WHOLE_FAMILIES)
        if operator in NEWER or not is_wanted or isinstance(open_onnx(model), OnnxHostedModel):
            continue
        names.append(name)
        known.add(operator)
    return names


NARROW = {TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2}


def has_narrow_ports(model: onnx.ModelProto) -> bool:
    """Whether inputs or outputs are of 4 bits or 2.

    In a module, and in what is written of it, integers are of 8; floats of 4 are newer than the opset that is written.
    """
    float4 = dict(TensorProto.DataType.items()).get("FLOAT4E2M1")
    infos = (*model.graph.input, *model.graph.output)
    return any(info.type.tensor_type.elem_type in {*NARROW, float4} for info in infos)


def is_code(array: Array) -> bool:
    """Whether it is an array that onnxruntime does not take in Python."""
    return ElemKind.of(array.dtype).is_code


NO_KERNEL = frozenset({"test_bitshift_left_int16"})
"""onnxruntime has no Where of 16 bits."""

INEXACT = frozenset({"test_dft", "test_stft"})
"""onnxruntime's transforms have errors of some 1e-4."""


def loaded(model: onnx.ModelProto, inputs: Sequence[Any]) -> glowpy.Module:
    """The model; with the elements of inputs that shapes depend on."""
    names = [info.name for info in model.graph.input]
    values: dict[str, Array] = {}
    while True:
        try:
            return glowpy.load(model, values=values)
        except ValueNeededError as error:
            known = {name: value_of(inputs[names.index(name)]) for name in error.inputs}
            assert not known.keys() <= values.keys()
            values |= known


@pytest.mark.parametrize("name", node_cases())
def test_node_case_survives(name: str, tmp_path: Path) -> None:
    """Exported and imported again, it gives onnx's results; and so it does on onnxruntime."""
    case = CASES[name]
    assert case.model is not None
    assert case.data_sets is not None
    inputs, outputs = case.data_sets[0]
    module = loaded(case.model, inputs)
    path = tmp_path / "exported.onnx"
    glowpy.save(module, path)
    with np.errstate(all="ignore"):
        session = glowpy.InferenceSession(path, backend="interpreter")
        check_session(session, inputs, outputs, case.rtol, max(case.atol, 1e-6))
    feeds = {
        info.name: value_of(item) for info, item in zip(session.get_inputs(), inputs, strict=True)
    }
    is_run = name not in NO_KERNEL | INEXACT and not any(map(is_code, feeds.values()))
    results = on_onnxruntime(path, feeds) if is_run else {}
    for got, item in zip(results.values(), outputs, strict=False):
        np.testing.assert_allclose(got, value_of(item), rtol=case.rtol, atol=max(case.atol, 1e-6))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.booleans())
def test_random_network_survives(rng: random.Random, optimize: bool) -> None:
    module = RandomNetwork(rng).module
    f = module.main
    assume(not set(f.parameters) & set(f.outputs))
    arrays = arrays_for(module.placeholders, 3)
    expected = execute(unoptimized(module), arrays)
    feeds = {p.original: arrays[p.name] for p in f.parameters}
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        path = Path(folder) / "exported.onnx"
        try:
            glowpy.save(module, path, optimize=optimize)
        except (
            glowpy.UnsupportedError
        ) as error:  # a mean whose shape is rounded up along one dimension of two
            assume("(avg_pool): ONNX has no operator for it" not in str(error))
            raise
        loaded = glowpy.load(path)
        results = interpreted(loaded, feeds)
    originals = {p.name: p.original for p in f.outputs}
    same_numbers(results, {originals[name]: array for name, array in expected.items()})


def tiny_cnn(f: Function, x: glowpy.Placeholder) -> glowpy.Node:
    """Channels last: a convolution, a residual sum, pools, a normalization, a concatenation."""
    rng = np.random.default_rng(5)

    def constant(name: str, *shape: int) -> glowpy.Constant:
        return f.module.create_constant(name, rng.normal(0, 1, shape).astype(np.float32))

    def conv(name: str, value: glowpy.Node | glowpy.Placeholder, inputs: int) -> glowpy.Node:
        filter, bias = constant(f"{name}_w", 4, 3, 3, inputs), constant(f"{name}_b", 4)
        window = (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)
        return f.create_convolution(name, value, filter, bias, *window, 1)

    first = f.create_relu("relu", conv("first", x, 3))
    total = f.create_add("total", conv("second", first, 4), first)
    normal = f.create_local_response_normalization("normal", total, 3, 1e-2, 0.75, 1.0)
    both = f.create_concat("both", [normal, first], 3)
    pool = f.create_max_pool("pool", both, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), ceil=False)
    scale, bias, mean = (constant(name, 8) for name in ("scale", "bias", "mean"))
    variance = f.module.create_constant("variance", np.ones(8, np.float32))
    scaled = f.create_batch_normalization("bn", pool, scale, bias, mean, variance, 3, 1e-3)
    return f.create_tanh("tanh", scaled)


def test_network_with_channels_last_is_transposed_at_its_ends(tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1x6x6x3]"))
    out = module.create_placeholder("out", parse_type("f32[1x3x3x8]"))
    f.create_save("save", tiny_cnn(f, x), out)
    feeds = {"x": np.random.default_rng(6).random((1, 6, 6, 3)).astype(np.float32)}
    path = tmp_path / "cnn.onnx"
    glowpy.save(module, path)
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert (kinds[0], kinds[-1], kinds.count("Transpose")) == ("Transpose", "Transpose", 2)
    same_numbers(on_onnxruntime(path, feeds), interpreted(module, feeds))


@pytest.mark.parametrize("name", zoo.NAMES)
def test_light_network_keeps_its_operators(name: str, tmp_path: Path) -> None:
    """Nothing is transposed that was not before."""
    path = tmp_path / "light.onnx"
    glowpy.save(glowpy.load(zoo.packaged(name)), path)
    before, after = operators(zoo.packaged(name)), operators(path)
    kinds = [
        "Conv",
        "BatchNormalization",
        "MaxPool",
        "Relu",
        "LRN",
        "Softmax",
        "Concat",
        "Transpose",
        "Gemm",
    ]
    assert {kind: after[kind] for kind in kinds} == {kind: before[kind] for kind in kinds}


def test_function_is_not_changed(tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1x6x6x3]"))
    f.create_save(
        "save", tiny_cnn(f, x), module.create_placeholder("y", parse_type("f32[1x3x3x8]"))
    )
    before = str(module)
    glowpy.save(f, tmp_path / "a.onnx", optimize=True)
    assert str(module) == before


def saved(module: Module, node: glowpy.Node, output: str) -> None:
    place = module.create_placeholder(output, node.result.type)
    module.main.create_save(f"save_{output}", node, place)


def large_network() -> Module:
    """A bias that is deferred, a splat, and weights that are stored."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("the input/é", parse_type("f32[4x200]"))
    rng = np.random.default_rng(7)
    weights = module.create_constant("w", rng.normal(0, 1, (200, 20000)).astype(np.float32))
    type = parse_type("f32[20000]")
    ramp = Tensor.deferred(
        type,
        "ramp",
        lambda: (np.arange(i, i + 5000, dtype=np.float32) for i in range(0, 20000, 5000)),
    )
    product = f.create_fully_connected("fc", x, weights, module.create_constant("ramp", ramp))
    ones = f.create_splat("ones", parse_type("f32[4x20000]"), 1.5)
    saved(module, f.create_add("sum", product, ones), "out put")
    return module


@pytest.mark.parametrize("external", [False, True])
def test_bytes_are_the_same_in_one_file_and_in_two(tmp_path: Path, external: bool) -> None:
    module, path = large_network(), tmp_path / "net.onnx"
    limit = 1 << (20 if external else 31)
    glowpy.save(module, path, external_above=limit)
    data = tmp_path / "net.onnx.data"
    assert data.exists() == external
    contents = [file.read_bytes() for file in sorted(tmp_path.iterdir())]
    glowpy.save(module, path, external_above=limit)
    assert contents == [file.read_bytes() for file in sorted(tmp_path.iterdir())]
    assert len(contents[0]) < 4000 if external else len(contents) == 1
    onnx.checker.check_model(path, full_check=True)
    feeds = {"the input/é": np.random.default_rng(8).random((4, 200)).astype(np.float32)}
    expected = interpreted(module, feeds)
    same_numbers(interpreted(glowpy.load(path), feeds), expected)
    same_numbers(on_onnxruntime(path, feeds), expected)


def test_file_may_be_the_one_that_weights_are_read_from(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    glowpy.save(large_network(), path, external_above=0)
    first = [file.read_bytes() for file in sorted(tmp_path.iterdir())]
    glowpy.save(glowpy.load(path), path, external_above=0)
    second = [file.read_bytes() for file in sorted(tmp_path.iterdir())]
    assert first[1:] == second[1:]
    feeds = {"the input/é": np.ones((4, 200), np.float32)}
    same_numbers(on_onnxruntime(path, feeds), interpreted(large_network(), feeds))


def test_all_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[4]"))
    count = module.create_placeholder("count", parse_type("u16[4]"))
    profile = f.create_quantization_profile("profile", x, 8)
    saved(module, f.create_relu("doubled", count), "y")
    saved(module, profile, "bins")
    f.create_save("back", f.create_neg("minus", x), x)
    path = tmp_path / "no.onnx"
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.save(module, path)
    assert [d.message for d in caught.value.diagnostics] == [
        "%profile (quantization_profile): ONNX has no operator for it",
        "'x': expected an input or an output, got both",
    ]
    f.erase(f.saves[-1])
    f.erase(f.saves[-1])
    f.erase_dead()
    with pytest.raises(
        glowpy.UnsupportedError,
        match=r"%doubled \(relu\): Relu of ONNX does not take tensor\(uint16\)",
    ):
        glowpy.save(module, path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["net.glow", "net.ir"])
def test_text_is_not_what_is_saved(name: str, tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[4]"))
    saved(module, f.create_relu("r", x), "y")
    with pytest.raises(glowpy.UserError, match="expected the name of an ONNX file"):
        glowpy.save(module, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_every_node_of_a_model_can_be_written() -> None:
    """All but calls and profiles, what lowers quantized arithmetic, random bits, and what came to ONNX later."""
    assert FAMILIES
    before = {rule for rewrite in ChannelsFirstPass.rules for rule in rewrite._annotated}
    missing = {cls for cls in NODES if cls not in to_onnx and cls not in before}
    assert {cls.__name__ for cls in missing} == {
        *(f"{operator}Node" for operator in NEWER),
        "CallNode",
        "QuantizationProfileNode",
        "RandomBitsNode",
        "RescaleNode",
        "ScaleRoundedNode",
        "SumPoolNode",
    }


def test_trees_and_pairs_are_written(tmp_path: Path) -> None:
    """Leaves with several weights, trees without branches, features that are missing; keys; pairs."""
    rng = np.random.default_rng(5)
    module = Module()
    f = module.create_function("main")
    results: dict[str, NodeValue] = {}
    for kind, greatest in ((ElemKind.F32, False), (ElemKind.F64, True)):
        x = module.create_placeholder(f"x{kind.value}", Type(kind, (9, 4)))
        operands: list[NodeValue] = [x.value]
        for index, table in enumerate(grown(rng, 6, 3, 4, 3, 2)):
            own = table.astype(kind.dtype if index % 2 else np.int32)
            operands.append(module.create_constant(f"table{index}", own).value)
        attrs = {"targets": 3, "greatest": greatest, "missing": True}
        results[f"trees{kind.value}"] = f.create(TreeEnsembleNode, "trees", operands, attrs).result
        keys = np.array([-0.5, 0.5, np.nan], kind.dtype)
        results[f"places{kind.value}"] = f.create_find(
            "places", x, module.create_constant("keys", keys)
        ).result
    pairs = module.create_placeholder("pairs", parse_type("f64[2x3]"))
    results["coupled"] = f.create_couple_pairs("coupled", pairs).result
    for name, value in results.items():
        f.create_save(name, value, module.create_placeholder(name, value.type))
    path = tmp_path / "ml.onnx"
    glowpy.save(module, path)
    numbers = rng.integers(-3, 4, (9, 4)) / 2
    numbers[2, 1] = numbers[5] = np.nan
    feeds: dict[str, Array] = {"xf32": numbers.astype(np.float32), "xf64": numbers}
    feeds["pairs"] = rng.uniform(0.1, 0.9, (2, 3))
    expected = interpreted(module, feeds)
    for actual in (interpreted(glowpy.load(path), feeds), on_onnxruntime(path, feeds)):
        for name, array in expected.items():
            np.testing.assert_allclose(actual[name], array, rtol=1e-5, err_msg=name)


def chained(links: int) -> Module:
    """A tree in which each branch is followed by the next on both sides, as sets have it."""
    branches = np.array([[row % 2, row + 1, row + 1] for row in range(links)], np.int32)
    branches[-1, 1:] = ~0, ~1
    tables: list[Array] = [
        branches,
        np.arange(links, dtype=np.float32) / 4,
        np.zeros((1, 2), np.int32),
        np.array([[1], [2]], np.float32),
    ]
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[9x2]"))
    operands = [x.value]
    for index, table in enumerate(tables):
        operands.append(module.create_constant(f"table{index}", table).value)
    attrs = {"targets": 1, "greatest": False, "missing": False}
    saved(
        module, module.create_function("main").create(TreeEnsembleNode, "t", operands, attrs), "y"
    )
    return module


def test_branches_that_ways_share_are_copied(tmp_path: Path) -> None:
    path = tmp_path / "trees.onnx"
    glowpy.save(chained(5), path)
    feeds = {"x": np.random.default_rng(6).uniform(-1, 3, (9, 2)).astype(np.float32)}
    expected = interpreted(chained(5), feeds)
    assert len(np.unique(expected["y"])) == 2
    same_numbers(on_onnxruntime(path, feeds), expected)
    same_numbers(interpreted(glowpy.load(path), feeds), expected)
    with pytest.raises(glowpy.UnsupportedError, match="reached in two ways"):
        glowpy.save(chained(40), path)


def test_what_two_outputs_share_and_what_is_an_input_is_written(tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[3]"))
    module.create_placeholder("unread", parse_type("i64[2]"))
    constant = module.create_constant("c", np.arange(3, dtype=np.float32))
    total = f.create_add("total", x, constant)
    values = (total.result, total.result, x.value, constant.value)
    for index, value in enumerate(values):
        output = module.create_placeholder(f"out{index}", parse_type("f32[3]"))
        f.create_save(f"save{index}", value, output)
    splat = f.create_splat("fill", parse_type("f32[2]"), 2.0)
    saved(module, splat, "filled")
    path = tmp_path / "shared.onnx"
    glowpy.save(module, path)
    feeds: dict[str, Array] = {"x": np.ones(3, np.float32), "unread": np.zeros(2, np.int64)}
    same_numbers(on_onnxruntime(path, feeds), interpreted(module, feeds))


@pytest.mark.parametrize(
    "text", ["i8[2x3](s=0.5,o=3)", "u8[2x3](s=0.5,o=3)", "i16[2x3](s=0.01,o=-7)"]
)
def test_elementwise_arithmetic_on_integers(text: str, tmp_path: Path) -> None:
    """Sums, functions of tables, maxima, moves and pads of stored integers, which are plain in the file."""
    module = Module()
    f = module.create_function("main")
    type = parse_type(text)
    x, y = (module.create_placeholder(name, type) for name in ("x", "y"))
    small = type.kind.size == 1
    total = f.create_add("total", x, y, result_type=type)
    shaped = f.create_tanh("tanh", total, result_type=type) if small else total
    high = f.create_max("high", shaped, y)
    # onnxruntime has no Pad of 16 bits.
    padded = (
        f.create_pad("padded", high, (0, 1, 0, 0), 1.0)
        if small
        else f.create_concat("wide", [high, x], 1)
    )
    saved(
        module,
        f.create_rescale(
            "rescaled",
            parse_type(f"{type.kind.value}[2x{padded.type.shape[1]}](s=0.25,o=1)"),
            padded,
        ),
        "out",
    )
    path = tmp_path / "integers.onnx"
    glowpy.save(module, path)
    rng, limits = np.random.default_rng(3), (0 if type.kind is ElemKind.U8 else -100, 100)
    feeds = {name: rng.integers(*limits, (2, 3)).astype(type.kind.dtype) for name in "xy"}
    for got in (on_onnxruntime(path, feeds), interpreted(glowpy.load(path), feeds)):
        np.testing.assert_array_equal(got["out"], interpreted(module, feeds)["out"])


@pytest.mark.parametrize("kind", [ElemKind.I8, ElemKind.U8])
def test_weights_of_4_bits_take_half_a_byte(kind: ElemKind, tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    rng, low = np.random.default_rng(4), -8 if kind is ElemKind.I8 else 0

    def integers(name: str, *shape: int) -> glowpy.Constant:
        array = rng.integers(low, low + 16, shape).astype(kind.dtype)
        return module.create_constant(name, array)

    weights, zero = integers("weights", 70, 33), integers("zero", 3, 33)
    scale = module.create_constant("scale", rng.random((3, 33)).astype(np.float32))
    numbers = f.create_dequantize_blocks("w", weights, scale, zero, axis=0, block=32, bits=4)
    x = module.create_placeholder("x", parse_type("f32[2x70]"))
    saved(module, f.create_mat_mul("product", x, numbers), "y")
    path = tmp_path / "narrow.onnx"
    glowpy.save(module, path)
    stored = {t.name: len(t.raw_data) for t in onnx.load(path).graph.initializer}
    assert (stored["weights"], stored["zero"]) == (1155, 50)
    feeds = {"x": rng.random((2, 70)).astype(np.float32)}
    expected = interpreted(module, feeds)
    # Where onnxruntime multiplies by 4 bits as they are, it rounds the other factor to 8.
    same_numbers(on_onnxruntime(path, feeds, optimize=False), expected)
    same_numbers(interpreted(glowpy.load(path), feeds), expected)


def test_rounded_rows_are_plain_operators(tmp_path: Path) -> None:
    for shape in ((3, 64), (2, 3, 40)):
        module = Module()
        f = module.create_function("main")
        x = module.create_placeholder("x", glowpy.Type(ElemKind.F32, shape))
        saved(module, f.create_round_blocks("rows", x, block=32), "y")
        path = tmp_path / "rows.onnx"
        glowpy.save(module, path)
        feeds = {"x": np.random.default_rng(5).normal(size=shape).astype(np.float32)}
        feeds["x"][0] = 0
        expected = interpreted(module, feeds)
        for got in (on_onnxruntime(path, feeds), interpreted(glowpy.load(path), feeds)):
            np.testing.assert_array_equal(got["y"], expected["y"])


def test_ranges_found_at_run_time_are_one_operator(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[5x33]"))
    weights = module.create_constant("w", rng.normal(size=(33, 7)).astype(np.float32))
    saved(module, f.create_mat_mul("product", x, weights), "y")
    dynamic = quantization.quantize_dynamic(module).module
    path = tmp_path / "dynamic.onnx"
    glowpy.save(dynamic, path)
    assert operators(path)["DynamicQuantizeLinear"] == operators(path)["MatMulInteger"] == 1
    feeds = {"x": rng.normal(size=(5, 33)).astype(np.float32)}
    expected = interpreted(dynamic, feeds)
    same_numbers(on_onnxruntime(path, feeds), expected)
    same_numbers(interpreted(glowpy.load(path), feeds), expected)


@pytest.mark.parametrize(
    "rewrite", [QdqPass(), ChannelsFirstPass(), EncloseMovesPass(), QOperatorPass()]
)
def test_docstring_shows_what_a_pass_does(rewrite: RewritePass) -> None:
    before, after = examples(rewrite)
    f = graph(before).main
    rewrite.run(f, context(glowpy.CompileOptions()))
    lines = [line.strip() for line in print_function(f).splitlines()[1:-1]]
    assert lines == [
        line.strip()
        for line in after.splitlines()
        if " : " not in line or "(" in line.split(":")[0]
    ]


def test_command_line_writes_text(tmp_path: Path) -> None:
    text = (
        "module {\n  placeholder %x : f32[2]\n  placeholder %y : f32[2]\n"
        "  function @main {\n    %a = relu(%x) : f32[2]\n    save(%a, %y)\n  }\n}\n"
    )
    path, out = tmp_path / "relu.onnx", io.StringIO()
    assert run(["export", "-", "-o", str(path)], io.StringIO(text), out) == 0, out.getvalue()
    assert operators(path) == {"Relu": 1}
