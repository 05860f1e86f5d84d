"""Nodes that call functions, in a file that was dumped: what they compute, as the bodies of functions of the file.

A function that nodes call is a function of the file, and as here it takes all that it reads by value: constants, too,
come after what it takes. So what a `call` computes is a call of such a function, and what an `if` or a `loop` does is
ONNX's If or Loop around such calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from onnx import FunctionProto, NodeProto, ValueInfoProto, helper, numpy_helper

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.exporter.onnx.graph import opset_imports
from glowpy.exporter.onnx.model import value_info
from glowpy.graph.function import Function
from glowpy.graph.node import Constant
from glowpy.graph.nodes_gen import CallNode, IfNode, LoopNode
from glowpy.support.dumped import CALLED, DOMAIN
from glowpy.support.symbolic import Dim

__all__ = ["OPSETS_OF_DUMPS", "calling_function", "constants_read"]

OPSETS_OF_DUMPS = [*opset_imports(()), helper.make_opsetid(DOMAIN, 1)]
"""Opset imports of files that consist of glowpy's own nodes."""

_NUMBER = Type(ElemKind.I64, ())
_COUNT = Type(ElemKind.I64, (1,))
_TRUTH = Type(ElemKind.BOOL, ())


def constants_read(functions: Iterable[Function]) -> list[Constant]:
    """The constants that functions and all that they call read, in the order of the module."""
    roots = list(functions)
    read = {c for f in roots for c in f.all_constants}
    return [c for c in roots[0].module.constants if c in read] if roots else []


def calling_function(f: Function, node: CallNode | IfNode | LoopNode, name: str) -> FunctionProto:
    """Writes a call, branch or loop as a function of its operands and of the constants that its callees read."""
    callees = f.callees(node)
    inputs = [f"input{index}" for index in range(len(node.operand_values))]
    operands = inputs[: len(node.inputs)]  # a predicate changes no result that matters
    constants = {c: f"constant{i}" for i, c in enumerate(constants_read(callees.values()))}
    results = [f"result{index}" for index in range(len(node.results))]
    if isinstance(node, CallNode):
        nodes = [_call(callees["function"], operands, constants, results)]
    elif isinstance(node, IfNode):
        nodes = [_if(callees["then"], callees["otherwise"], operands, constants, results)]
    else:
        nodes = _loop(node, callees["body"], operands, constants, results)
    return helper.make_function(
        DOMAIN, name, [*inputs, *constants.values()], results, nodes,
        OPSETS_OF_DUMPS, attributes=sorted(node.attrs),
    )  # fmt: skip


def _call(
    callee: Function,
    operands: Sequence[str],
    constants: dict[Constant, str],
    results: Sequence[str],
) -> NodeProto:
    read = [constants[c] for c in constants_read([callee])]
    return helper.make_node(CALLED + callee.name, [*operands, *read], results, domain=DOMAIN)


def _given(callee: Function, names: Sequence[str]) -> list[ValueInfoProto]:
    return [value_info(name, s.type) for name, s in zip(names, callee.gives, strict=True)]


def _if(
    then: Function, otherwise: Function, operands: Sequence[str], constants: dict[Constant, str],
    results: Sequence[str],
) -> NodeProto:  # fmt: skip
    branches = {}
    for name, callee in (("then_branch", then), ("else_branch", otherwise)):
        outputs = [f"{name}_{result}" for result in results]
        call = _call(callee, operands[1:], constants, outputs)
        branches[name] = helper.make_graph([call], name, [], _given(callee, outputs))
    return helper.make_node("If", operands[:1], results, **branches)


def _loop(
    node: LoopNode, body: Function, operands: Sequence[str], constants: dict[Constant, str],
    results: Sequence[str],
) -> list[NodeProto]:  # fmt: skip
    """ONNX's loop does not say how many rounds there were: they are carried as well."""
    limit, keep, *rest = operands
    *computed, count = results
    last = [f"last{index}" for index in range(node.carried)]
    outputs = ["more", *(f"next{index}" for index in range(len(body.gives) - 1))]
    nodes = [_constant("zero", np.zeros(1, np.int64)), _constant("one", np.ones(1, np.int64))]
    graph = helper.make_graph(
        [
            _call(body, ["round", *last, *rest[node.carried :]], constants, outputs),
            helper.make_node("Add", ["rounds", "one"], ["next_rounds"]),
        ],
        "body",
        [
            *(value_info("round", _NUMBER), value_info("holds", _TRUTH)),
            *(value_info(n, s.type) for n, s in zip(last, body.takes[1:], strict=False)),
            value_info("rounds", _COUNT),
        ],
        _given(body, outputs),
    )
    graph.output.insert(1 + node.carried, value_info("next_rounds", _COUNT))
    stacked = computed[node.carried :]
    rows = [f"rows_{name}" for name in stacked]
    if stacked and isinstance(node.room, int):
        nodes.append(_constant("room", np.array(node.room)))
        nodes.append(helper.make_node("Min", [limit, "room"], ["limit"]))
        limit = "limit"
    nodes.append(
        helper.make_node(
            "Loop",
            [limit, keep, *rest[: node.carried], "zero"],
            [*computed[: node.carried], count, *rows],
            body=graph,
        )
    )
    for name, row, given in zip(stacked, rows, body.gives[1 + node.carried :], strict=True):
        nodes += _with_room(name, row, given.type.rank, node.room, count)
    return nodes


def _with_room(name: str, rows: str, rank: int, room: Dim, count: str) -> list[NodeProto]:
    """Pads stacked rows up to the room for them; leaves them as they are if that room is open."""
    if not isinstance(room, int):
        return [helper.make_node("Identity", [rows], [name])]
    before, rest, after, pads = (f"{name}_{part}" for part in ("before", "rest", "after", "pads"))
    return [
        _constant(before, np.zeros(1 + rank, np.int64)),
        _constant(after, np.zeros(rank, np.int64)),
        helper.make_node("Sub", ["room", count], [rest]),
        helper.make_node("Concat", [before, rest, after], [pads], axis=0),
        helper.make_node("Pad", [rows, pads], [name]),
    ]


def _constant(name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
