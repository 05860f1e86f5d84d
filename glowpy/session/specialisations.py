"""Specialisations: a table of bounded length of what a session compiled, which its threads share.

Each is compiled once, by the first thread that wants it, while others wait. The least recently used is dropped first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, final

from glowpy.runtime.compiled import CompiledFunction
from glowpy.support.errors import GlowError, UserError
from glowpy.support.forks import Lock, tell_in_child
from glowpy.support.progress import noting_stops

__all__ = ["Specialisations"]

Compile = Callable[[], CompiledFunction]
K = TypeVar("K", bound=Hashable)


class _Entry:
    """A function that its owner, the thread that creates the entry, compiles.

    Attributes:
        owner: The thread.
        outcome: The function, or why there is none; None while it is being compiled.
        fails_for_all: Whether others would fail as the owner did, since it was not stopped.
    """

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.outcome: CompiledFunction | BaseException | None = None
        self.fails_for_all = False
        self._ended = threading.Event()

    def end(self, outcome: CompiledFunction | BaseException) -> None:
        """Lets those that wait go on."""
        self.outcome = outcome
        self._ended.set()

    def wait(self) -> None:
        """Returns when there is an outcome; without a lock if there is one."""
        if self.outcome is None:
            self._ended.wait()


_MOST_CALLS = 1 << 12
"""So many calls are remembered at most."""


@final
class Specialisations(Generic[K]):
    """At most `limit` functions. Safe from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._entries: OrderedDict[K, _Entry] = OrderedDict()
        self._pinned: set[K] = set()
        self._calls: dict[Hashable, CompiledFunction] = {}
        """The last call, or several while there is one function, and what there is for them: found without the lock."""
        self._sole: tuple[K, CompiledFunction] | None = None
        tell_in_child(self)

    def forked(self) -> None:
        """Drops what other threads were compiling, for there are none of them here."""
        thread = threading.get_ident()
        for key, entry in list(self._entries.items()):
            if entry.outcome is None and entry.owner != thread:
                self._drop(key)

    def latest(self, call: Hashable) -> CompiledFunction | None:
        """The function of the last `get`, if that was for an equal call, or the only one, which was `at_hand`."""
        return self._calls.get(call)

    def at_hand(self, call: Hashable, is_for: Callable[[K], bool]) -> CompiledFunction | None:
        """The latest, or the only function there is, if it `is_for` this call: found without the lock."""
        function = self._calls.get(call)
        sole = self._sole if function is None else None
        if sole is None or not is_for(sole[0]):
            return function
        with self._lock:
            if self._sole is sole:  # another thread may have dropped it
                if len(self._calls) == _MOST_CALLS:
                    self._calls = {}
                self._calls[call] = sole[1]
        return sole[1]

    def get(
        self, key: K, call: Hashable, compile: Compile, *, pinned: bool = False
    ) -> CompiledFunction:
        """The function of that key, for a call; compiled by this thread while others that want the same wait.

        One that is `pinned` stays, as `pin` says. Other threads get the error of what cannot be compiled. Where this
        thread alone is stopped, as by Ctrl-C or its progress callback, they try again.
        """
        while True:
            entry, fresh = self._entry(key, pinned=pinned)
            if fresh:
                self._fulfil(entry, key, compile)
            elif entry.owner == threading.get_ident() and entry.outcome is None:
                raise UserError(
                    "expected a progress callback that does not run the session that is being compiled"
                )
            entry.wait()
            if isinstance(entry.outcome, CompiledFunction):
                function = entry.outcome
                break
            if entry.fails_for_all and entry.outcome is not None:
                raise entry.outcome
        with self._lock:
            # Another thread may have dropped it meanwhile, or used another one since.
            if self._entries and next(reversed(self._entries.values())) is entry:
                self._calls = {call: function}
                self._sole = (key, function) if len(self._entries) == 1 else None
        return function

    def pin(self, key: K) -> bool:
        """Lets what has that key stay, beside as many others as the limit says. False if there is nothing any more.

        It stays until `keep` or `clear` drops it, or until another one replaces it, which stays then.
        """
        with self._lock:
            if key in self._entries:
                self._pinned.add(key)
            return key in self._entries

    def replace(self, key: K, is_replaced: Callable[[K], bool]) -> None:
        """Drops what the function of that key is for as well. It stays if any of that was to stay."""
        with self._lock:
            if key not in self._entries:
                return
            replaced = [entry_key for entry_key in self._entries if is_replaced(entry_key)]
            if not self._pinned.isdisjoint(replaced):
                self._pinned.add(key)
            for entry_key in replaced:
                self._drop(entry_key)

    def keep(self, is_wanted: Callable[[K], bool]) -> None:
        """Drops what has a key that is not wanted."""
        with self._lock:
            for key in [key for key in self._entries if not is_wanted(key)]:
                self._drop(key)

    def clear(self) -> None:
        """Drops all."""
        self.keep(lambda _: False)

    @property
    def keys(self) -> list[K]:
        """Returns the keys of all functions, compiled or being compiled, the least recently used first."""
        with self._lock:
            return list(self._entries)

    @property
    def functions(self) -> list[CompiledFunction]:
        """Returns the compiled functions, the least recently used first."""
        with self._lock:
            outcomes = [entry.outcome for entry in self._entries.values()]
        return [outcome for outcome in outcomes if isinstance(outcome, CompiledFunction)]

    def _entry(self, key: K, *, pinned: bool) -> tuple[_Entry, bool]:
        """The entry of that key, and whether it is new: then this thread must fulfil it."""
        with self._lock:
            entry = self._entries.get(key)
            fresh = entry is None
            if entry is None:
                entry = self._entries[key] = _Entry()
                self._sole = None
            if pinned:
                self._pinned.add(key)
            self._entries.move_to_end(key)
            self._calls = {}
            while len(self._entries) - len(self._pinned) > self._limit:
                self._drop(
                    next(other_key for other_key in self._entries if other_key not in self._pinned)
                )
        return entry, fresh

    def _drop(self, key: K) -> None:
        del self._entries[key]
        self._pinned.discard(key)
        self._calls, self._sole = {}, None

    def _fulfil(self, entry: _Entry, key: K, compile: Compile) -> None:
        """Compiles an entry; a failure is forgotten. Raises what compiling raises."""
        with noting_stops() as stops:
            try:
                entry.end(compile())
            except BaseException as error:
                with self._lock:
                    if self._entries.get(key) is entry:
                        self._drop(key)
                entry.fails_for_all = isinstance(error, GlowError) and not stops
                entry.end(error)
                raise
