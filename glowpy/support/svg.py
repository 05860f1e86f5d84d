"""Drawings as trees of elements: what the pages and pictures of `glowpy bench` and `tools/bench.py` are drawn with."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from glowpy.support.html_page import element

__all__ = ["drawing", "label", "line"]

_NAMESPACE = "http://www.w3.org/2000/svg"


def drawing(width: float, height: float, *content: Element) -> Element:
    """A drawing of so many pixels, for a page or a file of its own."""
    size = {"width": f"{width:g}", "height": f"{height:g}", "viewBox": f"0 0 {width:g} {height:g}"}
    return element("svg", *content, xmlns=_NAMESPACE, **size)


def label(text: str, x: float, y: float, anchor: str = "start") -> Element:
    """A line of text, of which `anchor` (`start`, `middle`, `end`) is at the place."""
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def line(start: tuple[float, float], end: tuple[float, float], class_: str) -> Element:
    """A line from one place to another; `class_` names its style."""
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return element("line", class_=class_, **{name: f"{at:.1f}" for name, at in ends.items()})
