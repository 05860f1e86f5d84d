"""A report as one HTML file that needs no other: tables, and a drawing of each value's elements with its range."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from glowpy.core.quantized import range_of
from glowpy.core.type import Type
from glowpy.quantization.fidelity import decibels_text
from glowpy.quantization.report import Report, Row
from glowpy.quantization.search import Searched
from glowpy.quantization.statistics import Statistics
from glowpy.support.html_page import Content, element, page, table

__all__ = ["report_page"]

_STYLE = """
.floats { color: #b45f06; }
.range { fill: #3b82f633; stroke: #3b82f6; }
.bars { fill: currentColor; }
"""

_WIDTH, _HEIGHT, _BARS = 240, 36, 80


def report_page(title: str, report: Report) -> str:
    """The page.

    Args:
        title: The name of the network.
        report: On it.
    """
    body = [
        *_summary(report),
        *_search(report.searched),
        *_ranking(report),
        *_values(report),
    ]
    return page(f"{title}, quantized", _STYLE, body)


def _summary(report: Report) -> list[Element]:
    nodes, floats = report.conversion.nodes, report.conversion.floats
    counts = (
        f"{len(nodes) - len(floats)} of {len(nodes)} nodes are quantized. Constants take "
        f"{report.conversion.bytes_after:,} bytes, {report.conversion.bytes_before:,} in floats. "
        f"Compared with the network in floats on {report.samples} inputs."
    )
    rows = [(name, decibels_text(fidelity.decibels)) for name, fidelity in report.outputs.items()]
    return [element("p", counts), table(["output", ">signal to noise"], rows)]


def _search(searched: Searched | None) -> list[Element]:
    if searched is None:
        return []
    layers = ", ".join(searched.layers) or "none"
    scores = (
        f"The metric says {searched.in_floats:.6g} of the network in floats, and {searched.score:.6g} "
        f"of the quantized one. Layers that the search keeps in floats: {layers}."
    )
    rows = [
        (
            decision.layer or "the network",
            "in floats" if decision.keeps else "on integers",
            f"{decision.score:.6g}",
            decision.reason,
        )
        for decision in searched.decisions
    ]
    return [
        element("h2", "The search for the budget"),
        element("p", scores),
        table(["layer", "is then", ">metric", "reason"], rows),
    ]


def _ranking(report: Report) -> list[Element]:
    reasons = {node.name: node.reason for node in report.conversion.nodes}
    origins = {node.name: node.origin for node in report.conversion.nodes}
    text = (
        "How near the outputs stay to what they are in floats if one layer alone, with what follows it, "
        "computes on integers. 20 dB is an error of a tenth, 40 dB of a hundredth."
    )
    rows = [
        (str(place), name, origins[name], decibels_text(decibels), _reason(reasons[name]))
        for place, (name, decibels) in enumerate(report.ranking.items(), 1)
    ]
    columns = [">", "layer", "in the model", ">alone", ""]
    return [
        element("h2", "Layers, the most sensitive first"),
        element("p", text),
        table(columns, rows),
    ]


def _values(report: Report) -> list[Element]:
    text = (
        "In the order in which they are computed. Signal to noise is that of the whole quantized network: "
        "it has the noise of everything before. What has none is not rounded: it flows into the next node as it is. "
        "Limited is the share of elements outside the range. Bars are the elements of the profile, by the logarithm of "
        "their number; the range that the integers cover is blue."
    )
    columns = [
        *("value", "kind", "in the model", "type", ">scale", ">offset"),
        *(">signal to noise", ">limited", "elements and range"),
    ]
    return [
        element("h2", "Values"),
        element("p", text),
        table(columns, (_cells(row) for row in report.rows)),
    ]


def _cells(row: Row) -> list[Content]:
    fidelity, type = row.fidelity, row.type
    scale = offset = ""
    if type is not None and type.quant is not None:
        scale, offset = f"{type.quant.scales[0]:.6g}", str(type.quant.offsets[0])
    limited = fidelity is not None and type is not None
    return [
        *(row.name, row.kind, row.origin),
        type.kind.value if type is not None else _reason(row.reason),
        *(scale, offset),
        decibels_text(fidelity.decibels) if fidelity is not None else "",
        f"{fidelity.saturation:.2%}" if fidelity is not None and limited else "",
        _drawing(row.statistics, type) if row.statistics is not None else "",
    ]


def _reason(reason: str) -> Content:
    return element("span", f"floats: {reason}", class_="floats") if reason else ""


def _drawing(statistics: Statistics, type: Type | None) -> Content:
    """The elements as bars, and the range of the integers, if there are any."""
    if not statistics.count:
        return ""
    low, high = min(statistics.low, 0.0), max(statistics.high, 0.0)
    ends = range_of(type)[:2] if type is not None else (low, high)
    left, right = min(low, ends[0]), max(high, ends[1])
    right = right if right > left else left + 1.0
    histogram = statistics.histogram
    middles = (histogram.first + np.arange(len(histogram.counts)) + 0.5) * histogram.width
    counts, _ = np.histogram(
        np.clip(middles, left, right), _BARS, (left, right), weights=histogram.counts
    )
    heights = np.log1p(counts) / np.log1p(counts.max()) * _HEIGHT
    wide = _WIDTH / _BARS
    bars = "".join(
        f"M{index * wide:g} {_HEIGHT}v{-height:.1f}h{wide:g}V{_HEIGHT}z"
        for index, height in enumerate(heights)
        if height
    )
    shapes = [element("path", d=bars, class_="bars")]
    text = f"elements from {statistics.low:.6g} to {statistics.high:.6g}"
    if type is not None:
        start, end = ((place - left) / (right - left) * _WIDTH for place in ends)
        box = {"x": f"{start:.1f}", "y": "0", "width": f"{end - start:.1f}"}
        shapes.append(element("rect", class_="range", height=str(_HEIGHT), **box))
        text += f", range from {ends[0]:.6g} to {ends[1]:.6g}"
    return element(
        "svg",
        element("title", text),
        *shapes,
        width=str(_WIDTH),
        height=str(_HEIGHT),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
    )
