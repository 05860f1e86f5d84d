"""One of each: a node or instruction of any class, made from its schema alone."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import REST, AttrSpec
from glowpy.core.type import Type
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import NODES
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.insts_gen import INSTS
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.support.symbolic import symbol
from glowpy.support.text import Attr

__all__ = ["ALL_INSTS", "ALL_NODES", "TYPE", "attrs_of", "inst_attrs", "inst_of", "node_of"]

TYPE = Type(ElemKind.F32, (2, 3))
SYMBOL = symbol("n", 1, 9)

ALL_NODES: tuple[type[Node], ...] = (*NODES, *CpuBackend.nodes)
ALL_INSTS: tuple[type[Instruction], ...] = (*INSTS, *CpuBackend.instructions)


def _attr(spec: AttrSpec, variant: int) -> Attr:
    match spec.kind:
        case "int":
            return 3 + variant
        case "ints":
            return (1, 2 + variant)
        case "dim":
            return SYMBOL * 3 + variant
        case "dims":
            return (1, SYMBOL + 2 + variant)
        case "float":
            return 0.5 + variant
        case "flag":
            return variant == 1
        case "text" | "function":
            return f"text {variant}"


def attrs_of(specs: Sequence[AttrSpec], variant: int = 0) -> dict[str, Attr]:
    """Attributes of the right kinds; another `variant` gives others."""
    return {spec.name: _attr(spec, variant) for spec in specs}


def node_of(
    cls: type[Node],
    inputs: Sequence[NodeValue],
    name: str = "n",
    *,
    variant: int = 0,
    predicate: NodeValue | None = None,
) -> Node:
    """A node on as many of `inputs` as it takes; not in a function, and not verified."""
    count = len(inputs) if cls.SCHEMA.variadic else len(cls.SCHEMA.inputs)
    types = [TYPE] * len(cls.SCHEMA.results)
    attrs = attrs_of(cls.SCHEMA.attrs, variant)
    return cls(name, inputs[:count], attrs, types, predicate=predicate)


def inst_attrs(cls: type[Instruction], variant: int = 0) -> dict[str, Attr]:
    """Attributes with which an instruction has every operand of its schema once."""
    once = {spec.times: 1 for spec in cls.SCHEMA.operands if spec.times not in ("", REST)}
    return {**attrs_of(cls.SCHEMA.attrs, variant), **once}


def inst_of(
    f: IRFunction,
    cls: type[Instruction],
    values: Sequence[Value],
    *,
    variant: int = 0,
    predicate: Value | None = None,
) -> Instruction:
    """An instruction on as many of `values` as it takes, appended to `f`; not verified."""
    operands = list(values[: len(cls.SCHEMA.operands)])
    attrs = inst_attrs(cls, variant)
    if issubclass(cls, ValueInstruction):
        return f.add(cls(operands, attrs, name=f.fresh_name("inst"), type=TYPE))
    return f.add(cls(operands, attrs, predicate=predicate))
