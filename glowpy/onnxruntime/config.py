"""Options that a model brings along in its metadata: those of a session if ORT_LOAD_CONFIG_FROM_MODEL is 1."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path

from glowpy.onnxruntime.errors import InvalidGraph, translated
from glowpy.onnxruntime.options import ExecutionMode, GraphOptimizationLevel, SessionOptions
from glowpy.support.errors import GlowError

__all__ = ["configured"]

_KEY = "ort_config"
_OPTIONS: dict[str, Callable[[int], object]] = {
    "intra_op_num_threads": int,
    "inter_op_num_threads": int,
    "execution_mode": ExecutionMode,
    "graph_optimization_level": GraphOptimizationLevel,
    "enable_profiling": bool,
}
"""Session options that a model may set, each with the type of its number."""


def _content_of(path_or_bytes: str | PathLike[str] | bytes) -> bytes:
    """The bytes of a file, or those that are given."""
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes
    return Path(fspath(path_or_bytes)).read_bytes()


def configured(
    options: SessionOptions, path_or_bytes: str | PathLike[str] | bytes
) -> SessionOptions:
    """The options, with those of the model in place of the caller's if the environment asks for that.

    Raises RuntimeError for metadata that cannot be parsed, and for numbers that mean nothing.
    """
    if os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") != "1":
        return options
    if not isinstance(path_or_bytes, bytes) and not Path(fspath(path_or_bytes)).is_file():
        return options  # whoever opens it says so
    from glowpy.importer import read_proto  # noqa: PLC0415 - ONNX

    try:
        proto = read_proto(_content_of(path_or_bytes))
    except GlowError as error:
        raise translated(error, InvalidGraph) from error
    texts = {entry.key: entry.value for entry in proto.metadata_props}
    if _KEY not in texts:
        return options
    try:
        settings = json.loads(texts[_KEY]).get("session_options", {})
        for name in settings.keys() & _OPTIONS.keys():
            setattr(options, name, _OPTIONS[name](settings[name]))
    except (AttributeError, TypeError, ValueError) as error:
        raise RuntimeError(
            f"Json stored in the `{_KEY}` key cannot be parsed. Error message: {error}"
        ) from error
    return options
