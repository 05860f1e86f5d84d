"""The picture of `tools/bench.py --write`: a line for each network, and on it the times of other runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from xml.etree.ElementTree import Element

from glowpy.support.html_page import element
from glowpy.support.svg import drawing, label, line
from tools.bench_rows import Row

__all__ = ["picture"]

_STYLE = """
.paper { fill: #ffffff; }
text { font: 12px system-ui, sans-serif; fill: #222222; }
.grid { stroke: #dddddd; }
.own { stroke: #222222; stroke-width: 2; }
.onnxruntime { fill: #1f6fd0; }
.openvino { fill: #e07b00; }
.ncnn { fill: #2a9d4a; }
"""
_LEFT, _RIGHT, _TOP, _STEP, _WIDTH = 120, 30, 60, 20, 760
_TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def picture(rows: Sequence[Row], against: Sequence[str]) -> Element:
    """A line for each network, and on it the times of the other runtimes in parts of glowpy's."""
    ratios = {
        (row.model, name): 1 / ratio
        for row in rows
        for name in against
        if (ratio := row.ratio(name)) is not None
    }
    low, high = min([0.75, *ratios.values()]), max([2.0, *ratios.values()])
    bottom = _TOP + _STEP * len(rows)

    def x(ratio: float) -> float:
        share = log(ratio / low) / log(high / low)
        return _LEFT + 10 + share * (_WIDTH - _LEFT - _RIGHT - 20)

    shapes = [
        element("style", _STYLE),
        label("time of another runtime / time of glowpy", _LEFT, 18),
    ]
    for tick in (tick for tick in _TICKS if low <= tick <= high):
        shapes.append(line((x(tick), _TOP - 4), (x(tick), bottom), "own" if tick == 1 else "grid"))
        shapes.append(label(f"{tick:g}", x(tick), _TOP - 8, "middle"))
    for place, name in enumerate(against):
        at = _WIDTH - _RIGHT - 100 * (len(against) - place)
        shapes += [_mark(name, at, 14), label(name, at + 10, 18)]
    for place, row in enumerate(rows):
        y = _TOP + _STEP * (place + 0.5)
        shapes.append(label(row.model, _LEFT - 8, y + 4, "end"))
        shapes.append(line((_LEFT, y), (_WIDTH - _RIGHT, y), "grid"))
        for name in against:
            if (ratio := ratios.get((row.model, name))) is not None:
                tip = element("title", f"{row.model}, {name}: {ratio:.2f}")
                shapes.append(_mark(name, x(ratio), y, tip))
    shapes.append(label("slower than glowpy →", x(1) + 6, bottom + 18))
    shapes.append(label("← faster", x(1) - 6, bottom + 18, "end"))
    return drawing(_WIDTH, bottom + 28, *shapes)


def _mark(name: str, x: float, y: float, *content: Element) -> Element:
    """Draws a runtime's mark, which differs from others in form as well as in colour."""
    corners = {"openvino": (-5, -5, 5, -5, 5, 5, -5, 5), "ncnn": (0, -7, 6, 5, -6, 5)}.get(name)
    if corners is None:
        return element("circle", *content, class_=name, cx=f"{x:.1f}", cy=f"{y:.1f}", r="5")
    pairs = zip(corners[::2], corners[1::2], strict=True)
    points = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in pairs)
    return element("polygon", *content, class_=name, points=points)
