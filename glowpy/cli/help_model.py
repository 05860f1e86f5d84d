"""`--help-model`: what a model takes and gives, what of it is open, and what looks like state."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import click

from glowpy.cli.model import is_text, load_model
from glowpy.cli.output import print_json, print_table
from glowpy.graph.node import Storage
from glowpy.graph.state import Declared, recognized_pairs
from glowpy.importer.onnx.model import read_model
from glowpy.importer.onnx.signature import computed_dims
from glowpy.support.errors import UserError
from glowpy.support.remedies import remedied, spelled_dims
from glowpy.support.symbolic import Dim, UndecidedError, symbol
from glowpy.support.text import symbol_name

__all__ = ["print_model"]

Ports = dict[str, Declared]

_HIGH = 64
"""The upper bound of ranges that are shown."""
_TRIALS = 32
"""How often a model is read to learn how its dimensions depend on each other."""


def print_model(path: str, *, as_json: bool) -> None:
    """Prints what a model takes and gives, and options to type. Raises what reading it raises."""
    inputs, outputs, variables = _ports(path)
    pairs = {} if is_text(path) else recognized_pairs(inputs, outputs)
    open_dims = _open_dims([*inputs.values()])
    tables: Mapping[str, Ports] = {"input": inputs, "output": outputs, "variable": variables}
    if as_json:
        spelled = {
            f"{role}s": {name: str(port) for name, port in ports.items()}
            for role, ports in tables.items()
        }
        print_json({**spelled, "dimensions": open_dims, "state": pairs})
        return
    rows = [[role, *map(str, port)] for role, ports in tables.items() for port in ports.items()]
    print_table("", ["", "name", "type"], rows)
    if open_dims and not is_text(path):
        given = _open_dims([port for name, port in inputs.items() if name not in pairs])
        click.echo(
            "open dimensions, each of which takes one extent, a range, or what others make it:"
        )
        _print_shapes(spelled_dims(_ranges(path, {dim: int(dim in given) for dim in open_dims})))
    unnamed = [name for name, port in inputs.items() if None in (port.shape or ())]
    if unnamed and not is_text(path):
        click.echo(
            "dimensions without names, in place of whose 1 a range such as 1..64 leaves them open:"
        )
        _print_shapes(f"{name}:{_example(inputs[name])}" for name in unnamed)
    if pairs:
        click.echo("state by its looks, all of which --state auto keeps:")
        click.echo("".join(f"  --state {pair[0]}={pair[1]}\n" for pair in pairs.items()))


def _print_shapes(texts: Iterable[str]) -> None:
    click.echo("".join(f"  --shape {shlex.quote(text)}\n" for text in texts))


def _example(port: Declared) -> str:
    return "x".join(str(dim if isinstance(dim, int) else 1) for dim in port.shape or ())


def _ranges(path: str, lows: Mapping[str, int]) -> dict[str, Dim]:
    """Ranges that a model can be read with; those of the names alone where reading it does not say."""
    ranges: dict[str, Dim] = {
        name: symbol(symbol_name(name), low, _HIGH) for name, low in lows.items()
    }
    computed = computed_dims(ranges, {n: dim for n, dim in ranges.items() if n.isidentifier()})
    dims = {name: dim for name, dim in ranges.items() if computed.get(name, dim) == dim}
    model = read_model(path)
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


def _ports(path: str) -> tuple[Ports, Ports, Ports]:
    """Inputs, outputs and variables."""
    if is_text(path):
        functions = load_model(path).networks
        return (
            _declared([port for f in functions for port in f.parameters]),
            _declared([port for f in functions for port in f.outputs]),
            _declared([port for f in functions for port in f.variables]),
        )
    model = read_model(path)
    inputs, outputs = (
        {info.name: Declared(info.kind, info.shape) for info in infos}
        for infos in (model.inputs, model.outputs)
    )
    return inputs, outputs, {}


def _declared(ports: Sequence[Storage]) -> Ports:
    return {port.original: Declared.of(port.type) for port in ports}


def _open_dims(ports: Sequence[Declared]) -> list[str]:
    """The names of open dimensions."""
    names = [dim for port in ports for dim in port.shape or () if isinstance(dim, str)]
    return list(dict.fromkeys(filter(None, names)))
