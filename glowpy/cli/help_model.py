"""`--help-model`: what a model takes and gives, what of it is open, and what looks like state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from glowpy.cli.model import is_text, load_model
from glowpy.cli.output import print_json, print_table
from glowpy.graph.node import Storage
from glowpy.graph.state import Declared, recognized_pairs
from glowpy.importer.onnx.model import read_model

__all__ = ["print_model"]

Ports = dict[str, Declared]


def print_model(path: str, *, as_json: bool) -> None:
    """Prints what a model takes and gives, and options to type. Raises what reading it raises."""
    inputs, outputs, variables = _ports(path)
    pairs = {} if is_text(path) else recognized_pairs(inputs, outputs)
    given = _open_dims([port for name, port in inputs.items() if name not in pairs])
    lowest = {dim: int(dim in given) for dim in _open_dims([*inputs.values()])}
    tables: Mapping[str, Ports] = {"input": inputs, "output": outputs, "variable": variables}
    if as_json:
        spelled = {
            f"{role}s": {name: str(port) for name, port in ports.items()}
            for role, ports in tables.items()
        }
        print_json({**spelled, "dimensions": [*lowest], "state": pairs})
        return
    rows = [[role, *map(str, port)] for role, ports in tables.items() for port in ports.items()]
    print_table("", ["", "name", "type"], rows)
    if lowest and not is_text(path):
        click.echo("open dimensions, each of which takes one extent or a range:")
        click.echo("".join(f"  --shape {dim}={low}..64\n" for dim, low in lowest.items()))
    if pairs:
        click.echo("state by its looks, all of which --state auto keeps:")
        click.echo("".join(f"  --state {pair[0]}={pair[1]}\n" for pair in pairs.items()))


def _ports(path: str) -> tuple[Ports, Ports, Ports]:
    """Inputs, outputs and variables."""
    if is_text(path):
        functions = load_model(path).functions
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
