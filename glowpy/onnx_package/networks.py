"""The networks that the onnx package carries for its tests."""

from __future__ import annotations

from pathlib import Path

import onnx

from glowpy.support.errors import UserError

__all__ = ["packaged_network", "packaged_networks"]

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
