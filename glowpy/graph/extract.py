"""Parts of graphs: a convex set of nodes becomes a function of the module, or a network of its own.

A set is convex if no path leaves it and comes back: then it can be computed at once. `outline` puts a `call` in the
place of such a set, `calls.inline` puts the set back. What the set reads of its surroundings is passed by value, but
for constants, which belong to the module; what others read of it is given back. So state stays with the caller: a
variable that is read is an operand, and saves stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from glowpy.core.extents import symbols_of_types
from glowpy.graph.clone import Values, clone_function, clone_nodes, clone_storage
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import CallNode, DefineNode, SaveNode
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbols_of

__all__ = ["excerpt", "hull", "outline"]

_SHOWN = 6
"""The length from which only the ends of a path are named."""


def outline(function: Function, nodes: Iterable[Node], name: str) -> CallNode:
    """Makes a function of a convex set of nodes, and puts a call of it in their place; `inline` is the inverse.

    The function takes what the nodes read, but for constants, and gives what others read of them, each in the order in
    which the nodes do. The nodes stay the nodes they are. Saves among them stay in `function`: what they save is given.

    Args:
        function: The function that the nodes are part of.
        nodes: The set. `hull` adds what it takes to make any set convex.
        name: The name of the new function, and of the node that calls it.

    Raises UserError for a set that is not convex, with a path that leaves it and comes back; for nodes of other
    functions; for a set of which nothing is read; for one that finds an extent on which others depend; and for a name
    that is taken.
    """
    order = function.topological()
    part = _part(function, order, nodes)
    members = set(part)
    _check_convex(function, order, members)
    inputs, outputs = _seams(part)
    if not outputs:
        raise UserError(f"expected nodes of @{function.name} whose results others read")
    _check_extents(function, part, outputs)
    module = function.module
    takes = [module.create_placeholder(_stem(v), v.type, loc=v.producer.loc) for v in inputs]
    gives = [module.create_placeholder(_stem(v), v.type, loc=v.producer.loc) for v in outputs]
    try:
        callee = module.create_function(name, takes, gives)
    except UserError:
        for placeholder in (*takes, *gives):
            module.erase(placeholder)
        raise
    function.hand_over(part, callee)
    for value, placeholder in zip(inputs, takes, strict=True):
        _redirect(value, callee, placeholder.value)
    with function.at(part[0].loc):
        call = function.create_call(name, inputs, callee.name)
    for value, result, placeholder in zip(outputs, call.results, gives, strict=True):
        _redirect(value, function, result)
        callee.create_save("save", value, placeholder, loc=value.producer.loc)
    at = order.index(part[0])
    function.arrange([*order[:at], call, *(node for node in order[at:] if node not in members)])
    return call


def hull(function: Function, nodes: Iterable[Node]) -> list[Node]:
    """The nodes, and all that lie on paths between them: the smallest convex set, each node after what it needs.

    Raises UserError for nodes of other functions.
    """
    order = function.topological()
    members = set(_part(function, order, nodes))
    needs = function.needs
    after: set[Node] = set()
    for node in order:
        if node in members or any(needed in after for needed in needs(node)):
            after.add(node)
    before: set[Node] = set()
    for node in reversed(order):
        if node in members or node in before:
            before.add(node)
            before.update(needs(node))
    return [node for node in order if node in after and node in before]


def excerpt(function: Function, nodes: Iterable[Node], name: str = "") -> Module:
    """A module with one network, copied from nodes of a function, which need not be convex.

    What they read besides constants is an input; results that others read, or nobody, are outputs. Inputs and outputs
    are named after the values. Functions that the nodes call come along; elements of constants are shared.

    Args:
        function: The function that the nodes are part of. It is not changed.
        nodes: The nodes. Saves among them are left out.
        name: The name of the network; that of the function, if left out.

    Raises UserError for nodes of other functions, and if there are none.
    """
    part = _part(function, function.topological(), nodes)
    if not part:
        raise UserError(f"expected nodes of @{function.name} that compute something, got none")
    members = set(part)
    module = Module()
    values: Values = {}
    inputs, _ = _seams(part)
    for value in inputs:
        port = module.create_placeholder(_stem(value), value.type, original=_original(value))
        values[value] = port.value
    for value in dict.fromkeys(value for node in part for value in node.operand_values):
        if isinstance(value.producer, Constant):
            clone_storage(value.producer, module, values)
    called = {g for node in part for f in function.callees(node).values() for g in (*f.called, f)}
    for g in function.called:
        if g in called:
            clone_function(g, module, g.name, values)
    f = module.create_function(module.unused_function_name(name or function.name))
    clone_nodes(part, f, values)
    for node in part:
        for result in node.results:
            if not result.num_users or any(user not in members for user in result.users):
                name = _stem(result)
                output = module.create_placeholder(name, result.type, original=result.name)
                f.create_save("save", values[result], output, loc=node.loc)
    return module


def _part(function: Function, order: Iterable[Node], nodes: Iterable[Node]) -> list[Node]:
    """The nodes without saves, in order. Raises UserError for those of other functions."""
    members = dict.fromkeys(nodes)
    for node in members:
        if node not in function:
            raise UserError(f"expected nodes of @{function.name}, got {_named(node)}")
    return [node for node in order if node in members and not isinstance(node, SaveNode)]


def _seams(part: Collection[Node]) -> tuple[list[NodeValue], list[NodeValue]]:
    """Returns the values that nodes read from others, except constants, and those that others read from them."""
    members = set(part)
    read = dict.fromkeys(value for node in part for value in node.operand_values)
    inputs = [v for v in read if v.node not in members and not isinstance(v.producer, Constant)]
    results = (result for node in part for result in node.results)
    outputs = [v for v in results if any(user not in members for user in v.users)]
    return inputs, outputs


def _redirect(value: NodeValue, f: Function, other: NodeValue) -> None:
    """Makes the users of a value that are in a function use another one."""
    for user, index in value.uses:
        if user in f:
            user.set_input(index, other)


def _check_convex(function: Function, order: Iterable[Node], chosen: Collection[Node]) -> None:
    """Raises UserError that names a path which leaves the nodes and comes back."""
    needs = function.needs
    source: dict[Node, Node] = {}  # of nodes outside: what they need that is inside, or needs it
    for node in order:
        inside = node in chosen
        needed = next((n for n in needs(node) if n in source or (not inside and n in chosen)), None)
        if needed is None:
            continue
        if not inside:
            source[node] = needed
            continue
        path = [node, needed]
        while path[-1] in source:
            path.append(source[path[-1]])
        raise UserError(
            f"expected a convex set of nodes, got one that {_spelled(path[::-1])} leaves and enters again",
            note="hull(function, nodes) adds what lies between them",
        )


def _spelled(path: list[Node]) -> str:
    names = [f"%{node.name}" for node in path]
    if len(names) > _SHOWN:
        names[_SHOWN // 2 : -(_SHOWN // 2)] = ["..."]
    return " -> ".join(names)


def _check_extents(
    function: Function, part: Collection[Node], outputs: Iterable[NodeValue]
) -> None:
    """Raises UserError for an extent that the nodes find, and on which what is around them depends."""
    definitions = {
        name: node
        for node in part
        if isinstance(node, DefineNode)
        for name in symbols_of(node.symbols)
    }
    if not definitions:
        return
    members, needs = set(part), function.needs
    given = symbols_of_types(value.type for value in outputs)
    readers = {n for node in function.nodes if node not in members for n in needs(node)}
    for name, node in definitions.items():
        if name in given or node in readers:
            raise UserError(
                f"the extent '{name}' is found among the nodes, but others depend on it",
                loc=node.loc,
                note="leave out what depends on it and the node that defines it, or take all of it",
            )


def _named(node: object) -> str:
    return f"%{node.name}" if isinstance(node, Node) else type(node).__name__


def _stem(value: NodeValue) -> str:
    return value.name.replace(".", "_")


def _original(value: NodeValue) -> str:
    """The name in the user's model, of an input; else that in dumps."""
    return value.name if value.node is not None else value.storage.original
