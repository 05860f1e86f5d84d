"""Files that are no ONNX models: what they are, as far as their first bytes, their names and their folders tell.

People export from TensorFlow, Keras and PyTorch, download pages and pointers in place of files, and compress what is
large. Nothing of such a file is decoded; archives are only asked for the names of what they hold.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from glowpy.support.errors import LoadError
from glowpy.support.loc import Loc

__all__ = ["Foreign", "foreign_file", "foreign_folder"]

HEAD = 4096
"""So many bytes tell what a file is."""

_ONNX_FILE = "model.onnx"


@dataclass(frozen=True)
class Foreign:
    """A file that is no ONNX model, and the remedy: `{file}` in it is the path, `{folder}` its folder."""

    what: str
    remedy: str

    def error(self, path: str) -> LoadError:
        """The error for who took it for a model."""
        place = Path(path)
        folder = place if place.suffix == "" else place.parent
        note = self.remedy.format(file=place, folder=folder)
        return LoadError(f"expected an ONNX model, got {self.what}", loc=Loc(path), note=note)


def _converted(how: str) -> str:
    return f"convert it: {how}"


_TORCH = _converted(f"torch.onnx.export(model, inputs, '{_ONNX_FILE}') in the program that made it")
_KERAS = _converted(f"keras.models.load_model('{{file}}').export('{_ONNX_FILE}', format='onnx')")
_SAVED_MODEL = _converted(
    f"python -m tf2onnx.convert --saved-model {{folder}} --output {_ONNX_FILE}"
)
_GRAPH = _converted(
    "python -m tf2onnx.convert --graphdef {file} --inputs x:0 --outputs y:0 --output model.onnx"
)
_LITE = _converted(f"python -m tf2onnx.convert --tflite {{file}} --output {_ONNX_FILE}")
_HUB = _converted("optimum-cli export onnx --model {folder} OUTPUT, or torch.onnx.export")
_UNPACK = "unpack it, and name the .onnx file in it"
_IMAGE = "images are inputs: name the model, and give --input NAME=FILE.npy"
_ORIGINAL = "take the ONNX model that it was made of"
_NAME = "name the .onnx file: this is a configuration, or what a server answered in its place"
_DOWNLOAD = "download the file itself, not the page about it"

_STARTS = {
    b"version https://git-lfs": Foreign(
        "a pointer of Git LFS, which stands for a file", "git lfs pull brings the file itself"
    ),
    b"\x1f\x8b": Foreign(
        "a gzip archive",
        "unpack it: gunzip < {file} > UNPACKED.onnx, or tar xf {file} if it is a .tar.gz",
    ),
    b"BZh": Foreign("a bzip2 archive", _UNPACK),
    b"\xfd7zXZ\0": Foreign("an xz archive", _UNPACK),
    b"\x28\xb5\x2f\xfd": Foreign("a Zstandard archive", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": Foreign("a 7z archive", _UNPACK),
    b"\x89PNG\r\n\x1a\n": Foreign("an image (PNG)", _IMAGE),
    b"\xff\xd8\xff": Foreign("an image (JPEG)", _IMAGE),
    b"GIF8": Foreign("an image (GIF)", _IMAGE),
    b"II*\0": Foreign("an image (TIFF)", _IMAGE),
    b"MM\0*": Foreign("an image (TIFF)", _IMAGE),
    b"%PDF": Foreign("a PDF document", _DOWNLOAD),
    b"\x7fELF": Foreign("a program or library (ELF)", _ORIGINAL),
    b"\x89HDF\r\n\x1a\n": Foreign("a model or weights of Keras (HDF5)", _KERAS),
    b"GGUF": Foreign(
        "weights of llama.cpp (GGUF)", "take the ONNX export of the same network, or make one"
    ),
    b"\x93NUMPY": Foreign("an array of NumPy", "arrays are inputs: --input NAME=FILE.npy"),
    b"tree\nversion=": Foreign(
        "a model of LightGBM", _converted("onnxmltools.convert_lightgbm, in Python")
    ),
    b"7767517\n": Foreign("a network of ncnn", _ORIGINAL),
}
"""By what files begin with."""

_AT_4 = {
    b"TFL3": Foreign("a model of TensorFlow Lite", _LITE),
    b"ORTM": Foreign("a model in onnxruntime's own format (ORT)", _ORIGINAL),
}
"""By what follows the first four bytes: FlatBuffers name their kind there."""

_SUFFIXES = {
    ".tflite": _AT_4[b"TFL3"],
    ".ort": _AT_4[b"ORTM"],
    ".h5": _STARTS[b"\x89HDF\r\n\x1a\n"],
    ".hdf5": _STARTS[b"\x89HDF\r\n\x1a\n"],
    ".keras": Foreign("a model of Keras", _KERAS),
    ".gguf": _STARTS[b"GGUF"],
    ".safetensors": Foreign("weights without a network (safetensors)", _HUB),
    ".pt": Foreign("a file of PyTorch", _TORCH),
    ".pth": Foreign("a file of PyTorch", _TORCH),
    ".pt2": Foreign("an exported program of PyTorch", _TORCH),
    ".ckpt": Foreign("a checkpoint of PyTorch or TensorFlow", _TORCH),
    ".pkl": Foreign("Python objects (pickle)", _converted("skl2onnx.to_onnx or torch.onnx.export")),
    ".joblib": Foreign("a model of scikit-learn (joblib)", _converted("skl2onnx.to_onnx")),
    ".mlmodel": Foreign("a model of Core ML", _ORIGINAL),
    ".mlpackage": Foreign("a model of Core ML", _ORIGINAL),
    ".caffemodel": Foreign("weights of Caffe", _ORIGINAL),
    ".prototxt": Foreign("a network of Caffe", _ORIGINAL),
    ".pdmodel": Foreign("a model of PaddlePaddle", _converted("paddle2onnx")),
    ".pdiparams": Foreign("weights of PaddlePaddle", _converted("paddle2onnx")),
    ".mnn": Foreign("a model of MNN", _ORIGINAL),
    ".engine": Foreign("an engine of TensorRT", _ORIGINAL),
    ".trt": Foreign("an engine of TensorRT", _ORIGINAL),
    ".onnx_data": Foreign("weights that belong to a model", "name the .onnx file beside it"),
    ".data": Foreign("weights that belong to a model", "name the .onnx file beside it"),
}
"""By how names end, where bytes do not tell."""

_IN_ZIP = (
    (re.compile(r"(.*/)?model\.weights\.h5"), _SUFFIXES[".keras"]),
    (re.compile(r"(.*/)?(constants|data)\.pkl"), _SUFFIXES[".pt"]),
    (re.compile(r"(.*/)?(archive_format|serialized_exported_program\.json)"), _SUFFIXES[".pt2"]),
    (re.compile(r".*\.npy"), Foreign("arrays of NumPy (.npz)", "arrays are inputs: --input FILE.npz")),
    (re.compile(r".*\.onnx"), Foreign("a ZIP archive with a model in it", _UNPACK)),
)  # fmt: skip
"""By what ZIP archives hold."""

_TEXTS = (
    (re.compile(rb"<!doctype html|<html", re.I), Foreign("a page of the web (HTML)", _DOWNLOAD)),
    (re.compile(rb"<\?xml.{,200}<net\s|<net\s", re.S), Foreign("a network of OpenVINO", _ORIGINAL)),
    (re.compile(rb"<svg|<\?xml.{,200}<svg", re.S), Foreign("an image (SVG)", _IMAGE)),
    (re.compile(rb"<\?xml"), Foreign("a file in XML", _DOWNLOAD)),
    (re.compile(rb"module \{|function @"), Foreign(
        "the text of a graph of glowpy", "glowpy.InferenceSession and all verbs of glowpy read it")),
    (re.compile(rb"irfunction @"), Foreign(
        "the text of an IR function of glowpy", "glowpy run and glowpy opt read it")),
    (re.compile(rb"<\s*(//.*\n\s*)*ir_version"), Foreign(
        "ONNX's text form of a model", "onnx.save(onnx.parser.parse_model(text), 'model.onnx')")),
    (re.compile(rb"\{.*\"modelTopology\"", re.S), Foreign(
        "a model of TensorFlow.js", "take the SavedModel or Keras model that it was made of")),
    (re.compile(rb"\{.*\"learner\"", re.S), Foreign(
        "a model of XGBoost", _converted("onnxmltools.convert_xgboost, in Python"))),
    (re.compile(rb"\{\s*\"|\[\s*[\{\"]"), Foreign("text in JSON", _NAME)),
    (re.compile(rb"(ir_version|producer_name|graph)\s*[:\{]"), Foreign(
        "a model as text of Protocol Buffers", "onnx.save(onnx.load('{file}', format='textproto'), 'model.onnx')")),
    (re.compile(rb"node\s*\{"), Foreign("a graph of TensorFlow, as text", _GRAPH)),
    (re.compile(rb"(name|layer|input)\s*[:\{]"), Foreign("a network of Caffe", _ORIGINAL)),
)  # fmt: skip
"""By how text begins, after spaces."""

_GRAPH_NODE = re.compile(rb"\n.[\x01-\x0f]?\n([\x01-\x7f])", re.S)
"""A GraphDef of TensorFlow begins with a node, which begins with its name; its operator follows."""


def foreign_file(content: Path | bytes, name: str) -> Foreign | None:
    """Identifies a file, or bytes of one with that name; None for what may be an ONNX model, or anything else."""
    try:
        head = content[:HEAD] if isinstance(content, bytes) else _head(content)
    except OSError:
        return None
    for found in _guesses(head, content, name):
        return found
    return None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _guesses(head: bytes, content: Path | bytes, name: str) -> Iterator[Foreign]:
    """Yields the formats that it may have, the surest first."""
    yield from (format for start, format in _STARTS.items() if head.startswith(start))
    yield from (format for mark, format in _AT_4.items() if head[4:8] == mark)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        yield Foreign("an image (WebP)", _IMAGE)
    if head[257:262] == b"ustar":
        yield Foreign("a tar archive", _UNPACK)
    if head.startswith(b"PK\x03\x04"):
        yield _in_zip(content, name)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        yield _SUFFIXES[".safetensors"]
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        torch = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19" in head[:32]
        yield _SUFFIXES[".pt" if torch or Path(name).suffix in (".pt", ".pth") else ".pkl"]
    if head[:3] == b"\x08\x01\x12" and b"\n" in head[4:9] and Path(name).suffix != ".mlmodel":
        yield Foreign("a SavedModel of TensorFlow", _SAVED_MODEL)
    if _is_graph(head):
        yield Foreign("a frozen graph of TensorFlow", _GRAPH)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    yield from (format for form, format in _TEXTS if form.match(text))
    if by_suffix := _SUFFIXES.get(Path(name).suffix.lower()):
        yield by_suffix


def _is_graph(head: bytes) -> bool:
    match = _GRAPH_NODE.match(head)
    if match is None:
        return False
    operator = match.end() + match[1][0]
    length = head[operator + 1 : operator + 2]
    word = head[operator + 2 : operator + 2 + length[0]] if length else b""
    return head[operator : operator + 1] == b"\x12" and word.isalnum()


def _in_zip(content: Path | bytes, name: str) -> Foreign:
    names: list[str] = []
    archive = BytesIO(content) if isinstance(content, bytes) else content
    with suppress(zipfile.BadZipFile, OSError, ValueError), zipfile.ZipFile(archive) as file:
        names = file.namelist()
    formats = (format for form, format in _IN_ZIP if any(form.fullmatch(entry) for entry in names))
    by_suffix = _SUFFIXES.get(Path(name).suffix.lower())
    return next(formats, by_suffix or Foreign("a ZIP archive", _UNPACK))


def foreign_folder(folder: Path) -> Foreign | None:
    """Identifies a folder; None for one that nothing is known of."""
    if (folder / "saved_model.pb").is_file():
        return Foreign("a SavedModel of TensorFlow", _SAVED_MODEL)
    if folder.suffix == ".mlpackage":
        return _SUFFIXES[".mlpackage"]
    models = sorted(path.name for path in folder.glob("*.onnx"))
    if models:
        return Foreign(
            "a folder", f"name a model in it: {', '.join(models[:3])}{', ...' * (len(models) > 3)}"
        )
    if (folder / "config.json").is_file():
        return Foreign("a folder of transformers", _HUB)
    return None
