"""`--help-model`: what a model takes and gives, what of it is open, and what looks like state."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import click

from glowpy.cli.host_inputs import FILES, must_be_given
from glowpy.cli.model import load_model, open_file
from glowpy.core.state_pairs import Declared
from glowpy.graph.node import Storage
from glowpy.importer import Model
from glowpy.importer.declared import ValueInfo, computed_dims
from glowpy.importer.model import HostedModel
from glowpy.importer.value_types import HostInfo
from glowpy.support.console import print_json, print_table
from glowpy.support.errors import UserError
from glowpy.support.remedies import remedied, spelled_dims
from glowpy.support.symbolic import Dim, UndecidedError, symbol
from glowpy.support.text import symbol_name

__all__ = ["print_model"]

Ports = Mapping[str, Declared | HostInfo]

_HIGH = 64
"""The upper bound of ranges that are shown."""
_TRIALS = 32
"""How often a model is read to learn how its dimensions depend on each other."""


def print_model(path: str, *, as_json: bool) -> None:
    """Prints what a model takes and gives, and options to type. Raises what reading it raises."""
    model = open_file(path)
    inputs, outputs, variables = _ports(path, model)
    pairs = model.state if isinstance(model, Model) else {}
    open_dims = _open_dims([*inputs.values()])
    tables: Mapping[str, Ports] = {"input": inputs, "output": outputs, "variable": variables}
    if as_json:
        spelled = {
            f"{role}s": {name: _spelled(port) for name, port in ports.items()}
            for role, ports in tables.items()
        }
        print_json({**spelled, "dimensions": open_dims, "state": pairs})
        return
    rows = [
        [role, name, _spelled(port)]
        for role, ports in tables.items()
        for name, port in ports.items()
    ]
    print_table("", ["", "name", "type"], rows)
    if isinstance(model, HostedModel):
        _print_hosted(inputs)
    elif model is not None:
        _print_open(model, inputs, open_dims, pairs)


def _spelled(port: Declared | HostInfo) -> str:
    return str(port).removeprefix(f"{port.name} ") if isinstance(port, HostInfo) else str(port)


def _print_hosted(ports: Ports) -> None:
    """Prints options for a model of which a session computes a part: its inputs decide the extents."""
    numbers = {name: port for name, port in ports.items() if isinstance(port, Declared)}
    hosts = {name: port for name, port in ports.items() if isinstance(port, HostInfo)}
    given = [name for name, info in hosts.items() if must_be_given(info)]
    open_dims = [f"{name}=1" for name in _open_dims([*numbers.values()])]
    open_dims += [
        f"{n}:{_example(port)}" for n, port in numbers.items() if None in (port.shape or ())
    ]
    if open_dims:
        click.echo("open dimensions, which inputs without a file need:")
        _print_shapes(open_dims)
    if given:
        click.echo(f"inputs that must be given, {FILES}:")
        click.echo("".join(f"  --input {shlex.quote(name)}=FILE\n" for name in given))


def _print_open(
    model: Model, inputs: Ports, open_dims: Sequence[str], pairs: Mapping[str, str]
) -> None:
    """Prints options for a model of numbers."""
    if open_dims:
        given = _open_dims([port for name, port in inputs.items() if name not in pairs])
        click.echo(
            "open dimensions, each of which takes one extent, a range, or what others make it:"
        )
        _print_shapes(spelled_dims(_ranges(model, {dim: int(dim in given) for dim in open_dims})))
    unnamed = [name for name, port in inputs.items() if None in (port.shape or ())]
    if unnamed:
        click.echo(
            "dimensions without names, in place of whose 1 a range such as 1..64 leaves them open:"
        )
        _print_shapes(f"{name}:{_example(inputs[name])}" for name in unnamed)
    if pairs:
        click.echo("state by its looks, all of which --state auto keeps:")
        click.echo("".join(f"  --state {pair[0]}={pair[1]}\n" for pair in pairs.items()))


def _print_shapes(texts: Iterable[str]) -> None:
    click.echo("".join(f"  --shape {shlex.quote(text)}\n" for text in texts))


def _example(port: Declared | HostInfo) -> str:
    return "x".join(str(dim if isinstance(dim, int) else 1) for dim in port.shape or ())


def _ranges(model: Model, lows: Mapping[str, int]) -> dict[str, Dim]:
    """Ranges that a model can be read with; those of the names alone where reading it does not say."""
    ranges: dict[str, Dim] = {
        name: symbol(symbol_name(name), low, _HIGH) for name, low in lows.items()
    }
    computed = computed_dims(ranges, {n: dim for n, dim in ranges.items() if n.isidentifier()})
    dims = {name: dim for name, dim in ranges.items() if computed.get(name, dim) == dim}
    for _ in range(_TRIALS):
        try:
            model.build(dims=dims).forget()
        except UndecidedError as error:
            changes = remedied(error, dims)
            if not changes:
                break
            dims |= changes
        except UserError:
            break  # verbs that compile say what is wrong with it
        else:
            break
    return dims


def _ports(path: str, model: Model | HostedModel | None) -> tuple[Ports, Ports, Ports]:
    """Inputs, outputs and variables."""
    if model is None:
        functions = load_model(path).networks
        return (
            _declared([port for f in functions for port in f.parameters]),
            _declared([port for f in functions for port in f.outputs]),
            _declared([port for f in functions for port in f.variables]),
        )
    inputs, outputs = (
        {info.name: _port(info) for info in infos} for infos in (model.inputs, model.outputs)
    )
    return inputs, outputs, {}


def _port(info: ValueInfo | HostInfo) -> Declared | HostInfo:
    """A tensor of numbers as any model has it."""
    if isinstance(info, HostInfo) and info.kind is None:
        return info
    assert info.kind is not None
    return Declared(info.kind, info.shape)


def _declared(ports: Sequence[Storage]) -> dict[str, Declared]:
    return {port.original: Declared.of(port.type) for port in ports}


def _open_dims(ports: Sequence[Declared | HostInfo]) -> list[str]:
    """The names of open dimensions."""
    names = [dim for port in ports for dim in port.shape or () if isinstance(dim, str)]
    return list(dict.fromkeys(filter(None, names)))
