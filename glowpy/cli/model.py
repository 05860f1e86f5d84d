"""Reading the model a verb works on, and what the user says about its shapes and inputs."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click
import numpy as np

from glowpy.cli.files import read_array, read_arrays, read_constants, read_text
from glowpy.cli.samples import sample_shapes
from glowpy.cli.values import parse_values
from glowpy.core.array_file import as_codes
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import extents_of, symbols_of_types, type_at
from glowpy.core.initial import elements
from glowpy.core.random_array import random_array
from glowpy.core.state import StatePort
from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.engine import backend_class, known_nodes
from glowpy.graph.function import Function, Module
from glowpy.graph.printer import print_module
from glowpy.importer import Model, format_of, open_model, open_whole
from glowpy.importer.declared import ValueInfo
from glowpy.importer.model import HostedModel
from glowpy.importer.open_dimensions import ASSUMED, Unsaid
from glowpy.importer.shape_text import Dims, Shapes, parse_shapes
from glowpy.importer.text_model import GraphText, InstructionText, TextModel
from glowpy.recipe import state_ports
from glowpy.runtime.ports import Port
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import at_extents, symbols_of

__all__ = [
    "Source",
    "choose_function",
    "constants_option",
    "expect_own_constants",
    "function_option",
    "input_option",
    "is_instructions",
    "is_text",
    "load_model",
    "open_file",
    "parse_state",
    "read_inputs",
    "say_assumed",
    "state_option",
]

F = TypeVar("F", bound=Callable[..., Any])


def input_option() -> Callable[[F], F]:
    """The option --input of a verb."""
    return click.option(
        "--input",
        "inputs",
        multiple=True,
        help="An input as NAME=FILE (.npy, .pb; strings and sequences also .txt, .npz, .json), or all as FILE.npz.",
    )


def state_option() -> Callable[[F], F]:
    """The option --state of a verb."""
    return click.option(
        "--state",
        multiple=True,
        help="INPUT=OUTPUT: an input that takes the output in the next run; or auto: all that look like state.",
    )


def constants_option() -> Callable[[F], F]:
    """The option --constants of a verb."""
    return click.option(
        "--constants", default="", help="A .npz file with the constants of a .glow file."
    )


def function_option() -> Callable[[F], F]:
    """The option --function of a verb."""
    return click.option(
        "--function", "name", default="", help="The function to take of a module with several."
    )


def parse_state(texts: Sequence[str], model: Model) -> dict[str, str]:
    """Parses --state: inputs, and the outputs that become them in the next run. Raises UserError."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, output = text.partition("=")
        if text == "auto" and not model.state:
            raise UserError(
                "--state auto: no input and output look like state",
                note="name them: --state INPUT=OUTPUT",
            )
        if text != "auto" and not (name and output):
            raise UserError(f"--state: expected INPUT=OUTPUT or auto, got '{text}'")
        given = model.state if text == "auto" else {name: output}
        if twice := [name for name in given if name in pairs]:
            raise UserError(f"--state: '{twice[0]}' is given twice")
        pairs |= given
    return pairs


def load_model(
    path: str,
    shapes: Sequence[str] = (),
    constants: str = "",
    backend: str = "cpu",
    state: Sequence[str] = (),
    values: Sequence[str] = (),
) -> Module:
    """The module in a file of any format, or in text on standard input (`-`).

    Args:
        path: The file.
        shapes: The texts of --shape, unless it is text.
        constants: A .npz file with the elements that text shows only the digest of.
        backend: Whose own operators text may name, beside those of glowpy's own backends.
        state: The texts of --state. Text has variables of its own, which are state if there are none.
        values: The texts of --value, unless it is text.

    Raises LoadError, UnsupportedError or UserError, all with the file's name.
    """
    if is_text(path):
        for option, texts, what in (
            ("--shape", shapes, "the shapes of a .glow file are written in it"),
            ("--value", values, "what a .glow file computes of its inputs is written in it"),
        ):
            if texts:
                raise UserError(f"{option}: {what}", note=f"leave out {option}")
        model = _text_model(path, constants, backend)
        return model.build(state=parse_state(state, model) if state else None)
    return _read_file(path, shapes, constants, state, values).build()


def is_text(path: str) -> bool:
    """Whether a model is the text of a graph."""
    return path == "-" or isinstance(format_of(path), GraphText)


def is_instructions(path: str) -> bool:
    """Whether a file is the text of an IR function."""
    return path != "-" and isinstance(format_of(path), InstructionText)


def _text_model(path: str, constants: str, backend: str) -> Model:
    """The text of a graph, in a file or on standard input."""
    blobs = read_constants(constants) if constants else None
    nodes = known_nodes(backend_class(backend))
    if path == "-":
        return TextModel(read_text(path), "<stdin>", blobs, nodes)
    return open_whole(path, constants=blobs, nodes=nodes)


def open_file(path: str, constants: str = "") -> Model | HostedModel | None:
    """Opens the model in a file; None for text, which is read as a whole. Raises what `open_model` raises."""
    if is_text(path):
        return None
    expect_own_constants(constants)
    return open_model(path)


def expect_own_constants(constants: str) -> None:
    """Raises UserError where --constants is given for a file that is no text."""
    if constants:
        raise UserError("--constants: an ONNX file has its own", note="leave out --constants")


@dataclass(frozen=True)
class _ModelFile:
    """The model in a file, and what the user says of it."""

    model: Model
    shapes: Shapes
    dims: Dims
    state: dict[str, str]
    values: dict[str, Array]
    said: Collection[str] = ()
    """The dimensions that samples say."""

    def build(self) -> Module:
        """The module. What was assumed has been said before an error is."""
        state = self.state or None
        return self.model.build(shapes=self.shapes, dims=self.dims, values=self.values, state=state)

    @property
    def key(self) -> str:
        """Names it."""
        return self.model.key(
            shapes=self.shapes, dims=self.dims, values=self.values, state=self.state
        )


def _read_file(
    path: str,
    shapes: Sequence[str],
    constants: str,
    state: Sequence[str],
    values: Sequence[str] = (),
    opened: Model | None = None,
    inputs: Sequence[str] = (),
    samples: str = "",
) -> _ModelFile:
    """Raises as `load_model` does. Says what is assumed of dimensions that neither options nor arrays say."""
    expect_own_constants(constants)
    model = open_whole(path) if opened is None else opened
    bound, dims = parse_shapes(shapes, model.inputs)
    model = model.resized(bound)
    pairs, known = parse_state(state, model), parse_values(values, model.inputs)
    if model.is_dump or pairs:  # state grows, and of what it is, nothing can be assumed
        return _ModelFile(model, bound, dims, pairs, known)
    first, rows = sample_shapes(samples, {info.name: info.shape for info in model.inputs})
    seen = {name: array.shape for name, array in known.items()}
    unsaid = Unsaid(model.inputs, bound, dims, _seen(inputs) | first | seen)
    apart = {_first_dim(info) for info in model.inputs if info.name in rows}
    names = Unsaid(model.inputs, bound, dims).summary
    assumed = [name for name in names if name in unsaid.summary or name in apart]
    say_assumed(assumed)
    sized = [name for name in names if name not in assumed] if first else []
    return _ModelFile(model, *unsaid.said(), pairs, known, sized)


def _first_dim(info: ValueInfo) -> str:
    """The name of an input's first dimension, which is open."""
    dim = next(iter(info.shape or ()), None)
    return dim if isinstance(dim, str) else f"{info.name}[0]"


def say_assumed(names: Collection[str]) -> None:
    """Says what is assumed of dimensions, if there are any."""
    if names:
        click.echo("note: {}; {}".format(*_assumption(names)), err=True)


def _assumption(names: Collection[str]) -> tuple[str, str]:
    """Words for what is assumed of dimensions, and for the remedy, as a message and its note."""
    named = ", ".join(f"'{name}'" for name in names)
    first = next(iter(names))
    example = (
        f"{first}=8, or NAME=1x3x224x224 for all of an input"
        if "[" in first
        else f"{first}=8, or {first}=1..64 for a range"
    )
    return (
        f"{named} {'is' if len(names) == 1 else 'are'} taken to be {ASSUMED}",
        f"--shape says otherwise: --shape {example}",
    )


def _seen(texts: Sequence[str]) -> Shapes:
    """The shapes of the arrays that --input names."""
    return {name: array.shape for name, (array, _) in _given_arrays(texts).items()}


def _given_arrays(texts: Sequence[str]) -> dict[str, tuple[Array, str]]:
    """The arrays that --input names, and their files, by input."""
    arrays: dict[str, tuple[Array, str]] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        several = {name: read_array(path)} if separator else read_arrays(text)
        arrays |= {name: (array, path or text) for name, array in several.items()}
    return arrays


@dataclass(frozen=True)
class Source:
    """A model on the command line, whose graph is built only if something needs it.

    Attributes:
        path: The file.
        shapes: The texts of --shape, unless it is text.
        constants: The file of --constants, for text.
        name: The function of --function.
        backend: Whose own operators text may name.
        state: The texts of --state.
        opened: The model, if it has been read already.
        inputs: The texts of --input: arrays whose shapes count where --shape gives none.
        values: The texts of --value, unless it is text.
        samples: The text of --inputs in verbs that run many samples: the shapes of the first count alike.
    """

    path: str
    shapes: Sequence[str]
    constants: str
    name: str
    backend: str
    state: Sequence[str] = ()
    opened: Model | None = None
    inputs: Sequence[str] = ()
    samples: str = ""
    values: Sequence[str] = ()

    @cached_property
    def function(self) -> Function:
        """The graph. Raises as `load_model` and `choose_function` do."""
        return choose_function(self._module, self.name)

    @cached_property
    def key(self) -> str:
        """Names everything that the graph depends on."""
        if is_text(self.path):  # with or without the elements of which it shows the digest
            text = f"{self.name}\n{bool(self.constants)}\n{print_module(self._module)}"
            return hashlib.sha256(text.encode()).hexdigest()
        return f"{self.name} {self._file.key}"

    @property
    def ports(self) -> list[Port]:
        """The function's inputs."""
        return [Port(p.original, p.name, p.type) for p in self.function.parameters]

    @property
    def state_ports(self) -> tuple[StatePort, ...]:
        """The function's variables."""
        return state_ports(self.function)

    @property
    def pairs(self) -> dict[str, str]:
        """The outputs of the user's model that are in variables now, by name, and the variables."""
        if not is_text(self.path):
            state = self._file.state
        else:
            text = _text_model(self.path, self.constants, self.backend) if self.state else None
            state = {} if text is None else parse_state(self.state, text)
        return {output: name for name, output in state.items()}

    @property
    def known(self) -> dict[str, Array]:
        """The inputs whose elements --value says."""
        return {} if is_text(self.path) else self._file.values

    @property
    def advice(self) -> str:
        """The remedy for samples of other shapes than the first; empty if the first has decided no dimension."""
        names = () if is_text(self.path) else self._file.said
        options = " ".join(shlex.join(["--shape", f"{name}=1..64"]) for name in names)
        return f"the first sample says what dimensions are; {options} leaves them open" * bool(
            names
        )

    @cached_property
    def _file(self) -> _ModelFile:
        return _read_file(
            *(self.path, self.shapes, self.constants, self.state, self.values),
            *(self.opened, self.inputs, self.samples),
        )

    @cached_property
    def _module(self) -> Module:
        if is_text(self.path):
            return load_model(
                *(self.path, self.shapes, self.constants, self.backend, self.state, self.values)
            )
        return self._file.build()


def choose_function(module: Module, name: str) -> Function:
    """The function called `name`; the only one if the name is empty. Raises UserError."""
    networks = module.networks
    if name or len(networks) == 1:
        return module.function(name) if name else networks[0]
    names = ", ".join(f.name for f in networks)
    raise UserError(
        f"the model has {len(networks)} functions: {names}", note="choose with --function"
    )


def read_inputs(
    texts: Sequence[str],
    ports: Sequence[Port],
    seed: int,
    model: str,
    state: Sequence[StatePort] = (),
    values: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """An array for every port and variable: from the files that --input names, or random; variables begin as they do.

    Symbolic dimensions are what the files have, or as large as they may be; those that grow from run to run as small.

    Args:
        texts: `NAME=FILE` (.npy, .pb), or the name of a .npz file with arrays named after inputs.
        ports: The function's inputs.
        seed: The seed of the random elements.
        model: The file of the model, which says which shapes it allows.
        state: The function's variables.
        values: The elements by --value.

    Raises UserError for an unknown input, an unreadable file, an array of another type or shape, and only some of
    the variables that grow together.
    """
    given = _given_arrays(texts)
    arrays_by_name = _once(given, values or {})
    sources = {name: path for name, (_, path) in given.items()}
    ports_by_name = {port.name: port for port in ports}
    ports_by_name |= {port.name: Port(port.name, port.placeholder, port.type) for port in state}
    for name, array in arrays_by_name.items():
        if name not in ports_by_name:
            raise UserError(
                f"--input: expected one of the inputs {', '.join(ports_by_name) or '(there are none)'}, got '{name}'"
            )
        arrays_by_name[name] = as_codes(array, ports_by_name[name].type.kind)
        _check_array(ports_by_name[name], arrays_by_name[name], sources.get(name, "--value"), model)
    growing = symbols_of(dim for port in state for dim in port.growing)
    lowest = {name: symbol.low for name, symbol in growing.items()}
    extents = _extents(list(ports_by_name.values()), arrays_by_name, lowest)
    remaining = [port for port in state if port.name not in arrays_by_name]
    grown = [p.name for p in remaining if any(at_extents(dim, extents) for dim in p.growing)]
    if grown and len(remaining) < len(state):
        raise UserError(
            f"--input: expected state that is as long as that which is given for {', '.join(map(repr, grown))} as well"
        )
    rng = np.random.default_rng(seed)
    begun = {p.name: elements(p.initial, type_at(p.type, extents)).array for p in state}
    contents = begun | arrays_by_name
    return {
        name: contents[name] if name in contents else random_array(type_at(port.type, extents), rng)
        for name, port in ports_by_name.items()
    }


def _once(given: Mapping[str, tuple[Array, str]], values: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that --input and --value give. Raises UserError for an input that both give."""
    if twice := [name for name in values if name in given]:
        raise UserError(f"--input: '{twice[0]}' is given by --value as well", note="leave one out")
    return {**values, **{name: array for name, (array, _) in given.items()}}


def _extents(
    ports: Sequence[Port], arrays: Mapping[str, Array], others: Mapping[str, int]
) -> dict[str, int]:
    """Values of symbols for some arrays; where these do not decide, from `others`, or else the highest."""
    symbols = symbols_of_types(port.type for port in ports)
    given = [port for port in ports if port.name in arrays]
    extents = extents_of({port.name: (port.type.shape, arrays[port.name].shape) for port in given})
    return {name: symbol.high for name, symbol in symbols.items()} | dict(others) | extents


def _check_array(port: Port, array: Array, path: str, model: str) -> None:
    type = port.type
    got = f"{array.dtype}[{_spell(array.shape)}]"
    if array.shape != type.shape and (type.is_static or array.ndim != type.rank):
        raise UserError(
            f"input '{port.name}': expected {type}, got {got}",
            loc=Loc(path),
            note=_shape_remedy(port, array.shape, model),
        )
    if array.dtype != type.kind.dtype:
        raise UserError(
            f"input '{port.name}': expected {type}, got {got}",
            loc=Loc(path),
            note=f"convert it with array.astype({_spelled_kind(type.kind)})",
        )


def _shape_remedy(port: Port, shape: Shape, model: str) -> str:
    """The remedy for an array of another shape: --shape helps with as many dimensions as the model declares."""
    if not is_text(model):
        infos = {info.name: info for info in open_whole(model).inputs}
        info = infos[port.name]
        if info.admits(shape):
            return f"--shape {port.name}:{_spell(shape)} compiles for this shape"
        if len(shape) == len(info.shape or ()):
            return f"--shape {port.name}:{_spell(shape)} changes the sizes that the file declares"
    return (
        f"the model has no other shape for '{port.name}': give it a {_spell(port.type.shape)} array"
    )


def _spelled_kind(kind: ElemKind) -> str:
    """An element kind as numpy takes it in Python, which knows bf16 and codes from another package only."""
    foreign = kind is ElemKind.BF16 or kind.is_code
    return f"ml_dtypes.{kind.dtype}" if foreign else f"'{kind.dtype}'"


def _spell(shape: Shape) -> str:
    return "x".join(map(str, shape))
