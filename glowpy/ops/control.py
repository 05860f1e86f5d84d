"""Rules of control flow: nodes that call functions of the module."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import MAX_BYTES, Type
from glowpy.graph.function import Function
from glowpy.graph.infer import Ports, infer
from glowpy.graph.node import Operand
from glowpy.graph.nodes_gen import CallNode, IfNode, LoopNode
from glowpy.ir.insts_gen import IfInst, LoopInst
from glowpy.irgen import IRGen, irgen
from glowpy.lower import lower
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim
from glowpy.support.text import Attr

__all__: list[str] = []

_COUNT = Type(ElemKind.I64, (1,))
_NUMBER = Type(ElemKind.I64, ())
_TRUTH = Type(ElemKind.BOOL, ())


def _expect(what: str, expected: Sequence[Type], got: Sequence[Type]) -> None:
    if list(expected) != list(got):
        lists = (", ".join(map(str, types)) or "nothing" for types in (expected, got))
        raise UserError("expected {} {}, got {}".format(what, *lists))


# Call.


@infer(CallNode)
def _called(inputs: list[Type], function: Ports) -> tuple[Type, ...]:
    _expect(f"the operands of @{function.name} to be", function.takes, inputs)
    return tuple(function.gives)


@lower(CallNode)
def _always(f: Function, n: CallNode) -> tuple[Operand, ...]:
    """An `if` that always holds: what is left of a call whose function cannot be put in its place."""
    holds = f.module.create_constant("always", Tensor.splat(_TRUTH, True))
    return f.create_if(n.name, [holds, *n.inputs], n.function, n.function).results


# If.


@infer(IfNode)
def _if(inputs: list[Type], then: Ports, otherwise: Ports) -> tuple[Type, ...]:
    _expect("the condition", [_TRUTH], inputs[:1])
    for branch in (then, otherwise):
        _expect(f"the operands of @{branch.name} to be", branch.takes, inputs[1:])
    _expect(f"@{otherwise.name} to give", then.gives, otherwise.gives)
    return tuple(then.gives)


@irgen(IfNode)
def _generate_if(g: IRGen, n: IfNode) -> None:
    results = [g.alloc(result) for result in n.results]
    inputs = [g.value(value) for value in n.inputs]
    attrs: dict[str, Attr] = {"results": len(results), "extents": g.extents(n)}
    operands = [*results, *inputs, g.frame(n)]
    g.ir.add(IfInst(operands, {"then": n.then, "otherwise": n.otherwise, **attrs}))


# Loop.


@infer(LoopNode)
def _loop(inputs: list[Type], body: Ports, carried: int, room: Dim) -> tuple[Type, ...]:
    if carried < 0 or len(inputs) < 2 + carried or len(body.gives) < 1 + carried:
        raise UserError(
            f"expected a limit, a condition and {carried} values that @{body.name} takes and gives"
        )
    _expect("a limit and a condition", [_NUMBER, _TRUTH], inputs[:2])
    _expect(f"the operands of @{body.name} to be", body.takes, [_NUMBER, *inputs[2:]])
    if isinstance(room, int) and not 0 <= room <= MAX_BYTES:
        raise UserError(f"expected a room from 0 to {MAX_BYTES}, got {room}")
    state = [_TRUTH, *inputs[2 : 2 + carried]]
    _expect(f"@{body.name} to give first", state, body.gives[: 1 + carried])
    stacked = [type.with_shape((room, *type.shape)) for type in body.gives[1 + carried :]]
    return (*inputs[2 : 2 + carried], *stacked, _COUNT)


@irgen(LoopNode)
def _generate_loop(g: IRGen, n: LoopNode) -> None:
    """Copies the initial carried values to memory that the body changes, and creates the loop."""
    limit, keep, *inputs = (g.value(value) for value in n.inputs)
    carried = []
    for result, first in zip(n.results[: n.carried], inputs, strict=False):
        memory = g.alloc(result)
        g.ir.create_copy(memory, first)
        carried.append(memory)
    *stacked, count = (g.alloc(result) for result in n.results[n.carried :])
    attrs: dict[str, Attr] = {"results": len(stacked), "variables": n.carried}
    operands = [*stacked, count, *carried, limit, keep, *inputs[n.carried :], g.frame(n)]
    g.ir.add(LoopInst(operands, {"body": n.body, **attrs, "extents": g.extents(n)}))


@interpret(IfInst)
@interpret(LoopInst)
def _call(*operands: Tensor, **attrs: Attr) -> None:
    """The interpreter goes on with the function that is called, as it knows where that one's memory is."""
    del operands, attrs
