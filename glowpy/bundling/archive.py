"""Static libraries: the `ar` format (System V / GNU), written byte for byte so that equal contents make equal files."""

from __future__ import annotations

__all__ = ["archive"]


def archive(member: str, content: bytes, symbols: list[str]) -> bytes:
    """A library with one member and the index of its symbols that linkers look into.

    Args:
        member: File name of the member, at most 15 characters.
        content: The object file.
        symbols: The names it defines.
    """
    names = b"".join(symbol.encode() + b"\0" for symbol in symbols)
    index_size = 4 + 4 * len(symbols) + len(names)
    offset = 8 + 60 + index_size + index_size % 2
    index = len(symbols).to_bytes(4, "big") + offset.to_bytes(4, "big") * len(symbols) + names
    return b"!<arch>\n" + _member("/", index) + _member(f"{member}/", content)


def _member(name: str, content: bytes) -> bytes:
    """A member without date and owner, padded to an even length."""
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)
