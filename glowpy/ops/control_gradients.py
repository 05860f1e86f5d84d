"""Gradients of control flow: functions that compute what a branch or a round does once more, and take it back.

What a branch or a round computed between is not kept, but computed again: of a loop there is only what it carried into
each round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from glowpy.autodiff.derivative import derivative
from glowpy.autodiff.gradients import flows_through, pull_back
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.calls import in_place_of_call, known_number
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand, Placeholder, Storage, Variable
from glowpy.graph.nodes_gen import CallNode, IfNode, LoopNode, MinNode, ReshapeNode
from glowpy.ops.positions import number
from glowpy.support.errors import UnsupportedError
from glowpy.support.symbolic import Dim

__all__: list[str] = []

_NUMBER = Type(ElemKind.I64, ())
_TRUTH = Type(ElemKind.BOOL, ())
_COUNT = Type(ElemKind.I64, (1,))

_BOUNDS = 2
"""Operands of a loop before those that its body takes."""


def _is_float(value: NodeValue | Storage) -> bool:
    return value.type.kind.is_float


def _zeros(f: Function, name: str, type: Type) -> NodeValue:
    return f.create_splat(f"{name}_zero", type, 0).result


@derivative(CallNode)
def _differentiate_call(f: Function, n: CallNode, *flows: NodeValue | None) -> list[Operand | None]:
    """Computes once more in this function what the other one does."""
    callee = f.module.function(n.function)
    flow = flows_through(f, n.inputs, partial(in_place_of_call, f, callee), flows)
    return list(flow)


# If.


@derivative(IfNode)
def _differentiate_if(f: Function, n: IfNode, *flows: NodeValue | None) -> list[Operand | None]:
    """An `if` of the same condition, whose functions take the operands and the gradients of the results."""
    condition, *inputs = n.inputs
    reaching = [flow for flow in flows if flow is not None]
    reached = [flow is not None for flow in flows]
    names = [_taken_back(f, name, inputs, reached) for name in (n.then, n.otherwise)]
    node = f.create_if(n.name, [condition, *inputs, *reaching], *names)
    parts = iter(node.results)
    return [None, *(next(parts) if _is_float(value) else None for value in inputs)]


def _taken_back(
    f: Function, branch: str, inputs: Sequence[NodeValue], reached: Sequence[bool]
) -> str:
    """The name of a new function that gives the gradient of each float that a branch takes."""
    callee, module = f.module.function(branch), f.module
    takes = [module.create_placeholder(storage.name, storage.type) for storage in callee.takes]
    given = [
        module.create_placeholder(f"{storage.name}_grad", storage.type)
        for storage, is_reached in zip(callee.gives, reached, strict=True)
        if is_reached
    ]
    gives = [
        module.create_placeholder(f"{value.name}_grad", value.type)
        for value in inputs
        if _is_float(value)
    ]
    name = module.unused_function_name(f"{branch}_gradients")
    back = module.create_function(name, [*takes, *given], gives)
    values = [storage.value for storage in takes]
    results = in_place_of_call(back, callee, values)
    seeds = iter(given)
    flows = [(r, next(seeds).value) for r, is_r in zip(results, reached, strict=True) if is_r]
    by = [value for value in values if _is_float(value)]
    for output, flow in zip(gives, pull_back(back, flows, by), strict=True):
        back.create_save(output.name, flow or _zeros(back, output.name, output.type), output)
    return name


# Loop.


@derivative(LoopNode)
def _differentiate_loop(f: Function, n: LoopNode, *flows: NodeValue | None) -> list[Operand | None]:
    """A loop over the same rounds, from the last to the first.

    It carries the gradients of what the loop carries, and the sums of those of what is the same in every round. What
    each round began with is found by a loop that stacks it.
    """
    body = f.module.function(n.body)
    carried, rest = n.inputs[_BOUNDS : _BOUNDS + n.carried], n.inputs[_BOUNDS + n.carried :]
    record = f.create_loop(n.name, n.inputs, _recorder(body, n.carried), n.carried, _room(n))
    states, count = record.results[n.carried : -1], record.results[-1]
    stacked = flows[n.carried : -1]
    rewind = _Rewinder(body, n.carried, [flow is not None for flow in stacked])
    begun = [
        flow or _zeros(f, value.name, value.type)
        for value, flow in zip(carried, flows, strict=False)
        if _is_float(value)
    ]
    sums = [_zeros(f, value.name, value.type) for value in rest if _is_float(value)]
    always = f.module.create_constant("always", Tensor.splat(_TRUTH, True))
    limit = f.create_reshape(n.name, _NUMBER, count)
    stacks = [flow for flow in stacked if flow is not None]
    operands: list[Operand] = [limit, always, *begun, *sums, count, *states, *stacks, *rest]
    name = rewind.function(n, [value.type for value in (*states, *stacks)])
    parts = iter(f.create_loop(n.name, operands, name, len(begun) + len(sums), 0).results)
    return [None, None, *(next(parts) if _is_float(v) else None for v in (*carried, *rest))]


def _room(n: LoopNode) -> Dim:
    """A bound for the number of rounds. Raises UnsupportedError where none is known."""
    if len(n.results) > n.carried + 1:
        return n.room
    limit = _highest(n.inputs[0])
    if limit is None:
        raise UnsupportedError(
            f"loop %{n.name} has no derivative: nothing bounds the number of its rounds, each of which is to be kept",
            loc=n.loc,
        )
    return max(limit, 0)


def _highest(count: NodeValue) -> int | None:
    """The most that a count can be: that of a constant, and of the least of several; None if it is not known."""
    if isinstance(count.node, MinNode):
        bounds = [bound for bound in map(_highest, count.node.inputs) if bound is not None]
        return min(bounds, default=None)
    if isinstance(count.node, ReshapeNode):
        return _highest(count.node.input)
    return known_number(count)


def _storages(function: Function, storages: Sequence[Storage]) -> list[Storage]:
    """New storage like some, of the same kinds."""
    module = function.module
    return [
        module.create_variable(storage.name, storage.type)
        if isinstance(storage, Variable)
        else module.create_placeholder(storage.name, storage.type)
        for storage in storages
    ]


def _recorder(body: Function, carried: int) -> str:
    """The name of a new body that does what another does, and stacks what each round begins with."""
    module = body.module
    takes = _storages(body, body.takes)
    keep = module.create_placeholder("keep", _TRUTH)
    state = takes[1 : 1 + carried]
    stacks = [module.create_placeholder(s.name, s.type) for s in state]
    name = module.unused_function_name(f"{body.name}_states")
    recorder = module.create_function(name, takes, [keep, *state, *stacks])
    results = in_place_of_call(recorder, body, [storage.value for storage in takes])
    for storage, stack in zip(state, stacks, strict=True):
        recorder.create_save(stack.name, storage, stack)
    for storage, value in zip((keep, *state), results, strict=False):
        recorder.create_save(storage.name, value, storage)
    return name


@dataclass(frozen=True)
class _Rewinder:
    """Makes the body of the loop that takes rounds back.

    It takes the number of its round; gradients of carried floats and sums of gradients of floats that are the same in
    every round, which it carries; the count of rounds; what each round began with; gradients of stacked results; and
    what is the same in every round.
    """

    body: Function
    carried: int
    reached: Sequence[bool]
    """Whether each stacked result has a gradient."""

    def function(self, n: LoopNode, stack_types: Sequence[Type]) -> str:
        """The name of a new function; `stack_types` are those of what is stacked, in order."""
        module, takes = self.body.module, self.body.takes
        state, rest = takes[1 : 1 + self.carried], takes[1 + self.carried :]
        turn = module.create_placeholder("round", _NUMBER)
        flows = [
            module.create_variable(f"{s.name}_grad", s.type)
            for s in (*state, *rest)
            if _is_float(s)
        ]
        count = module.create_placeholder("count", _COUNT)
        stacks = [module.create_placeholder("stack", type) for type in stack_types]
        others = [module.create_placeholder(s.name, s.type) for s in rest]
        keep = module.create_placeholder("keep", _TRUTH)
        name = module.unused_function_name(f"{self.body.name}_gradients")
        back = module.create_function(name, [turn, *flows, count, *stacks, *others], [keep, *flows])
        left = back.create_sub("left", count, turn)
        place = back.create_sub("place", left, number(back, "one", 1)).result
        index = back.create_reshape("index", _NUMBER, place).result
        parts = [_row(back, stack, place) for stack in stacks]
        inputs = [index, *parts[: self.carried], *(other.value for other in others)]
        results = in_place_of_call(back, self.body, inputs)
        self._take_back(back, inputs[1:], results, flows, parts[self.carried :])
        always = Tensor.splat(_TRUTH, True)
        back.create_save("keep", module.create_constant("always", always), keep)
        return name

    def _take_back(
        self,
        back: Function,
        inputs: Sequence[NodeValue],
        results: Sequence[NodeValue],
        flows: Sequence[Variable],
        stacked: Sequence[NodeValue],
    ) -> None:
        """Saves the gradients of what a round began with, and adds those of the rest to the sums."""
        floats = [index for index, value in enumerate(inputs) if _is_float(value)]
        carried = sum(index < self.carried for index in floats)
        places = [1 + index for index in floats[:carried]]
        seeds = [(results[i], flow.value) for i, flow in zip(places, flows, strict=False)]
        last = results[1 + self.carried :]
        rows = (result for result, reached in zip(last, self.reached, strict=True) if reached)
        seeds += zip(rows, stacked, strict=True)
        parts = pull_back(back, seeds, [inputs[index] for index in floats])
        after: list[NodeValue] = []
        for index, (flow, part) in enumerate(zip(flows, parts, strict=True)):
            if index < carried:
                after.append(part or _zeros(back, flow.name, flow.type))
            else:
                total = part and back.create_add(f"{flow.name}_sum", flow, part).result
                after.append(total or flow.value)
        for flow, value in zip(flows, after, strict=True):
            back.create_save(flow.name, value, flow)


def _row(f: Function, stack: Placeholder, place: NodeValue) -> NodeValue:
    """One element of what is stacked."""
    type = stack.type
    row = f.create_dynamic_slice("row", type.with_shape((1, *type.shape[1:])), stack, place, 0, 1)
    return f.create_reshape("row", type.with_shape(type.shape[1:]), row).result
