"""Opsets that a model uses without importing them: onnxruntime takes the newest that it knows, and so is it here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from glowpy.importer.onnx.order import subgraphs

__all__ = ["imply_opsets"]


def imply_opsets(model: onnx.ModelProto, newest: Mapping[str, int]) -> None:
    """Imports every domain of `newest` that operators are of and that the model, or a function, does not import.

    A function takes the version that the model imports, if that does.
    """
    versions = dict(newest) | {_plain(entry.domain): entry.version for entry in model.opset_import}
    used = _missing(model.graph.node, model.opset_import, newest)
    for function in model.functions:
        missing = _missing(function.node, function.opset_import, newest)
        for domain in missing:
            function.opset_import.add(domain=domain, version=versions[domain])
        used |= missing - {_plain(entry.domain) for entry in model.opset_import}
    for domain in sorted(used):
        model.opset_import.add(domain=domain, version=newest[domain])


def _missing(
    nodes: Iterable[onnx.NodeProto],
    imports: Iterable[onnx.OperatorSetIdProto],
    newest: Mapping[str, int],
) -> set[str]:
    """The domains of `newest` that nodes, and those of their graphs, are of and that are not imported."""
    domains = {_plain(node.domain) for node in _all(nodes)}
    return (domains & newest.keys()) - {_plain(entry.domain) for entry in imports}


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    work = list(nodes)
    while work:
        node = work.pop()
        yield node
        work += [inner for graph in subgraphs(node) for inner in graph.node]


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
