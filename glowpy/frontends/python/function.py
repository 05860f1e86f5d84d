"""`glowpy.function`: a Python function, compiled with its branches, loops and calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, final, overload

import numpy as np

from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.engine import backend_of
from glowpy.frontends.python.code import Block, Segment
from glowpy.frontends.python.machine import bound, run, shown
from glowpy.frontends.python.read import read
from glowpy.frontends.python.segment import Runner, Trace, leaves
from glowpy.frontends.python.source import explained
from glowpy.support.errors import UserError
from glowpy.support.forks import Lock
from glowpy.support.limits import within_limits
from glowpy.support.process_bound import ProcessBound

__all__ = ["ProgramFunction", "function"]


@final
class ProgramFunction(ProcessBound):
    """A Python function as straight-line segments of machine code, and instructions that link them.

    Called with arrays, numbers and tuples of such, gives such. Numbers take the element kind of the tensors that they
    meet, as numbers of the source do. Segments are compiled as they are reached, once for all calls with the same
    element kinds and shapes. Safe from several threads.
    """

    def __init__(self, function: Callable[..., Any], backend: str | Backend = "cpu") -> None:
        if not isinstance(function, FunctionType):
            raise UserError(f"expected a function that 'def' defines, got {function!r}")
        functools.update_wrapper(self, function)
        self.python_function = function
        self._backend = backend_of(backend) if isinstance(backend, str) else backend
        self._block: Block | None = None
        self._runners: dict[Segment, Runner] = {}
        self._lock = Lock(is_brief=False)

    @property
    def block(self) -> Block:
        """The block that it begins with. Raises UserError for what cannot be compiled, with the line."""
        with self._lock:
            if self._block is None:
                self._block = read(self.python_function, {})
            return self._block

    @within_limits
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The result. Raises UserError for arguments, or values on the way, that do not fit, with the line."""
        given = self._given(arguments, named)
        try:
            result = run(self.block, given, self._runner)
        except UserError as error:
            raise explained(error) from None
        if not all(_is_result(leaf) for leaf in leaves(result)):
            raise UserError(f"{self.block.name}: expected a result of tensors, got a function")
        return result

    def __repr__(self) -> str:
        return f"<ProgramFunction {self.python_function.__qualname__}>"

    def gradient(self, *arguments: Any, by: int | Sequence[int] = 0) -> Any:
        """The derivative of the result by arguments: backwards through the segments that ran (Linnainmaa 1970).

        Args:
            arguments: As of a call.
            by: The number of an argument, or several.

        Returns an array like the argument, or a tuple of such. Raises UserError unless the result is one float and the
        arguments are floats.
        """
        given = self._given(arguments, {})
        parameters: tuple[Any, ...] = tuple(by) if isinstance(by, Sequence) else (by,)
        for index in parameters:
            if not isinstance(index, int) or not -len(given) <= index < len(given):
                expected = f"the number of one of {len(given)} arguments, or several"
                raise UserError(f"by: expected {expected}, got {by!r}")
            given[index] = _tracked(given[index], index)
        try:
            flows = self._flows(given)
        except UserError as error:
            raise explained(error) from None
        gradients = tuple([_flow(given[index], flows) for index in parameters])
        return gradients if isinstance(by, Sequence) else gradients[0]

    def _flows(self, given: Sequence[Any]) -> dict[int, Array]:
        """The gradients of all arrays that a run meets, by their identity. Only those of arguments are sure to live."""
        tape: list[Trace] = []
        result = run(self.block, given, self._runner, tape)
        if isinstance(result, float):  # nothing that flows
            return {}
        if not isinstance(result, np.ndarray) or result.size != 1 or not _is_float(result):
            raise UserError(
                f"{self.python_function.__name__}: expected one float to differentiate, got {shown(result)}"
            )
        flows: dict[int, Array] = {id(result): np.ones_like(result)}
        for trace in reversed(tape):
            _pull_back(trace, flows)
        return flows

    def dump(self, stage: str = "code") -> str:
        """The program as text.

        Args:
            stage: `code`: blocks, with the instructions and the operators of segments. `graph`: the graph of every
                segment, for each combination of types that was met.
        """
        if stage == "code":
            return "\n\n".join(map(str, self.block.all_blocks()))
        if stage == "graph":
            runners = [self._runners[p] for p in _segments(self.block) if p in self._runners]
            return "\n".join(str(graph) for runner in runners for graph in runner.graphs())
        raise UserError(f"expected the stage 'code' or 'graph', got '{stage}'")

    def _runner(self, segment: Segment) -> Runner:
        runner = self._runners.get(segment)
        if runner is None:
            with self._lock:
                runner = self._runners.setdefault(segment, Runner(segment, self._backend))
        return runner

    def _given(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Returns the values of the parameters: given by position, by name, or else defaults, which stay numbers."""
        names = [*self.block.parameters, *map(str, range(len(arguments)))]
        given = [
            _argument(name, argument) for name, argument in zip(names, arguments, strict=False)
        ]
        held = {name: _argument(name, argument) for name, argument in named.items()}
        return bound(self.block, (), given, held)


def _is_result(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, bool | int | float | np.ndarray)


def _segments(block: Block) -> list[Segment]:
    instructions = [i for b in block.all_blocks() for i in b.instructions]
    return [i for i in instructions if isinstance(i, Segment)]


def _argument(name: str, argument: Any) -> Any:
    """An argument as the machine holds it: an array of its own, so that gradients tell it from others; or a number."""
    if isinstance(argument, tuple):
        return tuple([_argument(name, item) for item in argument])
    if argument is None:
        return None
    if not isinstance(argument, bool | int | float | np.ndarray | np.generic):
        got = type(argument).__name__
        raise UserError(f"'{name}': expected an array, a number or a tuple of such, got {got}")
    if isinstance(argument, int) and not -(1 << 63) <= argument < 1 << 63:
        raise UserError(f"'{name}': expected an integer of 64 bits, got {argument}")
    if isinstance(argument, bool | int | float) and not isinstance(argument, np.generic):
        return argument
    array = np.array(argument)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        ElemKind.of(array.dtype)
    except (KeyError, UserError):
        raise UserError(
            f"'{name}': expected numbers of a kind that is compiled, got {array.dtype}"
        ) from None
    return array


def _tracked(argument: Any, index: int) -> Any:
    """An argument to differentiate by: numbers become arrays, which are told from others by identity."""
    if isinstance(argument, tuple):
        return tuple([_tracked(item, index) for item in argument])
    array = argument if isinstance(argument, np.ndarray) else np.array(argument)
    if not _is_float(array):
        message = f"argument {index}: expected floats to differentiate by, got {shown(argument)}"
        raise UserError(message, note="convert it, as with .astype(np.float32)")
    return array


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and ElemKind.of(value.dtype).is_float


def _pull_back(trace: Trace, flows: dict[int, Array]) -> None:
    """Adds what flows through one segment to the gradients of its inputs, by their identity."""
    reached = [flows.get(id(output)) if _is_float(output) else None for output in trace.outputs]
    if all(flow is None for flow in reached) or not any(_is_float(leaf) for leaf in trace.inputs):
        return
    for leaf, flow in zip(trace.inputs, trace.runner.pull_back(trace, reached), strict=True):
        if flow is not None:
            before = flows.get(id(leaf))
            flows[id(leaf)] = flow if before is None else np.asarray(before + flow)


def _flow(argument: Any, flows: dict[int, Array]) -> Any:
    if isinstance(argument, tuple):
        return tuple([_flow(item, flows) for item in argument])
    return flows.get(id(argument), np.zeros_like(argument))


@overload
def function(f: Callable[..., Any], /) -> ProgramFunction: ...


@overload
def function(
    *, backend: str | Backend = "cpu"
) -> Callable[[Callable[..., Any]], ProgramFunction]: ...


def function(
    f: Callable[..., Any] | None = None, /, *, backend: str | Backend = "cpu"
) -> ProgramFunction | Callable[[Callable[..., Any]], ProgramFunction]:
    """Compiles a Python function over arrays: with `if`, `while`, `for`, recursion and functions as values.

    It stays Python: what the function computes is what numpy would. Used as `@glowpy.function`, or with the backend:
    `@glowpy.function(backend="interpreter")`.
    """
    if f is None:
        return lambda chosen: ProgramFunction(chosen, backend)
    return ProgramFunction(f, backend)
