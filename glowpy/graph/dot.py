r"""A function as a Graphviz drawing: ellipses for storage, boxes for nodes, an edge for each operand, frames for calls.

```
digraph "main" {
  rankdir=TB;
  node [fontname="monospace"];
  s0 [label="x\nf32[4]", shape=ellipse, style=solid];
  n0 [label="relu\nrelu\nf32[4]", shape=box];
  s0 -> n0 [label="input"];
}
```
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from glowpy.graph.function import Function
from glowpy.graph.node import PREDICATE, Constant, Node, NodeValue, Storage
from glowpy.support.errors import UserError
from glowpy.support.text import print_attr

__all__ = ["print_dot", "render_svg"]

_LABEL_ATTR = 40
"""Attributes longer than this are cut in labels."""


def _quoted(text: str) -> str:
    """A double-quoted Graphviz string; line breaks centre the lines."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _label(node: Node) -> str:
    lines = [node.name, node.SCHEMA.mnemonic]
    for name, value in sorted(node.attrs.items()):
        text = print_attr(value)
        lines.append(f"{name}={text if len(text) <= _LABEL_ATTR else text[:_LABEL_ATTR] + '...'}")
    lines += [str(result.type) for result in node.results]
    return "\n".join(lines)


def print_dot(f: Function) -> str:
    """The function as Graphviz source, those that it calls in frames. Deterministic; linear in the number of nodes."""
    lines = [f"digraph {_quoted(f.name)} {{", "  rankdir=TB;", '  node [fontname="monospace"];']
    lines += [f"  {line}" for line in _content(f, "")]
    for index, callee in enumerate(f.called):
        lines += [f"  subgraph cluster{index} {{", f"    label={_quoted(f'@{callee.name}')};"]
        lines += [f"    {line}" for line in _content(callee, f"f{index}")]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _content(f: Function, prefix: str) -> Iterator[str]:
    """Writes the contents of one function; identifiers begin with `prefix`."""
    ids: dict[Storage | Node, str] = {}
    used = {value.producer for node in f.nodes for _, value in node.operands()}
    storages = [s for s in f.module.storages if s in used]
    for index, storage in enumerate(storages):
        ids[storage] = f"{prefix}s{index}"
        style = "dashed" if isinstance(storage, Constant) else "solid"
        label = _quoted(f"{storage.original}\n{storage.type}")
        yield f"{ids[storage]} [label={label}, shape=ellipse, style={style}];"
    for index, node in enumerate(f.topological()):
        ids[node] = f"{prefix}n{index}"
        yield f"{ids[node]} [label={_quoted(_label(node))}, shape=box];"
    for node in f.topological():
        for index, value in node.operands():
            yield _edge(ids, node, _name(node, index), value)


def _name(node: Node, index: int) -> str:
    """Returns the name of operand `index`; those of a variadic node have numbers."""
    if index == PREDICATE:
        return "predicate"
    names = node.SCHEMA.inputs
    return f"{names[0]} {index}" if node.SCHEMA.variadic else names[index]


def _edge(ids: dict[Storage | Node, str], node: Node, name: str, value: NodeValue) -> str:
    source, target = ids[value.producer], ids[node]
    writes = node.SCHEMA.mnemonic == "save" and name == "output"
    if writes:
        source, target = target, source
    label = name if value.index == 0 else f"{value.name} as {name}"
    return f"{source} -> {target} [label={_quoted(label)}];"


def render_svg(source: str) -> str:
    """The drawing as SVG, made by Graphviz' `dot`. Raises UserError where that is not installed."""
    program = shutil.which("dot")
    if program is None:
        raise UserError(
            "drawing needs Graphviz' program dot, which is not installed",
            note="install Graphviz, or take --format dot and draw it elsewhere",
        )
    done = subprocess.run(
        [program, "-Tsvg"], input=source, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(f"dot cannot draw the graph: {done.stderr.strip()}")
    return done.stdout
