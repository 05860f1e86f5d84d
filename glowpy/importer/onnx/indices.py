"""Indices that lead out of range: an error for those that are known, and for others if the importer is to check them.

A check is four numbers that the network computes: whether an index is out of range, which one, and between which bounds
all should be. They are outputs of the network beside those of the model, and of functions that it calls: who runs it
reads them, and says what is wrong. A network that is not to check any has none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue, Variable
from glowpy.graph.nodes_gen import BroadcastNode, ReshapeNode, TransposeNode
from glowpy.importer.added_outputs import CHECK, range_sentence
from glowpy.importer.kit.moves import concat, slice_axis
from glowpy.importer.kit.numbers import Numbers
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import Check, OnnxNode, OnnxScope
from glowpy.importer.onnx.subgraph import Subgraph
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, is_at_most, lowest

__all__ = [
    "carried_checks",
    "check_indices",
    "check_places",
    "give_checks",
    "save_checks",
    "take_checks",
]

_NOTHING = np.zeros(4, np.int64)
_TYPE = Type(ElemKind.I64, (4,))


def check_indices(n: OnnxNode, indices: Value, size: Dim) -> None:
    """Checks indices of `size` elements, where negative ones count from the end."""
    check_places(n, indices, -size, size - 1)


def check_places(n: OnnxNode, places: Value, low: Dim, high: Dim) -> None:
    """Checks that numbers are from `low` to `high`, which follow from extents.

    Raises UserError where it is known that one is not.
    """
    if places.type.count == 0:
        return
    if isinstance(places, Tensor):
        least, most = int(places.array.min()), int(places.array.max())
        if is_at_most(low, least) and is_at_most(most, high):
            return
        for index, is_wrong in (
            (least, is_at_most(least + 1, low)),
            (most, is_at_most(high + 1, most)),
        ):
            if is_wrong:
                raise UserError(range_sentence(index, low, high))
    if n.scope.checks is not None:
        n.scope.checks.append(Check(_place(n), _checked(n, places, low, high)))


def _place(n: OnnxNode) -> str:
    return f"{replace(n.loc, file='')}: {n.proto.op_type}"


def _checked(n: OnnxNode, places: Value, low: Dim, high: Dim) -> NodeValue:
    """The four numbers."""
    places = _source(places) if isinstance(places, NodeValue) else places
    row = Numbers(n, places).to(ElemKind.I64).reshaped(places.type.count).operand
    least, most = (
        Numbers(n, create(f"{n.name}_{what}", row, (0,)).result)
        for what, create in (("least", n.f.create_reduce_min), ("most", n.f.create_reduce_max))
    )
    first, last = (Numbers.of(n, dim, ElemKind.I64) for dim in (low, high))
    is_low = least < first
    wrong = (is_low | (most > last)).to(ElemKind.I64)
    numbers = (wrong, least.where(is_low, most), first, last)
    return n.operand(concat(n, [number.reshaped(1).value for number in numbers], 0))


def _source(value: NodeValue) -> NodeValue:
    """The smallest value with the same numbers, as indices are often repeated along dimensions, not 0 times."""
    node = value.node
    while isinstance(node, ReshapeNode | TransposeNode) or (
        isinstance(node, BroadcastNode) and lowest(node.type.count) > 0
    ):
        value = node.inputs[0]
        node = value.node
    return value


# Functions: their checks are results of theirs, and then checks of whoever calls them.


def give_checks(branches: Sequence[Subgraph]) -> list[str]:
    """Has each of several functions, of which one is called, give the checks of all; where these are."""
    checks = [check for branch in branches for check in branch.scope.checks or ()]
    for branch in branches:
        branch_checks = branch.scope.checks or ()
        for check in checks:
            value = check.value if check in branch_checks else Tensor.of(_NOTHING)
            branch.f.gives.append(branch.give(value, "check"))
    return [check.place for check in checks]


def carried_checks(body: Subgraph) -> dict[Variable, str]:
    """Has the body of a loop carry what is wrong in the first round in which something is: variables, and places."""
    carried = {}
    for check in body.scope.checks or ():
        variable = body.variable("check", _TYPE)
        with body.f.at(body.node.loc):
            before = Numbers(body.node, variable.value)
            is_wrong = Numbers(body.node, slice_axis(body.node, variable.value, 0, 0, 1, 1)) > 0
            after = before.where(is_wrong, Numbers(body.node, check.value))
        body.give(after.value, "check", variable)
        carried[variable] = check.place
    return carried


def take_checks(n: OnnxNode, places: Sequence[str], values: Sequence[Value]) -> None:
    """Makes checks of what a node calls those of the node's own graph."""
    for place, value in zip(places, values, strict=True):
        if isinstance(value, NodeValue):
            assert n.scope.checks is not None
            n.scope.checks.append(Check(place, value))


# The network.


def save_checks(scope: OnnxScope) -> None:
    """Makes outputs of all checks."""
    for index, check in enumerate(scope.checks or ()):
        name = f"{CHECK}{index} {check.place}"
        target = scope.f.module.create_placeholder(name, check.value.type)
        scope.f.create_save("save_check", check.value, target)
