"""Opening what is in the cache: without LLVM, without onnx and what reads it, and without the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.importer import read_model
from glowpy.llvm.code_image import is_loadable
from glowpy.onnxruntime import InferenceSession, SessionOptions
from glowpy.session.kept_model import KeptModel, open_kept
from tests.onnx.session_models import symbolic

HEAVY = (
    "llvmlite",
    "onnx",
    "google.protobuf",
    "elftools",
    "importlib.metadata",
    "glowpy.importer.onnx",
    "glowpy.importer.kit",
    "glowpy.session.host",
    "glowpy.session.hosted",
    "glowpy.graph",
    "glowpy.opt",
    "glowpy.ops",
    "glowpy.passes",
    "glowpy.recipe",
    "glowpy.engine",
    "glowpy.plugins",
    "glowpy.irgen",
    "glowpy.lower",
    "glowpy.memory",
    "glowpy.backends.interpreter",
    "glowpy.backends.cpu.compiler",
    "glowpy.backends.cpu.codegen",
    "glowpy.backends.cpu.operations",
    "glowpy.backends.cpu.library",
    "glowpy.backends.cpu.target",
    "glowpy.backends.cpu.passes",
    "glowpy.backends.cpu.strategy",
    "glowpy.llvm.machine",
    "glowpy.llvm.objects",
)
"""What neither `import glowpy` nor a session imports whose networks are in the cache."""

REPORT = f"""
import sys
names = {HEAVY!r}
print(*[name for name in sys.modules if any(name == own or name.startswith(own + ".") for own in names)])
"""
TEXT = """
<ir_version: 8, opset_import: ["": 17]>
net (float[SIZE, 8] x) => (float[SIZE, 4] y) { p = MatMul (x, w) y = Relu (p) }
"""
WEIGHTS = np.random.default_rng(0).random((8, 4), np.float32) - np.float32(0.4)


def model(size: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT.replace("SIZE", size))
    proto.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    return proto


def saved(path: Path, size: str) -> Path:
    onnx.save(model(size), path)
    return path


def heavy_after(code: str, *arguments: str | Path) -> Sequence[str]:
    command = [sys.executable, "-c", code + REPORT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


RUN = """
import sys
import numpy as np
import glowpy
session = glowpy.InferenceSession(sys.argv[1] if sys.argv[2] == "path" else open(sys.argv[1], "rb").read(), **OPTIONS)
for rows in (3, 5):
    if session.get_inputs()[0].shape[0] in (rows, "N"):
        assert session.run(None, {"x": np.ones((rows, 8), np.float32)})[0].shape == (rows, 4)
"""


def test_the_package_by_itself_imports_nothing_heavy() -> None:
    assert heavy_after("import glowpy") == []
    assert heavy_after("import glowpy; glowpy.InferenceSession, glowpy.CpuBackend") == []


@pytest.mark.skipif(not is_loadable(), reason="code is loaded by LLVM here")
@pytest.mark.parametrize("size", ["3", "N"])
def test_a_recalled_session_imports_neither_reader_nor_compiler(
    size: str, tmp_path: Path, cache_folder: Path
) -> None:
    del cache_folder
    path = saved(tmp_path / "net.onnx", size)
    variants: list[dict[str, Any]] = [{"threads": 1}, {"threads": 2, "check_indices": True}]
    if size == "3":
        variants.append({"shapes": {"x": (5, 8)}})
    for options in variants:
        code = RUN.replace("OPTIONS", repr(options))
        for way, source in (("path", path), ("bytes", path.read_bytes())):
            session = glowpy.InferenceSession(source, **options)
            rows = 5 if "shapes" in options else 3
            session.run(None, {"x": np.ones((rows, 8), np.float32)})
            assert heavy_after(code, path, way) == []


LEARNED = """
<ir_version: 8, opset_import: ["": 17]>
net (float[n, 6] x, float[m, k] z) => (float[n, 6] y, float[n, 2] w) {
    s = Add (x, z)
    y = Relu (s)
    shape = Constant <value = int64[3] {-1, 3, 2}> ()
    r = Reshape (y, shape)
    axes = Constant <value_ints = [1]> ()
    w = ReduceSum <keepdims = 0> (r, axes)
}
"""
RUN_LEARNED = """
import sys
import numpy as np
import glowpy
session = glowpy.InferenceSession(sys.argv[1])
for rows in (3, 4, 40):
    y, w = session.run(None, {"x": np.ones((rows, 6), np.float32), "z": np.ones((rows, 6), np.float32)})
    assert (y == 2).all() and (w == 6).all()
assert session.assumptions["m"] == "n" or session.assumptions["n"] == "m"
"""


@pytest.mark.skipif(not is_loadable(), reason="code is loaded by LLVM here")
def test_dimensions_are_learned_again_without_reader_and_compiler(
    tmp_path: Path, cache_folder: Path
) -> None:
    del cache_folder
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(LEARNED), path)
    session = glowpy.InferenceSession(path)
    for rows in (3, 4, 40):
        ones = np.ones((rows, 6), np.float32)
        session.run(None, {"x": ones, "z": ones})
    assert heavy_after(RUN_LEARNED, path) == []


HEAD = '<ir_version: 8, opset_import: ["": 21, "ai.onnx.ml": 3]>'
IN_PARTS: dict[str, tuple[str, dict[str, list[Any]]]] = {
    "strings": (
        """net (string[N] x) => (string[N] s, float[N] y) {
            k = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_floats = [1.0, 2.5], default_float = 7.0> (x)
            y = Neg (k)
            two = Constant <value_strings = ["!"]> ()
            s = StringConcat (x, two)
        }""",
        {"x": ["a", "b", "c"]},
    ),
    "sequence": (
        """net (float[N] x, int64 at) => (float[N] y) {
            e = SequenceEmpty <dtype = 1> ()
            r = Relu (x)
            one = SequenceInsert (e, r)
            n = Neg (x)
            two = SequenceInsert (one, n)
            y = SequenceAt (two, at)
        }""",
        {"x": [1.0, -2.0, 3.0], "at": [1]},
    ),
    "loop": (
        """net (float[N] x, int64 count) => (float[M] y) {
            keep = Constant <value = bool {1}> ()
            y = Loop (count, keep, x) <body = body (int64 i, bool go, float[K] a) => (bool more, float[L] b) {
                more = Identity (go)
                one = Constant <value_floats = [1.0]> ()
                b = Concat <axis = 0> (a, one)
            }>
        }""",
        {"x": [1.0, -2.0, 3.0], "count": [3]},
    ),
    "branch": (
        """net (float[N] x) => (float[M] y) {
            s = ReduceSum <keepdims = 0> (x)
            zero = Constant <value = float {0}> ()
            c = Greater (s, zero)
            y = If (c) <
                then_branch = then () => (float[N] t) { t = Relu (x) },
                else_branch = other () => (float[K] e) { e = Concat <axis = 0> (x, x) }
            >
        }""",
        {"x": [1.0, -2.0, 3.0]},
    ),
}
RUN_PARTS = """
import json, sys
import numpy as np
if sys.argv[3] == "drop-in":
    import glowpy.onnxruntime as glowpy
else:
    import glowpy
session = glowpy.InferenceSession(sys.argv[1])
feeds = {}
for info in session.get_inputs():
    array = np.array(json.loads(sys.argv[2])[info.name])
    kind = {"float": np.float32, "string": object, "int64": np.int64}[info.type[7:-1]]
    feeds[info.name] = array.astype(kind) if info.shape else array.astype(kind).reshape(())
assert [info.name for info in session.get_outputs()]
outputs = [array.tolist() for array in session.run(None, feeds)]
"""


@pytest.mark.skipif(not is_loadable(), reason="code is loaded by LLVM here")
@pytest.mark.parametrize("face", ["session", "drop-in"])
@pytest.mark.parametrize("name", IN_PARTS)
def test_what_a_session_computes_in_part_is_recalled_without_either(
    name: str, face: str, tmp_path: Path, cache_folder: Path
) -> None:
    del cache_folder
    text, feeds = IN_PARTS[name]
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    outputs = []
    for _ in range(2):
        variables: dict[str, Any] = {}
        sys.argv[1:], before = [str(path), json.dumps(feeds), face], sys.argv[1:]
        try:
            exec(RUN_PARTS, variables)
        finally:
            sys.argv[1:] = before
        outputs.append(variables["outputs"])
    assert outputs[0] == outputs[1]
    code = RUN_PARTS + f"assert outputs == {outputs[0]!r}"
    imported = heavy_after(code, path, json.dumps(feeds), face)
    assert [name for name in imported if not name.startswith("glowpy.session.host")] == []


STATEFUL = """
<ir_version: 8, opset_import: ["": 17]>
net (float[2, n] x, float[2, past] past_0) => (float[2, n] y, float[2, total] present_0) {
    present_0 = Concat <axis = 1> (past_0, x)
    axes = Constant <value_ints = [1]> ()
    sum = ReduceSum (present_0, axes)
    y = Add (x, sum)
}
"""
RUN_STATE = """
import sys
import numpy as np
import glowpy
session = glowpy.InferenceSession(sys.argv[1], state="auto")
for total in (3, 4, 5):
    (y,) = session.run(None, {"x": np.ones((2, 3 if total == 3 else 1), np.float32)})
    assert (y == 1 + total).all()
assert session.get_state()["past_0"].shape == (2, 5)
"""


@pytest.mark.skipif(not is_loadable(), reason="code is loaded by LLVM here")
def test_a_recalled_session_with_state_imports_neither(tmp_path: Path, cache_folder: Path) -> None:
    del cache_folder
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(STATEFUL), path)
    session = glowpy.InferenceSession(path, state="auto")
    for count in (3, 1, 1):
        session.run(None, {"x": np.ones((2, count), np.float32)})
    assert heavy_after(RUN_STATE, path) == []


DROP_IN = """
import sys
import numpy as np
import glowpy.onnxruntime as ort
options = ort.SessionOptions()
if OVERRIDE:
    options.add_free_dimension_override_by_name("N", 3)
session = ort.InferenceSession(sys.argv[1] if sys.argv[2] == "path" else open(sys.argv[1], "rb").read(), options)
assert session.get_inputs()[0].shape in ([3, 8], ["N", 8])
assert session.get_outputs()[0].shape == session.get_inputs()[0].shape[:1] + [4]
assert session.get_modelmeta().graph_name == "net"
assert session.get_overridable_initializers() == []
(y,) = session.run(None, {"x": np.ones((3, 8), np.float32)})
binding = session.io_binding()
binding.bind_cpu_input("x", np.ones((3, 8), np.float32))
binding.bind_output("y")
session.run_with_iobinding(binding)
assert (binding.copy_outputs_to_cpu()[0] == y).all()
"""


@pytest.mark.skipif(not is_loadable(), reason="code is loaded by LLVM here")
@pytest.mark.parametrize(("size", "override"), [("3", False), ("N", False), ("N", True)])
def test_a_recalled_session_of_the_drop_in_imports_neither(
    size: str, override: bool, tmp_path: Path, cache_folder: Path
) -> None:
    del cache_folder
    path = saved(tmp_path / "net.onnx", size)
    code = DROP_IN.replace("OVERRIDE", repr(override))
    options = SessionOptions()
    if override:
        options.add_free_dimension_override_by_name("N", 3)
    for way, source in (("path", str(path)), ("bytes", path.read_bytes())):
        session = InferenceSession(source, options)
        session.get_outputs()
        session.run(None, {"x": np.ones((3, 8), np.float32)})
        assert heavy_after(code, path, way) == []


def test_the_drop_in_by_itself_imports_nothing_heavy() -> None:
    assert heavy_after("import glowpy.onnxruntime") == []


OVERRIDABLE = """
<ir_version: 8, opset_import: ["": 17]>
net (float[2] x, float[2] w, int64 k) => (float[?] y) <float[2] w = {1, 2}, int64 k = {3}> { y = Add (x, w) }
"""


def test_what_the_drop_in_says_of_a_model_is_kept(tmp_path: Path, cache_folder: Path) -> None:
    del cache_folder
    proto = onnx.parser.parse_model(OVERRIDABLE)
    proto.producer_name, proto.model_version = "somebody", 7
    proto.metadata_props.add(key="a", value="1")
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    feed = {"x": np.zeros(2, np.float32)}
    for _ in range(2):
        session = InferenceSession(str(path))
        meta = session.get_modelmeta()
        assert (meta.producer_name, meta.version) == ("somebody", 7)
        assert meta.custom_metadata_map == {"a": "1"}
        overridable = session.get_overridable_initializers()
        assert [(arg.name, arg.type, arg.shape) for arg in overridable] == [
            ("w", "tensor(float)", [2]),
            ("k", "tensor(int64)", []),
        ]
        assert [arg.shape for arg in session.get_outputs()] == [[2]]
        assert session.run(None, feed)[0].tolist() == [1, 2]
        assert session.run(None, {**feed, "w": [5, 6]})[0].tolist() == [5, 6]


def opened(path: Path | bytes) -> KeptModel:
    kept = open_kept(path)
    assert isinstance(kept, KeptModel)
    assert not kept.is_read
    return kept


def is_read(path: Path | bytes) -> bool:
    """Whether opening a model reads it."""
    model = open_kept(path)
    return not isinstance(model, KeptModel) or model.is_read


def test_what_is_kept_says_what_the_model_says(tmp_path: Path, cache_folder: Path) -> None:
    del cache_folder
    path = saved(tmp_path / "net.onnx", "N")
    for source in (path, path.read_bytes()):
        whole = read_model(source)
        assert is_read(source)
        kept = opened(source)
        assert (kept.inputs, kept.outputs, kept.state) == (whole.inputs, whole.outputs, {})
        assert (kept.file, kept.digest) == (whole.file, whole.digest)
        shapes = {"x": (3, 8)}
        assert kept.key(shapes=shapes) == whole.key(shapes=shapes)
        checked = [one.for_session(checked=True, shares_caches=True) for one in (kept, whole)]
        assert checked[0].digest == checked[1].digest != kept.digest
        shapes = {"x": (3, 9)}
        resized = [one.resized(shapes) for one in (kept, whole)]
        assert resized[0].digest == resized[1].digest != kept.digest
        assert (resized[0].inputs, resized[0].outputs) == (resized[1].inputs, resized[1].outputs)
        assert kept.resized({"x": (3, 8)}).digest == kept.digest
        other = kept.resized({"x": (3, 7)})  # of which the cache says other things
        assert isinstance(other, KeptModel)
        assert isinstance(resized[0], KeptModel)
        assert len({one.identity for one in (kept, resized[0], other)}) == 3
        assert not kept.is_read
        with pytest.raises(glowpy.UserError, match=r"(net\.onnx|model): .*expected the shape"):
            kept.key(shapes={"x": (3, 7)})


def test_a_file_that_was_changed_is_read(tmp_path: Path, cache_folder: Path) -> None:
    del cache_folder
    path = saved(tmp_path / "net.onnx", "N")
    open_kept(path)
    opened(path)
    saved(path, "7")
    assert is_read(path)
    assert opened(path).inputs[0].shape == [7, 8]
    onnx.save(model("N"), path)
    later = time.time_ns() + 10**12
    os.utime(
        path, ns=(later, later)
    )  # by another clock: it may be changed again without another time
    for _ in range(2):
        assert is_read(path)


def test_external_data_is_part_of_a_model(tmp_path: Path, cache_folder: Path) -> None:
    del cache_folder
    path, data = tmp_path / "net.onnx", tmp_path / "weights"
    onnx.save(model("3"), path, save_as_external_data=True, location="weights", size_threshold=0)
    feed = {"x": np.ones((3, 8), np.float32)}
    expected = np.maximum(feed["x"] @ WEIGHTS, 0)
    for _ in range(2):
        np.testing.assert_allclose(glowpy.InferenceSession(path).run(None, feed)[0], expected, 1e-5)
    opened(path)
    data.write_bytes((2 * WEIGHTS).tobytes())
    assert is_read(path)
    np.testing.assert_allclose(glowpy.InferenceSession(path).run(None, feed)[0], 2 * expected, 1e-5)
    data.unlink()
    with pytest.raises(glowpy.UserError, match="weights"):
        glowpy.InferenceSession(path)


def test_what_was_opened_is_built_although_the_file_is_gone(
    tmp_path: Path, cache_folder: Path
) -> None:
    del cache_folder
    path = saved(tmp_path / "net.onnx", "N")
    open_kept(path)
    session = glowpy.InferenceSession(path, backend="interpreter")
    path.unlink()
    for rows in (2, 40):
        feed = {"x": np.ones((rows, 8), np.float32)}
        assert session.run(None, feed)[0].shape == (rows, 4)


def test_without_a_cache_all_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")
    path = saved(tmp_path / "net.onnx", "3")
    for _ in range(2):
        assert is_read(path)
    assert glowpy.InferenceSession(symbolic()).get_inputs()
