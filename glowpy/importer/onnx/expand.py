"""Operators that ONNX itself defines by simpler ones: replaced by that definition where nothing else knows them."""

from __future__ import annotations

import onnx
from onnx import defs, inliner

from glowpy.importer.onnx.registry import handler_of
from glowpy.importer.onnx.source import MAX_NODES, Source, domain_of
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["expand"]

_ROUNDS = 4
"""Definitions use operators that have definitions, but not many levels deep."""


def expand(source: Source) -> Source:
    """The model with those definitions in place; what has none, or cannot be expanded, stays to be reported.

    Raises UserError if the result has more nodes than any graph may have.
    """
    for _ in range(_ROUNDS):
        wanted = _definable(source)
        if not wanted:
            return source
        try:
            proto = inliner.inline_selected_functions(
                _with_defaults(source, wanted), wanted, exclude=False, inline_schema_functions=True
            )
        except Exception:  # noqa: BLE001 -- the bindings raise whatever the C++ side throws
            return source
        if len(proto.graph.node) > MAX_NODES:
            raise UserError(
                f"expected at most {MAX_NODES} nodes, got {len(proto.graph.node)} with operators expanded",
                loc=Loc(source.file),
            )
        source = Source(proto, source.file, source.folder)
    return source


def _definable(source: Source) -> list[tuple[str, str]]:
    """Domain and name of the operators that have no import function but a definition."""
    found: set[tuple[str, str]] = set()
    for node in source.proto.graph.node:
        domain = domain_of(node.domain)
        opset = source.opsets.get(domain)
        if opset is None or handler_of(domain, node.op_type, opset) is not None:
            continue
        schema = _schema(node, opset)
        if schema is not None and _has_definition(schema):
            found.add((node.domain, node.op_type))
    return sorted(found)


def _with_defaults(source: Source, wanted: list[tuple[str, str]]) -> onnx.ModelProto:
    """A copy in which these operators have all their attributes: the inliner does not know the defaults."""
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    for node in proto.graph.node:
        if (node.domain, node.op_type) not in wanted:
            continue
        schema = _schema(node, source.opsets[domain_of(node.domain)])
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in (schema.attributes if schema is not None else {}).items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
    return proto


def _has_definition(schema: defs.OpSchema) -> bool:
    found = schema.has_function or schema.has_context_dependent_function  # type: ignore[attr-defined]
    return bool(found)


def _schema(node: onnx.NodeProto, opset: int) -> defs.OpSchema | None:
    try:
        return defs.get_schema(node.op_type, opset, domain_of(node.domain))
    except defs.SchemaError:
        return None
