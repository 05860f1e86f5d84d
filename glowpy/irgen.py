"""IRGen: scheduled nodes become instructions over buffers.

A class declared as `Op` has an instruction with the same operand names and is translated without a
rule: its results (and scratch operands) are allocated, the instruction is appended. Other nodes
have an `@irgen(XNode)` rule in `ops/`. Saves, which come last, all read before any of them writes.
Every buffer is deallocated at the end; the IR passes shorten lifetimes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from glowpy.core.extents import unsupported
from glowpy.core.schema import Access
from glowpy.core.strides import canonical_strides
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue, Placeholder, Storage, Variable
from glowpy.graph.nodes_gen import SaveNode
from glowpy.ir.calls import FRAME
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.insts_gen import INSTS, AllocInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability, Value
from glowpy.operators import operator_sets
from glowpy.support.errors import Diagnostic, UnsupportedError, UserError
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, symbol
from glowpy.support.text import Attr

__all__ = ["IRGen", "generate", "irgen", "scratch"]

irgen: Rules[Callable[..., None]] = Rules("irgen")
"""`@irgen(XNode)` functions take an `IRGen` and the node, and define every result with `g.define`."""

scratch: Rules[Callable[..., tuple[Type, ...]]] = Rules("scratch")
"""`@scratch(XNode)` functions take the node and return the types of its instruction's scratch operands."""


_CORE: dict[str, type[Instruction]] = {cls.SCHEMA.mnemonic: cls for cls in INSTS}


class IRGen:
    """State for the rules: the IR function under construction, and the memory of every value generated so far."""

    def __init__(
        self,
        ir: IRFunction,
        instructions: Sequence[type[Instruction]] = (),
        backend: str = "",
        frames: Mapping[str, int] | None = None,
    ) -> None:
        self.ir = ir
        self._frames = dict(frames or {})
        self._backend = backend
        self._values: dict[NodeValue, Value] = {}
        self._set_aside: dict[NodeValue, Value] = {}
        others = (cls for operators in operator_sets() for cls in operators.instructions)
        classes = {cls.SCHEMA.mnemonic: cls for cls in (*others, *instructions)}
        self._classes = {**_CORE, **classes}

    def value(self, operand: NodeValue) -> Value:
        """The memory that holds `operand`."""
        return self._values[operand]

    def saved(self, save: SaveNode) -> Value:
        """The memory that `save` reads: what it saves, or a copy made before any save wrote."""
        return self._set_aside.get(save.input) or self.value(save.input)

    def set_aside(self, saves: Sequence[SaveNode]) -> None:
        """Copies what saves read from storage that saves write, so that all of them happen at once."""
        memories = [(save, self.value(save.input), self.value(save.output)) for save in saves]
        written = {output.base for _, value, output in memories if value is not output}
        for save, value, _ in memories:
            if value.base in written and save.input not in self._set_aside:
                copy = self.ir.create_alloc(f"{save.name}_before", value.type).value
                self.ir.create_copy(copy, value).loc = save.loc
                self._set_aside[save.input] = copy

    def define(self, result: NodeValue, value: Value) -> None:
        """Says that `value` is the memory of `result`."""
        self._values[result] = value

    def alloc(self, result: NodeValue) -> Value:
        """Allocates the memory of `result`, defines it, and returns it."""
        value = self.ir.create_alloc(result.name.replace(".", "_"), result.type).value
        self.define(result, value)
        return value

    def frame(self, node: Node) -> Value:
        """Allocates memory for whatever a node calls.

        Raises UserError for a function of which it is not known how much it needs.
        """
        for name in node.callees:
            if name not in self._frames:
                raise UserError(f"%{node.name} calls @{name}, which has no IR yet", loc=node.loc)
        size = max(self._frames[name] for name in node.callees)
        return self.ir.create_alloc(f"{node.name}_frame", Type(FRAME, (size,))).value

    def extents(self, node: Node) -> tuple[Dim, ...]:
        """The symbols on which what a node calls depends."""
        symbols = [s for name in node.callees for s in self.ir.callees[name].symbols.values()]
        dims = {s.name: symbol(s.name, s.low, s.high, s.likely) for s in symbols}
        return tuple(dims.values())

    def knows(self, node: Node) -> bool:
        """Whether something says which instructions a node becomes."""
        return type(node) in irgen or node.SCHEMA.mnemonic in self._classes

    def translate(self, node: Node) -> None:
        """Appends the instructions of a node. Raises UnsupportedError if nothing says which."""
        rule = irgen.get(type(node))
        if rule is not None:
            rule(self, node)
        elif self.knows(node):
            self.automatic(node)
        else:
            raise UnsupportedError.of([_unknown(node, self._backend)])

    def automatic(self, node: Node) -> None:
        """The translation of a class declared as `Op`."""
        cls = self._classes[node.SCHEMA.mnemonic]
        results = {
            name: self.alloc(result)
            for name, result in zip(node.SCHEMA.results, node.results, strict=True)
        }
        inputs = dict(zip(node.SCHEMA.inputs, node.inputs, strict=True))
        names = [spec.name for spec in cls.SCHEMA.operands if spec.access is Access.SCRATCH]
        scratches: dict[str, Value] = {}
        if names:
            for name, scratch_type in zip(
                names, scratch.required(type(node), f"%{node.name}")(node), strict=True
            ):
                scratches[name] = self.ir.create_alloc(f"{node.name}_{name}", scratch_type).value
        operands = [
            results.get(spec.name) or scratches.get(spec.name) or self.value(inputs[spec.name])
            for spec in cls.SCHEMA.operands
        ]
        self.ir.add(cls(operands, node.attrs))


def _unknown(node: Node, backend: str) -> Diagnostic:
    """Creates the diagnostic for a node that has neither an instruction nor a rule in the backend of that name."""
    mnemonic = node.SCHEMA.mnemonic
    if node.BACKEND and backend == node.BACKEND:
        message = f"the `instructions` of the {backend} backend list none for its own {mnemonic}"
        note = "add INSTS of the package's insts_gen.py to them"
    elif node.BACKEND:
        message = (
            f"{mnemonic} belongs to the {node.BACKEND} backend, expected a node that this one knows"
        )
        note = f"compile it for the {node.BACKEND} backend"
    else:
        message = f"no instruction computes {mnemonic}"
        rule = f"a rule @lower or @irgen for {type(node).__name__}"
        note = f"lower it first, as `glowpy opt -p lower,irgen` does: {rule} says what it becomes"
    return Diagnostic(f"%{node.name}: {message}", node.loc, note=note)


def _weight(ir: IRFunction, storage: Storage) -> Value:
    """The memory of a storage; what of it holds the elements of a variable."""
    mutability = Mutability.CONSTANT if isinstance(storage, Constant) else Mutability.MUTABLE
    if not isinstance(storage, Variable) or storage.memory == storage.type:
        return ir.create_weight(storage.name, storage.type, mutability)
    weight = ir.create_weight(storage.name, storage.memory, mutability)
    strides = canonical_strides(storage.type.shape, weight.strides)
    name = ir.fresh_name(f"{storage.name}_now")
    attrs: dict[str, Attr] = {"offset": 0, "strides": strides}
    return ir.add(ViewInst((weight,), attrs, name=name, type=storage.type)).value


def generate(
    f: Function,
    order: Sequence[Node],
    instructions: Sequence[type[Instruction]] = (),
    *,
    inputs: Collection[Placeholder] = (),
    backend: str = "",
    callees: Mapping[str, IRFunction] | None = None,
    frames: Mapping[str, int] | None = None,
) -> IRFunction:
    """The program of `f` with its nodes in `order`; `instructions` are the own classes of `backend`.

    `callees` are the programs of the functions that it needs, `frames` the bytes that each works in.

    Storage that a node uses becomes weights, and so do `inputs` whether a node uses them or not. A variable that has
    more room than elements is a view of its weight.

    Raises UnsupportedError that lists every node that has neither an instruction nor a rule.
    """
    ir = IRFunction(f.name, [s.name for s in f.takes], [s.name for s in f.gives])
    ir.callees.update(callees or {})
    g = IRGen(ir, instructions, backend, frames)
    if unknown := [node for node in order if not g.knows(node)]:
        values = [value for node in unknown for value in (*node.inputs, *node.results)]
        raise unsupported((_unknown(node, backend) for node in unknown), [v.type for v in values])
    touched = {value.producer for node in order for _, value in node.operands()} | set(inputs)
    touched |= {
        *f.takes,
        *f.gives,
        *(constant for callee in f.called for constant in callee.constants),
    }
    for storage in f.module.storages:
        if storage in touched:
            g.define(storage.value, _weight(ir, storage))
    saves = [node for node in order if isinstance(node, SaveNode)]
    for node in order:
        if saves and node is saves[0]:
            g.set_aside(saves)
        first = len(ir.instructions)
        g.translate(node)
        for inst in ir.instructions[first:]:
            inst.loc = node.loc
            inst.name = inst.name or node.name
            if node.predicate is not None and not isinstance(inst, ValueInstruction):
                inst.predicate = g.value(node.predicate)
    for inst in list(ir.instructions):
        if isinstance(inst, AllocInst):
            ir.create_dealloc(inst.value)
    return ir
