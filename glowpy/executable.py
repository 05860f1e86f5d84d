"""Executables: `Executable`, a network that is ready to run, and `Instance`, memory to run it in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from glowpy.core.extents import (
    Extents,
    PlainShapes,
    extents_of,
    largest_at,
    shape_at,
    symbols_of_types,
    type_at,
)
from glowpy.core.state import Known, State, StatePort, given_extents
from glowpy.core.tensor import Array, Tensor, address_of, allocated
from glowpy.core.type import Type
from glowpy.ir.plan import ALIGNMENT
from glowpy.support.errors import UserError
from glowpy.support.html import html_table
from glowpy.support.limits import LIMIT_ERRORS, raise_told, within_limits
from glowpy.support.process_bound import ProcessBound
from glowpy.support.symbolic import Dim, Symbol, static

if TYPE_CHECKING:
    from glowpy.ir.inst import Instruction
    from glowpy.ir.value import Value
    from glowpy.rounds import Rounds, Wiring

__all__ = [
    "CompiledFunction",
    "Executable",
    "Instance",
    "Observer",
    "Port",
    "aligned_array",
    "elements_at",
    "given_inputs",
    "input_misfit",
    "part_of",
    "store_outputs",
]


@dataclass(frozen=True)
class Port:
    """An input or output: `name` in the user's model, `placeholder` in dumps, and its type."""

    name: str
    placeholder: str
    type: Type


def aligned_array(size: int) -> Array:
    """`size` zero bytes at an address that is a multiple of the memory plan's alignment.

    Raises UserError where there is no memory for them.
    """
    block = allocated((size + ALIGNMENT,), np.uint8)
    start = -address_of(block) % ALIGNMENT
    return block[start : start + size]


def elements_at(memory: Array, start: int, value: Value) -> Array:
    """The elements of `value`, not copied, where its first byte is byte `start` of `memory`."""
    kind, shape = value.type.kind, value.type.extents
    (span,) = static([value.span])
    elements = memory[start : start + span].view(kind.dtype)
    if value.is_contiguous:
        return elements.reshape(shape)
    steps = [stride * kind.size for stride in static(value.strides)]
    return np.lib.stride_tricks.as_strided(elements, shape, steps)


class Observer(Protocol):
    """Observer of a running, instrumented network. Operands are arrays by name, in the network's own memory."""

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Called before an instruction; outputs hold what is there by chance."""

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Called after an instruction."""


_Made: TypeAlias = tuple[Port, tuple[int, ...], bool]
"""An output, the shape that there is memory for, and whether that is little."""
_Bound: TypeAlias = tuple[Extents, Sequence[_Made]]
"""The extents of a run, and the outputs with them."""

_Taking: TypeAlias = tuple[Port, np.dtype[Any], tuple[int, ...] | None, bool]
"""An input, its dtype, its shape if that has no symbols, and whether it is an output as well."""

_MAX_KNOWN = 1 << 12
"""The number of sets of shapes for which the extents of symbols are remembered."""


class Executable(ProcessBound, ABC):
    """A network ready to run. Immutable and shared by any number of instances and threads.

    Calling it runs it on an instance of its own pool: `outputs = executable({"x": array})`. Of a network with
    variables a call is given their `state`, which belongs to the caller.

    Attributes:
        input_ports: The ports of inputs.
        output_ports: The ports of outputs.
        open_ports: Those of them whose shapes depend on extents that the network finds.
        state_ports: Its variables.
        arena_size: Bytes of working memory that an instance has beside its inputs and outputs.
    """

    def __init__(
        self,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        arena_size: int,
        state: Sequence[StatePort] = (),
    ) -> None:
        self.input_ports = tuple(inputs)
        self.output_ports = tuple(outputs)
        self.state_ports = tuple(state)
        self.arena_size = arena_size
        self._arenas: list[Array] = []  # append and pop are atomic: there is no lock
        known = self.symbols
        self.open_ports = [
            port
            for port in self.output_ports
            if not symbols_of_types([port.type]).keys() <= known.keys()
        ]
        self._is_open = bool(known or self.open_ports)
        self._plain = PlainShapes(port.type.shape for port in self.input_ports)
        self._known: dict[tuple[tuple[tuple[int, ...], ...], Known], _Bound] = {}
        self._constant: _Bound = {}, [] if self._is_open else self._made({})
        """Result of `_bound` where no shape depends on a symbol."""
        names = {port.placeholder for port in self.output_ports}
        both = names & {port.placeholder for port in self.input_ports}
        self._takings: list[_Taking] = [
            (
                port,
                port.type.kind.dtype,
                port.type.extents if port.type.is_static else None,
                port.placeholder in both,
            )
            for port in self.input_ports
        ]

    @property
    def inputs(self) -> dict[str, Type]:
        """The type of every input by its name."""
        return {port.name: port.type for port in self.input_ports}

    @property
    def outputs(self) -> dict[str, Type]:
        """The type of every output by its name."""
        return {port.name: port.type for port in self.output_ports}

    @property
    def signature(self) -> str:
        """Inputs and outputs for people: `x f32[2x3] -> y f32[2]`."""
        ports = [
            ", ".join(f"{name} {type}" for name, type in types.items()) or "nothing"
            for types in (self.inputs, self.outputs)
        ]
        return " -> ".join(ports)

    def __repr__(self) -> str:
        memory = f"{self.arena_size:,} bytes of working memory"
        return f"<{type(self).__name__}: {self.signature}; {memory}>"

    def _repr_html_(self) -> str:
        """Renders inputs and outputs as a table for notebooks."""
        rows = [
            [direction, name, str(type)]
            for direction, types in (("input", self.inputs), ("output", self.outputs))
            for name, type in types.items()
        ]
        title = f"{type(self).__name__}: {self.arena_size:,} bytes of working memory"
        return html_table(title, ["", "name", "type"], rows)

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols that inputs and variables depend on, by name; every run has extents of its own for them."""
        types = [port.type for port in self.input_ports]
        return symbols_of_types([*types, *(port.type for port in self.state_ports)])

    def state(self, *others: Executable) -> State:
        """The variables as they are before the first run, and those of `others`, with which the state may be shared.

        Raises UserError for a variable about which they are at odds.
        """
        ports = (port for network in others for port in network.state_ports)
        return State((*self.state_ports, *ports) if others else self.state_ports)

    @abstractmethod
    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs once, and returns the extents of the symbols that the network found.

        Args:
            bindings: An array for each placeholder and each variable's memory, by its name in dumps. That of an output
                whose shape depends on what is found has room for the largest; its first elements are written.
            arena: Working memory of `arena_size` bytes.
            extents: The extents of the symbols of inputs' shapes in this run.
        """

    def execute_on(
        self, state: State, bindings: Mapping[str, Array], arena: Array, extents: Extents
    ) -> Extents:
        """The same with the memory of variables beside the arrays that are bound."""
        return self.execute({**bindings, **state.arrays}, arena, extents)

    @within_limits
    def instance(self, state: State | None = None, /, **extents: int) -> Instance:
        """A new instance, with its own working memory, its own arrays for inputs and outputs, and `state` or its own.

        Arrays of shapes with symbols are made for these extents. Raises UserError unless all symbols have one, but for
        those that variables say, for one outside its bounds, and for the state of another network.
        """
        return Instance(self, extents, self.state() if state is None else state)

    def __call__(
        self,
        inputs: Mapping[str, Array],
        out: Mapping[str, Array] | None = None,
        *,
        state: State | None = None,
    ) -> dict[str, Array]:
        """Runs in an arena of its own pool. Outputs are new arrays that belong to the caller, or those in `out`.

        Args:
            inputs: An array for each input. It is read where it is if it is contiguous, aligned to its element, and no
                part of `state`; any other is copied.
            out: Arrays to store outputs in, by name. One that is contiguous, aligned and no memory of an input or
                of another output is written as it is computed; to any other the result is copied.
            state: The variables, which the run changes, and perhaps more, of networks that share them.

        Raises UserError for a missing or unknown name and for an array of another type or shape, one in `out` that
        cannot be written, and variables that are full, or at odds with an input. Safe from several threads, with a
        state for each. Where an observer or Ctrl-C ends a run, variables may hold what the run has left already,
        and where an array in `out` is not as large as what was found, they hold all of it.
        """
        try:
            bindings = self._bind_inputs(inputs)
            state, known = (
                self._bind_state(state, bindings)
                if state is not None or self.state_ports
                else (None, ())
            )
            extents, outputs = self._bound(bindings, known) if self._is_open else self._constant
            if out:
                self._bind_outputs(out, bindings, outputs, state)
            results = {}
            for port, shape, is_small in outputs:
                array = bindings.get(port.placeholder)
                if array is None:
                    dtype = port.type.kind.dtype
                    array = np.empty(shape, dtype) if is_small else _fresh(shape, dtype)
                    bindings[port.placeholder] = array
                results[port.name] = array
            arena = self._taken_arena()
            try:
                if state is None:
                    found = self.execute(bindings, arena, extents)
                else:
                    found = self.execute_on(state, bindings, arena, extents)
            finally:
                self._arenas.append(arena)
            if state is not None:
                state.advance({**extents, **found})
            for port in self.open_ports:
                shape = shape_at(port.type.shape, {**extents, **found})
                results[port.name] = part_of(results[port.name], shape)
            if out:
                store_outputs(results, out)
            return results
        except LIMIT_ERRORS as error:
            raise_told(error)

    def _taken_arena(self) -> Array:
        """Working memory of the pool, to which it has to be given back."""
        try:
            return self._arenas.pop()
        except IndexError:
            return aligned_array(self.arena_size)

    def _bind_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays by placeholder, or copies of those that cannot be read where they are or are outputs as well."""
        bindings: dict[str, Array] = {}
        if not isinstance(inputs, (dict, Mapping)):  # the latter takes four times as long
            raise UserError(f"expected a dict of inputs, got {type(inputs).__name__}")
        for port, dtype, shape, is_output in self._takings:
            if port.name not in inputs:
                raise input_misfit(self.inputs, inputs)
            array = np.asarray(inputs[port.name])
            if array.dtype != dtype or (shape is not None and array.shape != shape):
                raise _misfit(port.name, port.type, array)
            flags = array.flags
            if is_output or not (flags.c_contiguous and flags.aligned):
                array = array.copy()
            bindings[port.placeholder] = array
        if len(inputs) != len(bindings):
            raise input_misfit(self.inputs, inputs)
        return bindings

    def _bind_state(self, state: State | None, bindings: dict[str, Array]) -> tuple[State, Known]:
        """Returns the part of a state that the network names, and the extents it fixes; copies inputs in its memory."""
        part = self._part_of(state)
        for name, array in bindings.items():
            if part.holds(array):  # a run may overwrite it before it has read all inputs
                bindings[name] = array.copy()
        return part, part.known()

    def _part_of(self, state: State | None) -> State:
        """Returns the part of a state that the network names. Raises UserError where that is missing."""
        if state is None:
            raise UserError(
                "expected the variables of the network", note="pass state=network.state()"
            )
        if not isinstance(state, State):
            raise UserError("expected a state of this network", note="network.state() makes one")
        return state if state.ports is self.state_ports else state.part(self.state_ports)

    def _bound(self, bindings: Mapping[str, Array], known: Known) -> _Bound:
        """Returns the extents of symbols for these inputs and variables, and the outputs of symbolic types."""
        shapes = tuple([bindings[port.placeholder].shape for port in self.input_ports]), known
        bound = self._known.get(shapes)
        if bound is None:
            plain = self._plain.extents(shapes[0]) if self._plain.is_plain and not known else None
            if plain is None:
                dims = {name: (declared, actual) for name, declared, actual in known}
                pairs = zip(self.input_ports, shapes[0], strict=True)
                dims |= {port.name: (port.type.shape, shape) for port, shape in pairs}
                plain = extents_of(dims)
            extents = plain
            bound = extents, self._made(extents)
            if len(self._known) == _MAX_KNOWN:
                self._known.clear()
            self._known[shapes] = bound
        return bound

    def _made(self, extents: Extents) -> list[_Made]:
        """The outputs with the shapes that they have at these extents, or have room for."""
        outputs = []
        for port in self.output_ports:
            shape = (
                largest_at(port.type, extents).extents
                if port in self.open_ports
                else shape_at(port.type.shape, extents)
            )
            outputs.append((port, shape, math.prod(shape) * port.type.kind.size < _SMALL))
        return outputs

    def _bind_outputs(
        self,
        out: Mapping[str, Array],
        bindings: dict[str, Array],
        outputs: Sequence[_Made],
        state: State | None,
    ) -> None:
        """Checks arrays for outputs, and binds those that can be written while others are read and written."""
        ports = {port.name: (port, shape) for port, shape, _ in outputs}
        for name, array in out.items():
            if name not in ports:
                raise UserError(f"expected the outputs {', '.join(map(repr, ports))}, got '{name}'")
            port, shape = ports[name]
            own = port.type
            _check(
                name, own if port in self.open_ports else Type(own.kind, shape, own.quant), array
            )
            if not array.flags.writeable:
                raise UserError(f"'{name}': expected a writeable array for an output")
        arrays = [*bindings.values(), *out.values()]
        for name, array in out.items():
            port, _ = ports[name]
            fits = array.flags.c_contiguous and array.flags.aligned and port not in self.open_ports
            shared = sum(bool(np.may_share_memory(array, other)) for other in arrays) > 1
            if fits and state is not None:
                shared = shared or state.holds(array)
            if fits and not shared and port.placeholder not in bindings:
                bindings[port.placeholder] = array


def store_outputs(results: dict[str, Array], out: Mapping[str, Array]) -> None:
    """Copies results to the arrays of `out` that a run did not write, which take their places.

    Raises UserError for arrays that do not take them, and names that there are no results of.
    """
    for name, array in out.items():
        if name not in results:
            raise UserError(f"expected the outputs {', '.join(map(repr, results))}, got '{name}'")
        if results[name] is not array:
            if not array.flags.writeable:
                raise UserError(f"'{name}': expected a writeable array for an output")
            _check(name, Tensor.of(results[name]).type, array)
            array[...] = results[name]
            results[name] = array


def part_of(array: Array, shape: tuple[int, ...]) -> Array:
    """The first elements of an array without gaps, which has room for as many, in another shape; not copied."""
    return array if array.shape == shape else np.ndarray(shape, array.dtype, array)


_SMALL = 1 << 12
"""Bytes below which it does not matter whether vectors are stored across cache lines."""


def _fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array for a large output, at a multiple of the memory plan's alignment."""
    room = math.prod(shape) * dtype.itemsize
    block = allocated((room + ALIGNMENT,), np.uint8, zeros=False)
    return np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT)


def given_inputs(function: Executable, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Those of some arrays that a network takes."""
    if len(arrays) == len(function.input_ports):
        return arrays
    return {port.name: arrays[port.name] for port in function.input_ports}


def input_misfit(types: Mapping[str, object], names: Collection[str]) -> UserError:
    """Creates the error for inputs whose names are not the expected ones, which come with their types."""
    for name in names:
        if name not in types:
            expected = ", ".join(map(repr, types)) or "none"
            return UserError(f"expected the inputs {expected}, got '{name}'")
    missing = ", ".join(f"'{name}' ({type})" for name, type in types.items() if name not in names)
    return UserError(f"missing input {missing}")


class CompiledFunction(Executable):
    """A program that a backend has made executable. Its working memory is the plan's activations."""

    observer: Observer | None = None
    """Sees every instruction, if the function was compiled with `instrument`."""
    supposed: Mapping[str, Dim] = {}
    """Assumed values of extents that the network finds, by name; outputs hold the actual ones."""
    checks: Sequence[str] = ()
    """The outputs that say whether indices led out of range, for whoever runs it."""

    def advance(self, wiring: Wiring, rounds: Rounds, values: Mapping[str, Array]) -> bool:
        """Computes the next rounds of a loop whose body this is, if it can compute several at once; False if not.

        Args:
            wiring: How a round follows from the one before it.
            rounds: Where the loop is, and then where it is.
            values: The inputs of the next round, by name; those that are scanned, with all their elements.
        """
        del wiring, rounds, values
        return False


class Instance(ProcessBound):
    """Memory to run a network in. Not for several threads at once; make one instance each.

    `instance["x"]` is the array an input or output lives in: write inputs there, call `run`, read
    outputs there, nothing is copied. `bind` puts an array of the caller's in its place. Where a shape depends on what
    variables hold, an input's array is for the next run, and an output's is of the last one.

    Attributes:
        state: The variables, which each run changes; others may share them.
    """

    def __init__(self, function: Executable, extents: Extents, state: State) -> None:
        self._function = function
        self._given = extents
        self.state = state
        self._known = self._own.known()
        self._extents = given_extents(function.symbols, self._given, self._known)
        self._arena = aligned_array(function.arena_size)
        self._found: Extents = {}
        self._arrays: dict[str, Array] = {}
        self._flat: dict[str, Array] = {}
        for port in (*function.input_ports, *function.output_ports):
            if port.placeholder not in self._arrays:
                room = largest_at(port.type, extents).room
                self._flat[port.placeholder] = aligned_array(room).view(port.type.kind.dtype)
                self._arrays[port.placeholder] = self._shaped(port)
        self._ports = {port.name: port for port in (*function.input_ports, *function.output_ports)}

    @property
    def _own(self) -> State:
        """The part of the state that the network names."""
        return self._function._part_of(self.state)

    def _shaped(self, port: Port) -> Array:
        """The memory of a port in its present shape."""
        type = largest_at(port.type, self._extents)
        return self._flat[port.placeholder][: type.room // type.kind.size].reshape(type.extents)

    def _prepare(self) -> None:
        """Lets inputs have the shapes of the next run. Raises UserError for variables that are full or at odds."""
        known = self._own.known()
        if known != self._known:
            self._extents = given_extents(self._function.symbols, self._given, known)
            self._known = known
            self._shape(self._function.input_ports)

    def _shape(self, ports: Sequence[Port]) -> None:
        for port in ports:
            if not port.type.is_static and port.placeholder in self._flat:
                self._arrays[port.placeholder] = self._shaped(port)

    def _port(self, name: str) -> Port:
        port = self._ports.get(name)
        if port is None:
            raise UserError(
                f"expected one of the inputs and outputs {', '.join(map(repr, self._ports))}, got '{name}'"
            )
        return port

    def __getitem__(self, name: str) -> Array:
        """The array the input or output called `name` lives in.

        Of an output whose shape depends on what the network finds it is the part that the last run wrote, and before
        the first run all there is room for.
        """
        port = self._port(name)
        if port in self._function.input_ports:
            self._prepare()
        array = self._arrays[port.placeholder]
        if not self._found or port not in self._function.open_ports:
            return array
        return part_of(array, shape_at(port.type.shape, {**self._extents, **self._found}))

    def bind(self, name: str, array: Array) -> None:
        """Makes `array` the memory of an input or output.

        Raises UserError unless it is C-contiguous, aligned, and of exactly the port's dtype and shape.
        """
        port = self._port(name)
        if self._known and not port.type.is_static:
            raise UserError(f"'{name}': expected a port of one shape to bind, got {port.type}")
        _check(name, largest_at(port.type, self._extents), array)
        if not array.flags.c_contiguous:
            raise UserError(
                f"'{name}': expected a C-contiguous array to bind",
                note="use numpy.ascontiguousarray",
            )
        if not array.flags.aligned:
            raise UserError(f"'{name}': expected an array aligned to its element")
        if port in self._function.output_ports and not array.flags.writeable:
            raise UserError(f"'{name}': expected a writeable array for an output")
        for name, other in self._arrays.items():
            if name != port.placeholder and np.may_share_memory(array, other):
                raise UserError(f"'{port.name}': expected memory of its own, got some of %{name}'s")
        if self.state.holds(array):
            raise UserError(f"'{port.name}': expected memory of its own, got some of a variable's")
        self._arrays[port.placeholder] = array
        self._flat.pop(port.placeholder, None)

    def write(self, name: str, array: Array) -> None:
        """Copies `array` into an input. Raises UserError for another dtype or shape."""
        port = self._port(name)
        content = np.asarray(array)
        self._prepare()
        _check(name, type_at(port.type, self._extents), content)
        self._arrays[port.placeholder][...] = content

    def run(self) -> None:
        """Computes the outputs from what the inputs hold now. Raises UserError where variables are full or at odds."""
        if self._function.state_ports:
            self._prepare()
            self._shape(self._function.output_ports)
            state = self._own
            self._found = self._function.execute_on(state, self._arrays, self._arena, self._extents)
            state.advance({**self._extents, **self._found})
        else:
            self._found = self._function.execute(self._arrays, self._arena, self._extents)

    def reset(self) -> None:
        """Makes the variables what they were before the first run."""
        self.state.reset()


def _check(name: str, type: Type, array: Array) -> None:
    """Raises UserError for an array of another dtype or shape; symbolic shapes are checked with the extents."""
    fits = array.shape == type.shape or not type.is_static
    if array.dtype != type.kind.dtype or not fits:
        raise _misfit(name, type, array)


def _misfit(name: str, type: Type, array: Array) -> UserError:
    got = f"{array.dtype}[{'x'.join(map(str, array.shape))}]"
    return UserError(f"'{name}': expected an array of type {type}, got {got}")
