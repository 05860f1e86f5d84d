"""Names of what an ONNX model is made of, by which caches know it again."""

from __future__ import annotations

from glowpy.importer.model import Content
from glowpy.importer.onnx.check import KNOWN_DOMAINS
from glowpy.importer.onnx.source import Source
from glowpy.operators import known_identity

__all__ = ["content_digest", "content_of"]


def content_digest(source: Source, block: int) -> str:
    """The same for the same bytes, if operators of packages mean the same; `block` is that of NCHWc operators."""
    meanings = [known_identity(domain) for domain in _foreign_domains(source)]
    return f"{source.stores.digest} {block} {meanings}{source.part}"


def content_of(source: Source, block: int) -> Content | None:
    """Names the bytes of a model; None for a dump, and where packages define operators."""
    if source.is_dump or _foreign_domains(source):
        return None
    return Content(content_digest(source, block), source.stores.files)


def _foreign_domains(source: Source) -> list[str]:
    """The domains of operators that packages define, which may mean something else another time."""
    return [domain for domain in source.opsets if domain not in KNOWN_DOMAINS]
