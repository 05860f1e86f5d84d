"""Values that need only constants, computed while compiling: what import and constant folding ask for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glowpy.backend import elements_at
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Module
from glowpy.graph.node import Node, NodeValue
from glowpy.ir.insts_gen import AllocInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability, Value
from glowpy.irgen import IRGen
from glowpy.lower import LowerPass, lower
from glowpy.passes import PassContext
from glowpy.support.errors import InternalError

__all__ = ["evaluate"]


def evaluate(values: Sequence[NodeValue]) -> list[Tensor]:
    """The tensors of `values`. Neither they nor what they need are changed; predicates do not count.

    Every node is translated by itself, and its instructions run on arrays of their own: nothing is scheduled,
    optimized or planned, for nothing runs twice. An array is dropped after its last use. Linear time.

    Raises InternalError for a value that needs a placeholder.
    """
    nodes = _needed(values)
    if any(type(node) in lower for node in nodes):
        values = _lowered(values, nodes)
        nodes = _needed(values)
    ir = IRFunction("constants")
    g = IRGen(ir)
    tensors: dict[Value, Tensor] = {}
    for value in _constants(values, nodes):
        weight = ir.create_weight(value.name, value.type, Mutability.CONSTANT)
        g.define(value, weight)
        tensors[weight] = _tensor(value)
    for node in nodes:
        g.translate(node)
    results = [g.value(value) for value in values]
    _run(ir, tensors, set(results))
    return [tensors[result] for result in results]


def _needed(values: Sequence[NodeValue]) -> list[Node]:
    """The nodes that compute `values`, each after those of its inputs."""
    done: dict[Node, None] = {}
    stack = [value.node for value in reversed(values)]
    while stack:
        node = stack.pop()
        if node is None or node in done:
            continue
        missing = [v.node for v in node.inputs if v.node is not None and v.node not in done]
        if missing:
            stack += [node, *missing]
        else:
            done[node] = None
    return list(done)


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
    twins = {
        value: module.create_constant(value.name, _tensor(value)).value
        for value in _constants(values, nodes)
    }
    for node in nodes:
        inputs = [twins[value] for value in node.inputs]
        twin = f.add(node.clone(module.names.take(node.name), inputs, None))
        twins.update(zip(node.results, twin.results, strict=True))
    for value in values:
        f.create_save("save", twins[value], module.create_placeholder("result", value.type))
    LowerPass(lambda node: False).run(f, PassContext(evaluate))
    return [save.input for save in f.saves]


def _run(ir: IRFunction, tensors: dict[Value, Tensor], results: set[Value]) -> None:
    """Runs the instructions in order; of the tensors they make and read, those of `results` stay."""
    last = {ref.value: inst for inst in ir.instructions for ref in inst.operands}
    with np.errstate(all="ignore"):
        for inst in ir.instructions:
            if isinstance(inst, AllocInst):
                type = inst.value.type
                tensors[inst.value] = Tensor(type, np.zeros(type.shape, type.kind.dtype))
            elif isinstance(inst, ViewInst):
                tensors[inst.value] = _view(inst, tensors[inst.source])
            else:
                operands = [tensors[ref.value] for ref in inst.operands]
                interpret[inst.__class__](*operands, **inst.attrs)
            for ref in inst.operands:
                if last[ref.value] is inst and ref.value not in results:
                    tensors.pop(ref.value, None)


def _view(inst: ViewInst, source: Tensor) -> Tensor:
    """The memory from the first byte of the source to its last is what the view is a part of."""
    value, size = inst.value, source.type.kind.size
    array = np.ascontiguousarray(source.array) if inst.source.is_contiguous else source.array
    run = np.lib.stride_tricks.as_strided(array, (inst.source.span // size,), (size,))
    return Tensor(value.type, elements_at(run.view(np.uint8), inst.offset * size, value))
