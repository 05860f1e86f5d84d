"""How deep the stack gets: the frames of functions that call each other, read from the text of a module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

__all__ = ["stack_depths"]

_FUNCTION = re.compile(r"^define [^@]*@([\w.]+)\(.*?\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^@([\w.]+) = .*\[\d+ x ptr\] \[(.*)\]$", re.MULTILINE)
_CALL = re.compile(r"\bcall [^@(]*@([\w.]+)\(")
_SYMBOL = re.compile(r"@([\w.]+)")
_INDIRECT = re.compile(r"\bcall [^@%\n]*%[\w.]+\(")


def stack_depths(text: str, frames: Mapping[str, int], address: int) -> dict[str, int]:
    """Bytes of stack that a call of each function of a module takes, by the function's name.

    That is its frame, with the `address` to return to, and what the deepest of its own calls takes. A function that is
    handed others, by name or in a table, may call each of these, and they another one if they call by pointer. What a
    function does inline has no frame. Frames of functions that the module does not define are those of a library, which
    call no others: whatever the module calls outside itself may be the largest of them.
    """
    tables = {name: _SYMBOL.findall(items) for name, items in _TABLE.findall(text)}
    bodies = dict(_FUNCTION.findall(text))
    calls = {name: set(_CALL.findall(body)) for name, body in bodies.items()}
    called = {name: callees & bodies.keys() for name, callees in calls.items()}
    library = max(
        (size + address for name, size in frames.items() if name not in bodies), default=0
    )

    def handed(name: str) -> set[str]:
        symbols = set(_SYMBOL.findall(bodies[name]))
        members = {member for symbol in symbols for member in tables.get(symbol, ())}
        return ((symbols | members) & bodies.keys()) - called[name] - {name}

    @cache
    def depth(name: str) -> int:
        callees = called[name]
        others = handed(name)
        beyond = max((depth(other) for other in others), default=0)
        for other in others:
            if _INDIRECT.search(bodies[other]):
                rest = max((depth(third) for third in others - {other}), default=0)
                beyond = max(beyond, depth(other) + rest)
        deepest = max(
            (max(depth(callee), own(callee) + beyond) for callee in callees), default=beyond
        )
        return own(name) + max(deepest, library if calls[name] - callees else 0)

    def own(name: str) -> int:
        return frames.get(name, 0) + address

    return {name: depth(name) for name in bodies}
