"""Files the command line reads and writes: text and tensors."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from zipfile import BadZipFile

import click
import numpy as np

from glowpy.core.array_file import named, plain
from glowpy.core.tensor import Array, Tensor
from glowpy.exporter import save
from glowpy.graph.function import Module
from glowpy.graph.node import Constant
from glowpy.graph.printer import print_module
from glowpy.importer import read_tensor
from glowpy.importer.foreign import foreign_file
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.output_files import write_output_file

__all__ = [
    "constants_file",
    "read_array",
    "read_arrays",
    "read_constants",
    "read_named_constants",
    "read_text",
    "write_constants",
    "write_named_constants",
    "write_network",
    "write_text",
]


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
        notes = {
            ".onnx": "glowpy dump prints an ONNX model as text",
            ".glow": "an ONNX model ends in .onnx",
        }
        format = foreign_file(Path(path), path)
        got = f", got {format.what}" if format is not None else ""
        note = notes.get(Path(path).suffix, "")
        raise LoadError(f"expected text in UTF-8{got}", loc=Loc(path), note=note) from None


def read_array(path: str) -> Array:
    """The tensor in a .npy file or in a .pb file (a serialized ONNX TensorProto). Raises LoadError."""
    if path.endswith(".pb"):
        return read_tensor(Path(path))
    content = _load_numpy(path)
    if not isinstance(content, np.ndarray):
        raise LoadError(
            "expected one array, got an archive of several",
            loc=Loc(path),
            note="--input FILE.npz, without a name, gives every array of the archive to the input of its name",
        )
    return content


def read_arrays(path: str) -> dict[str, Array]:
    """The arrays of a .npz file by name. Raises LoadError."""
    content = _load_numpy(path)
    if isinstance(content, np.ndarray):
        raise LoadError(
            "expected an archive of arrays (.npz), got one array",
            loc=Loc(path),
            note="--input NAME=FILE says which input it is for",
        )
    return content


def _load_numpy(path: str) -> Array | dict[str, Array]:
    """Reads a .npy or .npz file by numpy, without unpickling anything."""
    try:
        with Path(path).open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return named(content)
            return {name: named(content[name]) for name in content.files}
    except OSError as error:
        raise LoadError(
            f"cannot read the file: {error.strerror or error}",
            loc=Loc(path),
            note="arrays are in .npy, .npz or .pb files",
        ) from None
    except (ValueError, EOFError, MemoryError, BadZipFile, zlib.error) as error:
        if "Object arrays" in str(error):
            raise LoadError(
                "an array of Python objects, which cannot be read without running what the file says",
                loc=Loc(path),
                note="save strings as array.astype('U'), or as a .txt or .json file",
            ) from None
        # Of anything else than an array, numpy says that it is pickled and how to load it all the same.
        reason = "" if "pickle" in str(error) else f": {error}"
        raise LoadError(
            f"not a file of numbers that numpy can read{reason}",
            loc=Loc(path),
            note="write it with numpy.save",
        ) from None


def write_text(path: str | Path, text: str) -> None:
    """Writes a file, or standard output for `-`. Raises UserError where that is impossible."""
    if path == "-":
        click.echo(text, nl=False)
    else:
        write_output_file(path, lambda file: file.write(text.encode()))


def write_constants(path: str | Path, constants: Iterable[Constant]) -> None:
    """Writes a .npz file with the elements of constants, each under the SHA-256 that text shows for it.

    Raises UserError where that is impossible.
    """
    arrays = {constant.digest: plain(constant.array) for constant in constants}
    write_output_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def write_named_constants(path: str | Path, constants: Iterable[Constant]) -> None:
    """Writes a .npz file with the elements of constants, each under its name in the text of an IR function.

    Raises UserError where that is impossible.
    """
    arrays = {f"%{constant.name}": plain(constant.array) for constant in constants}
    write_output_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def read_named_constants(path: str) -> dict[str, Array]:
    """Reads the constants that `write_named_constants` wrote, by name. Raises LoadError."""
    arrays = read_arrays(path)
    named = {name[1:]: array for name, array in arrays.items() if name.startswith("%")}
    if arrays and not named:
        raise LoadError(
            "expected the constants of an IR function by their names",
            loc=Loc(path),
            note="write them: glowpy dump MODEL --stage ir --save-constants FILE",
        )
    return named


def constants_file(output: str) -> str | None:
    """The file for the constants beside `output`, if that is text. Raises UserError for an output of another form."""
    if output.endswith(".onnx"):
        return None
    if not output.endswith(".glow"):
        raise UserError(f"-o: expected a file that ends in .onnx or .glow, got '{output}'")
    return str(Path(output).with_suffix(".npz"))


def write_network(module: Module, output: str | None, blobs: str | None) -> None:
    """Writes a network as an ONNX file, or, if `blobs` is a file for its constants, as text; not without an output."""
    if output is None:
        return
    if blobs is None:
        save(module, output)
        return
    write_constants(blobs, module.stored)
    write_text(output, print_module(module))


def read_constants(path: str) -> dict[str, Array]:
    """Reads what `write_constants` wrote. Raises LoadError if elements do not have their digest, or are no numbers."""
    arrays = read_arrays(path)
    for digest, array in arrays.items():
        try:
            tensor = Tensor.of(array)
        except UserError as error:
            raise LoadError(error.diagnostics[0].message, loc=Loc(path)) from None
        if tensor.digest() != digest:
            raise LoadError(
                f"the elements under {digest[:12]}... are not the ones of that digest",
                loc=Loc(path),
                note="write the file anew: glowpy dump MODEL --save-constants FILE",
            )
    return arrays
