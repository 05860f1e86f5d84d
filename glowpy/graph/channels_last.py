"""`channels_last`: a model whose inputs or outputs have their channels last, as cameras and displays do."""

from __future__ import annotations

from collections.abc import Collection

from glowpy.graph.function import SAVED, Module
from glowpy.graph.infer import infer_types
from glowpy.graph.node import Placeholder
from glowpy.graph.nodes_gen import SaveNode, TransposeNode
from glowpy.support.errors import UserError

__all__ = ["LAST_LAYOUTS", "channels_last", "unknown_port"]

LAST_LAYOUTS = {3: "NWC", 4: "NHWC", 5: "NDHWC"}
"""Names of the layouts with channels last, by rank."""


def channels_last(module: Module, names: Collection[str]) -> Module:
    """A copy of a model in which some inputs and outputs are [N, ..., C], where they are [N, C, ...] in the model.

    The optimizer removes the transpositions that this puts in where the network computes with channels last anyway.

    Args:
        module: The model; it is not changed.
        names: Inputs and outputs, of rank 3 to 5, as the model calls them.

    Raises UserError for a name that is none, and for other ranks.
    """
    copy = module.clone()
    placeholders = {placeholder.original: placeholder for placeholder in copy.placeholders}
    for name in dict.fromkeys(names):
        if name not in placeholders:
            raise unknown_port(name, placeholders)
        placeholder = placeholders[name]
        if placeholder.type.rank not in LAST_LAYOUTS:
            raise UserError(
                f"layout of '{name}': expected a tensor of rank 3 to 5, got {placeholder.type}",
                loc=placeholder.loc,
                note="leave its layout as it is",
            )
        _put_last(copy, placeholder)
    return copy


def unknown_port(name: str, known: Collection[str]) -> UserError:
    """Creates the error for a name that is no input or output."""
    names = ", ".join(known) or "(there are none)"
    return UserError(f"layout: expected one of the inputs and outputs {names}, got '{name}'")


def _put_last(module: Module, placeholder: Placeholder) -> None:
    """Gives a placeholder its channels last, and transposes where functions read and write it."""
    inner = range(2, placeholder.type.rank)
    to_last, to_first = (0, *inner, 1), (0, len(inner) + 1, *(axis - 1 for axis in inner))
    (type,) = infer_types(TransposeNode, [placeholder.type], {"shuffle": to_last})
    uses = placeholder.value.uses
    placeholder.value.type = type
    for f in module.functions:
        operands = [(node, index) for node, index in uses if node in f]
        saves = [node for node, index in operands if isinstance(node, SaveNode) and index == SAVED]
        with f.at(placeholder.loc):
            for save in saves:
                turned = f.create_transpose(placeholder.name, save.input, to_last)
                save.set_input(SAVED - 1, turned.result)
            reads = [(n, i) for n, i in operands if not (isinstance(n, SaveNode) and i == SAVED)]
            if not reads:
                continue
            turned = f.create_transpose(placeholder.name, placeholder, to_first)
            for node, index in reads:
                node.set_input(index, turned.result)
