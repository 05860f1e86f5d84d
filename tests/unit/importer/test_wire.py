"""Large tensors stay in the file: what is parsed has tickets for them, and the same model comes out."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.importer import storage
from glowpy.importer.onnx import stored, wire
from glowpy.importer.onnx.model import read_model
from glowpy.importer.onnx.wire import Extracted, extract

SIZE = 40_000


def elements(dtype: type = np.float32) -> Array:
    numbers = np.random.default_rng(3).integers(-100, 100, SIZE)
    return np.asarray(numbers != 0) if dtype is np.bool_ else np.asarray(numbers).astype(dtype)


def with_initializer(tensor: TensorProto) -> onnx.ModelProto:
    kind = helper.make_tensor_value_info("y", tensor.data_type, list(tensor.dims))
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "g", [], [kind], [tensor]), ir_version=8)


def in_field() -> onnx.ModelProto:
    return with_initializer(helper.make_tensor("w", TensorProto.FLOAT, [SIZE], elements()))


def in_attribute() -> onnx.ModelProto:
    tensor = numpy_helper.from_array(elements(), "w")
    kind = helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])
    nodes = [helper.make_node("Constant", [], ["y"], value=tensor)]
    return helper.make_model(helper.make_graph(nodes, "g", [], [kind]), ir_version=8)


def in_function() -> onnx.ModelProto:
    tensor = numpy_helper.from_array(elements(), "w")
    opsets = [helper.make_opsetid("", 18)]
    body = helper.make_function(
        "own", "W", [], ["out"], [helper.make_node("Constant", [], ["out"], value=tensor)], opsets
    )
    kind = helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])
    graph = helper.make_graph([helper.make_node("W", [], ["y"], domain="own")], "g", [], [kind])
    opsets.append(helper.make_opsetid("own", 1))
    return helper.make_model(graph, functions=[body], opset_imports=opsets, ir_version=8)


def extract_bytes(content: bytes) -> tuple[bytes, Extracted]:
    return extract(len(content), lambda start, count: content[start : start + count])


def output(model: onnx.ModelProto | Path) -> Array:
    return glowpy.compile(glowpy.load(model), "interpreter")({})["y"]


@pytest.mark.parametrize("build", [in_field, in_attribute, in_function])
def test_wherever_they_are(build: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    model = build()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    small, extracted = extract_bytes(path.read_bytes())
    assert len(small) < 1000
    assert [count for _, count in extracted.parts(path.stat().st_size)][1] == 4 * SIZE
    for form in (model, path):
        np.testing.assert_array_equal(output(form), elements())


@pytest.mark.parametrize(
    "dtype",
    [np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.int64, np.uint16, np.bool_],
)
def test_every_kind(dtype: type, tmp_path: Path) -> None:
    array = elements(dtype)
    path = tmp_path / "model.onnx"
    onnx.save(with_initializer(numpy_helper.from_array(array, "w")), path)
    result = output(path)
    assert result.dtype == array.dtype
    assert result.tobytes() == array.tobytes()


def test_nested_graphs_are_looked_into() -> None:
    then = helper.make_graph(
        [helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(elements()))],
        "then", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, [SIZE])],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=then)
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    small, extracted = extract_bytes(model.SerializeToString())
    assert len(small) < 1000
    assert len(list(extracted.parts(len(model.SerializeToString())))) == 5
    parsed = onnx.ModelProto.FromString(small)
    tensors = [a.g.node[0].attribute[0].t for a in parsed.graph.node[0].attribute]
    assert all(extracted.span(tensor.raw_data) for tensor in tensors)


def test_lists_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees have millions of numbers and texts: their attributes have no tensors."""
    model = in_field()
    names = [f"BRANCH_LEQ {number}" for number in range(500)]
    model.graph.node.append(helper.make_node("Own", ["w"], ["z"], modes=names))
    monkeypatch.setattr(wire, "_MAX_FIELDS", 100)
    content = model.SerializeToString()
    small, _ = extract_bytes(content)
    assert len(small) < len(content) - 4 * SIZE + 100


def test_a_file_of_many_fields_is_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    content = in_field().SerializeToString()
    assert len(extract_bytes(content)[0]) < 1000
    monkeypatch.setattr(wire, "_MAX_FIELDS", 3)
    assert extract_bytes(content)[0] == content


def test_elements_that_come_one_by_one_are_left_alone() -> None:
    model = in_field()
    (tensor,) = model.graph.initializer
    numbers = tensor.float_data[:]
    del tensor.float_data[:]
    unpacked = b"".join(b"\x25" + np.float32(number).tobytes() for number in numbers)
    content = tensor.SerializeToString() + unpacked
    assert onnx.TensorProto.FromString(content).float_data[:] == numbers
    model.graph.ClearField("initializer")
    graph = b"\x2a" + _varint(len(content)) + content
    whole = model.SerializeToString() + b"\x3a" + _varint(len(graph)) + graph
    assert extract_bytes(whole)[0] == whole


def test_what_is_not_well_formed_is_left_to_the_parser() -> None:
    content = in_field().SerializeToString()
    for end in (3, 5, 100, 5000, 4 * SIZE):
        assert extract_bytes(content[:end])[0] == content[:end]
    garbage = np.random.default_rng(1).bytes(10_000)
    assert extract_bytes(garbage)[0] == garbage
    assert extract_bytes(b"\xff" * 5000)[0] == b"\xff" * 5000


def test_a_field_given_twice_is_left_alone() -> None:
    """The last one counts then, as protocol buffers say."""
    first = numpy_helper.from_array(elements())
    tensor = (
        first.SerializeToString() + TensorProto(raw_data=first.raw_data[::-1]).SerializeToString()
    )
    model = in_field()
    del model.graph.initializer[:]
    tail = model.SerializeToString()
    graph = b"\x2a" + _varint(len(tensor)) + tensor
    content = tail + b"\x3a" + _varint(len(graph)) + graph
    assert extract_bytes(content)[0] == content


def _varint(number: int) -> bytes:
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def test_no_content_is_a_ticket_of_another_reading() -> None:
    _, extracted = extract_bytes(in_field().SerializeToString())
    small, _ = extract_bytes(in_field().SerializeToString())
    ticket = onnx.ModelProto.FromString(small).graph.initializer[0].raw_data
    assert len(ticket) == 24
    assert extracted.span(ticket) is None


def test_a_file_that_is_changed_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(in_field(), path)
    model = read_model(path)
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    with pytest.raises(glowpy.LoadError, match=r"model\.onnx' was changed while it was in use"):
        glowpy.compile(model.build(), "interpreter")


def test_a_file_that_is_replaced_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(in_field(), path)
    model = read_model(path)
    other = tmp_path / "other.onnx"
    onnx.save(with_initializer(numpy_helper.from_array(elements() + 1, "w")), other)
    other.replace(path)
    result = glowpy.compile(model.build(), "interpreter")({})["y"]
    np.testing.assert_array_equal(result, elements())


def test_a_model_may_be_changed_after_it_was_loaded() -> None:
    model = in_attribute()
    module = glowpy.load(model)
    model.graph.node[0].attribute[0].t.raw_data = bytes(4 * SIZE)
    np.testing.assert_array_equal(glowpy.compile(module, "interpreter")({})["y"], elements())


@pytest.mark.parametrize("where", ["initializer", "attribute"])
def test_external_data_belongs_to_the_model(where: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    digests = set()
    for sign in (1, -1):
        tensor = numpy_helper.from_array(sign * elements(), "w")
        model = with_initializer(tensor)
        if where == "attribute":
            model = in_attribute()
            model.graph.node[0].attribute[0].t.CopyFrom(tensor)
        onnx.save(model, path, save_as_external_data=True, location="w.bin", convert_attribute=True)
        loaded = read_model(path)
        digests.add(loaded.source.stores.digest)
        np.testing.assert_array_equal(output(path), sign * elements())
        (tmp_path / "w.bin").unlink()
    assert len(digests) == 2


def test_many_files_of_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_MAX_OPEN", 2)
    arrays = [elements() + index for index in range(5)]
    kinds = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [SIZE]) for i in range(5)]
    nodes = [helper.make_node("Identity", [f"w{i}"], [f"y{i}"]) for i in range(5)]
    tensors = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    model = helper.make_model(helper.make_graph(nodes, "g", [], kinds, tensors), ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=False)
    loaded = read_model(path)
    files = loaded.source.stores._files.values()
    assert [file._kept is not None for file in files].count(True) == 2
    outputs = glowpy.compile(loaded.build(), "interpreter")({})
    for index, array in enumerate(arrays):
        np.testing.assert_array_equal(outputs[f"y{index}"], array)
    for index in range(5):
        (tmp_path / f"w{index}").write_bytes(bytes(4 * SIZE))
    with pytest.raises(glowpy.LoadError, match="was changed while it was in use"):
        glowpy.compile(loaded.build(), "interpreter")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(np.arange(1 << 20, dtype=np.uint32).tobytes())
    code = (
        "import os, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from glowpy.importer.storage import InFile\n"
        "file, children = InFile(Path(sys.argv[1])), []\n"
        "for child in range(4):\n"
        "    if not (process := os.fork()):\n"
        "        starts = [(37 * i + child * 11) % 1000 * 1024 for i in range(300)]\n"
        "        same = [file.read(s * 4, 4096).view(np.uint32)[0] == s for s in starts]\n"
        "        os._exit(not all(same))\n"
        "    children.append(process)\n"
        "sys.exit(any([os.waitpid(child, 0)[1] for child in children]))\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(path)], check=True)


def test_a_file_that_is_cut_short_while_it_is_walked(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(in_field(), path)
    file = storage.InFile(path)

    def read(start: int, count: int) -> memoryview:
        os.truncate(path, 100)
        return file.read(start, count).data

    with pytest.raises(glowpy.LoadError, match="was changed while it was in use"):
        extract(file.size, read)


def test_a_sparse_tensor_of_any_size() -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.zeros(1, np.int64))
    model = with_initializer(values)
    del model.graph.initializer[:]
    sparse = helper.make_sparse_tensor(values, indices, [1 << 36])
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(glowpy.UserError, match="sparse tensor 'w': expected at most"):
        glowpy.load(model)


def test_the_digest_of_a_model_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    digests = set()
    for model in (in_field(), in_attribute(), in_field()):
        onnx.save(model, path)
        digests.add(read_model(path).source.stores.digest)
        assert read_model(path.read_bytes()).source.stores.digest in digests
    assert len(digests) == 2


def test_preparing_a_network_keeps_no_weights_in_memory(tmp_path: Path) -> None:
    """A transposition, a fold and a packing of 12 MB: what is there when all is prepared, and at most meanwhile."""
    generator = np.random.default_rng(1)
    filters = [generator.standard_normal((256, 256, 3, 3)).astype(np.float32) for _ in range(5)]
    vectors = generator.random((4, 256)).astype(np.float32)
    names = ["scale", "bias", "mean", "variance"]
    nodes, value = [], "x"
    for index in range(len(filters)):
        nodes += [
            helper.make_node("Conv", [value, f"w{index}"], [f"c{index}"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{index}", *names], [f"n{index}"]),
        ]
        value = f"n{index}"
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 256, 4, 4])
        for name in ("x", value)
    ]
    weights = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(filters)]
    weights += [numpy_helper.from_array(v, n) for v, n in zip(vectors, names, strict=True)]
    path = tmp_path / "deep.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)), path)
    backend = glowpy.CpuBackend()
    _ = backend.kernels
    gc.collect()
    tracemalloc.start()
    program = compilation(glowpy.load(path), backend).program
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = filters[0].nbytes
    assert sum(tensor.type.size for tensor in program.constants.values()) >= len(filters) * size
    assert kept < size, "only how to compute them is kept"
    assert most < 7 * size, "one at a time is computed in f64, to see whether it is finite"
