"""`Artifact`: a compiled network that no device has loaded yet, and the envelope of its bytes.

That is a line of JSON, then parts of some sizes. The line says who has made them, for only the same glowpy on an equal
machine understands them, and has a checksum of all else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from xxhash import xxh3_128

from glowpy.runtime.ports import Ports
from glowpy.support.errors import LoadError

__all__ = ["Artifact", "packed", "unpacked"]


class Artifact(ABC):
    """A compiled program: code, the places of what it reads and writes, and ports. Never changed.

    Large constants are in it by their digests: they are in the memory of this process as long as the artifact is that
    a backend has made, and in the cache. The cache keeps artifacts as bytes, and other processes load them.

    Attributes:
        ports: Inputs, outputs and variables.
        arena_size: Bytes of working memory that a run has beside these.
    """

    ports: Ports
    arena_size: int

    @property
    @abstractmethod
    def digests(self) -> Sequence[str]:
        """The digests of the large constants: see `glowpy.runtime.weights`."""

    @abstractmethod
    def payload(self) -> bytes:
        """All of it but the large constants as bytes, which `Device.parse` reads.

        Raises UserError for one that tells of its runs, which it does in the process that has compiled it.
        """


def packed(maker: str, head: Mapping[str, object], parts: Sequence[bytes]) -> bytes:
    """An artifact as bytes: what JSON can say of it, and parts.

    Args:
        maker: Names everything that the bytes depend on beside the network.
        head: What JSON can say.
        parts: All else.
    """
    content = b"".join(parts)
    fields = {"maker": maker, "sizes": [len(part) for part in parts], **head}
    line = json.dumps({"check": _check(fields, content), **fields})
    return b"".join([line.encode(), b"\n", content])


def _check(head: Mapping[str, object], content: bytes) -> str:
    """The checksum of a head, whose own it is not yet in, and of the parts."""
    check = xxh3_128(json.dumps(head).encode())
    check.update(content)
    return check.hexdigest()


def unpacked(payload: bytes, maker: str) -> tuple[Mapping[str, Any], Sequence[bytes]]:
    """The head and the parts that `packed` was given.

    Raises LoadError for other bytes, for those of another maker, and for those that are damaged.
    """
    line, _, content = payload.partition(b"\n")
    try:
        head = json.loads(line)
        other = head["maker"] != maker
        ends = list(accumulate(head["sizes"], initial=0))
        is_whole = head.pop("check") == _check(head, content)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LoadError("expected a compiled network, got other bytes") from error
    if other:
        raise LoadError(
            "expected a network that this glowpy has compiled for this machine, got one of another",
            note="compile the model here",
        )
    if not is_whole:
        raise LoadError("the compiled network is damaged", note="compile the model again")
    return head, [content[start:end] for start, end in pairwise(ends)]
