"""Files the command line reads and writes: text, tensors, and never half a file."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.onnx.reference import read_tensor
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc

__all__ = ["read_array", "read_arrays", "read_text", "write_array", "write_text"]


def read_text(path: str) -> str:
    """The text of a file; of standard input for `-`. Raises LoadError."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise LoadError(
            f"cannot read the file: {error.strerror}", loc=Loc(path), note="check the path"
        ) from None
    except UnicodeDecodeError:
        raise LoadError(
            "expected text in UTF-8", loc=Loc(path), note="an ONNX model ends in .onnx"
        ) from None


def read_array(path: str) -> Array:
    """The tensor in a .npy file or in a .pb file (a serialized ONNX TensorProto). Raises LoadError."""
    if path.endswith(".pb"):
        return read_tensor(Path(path))
    found = _load_numpy(path)
    if not isinstance(found, np.ndarray):
        raise LoadError(
            "expected one array, got an archive of several",
            loc=Loc(path),
            note="--input FILE.npz, without a name, gives every array of the archive to the input of its name",
        )
    return found


def read_arrays(path: str) -> dict[str, Array]:
    """The arrays of a .npz file by name. Raises LoadError."""
    found = _load_numpy(path)
    if isinstance(found, np.ndarray):
        raise LoadError(
            "expected an archive of arrays (.npz), got one array",
            loc=Loc(path),
            note="--input NAME=FILE says which input it is for",
        )
    return found


def _load_numpy(path: str) -> Array | dict[str, Array]:
    """What numpy reads from a .npy or .npz file, without unpickling anything."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except OSError as error:
        raise LoadError(
            f"cannot read the file: {error.strerror or error}",
            loc=Loc(path),
            note="inputs are .npy, .npz or .pb files",
        ) from None
    except (ValueError, EOFError) as error:
        raise LoadError(
            f"not a file of numbers that numpy can read: {error}",
            loc=Loc(path),
            note="write it with numpy.save",
        ) from None


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all. Raises UserError where that is impossible."""
    _write_whole(path, text.encode())


def write_array(path: Path, array: Array) -> None:
    """Writes a .npy file whole or not at all. Raises UserError where that is impossible."""
    with tempfile.SpooledTemporaryFile(max_size=1 << 26) as buffer:
        np.save(buffer, array, allow_pickle=False)
        buffer.seek(0)
        _write_whole(path, buffer.read())


def _write_whole(path: Path, content: bytes) -> None:
    """Writes beside the target under a name of its own, then renames."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as part:
            try:
                part.write(content)
                part.close()
                Path(part.name).replace(path)
            except OSError:
                Path(part.name).unlink()
                raise
    except OSError as error:
        raise UserError(
            f"cannot write the file: {error.strerror}", loc=Loc(str(path)), note="check the path"
        ) from None
