"""Which onnxruntime this is like, and what of its functions for the whole process has no effect."""

from __future__ import annotations

import platform
import sys

from glowpy.onnxruntime.logs import say_once

__all__ = [
    "VERSION",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_build_info",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_seed",
]

VERSION = "1.32.0"
"""The version of onnxruntime whose API this is, which is what code compares; glowpy's own is in `get_build_info`."""


def get_version_string() -> str:
    """The version of onnxruntime whose API this is."""
    return VERSION


def get_build_info() -> str:
    """The version of glowpy."""
    from importlib.metadata import version  # noqa: PLC0415 - it takes long

    return f"ORT Build Info: glowpy {version('glowpy')}"


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
    say_once(
        f"set_seed({seed}) has no effect: random numbers follow from the seeds and names of nodes"
    )


def print_debug_info() -> None:
    """Prints versions, for reports of bugs; `glowpy doctor` prints more."""
    sys.stdout.write(f"{get_build_info()}\nplatform: {platform.platform()}\n")
