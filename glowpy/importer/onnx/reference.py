"""onnx's own side of a check: tensors in .pb files, the reference evaluator, and the networks in the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from glowpy.core.tensor import Array
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.string_tensors import decoded
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc

__all__ = ["evaluate_reference", "packaged_network", "packaged_networks", "read_tensor"]

_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def packaged_networks() -> list[str]:
    """The names of the networks that the installed onnx package carries, such as `squeezenet`."""
    return sorted(path.stem.removeprefix("light_") for path in _LIGHT.glob("light_*.onnx"))


def packaged_network(name: str) -> Path:
    """The file of a packaged network. Raises UserError for an unknown name."""
    model = _LIGHT / f"light_{name}.onnx"
    if not model.is_file():
        raise UserError(
            f"expected one of the networks {', '.join(packaged_networks())}, got '{name}'"
        )
    return model


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


def evaluate_reference(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Runs onnx's reference evaluator; returns outputs by name. Slow: it is written in numpy."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - heavy, and seldom asked for

    evaluator = ReferenceEvaluator(str(path))
    outputs = evaluator.run(None, dict(inputs))
    return dict(zip(evaluator.output_names, outputs, strict=True))
