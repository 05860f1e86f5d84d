"""Checks of the arguments that create nodes, and the choice of the node that inherits a replaced node's name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, repeat

from glowpy.core.schema import NodeSchema, Trait
from glowpy.core.type import Type
from glowpy.graph.node import Node, NodeValue, Operand, value_of
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc, caller

__all__ = ["no_memory", "no_name", "no_type", "operand_values", "successor_of"]


def no_name(value: object, loc: Loc) -> UserError:
    """Creates the error for a name that is no string, as in code that no type checker has seen."""
    got = type(value).__name__
    return UserError(f"expected a string as the name, got {got}", loc=loc or caller())


def no_type(value: object, loc: Loc) -> UserError:
    """Creates the error for a type that is no `Type`."""
    got = repr(value) if isinstance(value, str) else type(value).__name__
    note = "parse_type reads one"
    return UserError(f"expected a Type, got {got}", loc=loc or caller(), note=note)


def no_memory(value: object, loc: Loc) -> UserError:
    """Creates the error for the memory of a variable that is no `Type`, such as its elements."""
    got = type(value).__name__
    note = "initial=... gives the elements that the first run reads"
    message = f"expected the type of a variable's memory as its third argument, got {got}"
    return UserError(message, loc=loc or caller(), note=note)


def operand_values(schema: NodeSchema, inputs: Sequence[Operand], loc: Loc) -> list[NodeValue]:
    """Returns the values of a new node's operands. Raises UserError that names the first that has none."""
    if not isinstance(inputs, Iterable):
        raise UserError(
            f"{schema.mnemonic}: expected a list as {schema.inputs[0]}, got {type(inputs).__name__}",
            loc=loc,
        )
    roles = (
        repeat(schema.inputs[0]) if schema.variadic else chain(schema.inputs, repeat("an operand"))
    )
    values: list[NodeValue] = []
    for operand, role in zip(inputs, roles, strict=False):
        try:
            values.append(value_of(operand, role))
        except UserError as error:
            first = error.diagnostics[0]
            message = f"{schema.mnemonic}: {first.message}"
            note = _order(schema) if _is_misplaced(operand) else first.note
            raise UserError(message, loc=loc, note=note) from None
    return values


def _is_misplaced(operand: object) -> bool:
    """Whether it looks like a name or a result type, which stand before the operands."""
    return isinstance(operand, str | Type)


def _order(schema: NodeSchema) -> str:
    """Describes the order of the first arguments of a node's `create_x`."""
    typed = ["result_type"] if Trait.TYPED in schema.traits else []
    return f"the arguments are {', '.join(['name', *typed, *schema.inputs])}, in this order"


def successor_of(node: Node, replacement: NodeValue, created: Collection[Node]) -> Node | None:
    """Chooses the node that does the same as `node` from those `created` in its place; else one that computes."""
    successor = replacement.node
    if successor is None or successor not in created:
        return None
    while successor.has(Trait.SHAPE_ONLY) and successor.SCHEMA is not node.SCHEMA:
        source = successor.inputs[0].node
        if source is None or source not in created:
            break
        successor = source
    return successor
