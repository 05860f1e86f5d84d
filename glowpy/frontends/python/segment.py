"""Straight-line segments compiled for what they meet: one graph for each combination of element kinds and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from glowpy.autodiff.gradients import gradients
from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compile
from glowpy.frontends.python.code import Argument, Cut, Literal, Operation, Pack, Segment, Slot
from glowpy.frontends.python.graph_builder import (
    Check,
    GraphBuilder,
    GraphValue,
    NeedsNumberError,
    Opaque,
    WeaklyTyped,
)
from glowpy.frontends.python.operators import rule_of
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.runtime.compiled import CompiledFunction
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import Loc

__all__ = ["Runner", "Trace", "leaves"]

Value: TypeAlias = Any
"""The content of a slot at run time: an array, a Python number, a tuple of values, a function."""

Signature: TypeAlias = Any
"""The part of a value that code depends on: kinds, shapes, and how tuples are nested."""

Numbers: TypeAlias = "tuple[tuple[int, type, int], ...]"
"""Which of the numbers that a segment reads it is compiled for: their place, their type, and what they are."""

_NUMBERS = {bool: ElemKind.BOOL, int: ElemKind.I64, float: ElemKind.F64}


class _Variant(NamedTuple):
    """The key of compiled code: the signature of its inputs, and the numbers that it is specialised for."""

    signature: Signature
    numbers: Numbers


@dataclass(frozen=True)
class Trace:
    """A segment that ran: what it read and gave, as arrays and numbers.

    Attributes:
        runner: The runner of the segment.
        variant: The signature and numbers that it was compiled for.
        inputs: In order.
        outputs: In order; those that are no arrays, or were read, are None.
    """

    runner: Runner
    variant: _Variant
    inputs: tuple[Value, ...]
    outputs: tuple[Array | None, ...]


@dataclass(frozen=True)
class _Graph:
    """A segment as a graph.

    Attributes:
        function: A function with a placeholder for each input.
        inputs: The placeholders' values; None for what is not computed with.
        results: The content of each output slot, by name.
        checks: The checks of computed places.
    """

    function: Function
    inputs: tuple[NodeValue | None, ...]
    results: Mapping[str, GraphValue]
    checks: Sequence[Check]


@dataclass(frozen=True)
class _Compiled:
    """Machine code of a graph; None where there is nothing to compute."""

    code: CompiledFunction | None
    graph: _Graph


@final
class Runner:
    """Compiles and runs one segment on one backend. Safe from several threads."""

    def __init__(self, segment: Segment, backend: Backend) -> None:
        self.segment = segment
        self._backend = backend
        self._needs: dict[Signature, set[int]] = {}
        self._compiled: dict[_Variant, _Compiled] = {}
        self._backward: dict[Any, CompiledFunction] = {}

    def run(self, slots: dict[str, Value]) -> Trace:
        """Reads inputs from slots, stores outputs in them."""
        names = self.segment.inputs
        values = [_defined(slots, name, self.segment) for name in names]
        signature = tuple(map(_signature, values))
        inputs = tuple([leaf for value in values for leaf in leaves(value)])
        compiled, variant = self._for(signature, inputs)
        arrays = {f"x{i}": leaf for i, leaf in enumerate(inputs)}
        results = compiled.code(_needed(compiled.code, arrays)) if compiled.code else {}
        for index, check in enumerate(compiled.graph.checks):
            _expect_place(int(results[f"c{index}"]), check)
        outputs: list[Array | None] = []
        for name in self.segment.outputs:
            slots[name] = _stored(compiled.graph.results[name], results, inputs, outputs)
        return Trace(self, variant, inputs, tuple(outputs))

    def _for(self, signature: Signature, inputs: Sequence[Value]) -> tuple[_Compiled, _Variant]:
        """The code for inputs. What depends on what a number is, such as a shape, is compiled for that number."""
        while True:
            places = self._needs.setdefault(signature, set())
            numbers = tuple([(i, type(inputs[i]), inputs[i]) for i in sorted(places)])
            variant = _Variant(signature, numbers)
            compiled = self._compiled.get(variant)
            if compiled is not None:
                return compiled, variant
            try:
                compiled = self._compiled[variant] = self._compile(variant)
            except _NeedsInputsError as error:
                if error.places <= places:
                    raise InternalError("expected what is known to be a number") from None
                places |= error.places

    def graphs(self) -> list[Module]:
        """The graph of each variant that was met, in order."""
        return [self._graph(variant).function.module for variant in self._compiled]

    def pull_back(self, trace: Trace, flows: Sequence[Array | None]) -> list[Array | None]:
        """The gradient of each input, given that of each output of a run; None where none flows."""
        key = trace.variant, tuple([flow is not None for flow in flows])
        code = self._backward.get(key)
        if code is None:
            code = self._backward[key] = self._compile_backward(trace, flows)
        arrays = {f"x{i}": leaf for i, leaf in enumerate(trace.inputs)}
        arrays |= {f"g{i}": flow for i, flow in enumerate(flows) if flow is not None}
        derivatives = code(_needed(code, arrays))
        return [derivatives.get(f"d{i}") for i in range(len(trace.inputs))]

    def _compile(self, variant: _Variant) -> _Compiled:
        graph = self._graph(variant)
        f = graph.function
        results = [leaf for result in graph.results.values() for leaf in leaves(result)]
        values = {
            f"y{i}": leaf.value if isinstance(leaf, WeaklyTyped) else leaf
            for i, leaf in enumerate(results)
        }
        values |= {f"c{i}": check.place for i, check in enumerate(graph.checks)}
        for name, value in values.items():
            if isinstance(value, NodeValue):
                f.create_save(name, value, f.module.create_placeholder(name, value.type))
        code = compile(f.module, self._backend) if f.saves else None
        return _Compiled(code, graph)

    def _graph(self, variant: _Variant) -> _Graph:
        module = Module()
        f = module.create_function(self.segment.name)
        inputs: list[NodeValue | None] = []
        numbers = {place: number for place, _, number in variant.numbers}
        slots = {
            name: _placeholders(module, part, inputs, numbers)
            for name, part in zip(self.segment.inputs, variant.signature, strict=True)
        }
        checks: list[Check] = []
        for operation in self.segment.operations:
            try:
                slots[operation.target] = _graph_value(f, operation, slots, checks)
            except NeedsNumberError as error:
                places = _sources(error.value, inputs, variant.signature, operation.loc)
                raise _NeedsInputsError(places) from None
        results = {name: _opaque(slots[name], inputs) for name in self.segment.outputs}
        return _Graph(f, tuple(inputs), results, checks)

    def _compile_backward(self, trace: Trace, flows: Sequence[Array | None]) -> CompiledFunction:
        """The sum of outputs times their gradients, differentiated by the inputs."""
        graph = self._graph(trace.variant)
        f, module = graph.function, graph.function.module
        results = [leaf for result in graph.results.values() for leaf in leaves(result)]
        flow_total: NodeValue | None = None
        for index, (result, flow) in enumerate(zip(results, flows, strict=True)):
            if flow is not None and isinstance(result, NodeValue):
                seed = module.create_placeholder(f"g{index}", result.type)
                flow_total = _added(f, flow_total, f.create_mul("flow", result, seed).result)
        assert flow_total is not None
        by = {
            i: value for i, value in enumerate(graph.inputs) if value and _is_float(trace.inputs[i])
        }
        for index, derivative in zip(by, gradients(f, flow_total, list(by.values())), strict=True):
            output = module.create_placeholder(f"d{index}", derivative.type)
            f.create_save(f"d{index}", derivative, output)
        return compile(module, self._backend)


class _NeedsInputsError(Exception):
    """Raised where the code depends on the values of some inputs."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()
        self.places = places


def _sources(
    value: NodeValue, inputs: Sequence[NodeValue | None], signature: Signature, loc: Loc
) -> set[int]:
    """The places of the numbers that a value is computed from. Raises UserError if there are tensors among them."""
    kinds = list(leaves(signature))
    numbers = {v: place for place, v in enumerate(inputs) if v and kinds[place] in (int, bool)}
    pending, met = [value], {value}
    while pending:
        source = pending.pop()
        if source in numbers:
            continue
        if source.node is None:
            raise UserError(
                f"expected a number that is known before, got one that depends on {source.type}",
                loc=loc,
                note="numbers that are given, and what x.shape says, are known",
            )
        pending += [operand for operand in source.node.inputs if operand not in met]
        met.update(source.node.inputs)
    return {numbers[source] for source in met if source in numbers}


def _added(f: Function, total: NodeValue | None, term: NodeValue) -> NodeValue:
    """The sum of a term's elements, and of what was added up before; in the kind of the first term."""
    axes = tuple(range(term.type.rank))
    scalar = f.create_reduce_add("flow", term, axes).result if axes else term
    scalar_term = f.create_reshape("flow", term.type.with_shape(()), scalar).result
    if total is None:
        return scalar_term
    if scalar_term.type.kind is not total.type.kind:
        scalar_term = f.create_convert("flow", total.type, scalar_term).result
    return f.create_add("flow", total, scalar_term).result


def _is_float(leaf: Value) -> bool:
    return isinstance(leaf, np.ndarray) and ElemKind.of(leaf.dtype).is_float


def _needed(code: CompiledFunction, leaves: Mapping[str, Value]) -> dict[str, Array]:
    return {name: _array(leaves[name]) for name in code.inputs}


def leaves(value: Value) -> Iterator[Value]:
    """A value, or what a tuple is made of."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _defined(slots: Mapping[str, Value], name: str, segment: Segment) -> Value:
    if name not in slots:
        reader = next(o for o in segment.operations if name in o.slots)
        raise UserError(f"'{name}' has no value here", loc=reader.loc)
    return slots[name]


def _signature(value: Value) -> Signature:
    if isinstance(value, np.ndarray):
        return Type(ElemKind.of(value.dtype), value.shape)
    if isinstance(value, tuple):
        return tuple([_signature(item) for item in value])
    return value if isinstance(value, np.dtype) else type(value)


def _array(leaf: Value) -> Array:
    if isinstance(leaf, np.ndarray):
        return leaf
    return np.asarray(leaf, _NUMBERS[type(leaf)].dtype)


def _placeholders(
    module: Module, part: Signature, inputs: list[NodeValue | None], numbers: Mapping[int, int]
) -> GraphValue:
    """Creates the operand for a part of a signature. Placeholders are added to the inputs."""
    if isinstance(part, tuple):
        return tuple([_placeholders(module, item, inputs, numbers) for item in part])
    place = len(inputs)
    type = (
        part if isinstance(part, Type) else Type(_NUMBERS[part], ()) if part in _NUMBERS else None
    )
    if type is None or place in numbers:
        inputs.append(None)
        if part is NoneType or isinstance(part, np.dtype):
            return part if isinstance(part, np.dtype) else None
        return numbers.get(place, Opaque(place))
    value = module.create_placeholder(f"x{place}", type).value
    inputs.append(value)
    return value if isinstance(part, Type) else WeaklyTyped(value)


def _opaque(result: GraphValue, inputs: Sequence[NodeValue | None]) -> GraphValue:
    """A result, with inputs in place of what they are the values of: these are not computed."""
    if isinstance(result, tuple):
        return tuple([_opaque(item, inputs) for item in result])
    value = result.value if isinstance(result, WeaklyTyped) else result
    is_input = isinstance(value, NodeValue) and value in inputs
    return Opaque(inputs.index(value)) if is_input else result


def _graph_value(
    f: Function, operation: Operation, slots: Mapping[str, GraphValue], checks: list[Check]
) -> GraphValue:
    """Builds the nodes of an operation and returns its result. Raises UserError, with its line."""

    def value_of(operand: Argument) -> GraphValue:
        match operand:
            case Slot():
                return slots[operand.name]
            case Pack():
                return tuple([value_of(item) for item in operand.items])
            case Cut():
                return slice(*map(value_of, operand.items))
            case Literal(np.ndarray() as array):
                return f.module.create_constant(operation.operator, array).value
            case Literal(tuple() as items):
                return tuple([value_of(Literal(item)) for item in items])
            case Literal(value):
                known: GraphValue = value
                return known

    def option(operand: Argument) -> Any:
        return operand.value if isinstance(operand, Literal) else builder.known(value_of(operand))

    builder = GraphBuilder(f, operation.operator, operation.loc, checks)
    rule: Callable[..., GraphValue] = rule_of(operation.operator)
    try:
        options = {name: option(operand) for name, operand in operation.options.items()}
        return rule(builder, *map(value_of, operation.operands), **options)
    except UserError as error:
        first = error.diagnostics[0]
        loc = first.loc or operation.loc
        raise UserError(first.message, loc=loc, note=first.note) from None


def _stored(
    result: GraphValue,
    arrays: Mapping[str, Array],
    inputs: Sequence[Value],
    outputs: list[Array | None],
) -> Value:
    """The value of a result; notes the arrays that were computed, and None for all other leaves."""
    if isinstance(result, tuple):
        return tuple([_stored(item, arrays, inputs, outputs) for item in result])
    if not isinstance(result, NodeValue | WeaklyTyped):
        outputs.append(None)
        return inputs[result.index] if isinstance(result, Opaque) else result
    array = arrays[f"y{len(outputs)}"]
    outputs.append(array if isinstance(result, NodeValue) else None)
    return array if isinstance(result, NodeValue) else array.item()


def _expect_place(place: int, check: Check) -> None:
    if not -check.extent <= place < check.extent:
        message = f"expected a place from {-check.extent} to {check.extent - 1}, got {place}"
        raise UserError(message, loc=check.loc)
