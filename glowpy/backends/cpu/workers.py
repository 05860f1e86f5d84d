"""Threads that compute the units of a network's functions: libjit/src/workers.c, for machine code in this process."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from glowpy.backends.cpu.functions import load_functions
from glowpy.llvm.code_image import Functions
from glowpy.runtime.host_memory import aligned_array
from glowpy.support.cores import usable_cores
from glowpy.support.errors import UserError

if TYPE_CHECKING:
    from glowpy.backends.cpu.target import CpuTarget

__all__ = ["Workers", "load_workers"]

_FUNCTIONS = {
    "create": "ptr (i32, i32, ptr)",
    "destroy": "void (ptr)",
    "run": "void (ptr, ptr, ptr, {dim})",
}
"""Functions that libjit/src/workers.c defines, with the types of result and arguments."""

_EXTERNAL = {
    "pthread_create": "i32 (ptr, ptr, ptr, ptr)",
    "pthread_join": "i32 ({dim}, ptr)",
    "pthread_mutex_init": "i32 (ptr, ptr)",
    "pthread_mutex_lock": "i32 (ptr)",
    "pthread_mutex_unlock": "i32 (ptr)",
    "pthread_cond_init": "i32 (ptr, ptr)",
    "pthread_cond_wait": "i32 (ptr, ptr)",
    "pthread_cond_signal": "i32 (ptr)",
    "pthread_cond_broadcast": "i32 (ptr)",
    "pthread_setaffinity_np": "i32 (ptr, {dim}, ptr)",
    "sched_getaffinity": "i32 (i32, {dim}, ptr)",
    "sched_getcpu": "i32 ()",
    "sched_yield": "i32 ()",
    "aligned_alloc": "ptr ({dim}, {dim})",
    "calloc": "ptr ({dim}, {dim})",
    "free": "void (ptr)",
    "getpid": "i32 ()",
}
"""Functions that it takes from the C library of this process."""

_LINE_BYTES = 64

_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@final
class Team:
    """Threads, which begin with the first task. They end with the last reference to this, and with the process.

    Attributes:
        arguments: The address of a `parallel_for`, and its context. Valid in the process that has made the team.
    """

    def __init__(self, code: Functions, threads: int) -> None:
        create = _CREATE(code.address("workers_create"))
        context = create(threads, usable_cores(), ctypes.addressof(_callers(os.getpid())))
        if context is None:
            raise MemoryError("no memory for threads")
        self.arguments: tuple[int, int] = code.address("workers_run"), context
        weakref.finalize(self, _end, code, context)


@final
class Workers:
    """Threads beside the calling one, which begin with the first instruction that has several units of work."""

    def __init__(self, threads: int, code: Functions) -> None:
        self._threads = threads
        self._code = code
        self._teams: dict[int, Team] = {}

    def team(self) -> Team:
        """The threads of this process: the child of a fork has its own. Safe from several threads."""
        process = os.getpid()
        team = self._teams.get(process)
        return team or self._teams.setdefault(process, Team(self._code, self._threads))

    def close(self) -> None:
        """Ends the threads as soon as nobody uses them. Others begin when they are needed again."""
        self._teams = {}


_counters: dict[int, ctypes.c_int] = {}
"""Counters by the process that has made teams: this one and those that it was forked from."""


def _callers(process: int) -> ctypes.c_int:
    """The counter of callers of all teams of a process, on a cache line of its own. Safe from several threads."""
    return _counters.setdefault(process, ctypes.c_int.from_buffer(aligned_array(_LINE_BYTES).data))


def _end(code: Functions, context: int) -> None:
    """Ends and joins the threads. They run `code`, which lives until then."""
    _DESTROY(code.address("workers_destroy"))(context)


def load_workers(
    threads: int, identity: str, target: Callable[[], CpuTarget], *, use_cache: bool
) -> Workers:
    """Workers with code for this process, which is compiled if the cache does not have it: see `load_functions`.

    Raises UserError where libjit has no threads for the system.
    """
    try:
        code = load_functions(
            "workers", _FUNCTIONS, _EXTERNAL, identity, target, use_cache=use_cache
        )
    except UserError as error:
        raise UserError(
            f"expected threads=1, got {threads}: {error.diagnostics[0].message}"
        ) from error
    return Workers(threads, code)
