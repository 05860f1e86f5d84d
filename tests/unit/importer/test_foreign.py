"""Files that are no ONNX models are called what they are, with what to do about it, wherever a model is opened."""

import gzip
import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
import glowpy.onnxruntime as ort
from glowpy.cli.main import run
from glowpy.importer.foreign import foreign_file
from glowpy.onnxruntime.errors import InvalidProtobuf
from glowpy.support.errors import LoadError


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "content")
    return file.getvalue()


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def graph_node(name: bytes, operator: bytes) -> bytes:
    return field(1, field(1, name) + field(2, operator))


GRAPH = graph_node(b"input", b"Placeholder") + graph_node(b"conv", b"Conv2D")
FILES = {
    "m.tflite": (b"\x1c\0\0\0TFL3" + bytes(99), "TensorFlow Lite", "tf2onnx.convert --tflite"),
    "graph.pb": (GRAPH, "a frozen graph of TensorFlow", "tf2onnx.convert --graphdef"),
    "saved_model.pb": (
        b"\x08\x01" + field(2, field(1, field(2, b"v2"))),
        "a SavedModel of TensorFlow",
        "tf2onnx.convert --saved-model",
    ),
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(99), "Keras", ".export('model.onnx', format='onnx')"),
    "m.keras": (zipped("config.json", "model.weights.h5"), "a model of Keras", "keras.models"),
    "m.pt": (zipped("archive/data.pkl", "archive/version"), "PyTorch", "torch.onnx.export"),
    "script.pt": (zipped("m/constants.pkl", "m/code/a.py"), "PyTorch", "torch.onnx.export"),
    "m.pt2": (zipped("m/archive_format", "m/models/a.json"), "PyTorch", "torch.onnx.export"),
    "old.pth": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "PyTorch", "torch.onnx.export"),
    "m.pkl": (pickle.dumps({"a": 1}), "pickle", "skl2onnx.to_onnx"),
    "m.safetensors": (struct.pack("<Q", 9) + b'{"a": {}}', "safetensors", "optimum-cli"),
    "m.gguf": (b"GGUF\3\0\0\0", "llama.cpp", "ONNX export"),
    "m.ort": (b"\x28\0\0\0ORTM" + bytes(99), "onnxruntime's own format", "made of"),
    "m.mlmodel": (b"\x08\x05" + field(2, b"\n\x05input"), "Core ML", "made of"),
    "net.prototxt": (b'name: "LeNet"\nlayer {\n}', "Caffe", "made of"),
    "m.onnx.gz": (gzip.compress(b"model"), "a gzip archive", "gunzip < "),
    "m.zip": (zipped("m/m.onnx"), "a ZIP archive with a model in it", "unpack it"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS", "git lfs pull"),
    "page": (b"\n<!DOCTYPE html>\n<html></html>", "a page of the web", "the file itself"),
    "text": (b'{"error": "no access"}', "JSON", "name the .onnx file"),
    "p.png": (b"\x89PNG\r\n\x1a\n" + bytes(20), "an image (PNG)", "--input"),
    "p.jpg": (b"\xff\xd8\xff\xe0" + bytes(20), "an image (JPEG)", "--input"),
    "p.webp": (b"RIFF\0\0\0\0WEBPVP8 ", "an image (WebP)", "--input"),
    "x.npz": (zipped("x.npy"), "arrays of NumPy", "--input"),
    "ir.xml": (b'<?xml version="1.0"?>\n<net name="a">', "OpenVINO", "made of"),
}
"""By name: the bytes, what they are called, and what helps."""


@pytest.mark.parametrize("as_model", [False, True], ids=["own name", "model.onnx"])
@pytest.mark.parametrize("name", FILES)
def test_files_are_named(tmp_path: Path, name: str, as_model: bool) -> None:
    content, what, remedy = FILES[name]
    if as_model and name in ("m.mlmodel",):
        pytest.skip("nothing but its name tells")
    path = tmp_path / ("model.onnx" if as_model else name)
    path.write_bytes(content)
    out = io.StringIO()
    assert run(["check", str(path)], io.StringIO(), out) == 1
    error, note = out.getvalue().strip().split("\n")
    assert error.startswith(f"error: {path}: expected an ONNX model, got ")
    assert what in error
    assert note.startswith("note: ")
    assert remedy in note
    with pytest.raises(LoadError) as raised:
        glowpy.load(path)
    assert str(raised.value) == f"{error.removeprefix('error: ')}\n{note}"


@pytest.mark.parametrize(
    "verb", ["run", "bench", "check", "profile", "quantize", "convert", "bundle", "export", "dump"]
)
def test_every_verb_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.tflite").write_bytes(FILES["m.tflite"][0])
    more = {
        "profile": ["--inputs", ".", "-o", "p.yaml"],
        "quantize": ["--dynamic", "-o", "q.onnx"],
        "convert": ["--to", "f16", "-o", "h.onnx"],
        "bundle": ["-o", "b"],
        "export": ["-o", "e.onnx"],
    }.get(verb, [])
    out = io.StringIO()
    assert run([verb, "m.tflite", *more], io.StringIO(), out) == 1
    assert "m.tflite: expected an ONNX model, got a model of TensorFlow Lite" in out.getvalue()
    assert "--tflite m.tflite --output model.onnx" in out.getvalue()


def test_an_empty_file_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(LoadError, match="got an empty file\nnote: copy or download it again"):
        glowpy.load(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", ["image.png", "image.glow"])
def test_what_is_no_text_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\xff")
    out = io.StringIO()
    assert run(["opt", str(path)], io.StringIO(), out) == 1
    assert f"{path}: expected text in UTF-8, got an image (PNG)" in out.getvalue()
    if path.suffix == ".glow":
        with pytest.raises(LoadError, match=r"got an image \(PNG\)"):
            glowpy.load(path)


def test_every_face_says_so(tmp_path: Path) -> None:
    content = FILES["lfs"][0]
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for opened in (path, str(path), content):
        for call in (glowpy.load, glowpy.check, glowpy.InferenceSession):
            with pytest.raises(LoadError, match="got a pointer of Git LFS"):
                call(opened)
        with pytest.raises(InvalidProtobuf, match="got a pointer of Git LFS"):
            ort.InferenceSession(opened if isinstance(opened, bytes) else str(opened))


def test_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(LoadError, match="got a SavedModel of TensorFlow"):
        glowpy.load(tmp_path)
    (tmp_path / "saved_model.pb").rename(tmp_path / "m.onnx")
    with pytest.raises(LoadError, match=r"got a folder\nnote: name a model in it: m\.onnx"):
        glowpy.load(tmp_path)
    (tmp_path / "m.onnx").rename(tmp_path / "config.json")
    with pytest.raises(LoadError, match="optimum-cli export onnx --model"):
        glowpy.load(tmp_path)


def test_models_and_unknown_files_have_no_other_name(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Add(x, x) }'
    )
    content = model.SerializeToString()
    for name in ("m.onnx", "m"):
        assert foreign_file(content, name) is None
        assert foreign_file(content[:20], name) is None
    assert foreign_file(np.random.default_rng(1).bytes(100), "m.onnx") is None
    assert foreign_file(b"", "m.onnx") is None
    assert foreign_file(tmp_path / "nothing", "m.onnx") is None
