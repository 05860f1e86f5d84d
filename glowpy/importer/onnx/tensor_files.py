"""Tensors in files of their own, as the tests of ONNX have them (`.pb`)."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from glowpy.core.tensor import Array
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.string_tensors import decoded
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc

__all__ = ["read_tensor"]


def read_tensor(path: Path) -> Array:
    """The elements of a serialized TensorProto. Raises LoadError for an unreadable or malformed file."""
    try:
        proto = onnx.TensorProto.FromString(path.read_bytes())
        array: Array = decoded(proto.name, proto, Stores())
        return array
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", loc=Loc(str(path))) from None
    except DecodeError as error:
        raise LoadError(f"not a serialized tensor: {error}", loc=Loc(str(path))) from None
    except UserError as error:
        raise LoadError(error.diagnostics[0].message, loc=Loc(str(path))) from None
