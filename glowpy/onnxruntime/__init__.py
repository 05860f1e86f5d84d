"""`import glowpy.onnxruntime as ort`: onnxruntime's session API, for code that was written for it.

Names, signatures, results and exceptions are onnxruntime's; docs/onnxruntime.md lists what has an effect and what
differs. Importing a name that is not here raises ImportError.
"""

from importlib.metadata import version as _version_of

from glowpy.onnxruntime import capi
from glowpy.onnxruntime.binding import IOBinding
from glowpy.onnxruntime.logs import say_once as _say_once
from glowpy.onnxruntime.logs import set_default_logger_severity, set_default_logger_verbosity
from glowpy.onnxruntime.model import ModelMetadata, NodeArg
from glowpy.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from glowpy.onnxruntime.providers import get_all_providers, get_available_providers, get_device
from glowpy.onnxruntime.session import InferenceSession
from glowpy.onnxruntime.values import OrtDevice, OrtValue, copy_tensors

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "capi",
    "copy_tensors",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

__version__ = "1.31.0"
"""The version of onnxruntime whose API this is, which is what code compares; glowpy's own is in `get_build_info`."""


def get_version_string() -> str:
    """The version of onnxruntime whose API this is."""
    return __version__


def get_build_info() -> str:
    """The version of glowpy."""
    return f"glowpy {_version_of('glowpy')}"


def has_collective_ops() -> bool:
    """False."""
    return False


def disable_telemetry_events() -> None:
    """Nothing to do: glowpy sends nothing."""


def enable_telemetry_events() -> None:
    """Has no effect: glowpy sends nothing."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None
) -> None:
    """Nothing to do: glowpy uses no such libraries."""
    del cuda, cudnn, msvc, directory


def set_seed(seed: int) -> None:
    """Has no effect: random numbers follow from the seeds and names of nodes."""
    _say_once(
        f"set_seed({seed}) has no effect: random numbers follow from the seeds and names of nodes"
    )


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Has no effect: each session has threads of its own."""
    del intra_op_num_threads, inter_op_num_threads
    _say_once("set_global_thread_pool_sizes has no effect: each session has threads of its own")
