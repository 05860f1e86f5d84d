"""Linear portions compiled for what they meet: one graph for each combination of element kinds and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from glowpy.autodiff.differentiate import gradients
from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compile
from glowpy.executable import CompiledFunction
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.program.code import Literal, Operand, Operation, Portion
from glowpy.program.operators import rule_of
from glowpy.program.weaver import Held, Weak, Weaver
from glowpy.support.errors import UserError

__all__ = ["Runner", "Trace", "leaves"]

Value: TypeAlias = Any
"""What a slot holds at run time: an array, a Python number, a tuple of values, a function."""

Signature: TypeAlias = Any
"""What a value says of the code that reads it: kinds, shapes, and how tuples are nested."""

_NUMBERS = {bool: ElemKind.BOOL, int: ElemKind.I64, float: ElemKind.F64}


@dataclass(frozen=True)
class Trace:
    """A portion that ran: what it read and gave, as arrays and numbers.

    Attributes:
        runner: That of the portion.
        signature: Of its inputs.
        inputs: In order.
        outputs: In order; those that are no arrays are None.
    """

    runner: Runner
    signature: Signature
    inputs: tuple[Value, ...]
    outputs: tuple[Array | None, ...]


@dataclass(frozen=True)
class _Graph:
    """A portion as a graph for inputs of one signature.

    Attributes:
        function: With a placeholder for each input.
        inputs: The placeholders' values.
        results: What each output slot holds, by name.
    """

    function: Function
    inputs: tuple[NodeValue, ...]
    results: Mapping[str, Held]


@dataclass(frozen=True)
class _Compiled:
    """Machine code of a graph; None where all results were known. `results` are those of the graph."""

    code: CompiledFunction | None
    results: Mapping[str, Held]


@final
class Runner:
    """Compiles and runs one portion on one backend. Safe from several threads."""

    def __init__(self, portion: Portion, backend: Backend) -> None:
        self.portion = portion
        self._backend = backend
        self._compiled: dict[Signature, _Compiled] = {}
        self._backward: dict[Signature, CompiledFunction] = {}

    def run(self, slots: dict[str, Value]) -> Trace:
        """Reads inputs from slots, stores outputs in them."""
        values = [_defined(slots, name, self.portion) for name in self.portion.inputs]
        signature = tuple(
            [_signature(name, v) for name, v in zip(self.portion.inputs, values, strict=True)]
        )
        compiled = self._compiled.get(signature)
        if compiled is None:
            compiled = self._compiled[signature] = self._compile(signature)
        inputs = tuple([leaf for value in values for leaf in leaves(value)])
        arrays = {f"x{i}": _array(leaf) for i, leaf in enumerate(inputs)}
        results = compiled.code(_needed(compiled.code, arrays)) if compiled.code else {}
        outputs: list[Array | None] = []
        for name in self.portion.outputs:
            slots[name] = _stored(compiled.results[name], results, outputs)
        return Trace(self, signature, inputs, tuple(outputs))

    def graphs(self) -> list[Module]:
        """The graph of each signature that was met, in order."""
        return [self._graph(signature).function.module for signature in self._compiled]

    def pull_back(self, trace: Trace, flows: Sequence[Array | None]) -> list[Array | None]:
        """The gradient of each input, given that of each output of a run; None where none flows."""
        floats = tuple([_is_float(leaf) for leaf in trace.inputs])
        key = trace.signature, tuple([flow is not None for flow in flows])
        code = self._backward.get(key)
        if code is None:
            code = self._backward[key] = self._compile_backward(trace, flows, floats)
        arrays = {f"x{i}": _array(leaf) for i, leaf in enumerate(trace.inputs)}
        arrays |= {f"g{i}": flow for i, flow in enumerate(flows) if flow is not None}
        derivatives = code(_needed(code, arrays))
        return [derivatives.get(f"d{i}") for i in range(len(trace.inputs))]

    def _compile(self, signature: Signature) -> _Compiled:
        graph = self._graph(signature)
        f = graph.function
        results = [leaf for held in graph.results.values() for leaf in leaves(held)]
        for index, leaf in enumerate(results):
            value = leaf.value if isinstance(leaf, Weak) else leaf
            if isinstance(value, NodeValue):
                output = f.module.create_placeholder(f"y{index}", value.type)
                f.create_save(f"y{index}", value, output)
        code = compile(f.module, self._backend) if f.saves else None
        return _Compiled(code, graph.results)

    def _graph(self, signature: Signature) -> _Graph:
        module = Module()
        f = module.create_function(self.portion.name)
        inputs: list[NodeValue] = []
        slots = {
            name: _placeholders(module, part, inputs)
            for name, part in zip(self.portion.inputs, signature, strict=True)
        }
        for operation in self.portion.operations:
            slots[operation.target] = _held(f, operation, slots)
        return _Graph(f, tuple(inputs), {name: slots[name] for name in self.portion.outputs})

    def _compile_backward(
        self, trace: Trace, flows: Sequence[Array | None], floats: Sequence[bool]
    ) -> CompiledFunction:
        """The sum of outputs times their gradients, differentiated by the inputs."""
        graph = self._graph(trace.signature)
        f, module = graph.function, graph.function.module
        results = [leaf for held in graph.results.values() for leaf in leaves(held)]
        flow_total: NodeValue | None = None
        for index, (result, flow) in enumerate(zip(results, flows, strict=True)):
            if flow is not None and isinstance(result, NodeValue):
                seed = module.create_placeholder(f"g{index}", result.type)
                flow_total = _added(f, flow_total, f.create_mul("flow", result, seed).result)
        assert flow_total is not None
        by = [value for value, want in zip(graph.inputs, floats, strict=True) if want]
        derivatives = iter(gradients(f, flow_total, by))
        for index, want in enumerate(floats):
            if want:
                derivative = next(derivatives)
                output = module.create_placeholder(f"d{index}", derivative.type)
                f.create_save(f"d{index}", derivative, output)
        return compile(module, self._backend)


def _added(f: Function, total: NodeValue | None, term: NodeValue) -> NodeValue:
    """The sum of a term's elements, and of what was added up before; in the kind of the first term."""
    axes = tuple(range(term.type.rank))
    scalar = f.create_reduce_add("flow", term, axes).result if axes else term
    one = f.create_reshape("flow", term.type.with_shape(()), scalar).result
    if total is None:
        return one
    if one.type.kind is not total.type.kind:
        one = f.create_convert("flow", total.type, one).result
    return f.create_add("flow", total, one).result


def _is_float(leaf: Value) -> bool:
    return isinstance(leaf, np.ndarray) and ElemKind.of(leaf.dtype).is_float


def _needed(code: CompiledFunction, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: arrays[name] for name in code.inputs}


def leaves(value: Value) -> Iterator[Value]:
    """A value, or what a tuple is made of."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _defined(slots: Mapping[str, Value], name: str, portion: Portion) -> Value:
    if name not in slots:
        reader = next(o for o in portion.operations if any(str(s) == name for s in o.operands))
        raise UserError(f"'{name}' has no value here", loc=reader.loc)
    return slots[name]


def _signature(name: str, value: Value) -> Signature:
    if isinstance(value, np.ndarray):
        return Type(ElemKind.of(value.dtype), value.shape)
    if isinstance(value, tuple):
        return tuple([_signature(name, item) for item in value])
    if type(value) in _NUMBERS:
        return type(value)
    what = "None" if value is None else "a function"
    raise UserError(f"'{name}': expected a tensor or a number to compute with, got {what}")


def _array(leaf: Value) -> Array:
    if isinstance(leaf, np.ndarray):
        return leaf
    try:
        return np.asarray(leaf, _NUMBERS[type(leaf)].dtype)
    except OverflowError:
        raise UserError(f"expected a number of 64 bits, got {leaf}") from None


def _placeholders(module: Module, part: Signature, inputs: list[NodeValue]) -> Held:
    if isinstance(part, tuple):
        return tuple([_placeholders(module, item, inputs) for item in part])
    type = part if isinstance(part, Type) else Type(_NUMBERS[part], ())
    value = module.create_placeholder(f"x{len(inputs)}", type).value
    inputs.append(value)
    return value if isinstance(part, Type) else Weak(value)


def _held(f: Function, operation: Operation, slots: Mapping[str, Held]) -> Held:
    """What an operation gives. Raises UserError, with its line."""

    def held(operand: Operand) -> Held:
        if isinstance(operand, Literal):
            literal = operand.value
            if isinstance(literal, np.ndarray):
                return f.module.create_constant(operation.operator, literal).value
            if isinstance(literal, tuple):
                return tuple([held(Literal(item)) for item in literal])
            number: Held = literal
            return number
        return slots[operand.name]

    weaver = Weaver(f, operation.operator, operation.loc)
    rule: Callable[..., Held] = rule_of(operation.operator)
    try:
        return rule(weaver, *map(held, operation.operands), **operation.options)
    except UserError as error:
        first = error.diagnostics[0]
        raise UserError(
            first.message,
            loc=first.loc or operation.loc,
            context=first.context or str(operation),
            note=first.note,
        ) from None


def _stored(held: Held, arrays: Mapping[str, Array], outputs: list[Array | None]) -> Value:
    """The value of a result; notes the arrays among its leaves, and None for numbers."""
    if isinstance(held, tuple):
        return tuple([_stored(item, arrays, outputs) for item in held])
    if not isinstance(held, NodeValue | Weak):
        outputs.append(None)
        return held
    array = arrays[f"y{len(outputs)}"]
    outputs.append(array if isinstance(held, NodeValue) else None)
    return array if isinstance(held, NodeValue) else array.item()
