"""Forks: the child has only the thread that forked, and must not wait for what the others have locked.

A fork waits until nobody imports what networks need, and nobody holds a `Lock`, so that the child finds whole what they
guard, and others do not take one meanwhile. It does not wait for ever, and not at all for a lock that is held while
networks are compiled or run: such a lock is open in the child all the same, and `tell_in_child` lets those know that
have to give up what nobody finishes.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - as logging: what it does at forks begins before ours
import importlib
import logging  # noqa: F401
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import cached_property, partial
from importlib import import_module
from itertools import compress, repeat, starmap
from operator import methodcaller
from typing import Any, Protocol, final
from weakref import ReferenceType, ref

__all__ = ["Lock", "Told", "tell_in_child", "wait_for"]

_PACKAGES = frozenset(
    [
        *("glowpy", "click", "elftools", "filelock", "google", "llvmlite", "ml_dtypes", "numpy"),
        *("onnx", "platformdirs", "rich", "xxhash", "yaml"),
    ]
)
"""Packages that are imported while networks are opened and compiled."""

_PATIENCE = 60.0
"""Seconds that a fork waits at most, for all locks together: LLVM compiles one function of a network in less."""


class Told(Protocol):
    """Object that is notified in the child of a fork."""

    def forked(self) -> None:
        """Is called in the child before anything else runs there."""


@final
class Lock:
    """A lock for `with`, which the thread that holds it may take again; open in the child of a fork.

    Ctrl-C leaves it either taken, and given back by the `with`, or not taken: Python looks at signals between its own
    steps, so that what takes it and what gives it back are one step each, of C.

    Args:
        is_brief: Whether a fork waits for it. Then no thread takes another such lock while it holds this one.

    Attributes:
        was_cut: Whether this process is a fork, made while another thread held it.
    """

    def __init__(self, *, is_brief: bool = True) -> None:
        self._lock = threading.RLock()
        self._is_brief = is_brief
        self.was_cut = False
        _remember(_locks, self)

    def __enter__(self) -> None:
        if _pending and self._is_brief and not self.is_own:
            with _forking:  # the fork comes first, or it would wait for as long as there is something to compile
                pass
        taken: list[bool] = []
        try:
            taken.extend(map(self._lock.acquire, (True,)))
        except BaseException:
            if taken:
                self._lock.release()
            raise

    @property
    def __exit__(self) -> Callable[..., None]:
        """Gives it back; `with` asks for this before it enters."""
        return self._lock.__exit__

    @property
    def is_own(self) -> bool:
        """Whether this thread holds it."""
        return _is_own(self._lock)

    def taking(self, seconds: float) -> Iterator[bool]:
        """An iterator that takes it when it is asked, in a step of C, and says whether that was possible so soon."""
        return starmap(self._lock.acquire, [(True, seconds if self._is_brief else 0)])

    @property
    def give(self) -> Callable[[], None]:
        """Undoes `taking`."""
        return self._lock.release

    def open(self) -> None:
        """Makes it one that nobody holds, in a child that has no other thread."""
        self.was_cut = not self._lock.acquire(blocking=False)
        self._lock = threading.RLock()


_locks: dict[int, ReferenceType[Lock]] = {}
_told: dict[int, ReferenceType[Told]] = {}
_foreign: list[AbstractContextManager[object]] = []
_forking = threading.RLock()
_pending: list[Callable[[], object]] = []
"""Calls that give back the locks of the forking thread, in the order taken; that of `_forking` is the first."""
_call = methodcaller("__call__")


def _is_own(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]
    return owned


def _remember(things: dict[int, Any], thing: object) -> None:
    """Adds a thing for as long as it lives."""
    key = id(thing)
    things[key] = ref(thing, partial(_forget, things, key))


def _forget(things: dict[int, Any], key: int, _: object) -> None:
    things.pop(key, None)


def tell_in_child(thing: Told) -> None:
    """Has `thing.forked` called in the child of every fork, for as long as it lives."""
    _remember(_told, thing)


def wait_for(lock: AbstractContextManager[object]) -> None:
    """Has a fork wait for a lock of another package, which others hold briefly, after all of this one."""
    _foreign.append(lock)


def _before() -> None:
    """Takes all locks. Ctrl-C may end this at any time: Python prints it, and then forks with what was taken."""
    _wait_for_imports()
    _take(starmap(_forking.acquire, [()]), _forking.release)
    end = time.monotonic() + _PATIENCE
    for known in list(_locks.values()):
        if (lock := known()) is not None:
            _take(lock.taking(max(end - time.monotonic(), 0)), lock.give)
    for foreign in _foreign:
        entering = zip(starmap(foreign.__enter__, [()]), strict=True)  # true, whatever that returns
        _take(entering, partial(foreign.__exit__, None, None, None))


def _take(taking: Iterator[object], give: Callable[[], object]) -> None:
    """Takes a lock and knows what gives it back, in one step of C; neither if the iterator says that it did not."""
    _pending.extend(compress([give], taking))


def _wait_for_imports() -> None:
    """Until no other thread imports a part of glowpy or what that needs: the child would wait for it for ever.

    Names are imported when they are first used, so that may be whenever a thread opens its first session. Python knows
    no way to ask; a module is marked while its code runs, and to import it is to wait until that has ended.
    """
    end = time.monotonic() + _PATIENCE
    while names := [name for name, module in list(sys.modules.items()) if _is_begun(name, module)]:
        for name in names:
            with suppress(Exception):  # what is wrong with it, the thread that imports it is told
                import_module(name)
        if time.monotonic() > end or all(_is_begun(name, sys.modules.get(name)) for name in names):
            return  # they are this thread's own


def _is_begun(name: str, module: object) -> bool:
    """Whether a module is being imported, if it is one that this package needs."""
    return _is_initializing(module) and name.partition(".")[0] in _PACKAGES


def _is_initializing(module: object) -> bool:
    """Whether the code of a module has begun and not ended."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _forget_imports() -> None:
    """Lets a child import what threads that it does not have were importing.

    Python locks a name before there is a module of it, and after its code has ended: no wait before the fork can see
    that. A module whose code such a thread had begun after that wait is imported anew.
    """
    locks: dict[str, Any] = importlib._bootstrap._module_locks  # type: ignore[attr-defined]
    for name, reference in list(locks.items()):
        lock = reference()
        if lock is not None and lock.owner != threading.get_ident():
            del locks[name]
            if _is_initializing(sys.modules.get(name)):
                del sys.modules[name]


def _after() -> None:
    """Gives back what `_before` has taken, be it all or not."""
    if _is_own(_forking) and _forking.release in _pending:  # else those of another thread's fork
        _give_back(len(_pending) - 1 - _pending[::-1].index(_forking.release))


def _give_back(rest: int) -> None:
    """Gives back, last first, all but the first `rest`: those of a fork within which a signal's handler forks."""
    try:
        deque(map(_call, map(list.pop, repeat(_pending, len(_pending) - rest))), 0)
    finally:
        if _is_own(_forking) and len(_pending) > rest:
            _give_back(rest)


def _in_child() -> None:
    _forget_imports()
    try:
        for reference in list(_locks.values()):
            if (lock := reference()) is not None and not lock.is_own:
                lock.open()
    finally:
        _after()
    _open_properties()
    for listener in list(_told.values()):
        if (thing := listener()) is not None:
            thing.forked()


def _open_properties() -> None:
    """Opens the locks that cached properties have before Python 3.12, and hold while they are computed."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("glowpy")]
    classes = {
        value for module in modules for value in vars(module).values() if isinstance(value, type)
    }
    attributes = [attribute for owner in classes for attribute in vars(owner).values()]
    for attribute in attributes:
        if isinstance(attribute, cached_property) and hasattr(attribute, "lock"):
            attribute.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
