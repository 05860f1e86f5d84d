"""Values that need only constants, computed while compiling: what import and constant folding ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.tensor import LARGE, MAX_COST, Array, Tensor
from glowpy.graph.clone import Values, clone_nodes, clone_storage
from glowpy.graph.function import Module
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.order import computing
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.insts_gen import AllocInst, TransposeInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability, Value
from glowpy.irgen import IRGen
from glowpy.lower import LowerPass, lower
from glowpy.opt.graph.lower_quantized import LowerQuantizedPass, is_quantized_arithmetic
from glowpy.passes import PassContext
from glowpy.runtime.host_memory import elements_at
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import static

__all__ = ["evaluate"]


def evaluate(values: Sequence[NodeValue]) -> list[Tensor]:
    """The tensors of `values`. Neither they nor what they need are changed; predicates do not count.

    Large ones that follow from other large ones are deferred: each is computed by itself whenever it is asked for.

    Every node is translated by itself, and its instructions run on arrays of their own: nothing is scheduled,
    optimized or planned, for nothing runs twice. An array is dropped after its last use. Linear time.

    Raises InternalError for a value that needs a placeholder.
    """
    later = _deferrable(values)
    now = [value for value in values if value not in later]
    program = _Program.of(now)
    arrays = program.run(*(tensor.array for tensor in program.constants.values()))
    tensors = {value: Tensor(value.type, array) for value, array in zip(now, arrays, strict=True)}
    return [tensors[value] if value in tensors else _deferred(value) for value in values]


def _deferrable(values: Sequence[NodeValue]) -> set[NodeValue]:
    """The large values that follow from other large ones by few computations."""
    costs: dict[NodeValue, int] = {}
    reads_large: dict[NodeValue, bool] = {}
    nodes = computing(values)
    for value in _constants(values, nodes):
        tensor = _tensor(value)
        costs[value] = tensor.cost
        reads_large[value] = tensor.type.size >= LARGE and tensor.splat_value is None
    for node in nodes:
        cost = 1 + sum(costs[value] for value in node.inputs)
        for result in node.results:
            costs[result] = min(cost, MAX_COST + 1)
            reads_large[result] = any(reads_large[value] for value in node.inputs)
    return {
        value
        for value in values
        if value.type.size >= LARGE and reads_large[value] and costs[value] <= MAX_COST
    }


def _deferred(value: NodeValue) -> Tensor:
    program = _Program.of([value])

    def compute(*arrays: Array) -> Array:
        return program.run(*arrays)[0]

    inputs = list(program.constants.values())
    return Tensor.derived(value.type, program.text(), inputs, compute)


@dataclass(frozen=True)
class _Program:
    """Instructions that compute `results` from `constants`."""

    ir: IRFunction
    constants: dict[Value, Tensor]
    results: list[Value]

    @classmethod
    def of(cls, values: Sequence[NodeValue]) -> _Program:
        """The program that computes `values`."""
        nodes = computing(values)
        if any(type(node) in lower or is_quantized_arithmetic(node) for node in nodes):
            values = _lowered(values, nodes)
            nodes = computing(values)
        ir = IRFunction("constants")
        g = IRGen(ir)
        constants: dict[Value, Tensor] = {}
        for value in _constants(values, nodes):
            weight = ir.create_weight(value.name, value.type, Mutability.CONSTANT)
            g.define(value, weight)
            constants[weight] = _tensor(value)
        for node in nodes:
            g.translate(node)
        return cls(ir, constants, [g.value(value) for value in values])

    def text(self) -> str:
        """The instructions without the names of what they work on."""
        places: dict[Value, int] = {value: index for index, value in enumerate(self.constants)}
        lines = []
        for inst in self.ir.instructions:
            if isinstance(inst, ValueInstruction):
                places[inst.value] = len(places)
                lines.append(f"%{places[inst.value]} : {inst.value.type} {inst.value.byte_offset}")
            operands = [f"%{places[ref.value]} : {ref.value.type}" for ref in inst.operands]
            attrs = sorted(inst.attrs.items())
            lines.append(f"{inst.SCHEMA.mnemonic}({', '.join(operands)}) {attrs}")
        return "\n".join([*lines, *(f"%{places[result]}" for result in self.results)])

    def run(self, *arrays: Array) -> list[Array]:
        """Runs the instructions in order; of the arrays they make and read, only those of `results` stay."""
        tensors = {
            value: Tensor(value.type, array)
            for value, array in zip(self.constants, arrays, strict=True)
        }
        results = set(self.results)
        last = {ref.value: inst for inst in self.ir.instructions for ref in inst.operands}
        with np.errstate(all="ignore"):
            for inst in self.ir.instructions:
                _step(inst, tensors)
                for ref in inst.operands:
                    if last[ref.value] is inst and ref.value not in results:
                        tensors.pop(ref.value, None)
        return [tensors[result].array for result in self.results]


def _step(inst: Instruction, tensors: dict[Value, Tensor]) -> None:
    if isinstance(inst, AllocInst):
        type = inst.value.type
        tensors[inst.value] = Tensor(type, np.zeros(type.extents, type.kind.dtype))
    elif isinstance(inst, ViewInst):
        tensors[inst.value] = _view(inst, tensors[inst.source])
    elif isinstance(inst, TransposeInst):
        # No copy: nothing writes to its input any more, and weights are large.
        array = tensors[inst.input].array.transpose(inst.shuffle)
        tensors[inst.result] = Tensor(inst.result.type, array)
    else:
        operands = [tensors[ref.value] for ref in inst.operands]
        interpret[inst.__class__](*operands, **inst.attrs)


def _constants(values: Sequence[NodeValue], nodes: Sequence[Node]) -> list[NodeValue]:
    """The storage that `values` are or `nodes` read."""
    read = dict.fromkeys((*values, *(value for node in nodes for value in node.inputs)))
    return [value for value in read if value.node is None]


def _tensor(value: NodeValue) -> Tensor:
    if value.constant is None:
        raise InternalError(f"expected a constant to evaluate, got %{value.name}")
    return value.constant.tensor


def _lowered(values: Sequence[NodeValue], nodes: Sequence[Node]) -> list[NodeValue]:
    """Values equal to `values`, computed by copies of `nodes` that are lowered to the end."""
    module = Module()
    f = module.create_function("constants")
    twins: Values = {}
    for value in _constants(values, nodes):
        clone_storage(value.storage, module, twins)
    clone_nodes(nodes, f, twins, predicates=False)
    for value in values:
        f.create_save("save", twins[value], module.create_placeholder("result", value.type))
    ctx = PassContext(evaluate)
    LowerQuantizedPass().run(f, ctx)
    LowerPass(lambda node: False).run(f, ctx)
    return [save.input for save in f.saves]


def _view(inst: ViewInst, source: Tensor) -> Tensor:
    """The memory from the first byte of the source to its last is what the view is a part of."""
    value, size = inst.value, source.type.kind.size
    array = np.ascontiguousarray(source.array) if inst.source.is_contiguous else source.array
    span, offset = static((inst.source.span, inst.offset))
    run = np.lib.stride_tricks.as_strided(array, (span // size,), (size,))
    return Tensor(value.type, elements_at(run.view(np.uint8), offset * size, value))
