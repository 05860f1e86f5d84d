"""`integer_ports`: a quantized model that takes and gives stored integers in place of floats."""

from __future__ import annotations

from collections.abc import Iterator

from glowpy.core.schema import Quantized
from glowpy.core.type import Type
from glowpy.graph.function import SAVED, Module
from glowpy.graph.node import Node, NodeValue, Placeholder
from glowpy.graph.nodes_gen import DequantizeNode, QuantizeNode, SaveNode
from glowpy.quantization.optimized import optimize
from glowpy.support.errors import Diagnostic, UserError

__all__ = ["integer_ports"]


def integer_ports(module: Module) -> Module:
    """A copy of a quantized model whose inputs and outputs in floats are stored integers.

    An input has the type that the model quantizes it to, an output that which it is dequantized from: for the exact
    sums of a product this is i32, with a scale for each channel.

    The copy is optimized: in files, what is computed on integers stands between conversions.

    Args:
        module: The model; it is not changed.

    Raises UserError that names the inputs and outputs that the model reads and writes in floats.
    """
    copy = module.clone()
    for f in copy.networks:
        optimize(f)
    inner = {storage for f in copy.functions for storage in (*f.takes, *f.gives)}
    ports = [
        port
        for port in copy.placeholders
        if port.type.kind.is_float and port.value.uses and port not in inner
    ]
    types = {port: set(_types(port)) for port in ports}
    if refused := [port for port, found in types.items() if len(found) != 1 or None in found]:
        raise UserError.of(_refusal(port) for port in refused)
    for port in ports:
        (type,) = types[port]
        assert type is not None
        _retype(copy, port, type)
    return copy


def _refusal(port: Placeholder) -> Diagnostic:
    return Diagnostic(
        f"integer ports: expected '{port.original}' to be quantized wherever the model reads or writes it, and in one "
        "way",
        loc=port.loc,
        note="quantize the model first, or leave inputs and outputs in floats",
    )


def _types(port: Placeholder) -> Iterator[Type | None]:
    """The quantized types in which an input or output is read and written; None for floats."""
    for node, index in port.value.uses:
        if isinstance(node, SaveNode) and index == SAVED:
            yield _source_type(node.input, port)
        else:
            yield from _reader_types(node, port)


def _source_type(value: NodeValue, port: Placeholder) -> Type | None:
    node, moved = value.node, False
    while node is not None and _moves(node):
        node, moved = node.inputs[0].node, True
    return _shaped(node.input.type, port, moved) if isinstance(node, DequantizeNode) else None


def _reader_types(node: Node, port: Placeholder) -> Iterator[Type | None]:
    pending = [(node, False)]
    while pending:
        reader, moved = pending.pop()
        if isinstance(reader, QuantizeNode):
            yield _shaped(reader.type, port, moved)
        elif _moves(reader):
            pending += [(user, True) for user in reader.results[0].users]
        else:
            yield None


def _moves(node: Node) -> bool:
    """Whether the elements of the result are some of those of the first operand."""
    return node.SCHEMA.quant is Quantized.SAME and not isinstance(node, SaveNode)


def _shaped(type: Type, port: Placeholder, moved: bool) -> Type | None:
    """The type in the port's shape. Channels are not looked for once elements have been moved."""
    if not moved:
        return type
    is_per_tensor = type.quant is not None and type.quant.axis is None
    return Type(type.kind, port.type.shape, type.quant) if is_per_tensor else None


def _retype(module: Module, port: Placeholder, type: Type) -> None:
    """Gives a port the type. What the optimizer then has is a conversion there and back, which it removes."""
    uses, floats = port.value.uses, port.type
    port.value.type = type
    for f in module.functions:
        uses_here = [(node, index) for node, index in uses if node in f]
        with f.at(port.loc):
            for node, index in uses_here:
                if not (isinstance(node, SaveNode) and index == SAVED):
                    continue
                source = node.input.node
                if isinstance(source, DequantizeNode):
                    node.set_input(SAVED - 1, source.input)
                else:
                    stored = f.create_quantize(port.name, type, node.input)
                    node.set_input(SAVED - 1, stored.result)
            reads = [(n, i) for n, i in uses_here if not (isinstance(n, SaveNode) and i == SAVED)]
            if reads:
                numbers = f.create_dequantize(port.name, floats, port)
                for node, index in reads:
                    node.set_input(index, numbers.result)
