"""A function as a drawing that needs no other program: what notebooks show of it.

Nodes lie in layers, each below everything that it reads (longest paths); within a layer they lie below the middle
of what they read (the barycentre method of Sugiyama, Tagawa and Toda 1981, in one sweep). Constants are not drawn.
Lines may cross: it is meant for small graphs, and of larger ones only the beginning is shown. `glowpy.graph.dot`
draws all of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from glowpy.graph.node import Constant, Node, Storage
from glowpy.graph.nodes_gen import SaveNode

if TYPE_CHECKING:
    from glowpy.graph.function import Function

__all__ = ["draw_function"]

LIMIT = 60
"""The most nodes that are drawn."""

_WRITTEN = SaveNode.SCHEMA.inputs.index("output")
"""The operand of a save that it does not read."""

_CHARACTER, _LINE = 7.2, 15.0
"""The width of a character and the height of a line, in pixels, of monospaced text of 12 pixels."""
_MARGIN, _GAP, _RISE = 8.0, 16.0, 36.0
"""Around text; between boxes of a layer; between layers."""


@dataclass
class _Box:
    """A node or an input, and where it is: the middle and the top."""

    lines: tuple[str, ...]
    title: str
    is_port: bool
    sources: list[_Box]
    layer: int
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * _CHARACTER + 2 * _MARGIN

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _MARGIN

    @property
    def wish(self) -> float:
        """The middle of what it reads."""
        return sum(box.x for box in self.sources) / len(self.sources) if self.sources else 0.0


def draw_function(f: Function, limit: int = LIMIT) -> str:
    """The function as SVG in the colour of the text around it; its first `limit` nodes, with a note if it has more."""
    boxes = _boxes(f, limit)
    width, height = _place(boxes)
    rest = f.num_nodes - limit
    shapes = [_line(source, box) for box in boxes for source in box.sources]
    shapes += [_shape(box) for box in boxes]
    if rest > 0:
        note = f"... and {rest} more nodes"
        width = max(width, len(note) * _CHARACTER + 2 * _MARGIN)
        height += _LINE + _MARGIN
        shapes.append(_text(width / 2, height - _MARGIN, note))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12" '
        f'stroke="currentColor" fill="none">\n{chr(10).join(shapes)}\n</svg>\n'
    )


def _boxes(f: Function, limit: int) -> list[_Box]:
    """Returns the boxes to draw, each after those that it reads."""
    boxes: dict[Node | Storage, _Box] = {}
    for node in islice(f.topological(), limit):
        sources: dict[int, _Box] = {}
        for index, value in node.operands():
            producer = value.producer
            if isinstance(producer, Constant) or (isinstance(node, SaveNode) and index == _WRITTEN):
                continue
            if producer not in boxes and isinstance(producer, Storage):
                boxes[producer] = _port(producer, f"input {producer.name}", [], 0)
            source = boxes[producer]
            sources[id(source)] = source
        layer = 1 + max((box.layer for box in sources.values()), default=-1)
        target = node.output.producer if isinstance(node, SaveNode) else None
        if isinstance(target, Storage):
            boxes[node] = _port(target, f"output {target.name}", list(sources.values()), layer)
        else:
            lines = (node.SCHEMA.mnemonic, *(str(result.type) for result in node.results))
            boxes[node] = _Box(lines, node.name, False, list(sources.values()), layer)
    return list(boxes.values())


def _port(storage: Storage, title: str, sources: list[_Box], layer: int) -> _Box:
    return _Box((storage.original, str(storage.type)), title, True, sources, layer)


def _place(boxes: list[_Box]) -> tuple[float, float]:
    """Gives every box its place; the width and height of all."""
    layers: dict[int, list[_Box]] = {}
    for box in boxes:
        layers.setdefault(box.layer, []).append(box)
    widths = {
        layer: sum(box.width for box in row) + _GAP * (len(row) - 1)
        for layer, row in layers.items()
    }
    width = max(widths.values(), default=0.0) + 2 * _MARGIN
    y = _MARGIN
    for layer in sorted(layers):
        x = (width - widths[layer]) / 2
        for box in sorted(layers[layer], key=lambda box: box.wish):
            box.x, box.y = x + box.width / 2, y
            x += box.width + _GAP
        y += max(box.height for box in layers[layer]) + _RISE
    return width, y - _RISE + _MARGIN if boxes else 2 * _MARGIN


def _line(source: _Box, box: _Box) -> str:
    start, middle = source.y + source.height, (source.y + source.height + box.y) / 2
    return (
        f'<path opacity="0.5" d="M{source.x:.1f} {start:.1f} C{source.x:.1f} {middle:.1f} '
        f'{box.x:.1f} {middle:.1f} {box.x:.1f} {box.y:.1f}"/>'
    )


def _shape(box: _Box) -> str:
    left, radius = box.x - box.width / 2, box.height / 2 if box.is_port else 2.0
    texts = (
        _text(box.x, box.y + _LINE * (index + 1), line) for index, line in enumerate(box.lines)
    )
    return (
        f'<g><title>{escape(box.title)}</title><rect x="{left:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius:.1f}"/>{"".join(texts)}</g>'
    )


def _text(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" stroke="none" '
        f'fill="currentColor">{escape(text)}</text>'
    )
