"""HTML pages that need no other file, as trees of elements, so that every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, indent, tostring

__all__ = ["Content", "element", "page", "table"]

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 84rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #8884; vertical-align: middle; }
th { position: sticky; top: 0; background: Canvas; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
p { max-width: 60rem; }
"""

Content = Element | str


def page(title: str, style: str, body: Iterable[Element]) -> str:
    """A page under its title; `style` is CSS beside that of every page."""
    tree = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("title", title),
            element("style", f"{_STYLE}{style}"),
        ),
        element("body", element("h1", title), *body),
        lang="en",
    )
    indent(tree)
    return f"<!DOCTYPE html>\n{tostring(tree, encoding='unicode', method='html')}\n"


def element(tag: str, *content: Content, **attributes: str) -> Element:
    """An element with texts and elements in it; `class_` is its class, and `stroke_width` its stroke-width."""
    names = {name.rstrip("_").replace("_", "-"): text for name, text in attributes.items()}
    result = Element(tag, names)
    for item in content:
        if isinstance(item, Element):
            result.append(item)
        elif len(result):
            result[-1].tail = (result[-1].tail or "") + item
        else:
            result.text = (result.text or "") + item
    return result


def table(columns: Sequence[str], rows: Iterable[Sequence[Content]]) -> Element:
    """A column whose name begins with `>` is of numbers."""
    classes = [{"class_": "number"} if column.startswith(">") else {} for column in columns]
    head = [
        element("th", column.removeprefix(">"), **style)
        for column, style in zip(columns, classes, strict=True)
    ]
    body = [
        element(
            "tr",
            *(element("td", cell, **style) for cell, style in zip(row, classes, strict=True)),
        )
        for row in rows
    ]
    return element("table", element("thead", element("tr", *head)), element("tbody", *body))
