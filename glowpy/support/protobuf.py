"""The wire format of Protocol Buffers, as far as files are written in it."""

from __future__ import annotations

__all__ = ["field_header"]

_BYTES = 2
"""Fields of a length and so many bytes."""


def field_header(number: int, length: int) -> bytes:
    """Encodes the header of field `number` with a content of this length."""
    return _varint(number << 3 | _BYTES) + _varint(length)


def _varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first; all but the last have the highest bit set."""
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
    return bytes(content)
