"""Threads of several sessions: glowpy has none, but remembers that they were asked for."""

from __future__ import annotations

from glowpy.onnxruntime.logs import say_once
from glowpy.onnxruntime.options import SessionOptions

__all__ = ["check_threads", "set_global_thread_pool_sizes"]

_asked: list[tuple[int, int]] = []


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Has no effect: each session has threads of its own.

    From then on sessions must have `use_per_session_threads` turned off, as in onnxruntime.
    """
    _asked.append((intra_op_num_threads, inter_op_num_threads))
    say_once("set_global_thread_pool_sizes has no effect: each session has threads of its own")


def check_threads(options: SessionOptions) -> None:
    """Raises RuntimeError for a session with threads of its own after threads of all sessions were asked for."""
    if _asked and options.use_per_session_threads:
        raise RuntimeError(
            "expected SessionOptions.use_per_session_threads = False after set_global_thread_pool_sizes"
        )
