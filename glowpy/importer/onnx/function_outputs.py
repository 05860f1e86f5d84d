"""Outputs of a model's own functions that onnx's inliner loses: those that are inputs or are listed twice."""

from __future__ import annotations

import onnx

from glowpy.importer.onnx.order import subgraphs

__all__ = ["name_outputs"]


def name_outputs(function: onnx.FunctionProto, opset: int) -> None:
    """Gives each output a name of its own, which a copy of what it is has.

    Args:
        function: The function.
        opset: The opset of ONNX's own operators, where the function imports none of them.
    """
    taken = {*function.input, *function.output}
    work = list(function.node)
    while work:
        node = work.pop()
        taken.update(node.output)
        work += [inner for graph in subgraphs(node) for inner in graph.node]
    seen = set(function.input)
    for index, name in enumerate(function.output):
        if name in seen:
            unused_name = f"{name}_{index}"
            while unused_name in taken:
                unused_name += "_"
            taken.add(unused_name)
            function.node.append(onnx.helper.make_node("Identity", [name], [unused_name]))
            function.output[index] = unused_name
        seen.add(name)
    domains = {entry.domain for entry in function.opset_import}
    if domains.isdisjoint({"", "ai.onnx"}):
        function.opset_import.append(onnx.helper.make_opsetid("", opset))
