"""Exported files with open dimensions: they compute these from the shapes of their inputs."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import glowpy
from glowpy.core.extents import sampled, symbols_of_types, type_at
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.graph.function import Module
from glowpy.graph.node import NodeValue
from glowpy.quantization import quantize_dynamic
from glowpy.support.symbolic import Dim, greatest, symbol
from tests.bundles.networks import glow
from tests.onnx.test_export import on_onnxruntime
from tests.unit.networks import SymbolicNetwork, same_numbers

SYMBOLS: Mapping[str, Dim] = {
    "b": symbol("b", 1, 3),
    "h": symbol("h", 6, 12),
    "w": symbol("w", 7, 9),
    "n": symbol("n", 0, 5),
}
RNG = np.random.default_rng(0)


def dims_of(module: Module) -> dict[str, Dim]:
    """What dimensions of the file are, by the names that they have there."""
    dims = [dim for p in module.main.parameters for dim in p.type.shape]
    return {str(dim): dim for dim in dims if not isinstance(dim, int)}


def feeds_of(module: Module, extents: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    rng, feeds = np.random.default_rng(seed), {}
    for parameter in module.main.parameters:
        type = type_at(parameter.type, extents)
        array = (
            rng.standard_normal(type.extents)
            if type.kind.is_float
            else rng.integers(0, 2, type.extents)
        )
        feeds[parameter.original] = array.astype(type.kind.dtype)
    return feeds


def check(module: Module, path: Path, *, runtime: bool = True) -> onnx.ModelProto:
    """The file, which means the same as the module with several extents."""
    glowpy.save(module, path)
    symbols = symbols_of_types(p.type for p in module.main.parameters)
    reference = glowpy.compile(module, "interpreter")
    again = glowpy.compile(glowpy.load(path, dims=dims_of(module)), "interpreter")
    for extents in sampled(symbols):
        feeds = feeds_of(module, extents)
        with np.errstate(all="ignore"):
            expected = reference(feeds)
            same_numbers(again({name: feeds[name] for name in again.inputs}), expected)
        if runtime:
            same_numbers(on_onnxruntime(path, feeds), expected)
    return onnx.load(path)


def save_all(module: Module, values: Mapping[str, NodeValue]) -> None:
    """Makes values outputs of these names."""
    for name, value in values.items():
        module.main.create_save(f"save_{name}", value, module.create_placeholder(name, value.type))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_random_network_survives(rng: random.Random) -> None:
    module = SymbolicNetwork(rng).module
    assume(not set(module.main.parameters) & set(module.main.outputs))
    with tempfile.TemporaryDirectory() as folder:
        check(module, Path(folder) / "exported.onnx", runtime=False)


def test_images_of_any_size(tmp_path: Path) -> None:
    """Pads that depend on the size are put around the image, as attributes of windows are numbers."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[b x h x w x 3]", SYMBOLS))
    filter = module.create_constant("f", RNG.standard_normal((4, 3, 3, 3)).astype(np.float32))
    bias = module.create_constant("bias", RNG.standard_normal(4).astype(np.float32))
    pads = [greatest(2 - (SYMBOLS[name] - 1) % 2, 0) for name in "hw"]  # as SAME_UPPER has it
    same = (0, 0, *pads)
    conv = f.create_convolution("conv", x, filter, bias, (3, 3), (2, 2), same, (1, 1), 1)
    window = (2, 2), (2, 2)
    save_all(
        module,
        {
            "conv_out": conv.result,
            "pool": f.create_max_pool("p", conv, *window, (0, 0, 1, 0), (1, 1), False).result,
            "same": f.create_max_pool("s", x, (3, 3), (2, 2), same, (1, 1), False).result,
            "up": f.create_max_pool("u", x, *window, (0, 0, 0, 0), (1, 1), True).result,
            "large": f.create_max_pool("l", x, (9, 9), (9, 9), (0,) * 4, (1, 1), True).result,
            "padded": f.create_avg_pool("a", x, (3, 3), (2, 2), same, (1, 1), False, True).result,
            "mean": f.create_avg_pool("m", x, *window, (0, 0, 0, 0), (1, 1), True, False).result,
        },
    )
    file = check(module, tmp_path / "images.onnx")
    dims = [d.dim_param or d.dim_value for d in file.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["b", "h", "w", 3]


def test_numbers_stand_where_they_can(tmp_path: Path) -> None:
    """A dimension of a reshaped input is 0 in the file, the only other one that is open -1."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[b x w x 6]", SYMBOLS))
    heads = f.create_reshape("heads", parse_type("f32[b x w x 2 x 3]", SYMBOLS), x)
    rows = f.create_reshape("rows", parse_type("f32[b*w x 6]", SYMBOLS), x)
    save_all(module, {"heads_out": heads.result, "rows_out": rows.result})
    graph = check(module, tmp_path / "numbers.onnx").graph
    assert {node.op_type for node in graph.node} == {"Reshape"}
    shapes = [onnx.numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer]
    assert shapes == [[0, 0, 2, 3], [-1, 6]]


def test_what_moves_elements(tmp_path: Path) -> None:
    """Places, sizes and pads that are computed, each once; with dimensions of 0."""
    n, w = SYMBOLS["n"], SYMBOLS["w"]
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[2*n+1 x w x 1]", SYMBOLS))
    y = module.create_placeholder("y", parse_type("f32[w x 2]", SYMBOLS))
    tail = f.create_slice(
        "tail", parse_type("f32[n x w x 1]", SYMBOLS), x, (n + 1, 0, 0), (1, 1, 1)
    )
    turned = f.create_slice(
        "turned", parse_type("f32[n x 3 x 1]", SYMBOLS), tail, (0, 6, 0), (1, -2, 1)
    )
    none = f.create_slice("none", parse_type("f32[n x 0 x 1]", SYMBOLS), turned, (0,) * 3, (1,) * 3)
    padded = f.create_pad("padded", turned, (0, n, 0, w - 7, 0, 0), 1.5)
    wide = f.create_broadcast("wide", parse_type("f32[n x w x 4]", SYMBOLS), tail)
    flat = f.create_reshape("flat", parse_type("f32[w x 4*n]", SYMBOLS), wide)
    both = f.create_concat("both", [flat, y], 1)
    filled = f.create_add("filled", f.create_splat("two", both.type, 2.0), both)
    extents = f.create_extents("extents", (n // 2, 7, n * w - 3, greatest(n - 3, (n - 7) // 3)))
    values = {"padded": padded, "none": none, "filled": filled, "turned": turned}
    save_all(module, {f"{name}_out": node.result for name, node in values.items()})
    save_all(module, {"extents_out": extents.result})
    graph = check(module, tmp_path / "moves.onnx").graph
    shapes = [node for node in graph.node if node.op_type == "Shape"]
    assert len(shapes) == 2  # of what says n, and of what says w


def test_a_symbol_that_no_shape_says_by_itself(tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[b*w x 2]", SYMBOLS))
    y = module.create_placeholder("y", parse_type("f32[b*w+w x 2]", SYMBOLS))
    save_all(module, {"size": f.create_extents("extents", (SYMBOLS["w"],)).result})
    save_all(module, {"both": f.create_concat("concat", [x, y], 0).result})
    path = tmp_path / "no.onnx"
    with pytest.raises(
        glowpy.UnsupportedError, match=r"%extents \(extents\): no input's shape says by itself what"
    ):
        glowpy.save(module, path)
    assert not path.exists()


def test_quantized_network(tmp_path: Path) -> None:
    """Computed on integers at run time, with as many rows as there are."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[b x n x 64]", SYMBOLS))
    weights = module.create_constant("w", RNG.standard_normal((64, 48)).astype(np.float32))
    save_all(module, {"y": f.create_mat_mul("product", x, weights).result})
    graph = check(quantize_dynamic(module).module, tmp_path / "quantized.onnx").graph
    assert "MatMulInteger" in {node.op_type for node in graph.node}


def test_the_command_quantizes_open_networks(tmp_path: Path) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[n x 64]", SYMBOLS))
    weights = module.create_constant("w", RNG.standard_normal((64, 48)).astype(np.float32))
    save_all(module, {"y": f.create_mat_mul("product", x, weights).result})
    model, quantized = tmp_path / "floats.onnx", tmp_path / "integers.onnx"
    glowpy.save(module, model)
    words = ("quantize", model, "--weight-only", "8", "--shape", "n=0..5", "-o", quantized)
    assert glow(*words)[::2] == (0, "")
    (port,) = onnx.load(quantized).graph.input
    assert [d.dim_param or d.dim_value for d in port.type.tensor_type.shape.dim] == ["n", 64]


def test_variables_are_inputs_and_outputs(tmp_path: Path) -> None:
    """In the file, under names by which they are found again."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[b x 3]", {"b": symbol("b", 1, 2)}))
    memory = parse_type("f32[8x3]")
    past = module.create_variable(
        "past", parse_type("f32[n x 3]", {"n": symbol("n", 0, 6)}), memory
    )
    total = module.create_variable("total", parse_type("f32[3]"))
    present = f.create_concat("present", [past, x], 0)
    rows = f.create_reduce_add("rows", present, (0,))
    sums = f.create_add("sums", f.create_reshape("flat", total.type, rows), total)
    f.create_save("save_past", present, past)
    f.create_save("save_total", sums, total)
    f.create_save("save_y", sums, module.create_placeholder("y", total.type))
    path, text = tmp_path / "state.onnx", str(module)
    glowpy.save(module, path)
    assert str(module) == text
    infos = onnx.load(path).graph
    inputs, outputs = ({i.name for i in ports} for ports in (infos.input, infos.output))
    assert (inputs, outputs) == ({"x", "past", "total"}, {"y", "present", "total_next"})
    session = glowpy.InferenceSession(path, state={"past": "present", "total": "total_next"})
    network = glowpy.compile(module, "interpreter")
    state = network.state()
    for step in range(3):
        arrays = {"x": RNG.standard_normal((1 + step % 2, 3)).astype(np.float32)}
        (y,) = session.run(["y"], arrays)
        np.testing.assert_allclose(y, network(arrays, state=state)["y"], rtol=1e-5)


def searching(threshold: bool) -> onnx.ModelProto:
    """A model that finds boxes, different rows, and where numbers are, and computes with what it found."""
    floats, ints = TensorProto.FLOAT, TensorProto.INT64
    nodes = [
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "limit", "overlap", *(["threshold"] if threshold else [])],
            ["kept"],
        ),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Compress", ["x", "wanted"], ["rows"], axis=0),
        helper.make_node("Add", ["rows", "one"], ["more"]),
        helper.make_node("Unique", ["x"], ["different", "first", "inverse", "often"], axis=0),
        helper.make_node("Slice", ["x", "start", "end"], ["part"]),
        helper.make_node("Exp", ["part"], ["powers"]),
        helper.make_node("Slice", ["x", "end", "far", "start", "back"], ["reverse"]),
    ]
    ports: dict[str, tuple[int, list[int | str | None]]] = {
        "boxes": (floats, [1, "n", 4]),
        "scores": (floats, [1, 2, "n"]),
        "x": (floats, ["n", 3]),
        "wanted": (TensorProto.BOOL, ["n"]),
        "end": (ints, [1]),
    }
    results = dict.fromkeys(("kept", "places", "first", "inverse", "often"), ints)
    results |= dict.fromkeys(("more", "different", "powers", "reverse"), floats)
    values = {"limit": np.array([2]), "overlap": np.float32(0.4), "threshold": np.float32(0.3)}
    values |= {"one": np.float32(1), "start": np.array([0])}
    values |= {"far": np.array([-99]), "back": np.array([-2])}
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in values.items()]
    graph = helper.make_graph(
        nodes,
        "searching",
        [helper.make_tensor_value_info(name, *port) for name, port in ports.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in results.items()],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("threshold", [False, True])
def test_extents_that_are_found(threshold: bool, tmp_path: Path) -> None:
    """They are computed in the file from what was found."""
    model, path = searching(threshold), tmp_path / "found.onnx"
    dims = {"n": symbol("n", 1, 6)}
    module = glowpy.load(model, dims=dims)
    glowpy.save(module, path)
    reference = glowpy.compile(module, "interpreter")
    again = glowpy.compile(glowpy.load(path, dims=dims), "interpreter")
    rng = np.random.default_rng(1)
    for n in (1, 6, 4):
        corners = rng.random((1, n, 2)).astype(np.float32)
        feeds = {
            "boxes": np.concatenate([corners, corners + 0.5], 2),
            "scores": rng.random((1, 2, n)).astype(np.float32),
            "x": rng.integers(-1, 2, (n, 3)).astype(np.float32),
            "wanted": rng.random(n) > 0.4,
            "end": np.array([rng.integers(0, n + 2)]),
        }
        expected = reference(feeds)
        same_numbers(on_onnxruntime(path, feeds), expected)
        same_numbers(again(feeds), expected)
