"""Files beside a session's model: external data from the caller, optimized models, and what `ModelCompiler` writes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy.onnxruntime as ort
from glowpy.core.tensor import Array
from glowpy.onnxruntime import logs
from glowpy.onnxruntime.capi import onnxruntime_pybind11_state as state

FLOAT = TensorProto.FLOAT
X = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
B = np.array([1, -1, 0.5, 2], np.float32)


def network(shape: list[Any] | None = None) -> onnx.ModelProto:
    """A convolution with a batch norm, which folds into it, a Relu, and a mean."""
    norm = helper.make_node("BatchNormalization", ["c", "scale", "b", "b", "var"], ["n"])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        norm,
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    stored = {"w": W, "b": B, "scale": B + 3, "var": B * B}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape or ["N", 3, "H", 6])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_external_data(folder: Path) -> Path:
    """The model's file; all of its tensors are in `w.bin`."""
    path = folder / "m.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def expected(model: Any = None, x: Array = X) -> Array:
    content = model if isinstance(model, str) else (model or network()).SerializeToString()
    y: Array = onnxruntime.InferenceSession(content).run(None, {"x": x})[0]
    return y


def same(session: Any, wanted: Array, x: Array = X) -> None:
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


# External data.


def test_values_in_place_of_files_that_are_not_there(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    (tmp_path / "w.bin").unlink()
    options = ort.SessionOptions()
    tensors = {"w": W, "b": B, "scale": B + 3, "var": B * B}
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    same(ort.InferenceSession(str(path), options), expected())
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(2 * W))
    other = network()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * W, "w"))
    same(ort.InferenceSession(path.read_bytes(), options), expected(other))
    for wrong in (W[:1], W.astype(np.float64)):
        options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(wrong))
        with pytest.raises(state.InvalidGraph, match=r"initializer 'w': expected float32\[4, 3"):
            ort.InferenceSession(str(path), options)


def test_bytes_in_place_of_files_that_are_not_there(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    content = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").unlink()
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])
    for model in (str(path), path.read_bytes()):
        same(ort.InferenceSession(model, options), expected())
    short = ort.SessionOptions()
    short.add_external_initializers_from_files_in_memory(["w.bin"], [content], [9])
    with pytest.raises(state.InvalidGraph, match=r"but 'w\.bin' has 9"):
        ort.InferenceSession(str(path), short)
    with pytest.raises(RuntimeError, match="as many names as buffers"):
        options.add_external_initializers_from_files_in_memory(["w.bin"], [], [])


@pytest.mark.parametrize(("key", "value"), [("offset", "zz"), ("offset", "-4"), ("length", "1e9")])
def test_places_in_files_that_are_no_numbers(key: str, value: str, tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    content = (tmp_path / "w.bin").read_bytes()
    model = onnx.load(path, load_external_data=False)
    entries = {entry.key: entry for entry in model.graph.initializer[0].external_data}
    entries[key].value = value
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])
    wrong = f"'w': expected a number for the {key} of its external data, got '{value}'"
    with pytest.raises(state.InvalidGraph, match=wrong):
        ort.InferenceSession(model.SerializeToString(), options)


def test_files_elsewhere_are_named_as_onnxruntime_does(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(
        state.InvalidGraph, match=r"External data path validation failed: .*'w\.bin'"
    ):
        ort.InferenceSession(str(path))


# Optimized models.


def optimizing(path: Path, **entries: str) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    for name, value in entries.items():
        options.add_session_config_entry(
            f"session.optimized_model_external_initializers_{name}", value
        )
    return options


@pytest.mark.parametrize("shape", [[2, 3, 6, 6], ["N", 3, "H", 6], [None, 3, "H", None]])
def test_optimized_model_runs_in_both(shape: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    ort.InferenceSession(network(shape).SerializeToString(), optimizing(path))
    nodes = [node.op_type for node in onnx.load(path).graph.node]
    assert "BatchNormalization" not in nodes
    for module in (onnxruntime, ort):
        same(module.InferenceSession(str(path)), expected())


def test_optimized_model_with_its_weights_apart(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    options = optimizing(path, file_name="weights.bin", min_size_in_bytes="100")
    ort.InferenceSession(with_external_data(tmp_path), options)
    assert (tmp_path / "weights.bin").stat().st_size == W.nbytes
    for module in (onnxruntime, ort):
        same(module.InferenceSession(str(path)), expected())


def test_model_that_is_not_to_be_optimized_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    options = optimizing(path)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_free_dimension_override_by_name("N", 2)
    options.add_initializer("b", ort.OrtValue.ortvalue_from_numpy(B + 1))
    ort.InferenceSession(with_external_data(tmp_path), options)
    (tmp_path / "w.bin").unlink()
    copy = onnx.load(path)
    assert [node.op_type for node in copy.graph.node] == [n.op_type for n in network().graph.node]
    assert copy.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    same(ort.InferenceSession(str(path)), expected(copy))


def test_model_of_strings_is_written_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_said", set())
    text = helper.make_tensor_value_info("t", TensorProto.STRING, [2])
    out = helper.make_tensor_value_info("u", TensorProto.STRING, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["t"], ["u"])], "g", [text], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "optimized.onnx"
    with caplog.at_level(logging.WARNING):
        ort.InferenceSession(model.SerializeToString(), optimizing(path))
    assert onnx.load(path).graph == graph
    assert "the optimized model keeps its operators" in caplog.text


def test_optimized_model_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(state.Fail, match="cannot write the optimized model"):
        ort.InferenceSession(network().SerializeToString(), optimizing(tmp_path / "no" / "m.onnx"))


def cached(root: Path) -> Path:
    """The model in the cache of a hub, where it and its weights are links."""
    path = with_external_data(root)
    folder = root / "snapshots/0123"
    folder.mkdir(parents=True)
    (root / "blobs").mkdir()
    for name in ("m.onnx", "w.bin"):
        (root / name).rename(root / "blobs" / name[0])
        (folder / name).symlink_to(f"../../blobs/{name[0]}")
    return folder / path.name


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_models_in_the_cache_of_a_hub_are_copied(level: str, tmp_path: Path) -> None:
    path, target = cached(tmp_path), tmp_path / "optimized.onnx"
    options = optimizing(target)
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    ort.InferenceSession(str(path), options)
    same(onnxruntime.InferenceSession(str(target)), expected())
    compiled = ort.ModelCompiler(
        ort.SessionOptions(), path, graph_optimization_level=options.graph_optimization_level
    )
    same(onnxruntime.InferenceSession(compiled.compile_to_bytes()), expected())


def test_files_in_memory_are_copied(tmp_path: Path) -> None:
    path, target = with_external_data(tmp_path), tmp_path / "optimized.onnx"
    content = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").unlink()
    options = optimizing(target)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])
    ort.InferenceSession(str(path), options)
    same(onnxruntime.InferenceSession(str(target)), expected())


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("target", ["m.onnx", "link.onnx", "w.bin", "data"])
def test_files_of_the_model_are_not_overwritten(level: str, target: str, tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    (tmp_path / "link.onnx").symlink_to("m.onnx")
    before = {name: (tmp_path / name).read_bytes() for name in ("m.onnx", "w.bin")}
    data = {"file_name": "w.bin", "min_size_in_bytes": "0"} if target == "data" else {}
    name = "new.onnx" if target == "data" else target
    options = optimizing(tmp_path / name, **data)
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    with pytest.raises(state.Fail, match="expected another file to write than those of the model"):
        ort.InferenceSession(str(path), options)
    compiler = ort.ModelCompiler(
        ort.SessionOptions(),
        path,
        external_initializers_file_path="w.bin" if data else None,
        graph_optimization_level=options.graph_optimization_level,
    )
    with pytest.raises(state.Fail, match="expected another file to write than those of the model"):
        compiler.compile_to_file(tmp_path / name)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert not (tmp_path / "new.onnx").exists()


# Models that are compiled.


def test_compiled_models_run_in_both(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    target = tmp_path / "compiled.onnx"
    options, flags = ort.SessionOptions(), ort.OrtCompileApiFlags
    compiler = ort.ModelCompiler(options, path, flags=flags.ERROR_IF_OUTPUT_FILE_EXISTS)
    compiler.compile_to_file(target)
    parts: list[bytes] = []
    compiler.compile_to_stream(parts.append)
    assert parts == [compiler.compile_to_bytes()] == [target.read_bytes()]
    for module in (onnxruntime, ort):
        same(module.InferenceSession(target.read_bytes()), expected())
    with pytest.raises(state.Fail, match="exists already"):
        compiler.compile_to_file(target)
    level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    small = ort.ModelCompiler(options, path, graph_optimization_level=level).compile_to_bytes()
    assert len(onnx.load_from_string(small).graph.node) < len(network().graph.node)
    same(onnxruntime.InferenceSession(small), expected())
    with pytest.raises(state.Fail, match="Unable to compile any nodes"):
        ort.ModelCompiler(options, path, flags=flags.ERROR_IF_NO_NODES_COMPILED).compile_to_bytes()
    with pytest.raises(state.NoSuchFile):
        ort.ModelCompiler(options, tmp_path / "none.onnx")


def test_compiled_models_keep_initializers_where_they_are_told(tmp_path: Path) -> None:
    path, seen = with_external_data(tmp_path), {}

    def stay(
        name: str, value: ort.OrtValue, info: ort.OrtExternalInitializerInfo | None
    ) -> ort.OrtExternalInitializerInfo | None:
        seen[name] = value.numpy().copy()
        return (
            None
            if name == "b" or info is None
            else ort.OrtExternalInitializerInfo("w.bin", info.file_offset, info.byte_size)
        )

    options = ort.SessionOptions()
    target = tmp_path / "compiled.onnx"
    ort.ModelCompiler(options, path, get_initializer_location_func=stay).compile_to_file(target)
    np.testing.assert_array_equal(seen["w"], W)
    same(onnxruntime.InferenceSession(str(target)), expected())
    kept = {
        t.name: bool(t.external_data)
        for t in onnx.load(target, load_external_data=False).graph.initializer
    }
    assert kept == {"w": True, "b": False, "scale": True, "var": True}
    apart = ort.ModelCompiler(
        options,
        path,
        external_initializers_file_path="apart.bin",
        external_initializers_size_threshold=100,
    )
    apart.compile_to_file(target)
    assert (tmp_path / "apart.bin").stat().st_size == W.nbytes
    same(ort.InferenceSession(str(target)), expected())


# What sessions know of outputs and options.


def test_sizes_of_outputs_follow_from_inputs() -> None:
    odd_names = ["None", 3, "unk__5", 6]
    for shape in (["N", 3, "H", 6], [2, 3, 6, 6], [None, 3, 6, 6], odd_names):
        content = network(shape).SerializeToString()
        wanted, got = (
            m.InferenceSession(content).get_outputs()[0].shape for m in (onnxruntime, ort)
        )
        assert got == wanted


def test_names_that_say_nothing_are_names_of_outputs() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    for name in ("None", "unk__5", "?"):
        ports = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [name, 2]) for v in "xy"]
        weights = [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")]
        graph = helper.make_graph([node], "g", ports[:1], ports[1:], weights)
        session = ort.InferenceSession(
            helper.make_model(
                graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
            ).SerializeToString()
        )
        assert session.get_outputs()[0].shape == session.get_inputs()[0].shape == [name, 2]


def test_names_that_are_declared_stay() -> None:
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["y"]),
        helper.make_node("Shape", ["y"], ["s"]),
        helper.make_node("NonZero", ["a"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("a", FLOAT, ["N", 4]),
            helper.make_tensor_value_info("b", FLOAT, [4, 5]),
        ],
        [
            helper.make_tensor_value_info("y", FLOAT, ["rows", "columns"]),
            helper.make_tensor_value_info("s", TensorProto.INT64, None),
            helper.make_tensor_value_info("z", TensorProto.INT64, None),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wanted, got = (
        [info.shape for info in m.InferenceSession(model.SerializeToString()).get_outputs()]
        for m in (onnxruntime, ort)
    )
    assert got == wanted


def test_options_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    text = '{"session_options": {"intra_op_num_threads": 2, "graph_optimization_level": 99}}'
    model.metadata_props.add(key="ort_config", value=text)
    content = model.SerializeToString()
    assert ort.InferenceSession(content).get_session_options().intra_op_num_threads == 0
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    assert ort.InferenceSession(content).get_session_options().intra_op_num_threads == 2
    model.metadata_props[0].value = text + "}"
    with pytest.raises(RuntimeError, match="ort_config` key cannot be parsed"):
        ort.InferenceSession(model.SerializeToString())


def test_version_of_a_model_without_one() -> None:
    content = network().SerializeToString()
    versions = [m.InferenceSession(content).get_modelmeta().version for m in (onnxruntime, ort)]
    assert versions[0] == versions[1]


def test_strings_are_taken_from_what_is_none() -> None:
    info = [helper.make_tensor_value_info(n, TensorProto.STRING, [2, 2]) for n in "tu"]
    graph = helper.make_graph([helper.make_node("Identity", ["t"], ["u"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    sessions = [m.InferenceSession(model.SerializeToString()) for m in (onnxruntime, ort)]
    for given in (
        np.array([[1, None], [2.5, "a"]], object),
        np.array([b"must", b"have", b"same", b"size"], np.void).reshape(2, 2),
        np.array([b"A\0", b"B\0", b"CC", b"\0D"], np.void).reshape(2, 2),
        [["a", "b"], ["c", "d"]],
        [[1, 2], [3, 4]],
    ):
        wanted, got = (session.run(None, {"t": given})[0] for session in sessions)
        assert got.tolist() == wanted.tolist()
    with pytest.raises(state.InvalidArgument, match="expected strings, got int64"):
        sessions[1].run(None, {"t": np.array([[1, 2], [3, 4]])})
    with pytest.raises(state.Fail, match="got None"):
        sessions[1].run(None, {"t": None})
    with pytest.raises(state.InvalidArgument, match="No graph was found"):
        ort.InferenceSession(b"")
    with pytest.raises(
        ValueError, match=r"Required inputs \(\['t'\]\) are missing from input feed"
    ):
        sessions[1].run(None, {})


def test_keys_of_a_map_have_its_type() -> None:
    node = helper.make_node(
        "DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[1, 2]
    )
    given = helper.make_value_info(
        "m", helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    )
    graph = helper.make_graph(
        [node], "g", [given], [helper.make_tensor_value_info("y", FLOAT, [1, 2])]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    session = ort.InferenceSession(
        helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    )
    assert session.run(None, {"m": {np.int64(2): 3.0}})[0].tolist() == [[0, 3]]
    with pytest.raises(
        RuntimeError, match="Unexpected key type  <class 'str'>, it cannot be linked"
    ):
        session.run(None, {"m": {1: 1.0, "a": 2.0}})
