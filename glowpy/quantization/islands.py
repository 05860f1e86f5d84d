"""Which nodes of a network are computed on integers: islands that begin at matrix products and convolutions.

A product is worth a conversion of its operands. What follows it is computed on integers where its operands are there as
integers anyway, and somebody reads integers. What only moves elements, or looks them up in a table, is so in front of a
product as well. Everything else stays as it is: converting floats in order to add two of them would cost time and
accuracy, and so would rounding what a root or a reciprocal reads: they are steep where numbers are small, of which 8
bits tell too little. A layer norm has a form of its own, which rounds nothing in between; but what it reads is rounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Quantized, Trait
from glowpy.core.type import Quant, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    ConcatNode,
    DequantizeNode,
    DivNode,
    GatherNode,
    LogNode,
    QuantizeNode,
    ReciprocalNode,
    SaveNode,
    SplatNode,
    SqrtNode,
)
from glowpy.opt.graph.lower_quantized import (
    can_be_normalized,
    has_integer_form,
    is_exact,
    is_table,
)
from glowpy.opt.interpolated import is_smooth
from glowpy.opt.known import is_known, known_tensor
from glowpy.opt.layer_norm import layer_norm_of
from glowpy.opt.products import BYTES, Product, no_exact_sum, no_sum_of_bytes
from glowpy.opt.unary import unary_of
from glowpy.quantization.options import Options
from glowpy.quantization.profile import Profile
from glowpy.support.errors import UserError, expect_type
from glowpy.support.loc import Loc

__all__ = [
    "Islands",
    "chosen_to_keep",
    "computes_with_floats",
    "data_of",
    "islands",
    "moves",
    "not_finite",
]

_STEEP = (LogNode, ReciprocalNode, SqrtNode)
_SOME = Quant((1.0,), (0,))
_IGNORED = (DequantizeNode, QuantizeNode, SaveNode, SplatNode)


@dataclass(frozen=True)
class Islands:
    """The decision for each node of a function that computes with floats.

    Attributes:
        reasons: Why each stays in floats; empty for one that becomes integer.
        joined: The nodes that become one with others, a table or a layer norm, and which of these gives the result.
        gathers: The gathers of rows of known tables, which become integers; what is gathered does not.
    """

    reasons: dict[Node, str]
    joined: dict[Node, Node]
    gathers: frozenset[GatherNode]


def islands(f: Function, profile: Profile, options: Options, refused: Mapping[Loc, str]) -> Islands:
    """Decides for each node of an optimized function that computes with floats whether it becomes integer.

    Args:
        f: The function.
        profile: The profile of its values.
        options: The options: what is to stay in floats.
        refused: Places in the user's model whose integers a backend cannot run, and why.

    Raises UserError for a node to keep that is not there.
    """
    nodes = [node for node in f.topological() if computes_with_floats(node)]
    reasons_to_keep = _kept(nodes, options)
    stays = {node: reasons_to_keep.get(node) or refused.get(node.loc, "") for node in nodes}
    candidates = [node for node in nodes if not stays[node]]
    tables = _tables(candidates, profile, options)
    joined = tables | (_norms(candidates, profile, options) if options.integer_norms else {})
    reasons = {node: stays[node] or _refusal(node, profile, options, joined) for node in nodes}
    gathers = frozenset(node for node in candidates if _reads_table(node, options))
    possible = {node for node, reason in reasons.items() if not reason and node not in gathers}
    integer: set[Node] = {node for node in possible if isinstance(node, Product)}

    def is_there(value: NodeValue) -> bool:
        users = (user for user in value.users if isinstance(user, Product))
        return value.node in integer or is_known(value) or any(user in integer for user in users)

    for node in nodes:
        if node in possible and all(is_there(value) for _, value in data_of(node)):
            integer.add(node)
    for node in reversed(nodes):
        looked_up = node in tables or (node.has(Trait.ELEMENTWISE) and not is_exact(node))
        in_front = node in possible and (moves(node) or looked_up)
        if in_front and any(user in integer for user in node.result.users):
            integer.add(node)
    for node in possible - integer:
        reasons[node] = "no matrix product or convolution is beside it"
    for node in _read_as_floats(nodes, integer, joined):
        integer.remove(node)
        reasons[node] = "only floats are computed from it"
    reasons |= dict.fromkeys(gathers, "")
    return Islands(reasons, {n: root for n, root in joined.items() if n in integer}, gathers)


def _reads_table(node: Node, options: Options) -> TypeGuard[GatherNode]:
    """Whether a node gathers rows of a known table that is to be stored as integers."""
    if options.tables is None or not isinstance(node, GatherNode) or node.axis != 0:
        return False
    type = node.input.type
    is_table = type.rank == 2 and type.kind is ElemKind.F32 and type.count
    constant = node.input.constant
    return (
        bool(is_table)
        and constant is not None
        and constant.has_elements
        and not not_finite(node.input)
    )


def not_finite(value: NodeValue) -> str:
    """Why no integers stand for what is known of a value; empty if some do."""
    tensor = known_tensor(value)
    finite = tensor is None or all(np.isfinite(piece).all() for piece in tensor.pieces())
    return "" if finite else "its constant has NaNs or infinities"


def _tables(nodes: Sequence[Node], profile: Profile, options: Options) -> dict[Node, Node]:
    """The nodes of functions of one value that become one table, and the one that gives the result."""
    candidates, tables = set(nodes), dict[Node, Node]()
    for node in reversed(nodes):
        unary = None if node in tables or options.activations.size > 1 else unary_of(node)
        if unary is None or not is_table(unary) or not candidates.issuperset(unary.nodes):
            continue
        steep = any(isinstance(part, _STEEP) for part in unary.nodes)
        ends = (node.result, unary.operand)
        if not steep and not any(_no_range(value, profile) for value in ends):
            tables.update(dict.fromkeys(unary.nodes, node))
    return tables


def _norms(nodes: Sequence[Node], profile: Profile, options: Options) -> dict[Node, Node]:
    """The nodes of layer norms, and the one that gives the result."""
    candidates, norms = set(nodes), dict[Node, Node]()
    for node in reversed(nodes):
        norm = None if node in norms else layer_norm_of(node)
        if norm is None or not candidates.issuperset(norm.nodes):
            continue
        type = Type(options.activations, norm.operand.type.shape, _SOME)
        ranges = not any(_no_range(value, profile) for value in (node.result, norm.operand))
        if ranges and can_be_normalized(type, norm.axes):
            norms.update(dict.fromkeys(norm.nodes, node))
    return norms


def _read_as_floats(
    nodes: Sequence[Node], integer: Collection[Node], joined: Collection[Node]
) -> set[Node]:
    """The nodes on integers that only floats are computed from, but for products.

    Outputs of the network may be rounded, but not where that is for the sake of nodes alone that move elements.
    """
    floats: set[Node] = set()
    last: set[Node] = set()
    for node in reversed(nodes):
        numbers = node.result.type.kind.is_float or node in joined
        if node not in integer or isinstance(node, Product) or not numbers:
            continue
        users = node.result.users
        readers = [user for user in users if user not in last and not isinstance(user, SaveNode)]
        if readers and all(user not in integer or user in floats for user in readers):
            floats.add(node)
        elif not readers and moves(node):
            last.add(node)
    for node in nodes:
        source = node.inputs[0].node
        rounded = source in integer and source not in floats and not isinstance(source, Product)
        if node in last and not rounded:
            floats.add(node)
    return floats


def data_of(node: Node) -> list[tuple[int, NodeValue]]:
    """The operands of a node that are floats to be quantized, with their indices."""
    schema = node.SCHEMA
    names = schema.inputs * len(node.inputs) if schema.variadic else schema.inputs
    return [
        (i, value)
        for i, (name, value) in enumerate(zip(names, node.inputs, strict=False))
        if value.type.kind.is_float and name not in schema.plain
    ]


def moves(node: Node) -> bool:
    """Whether a node moves or chooses elements of one operand, and its result has their type."""
    return node.SCHEMA.quant is Quantized.SAME and len(data_of(node)) == 1


def computes_with_floats(node: Node) -> bool:
    """Whether a node has floats as operands or results, other than conversions, calls and what nothing computes."""
    floats = [value for value in (*node.inputs, *node.results) if value.type.kind.is_float]
    return bool(floats) and not isinstance(node, _IGNORED) and not node.callees


def chosen_to_keep(nodes: Collection[Node], names: Collection[str]) -> dict[Node, str]:
    """The nodes that the user wants in floats by name or kind, and why. Raises UserError for what no node is called.

    Kinds are those of the optimized graph, or operators of ONNX; several of these can be one node, as a `MatMul` and
    the `Add` of a bias, which is then one of either.
    """
    expect_type("keep", names, tuple | list, "a tuple of names")
    reasons: dict[Node, str] = {}
    unknown = set(names)
    for node in nodes:
        place = node.loc
        matches = {node.name, f"%{node.name}", node.SCHEMA.mnemonic, place.node, place.operator}
        matches &= set(names)
        unknown -= matches
        if matches:
            reasons[node] = f"'{min(matches)}' is to be kept"
    if unknown:
        kinds = sorted({node.SCHEMA.mnemonic for node in nodes})
        kinds += sorted({node.loc.operator for node in nodes if node.loc.operator})
        raise UserError(
            f"expected a name or a kind of a node to keep, got '{min(unknown)}'",
            note=f"the kinds are {', '.join(kinds)}; --json lists the names"
            if nodes
            else "there is nothing to quantize",
        )
    return reasons


def _kept(nodes: Collection[Node], options: Options) -> dict[Node, str]:
    """The nodes that the user wants in floats, and why."""
    reasons = chosen_to_keep(nodes, options.keep)
    layers = [node for node in nodes if isinstance(node, Product)]
    if options.skip_first:
        reasons.update(dict.fromkeys(layers[:1], "the first layer is to be kept"))
    if options.skip_last:
        reasons.update(dict.fromkeys(layers[-1:], "the last layer is to be kept"))
    return reasons


def _refusal(node: Node, profile: Profile, options: Options, joined: Mapping[Node, Node]) -> str:
    """Why a node cannot be computed on integers; empty if it can."""
    if node in joined:
        return ""
    values = [*node.results, *(value for _, value in data_of(node))]
    floats = [value for value in values if value.type.kind.is_float and not is_known(value)]
    odd = [value for value in floats if value.type.kind is not ElemKind.F32]
    if odd:
        return f"it computes with {odd[0].type.kind.value}"
    if reason := _no_form(node, options.activations):
        return reason
    constants = [] if isinstance(node, Product) else [value for _, value in data_of(node)]
    reasons = (*map(not_finite, constants), *(_no_range(value, profile) for value in floats))
    return next(filter(None, reasons), "")


def _no_range(value: NodeValue, profile: Profile) -> str:
    """Why no integers stand for what a value had; empty if some do."""
    if value.type.is_empty:
        return "it has no elements"
    statistics = profile[value.name]
    if not profile.values[value.name].type:
        return f"%{value.name} is not in the profile, which is of other extents"
    if not statistics.count:
        return f"%{value.name} never had a finite element"
    odd = statistics.nans or statistics.infinities
    return f"%{value.name} had NaNs or infinities" if odd else ""


def _no_form(node: Node, activations: ElemKind) -> str:
    """Why there is no form of a node on integers of the kind of activations; empty if there is."""
    types = [Type(activations, value.type.shape, _SOME) for _, value in data_of(node)]
    if isinstance(node, Product):
        weights = (
            types[1] if node.inputs[1].constant is None else replace(types[1], kind=ElemKind.I8)
        )
        no_sum = no_exact_sum if activations in BYTES else no_sum_of_bytes
        return no_sum(node, types[0], weights)
    none = f"there is no {node.SCHEMA.mnemonic} of integers"
    if isinstance(node, ConcatNode):
        return ""
    if node.SCHEMA.quant is Quantized.SAME:
        return "" if len(node.results) == 1 and data_of(node) else none
    if isinstance(node, DivNode) and not _is_one_number(node.rhs):
        return "its divisor might be rounded to 0"
    if isinstance(node, _STEEP):
        return f"{8 * activations.size} bits are too few for its operand near 0"
    if has_integer_form(node, types):
        return ""
    jumps = activations is ElemKind.I16 and node.has(Trait.ELEMENTWISE) and not is_smooth(node)
    return "no parabolas follow its jumps" if jumps else none


def _is_one_number(value: NodeValue) -> bool:
    return is_known(value) and (isinstance(value.node, SplatNode) or value.type.count == 1)
