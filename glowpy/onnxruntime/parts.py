"""The parts of an installed onnxruntime that are Python only, under the drop-in: quantizers, tools, and the like.

They import `onnxruntime`, and get whatever has that name: after `sys.modules["onnxruntime"] = glowpy.onnxruntime` their
sessions are glowpy's. Nothing is looked for before somebody imports such a part, and onnxruntime itself is not loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import final

__all__ = ["PARTS", "find_parts", "part"]

PARTS = ("backend", "datasets", "quantization", "tools", "transformers")
"""Packages beside the API in onnxruntime's package."""

_SOURCES = ("capi.convert_npz_to_onnx_adapter", "capi.onnxruntime_validation")
"""Modules of its package `capi` that are Python only and that the drop-in has no own of."""

_NAMES = ("onnxruntime", "glowpy.onnxruntime")
"""Names under which the drop-in may be imported."""


@final
class _Parts(MetaPathFinder):
    """Finds the parts where onnxruntime is installed, if a module asks for them under the drop-in's name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a part is; None for what is none. Raises ModuleNotFoundError if onnxruntime is not installed."""
        del path, target
        for root in _NAMES:
            inner = fullname.removeprefix(f"{root}.")
            if inner != fullname and inner in (*PARTS, *_SOURCES) and _is_drop_in(root):
                return PathFinder.find_spec(fullname, [str(_folder(inner).parent)])
        return None


def _is_drop_in(name: str) -> bool:
    """Whether it is the drop-in that a name stands for: onnxruntime finds its own parts."""
    module = sys.modules.get(name)
    return module is not None and module is sys.modules.get("glowpy.onnxruntime")


def _folder(inner: str) -> Path:
    """The path of a part in an installed onnxruntime. Raises ModuleNotFoundError if there is none."""
    spec = PathFinder.find_spec("onnxruntime")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = Path(folder, *inner.split("."))
        if path.is_dir() or path.with_suffix(".py").is_file():
            return path
    raise ModuleNotFoundError(
        f"glowpy.onnxruntime has no {inner} of its own: expected onnxruntime's, which is not installed; "
        "install onnxruntime beside glowpy",
        name=f"onnxruntime.{inner}",
    )


def find_parts() -> None:
    """Makes `import onnxruntime.quantization` and the like work where the drop-in stands for onnxruntime, once."""
    if not any(isinstance(finder, _Parts) for finder in sys.meta_path):
        sys.meta_path.append(_Parts())


def part(name: str) -> ModuleType:
    """A part by its name, for `onnxruntime.datasets` without an import of its own.

    Raises AttributeError for a name that is no part, ModuleNotFoundError if onnxruntime is not installed.
    """
    if name not in PARTS:
        raise AttributeError(f"module 'glowpy.onnxruntime' has no attribute '{name}'")
    root = next(root for root in _NAMES if _is_drop_in(root))
    return import_module(f"{root}.{name}")
