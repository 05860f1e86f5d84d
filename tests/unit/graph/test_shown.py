"""What Python's prompt and notebooks show of our objects."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import parser

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.graph.drawing import draw_function
from glowpy.importer.declared import ValueInfo

SVG = "{http://www.w3.org/2000/svg}"
MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'


def network() -> glowpy.Module:
    """a<b = relu(x) * (x + 1)"""
    module = glowpy.Module()
    x, y = (module.create_placeholder(name, parse_type("f32[2x3]")) for name in ("x", "a<b"))
    f = module.create_function("main")
    one = module.create_constant("c", np.ones((2, 3), np.float32))
    product = f.create_mul("s", f.create_relu("a", x), f.create_add("b", x, one))
    f.create_save("save", product, y)
    return module


def chain(length: int) -> glowpy.Function:
    f = glowpy.Module().create_function("main")
    value = f.module.create_placeholder("x", parse_type("f32[4]")).value
    for index in range(length):
        value = f.create_relu(f"r{index}", value).result
    f.create_save("save", value, f.module.create_placeholder("y", value.type))
    return f


def rectangles(drawing: str) -> list[tuple[float, ...]]:
    names = ("x", "y", "width", "height")
    rectangles = ElementTree.fromstring(drawing).iter(f"{SVG}rect")
    return [tuple(float(rect.attrib[name]) for name in names) for rect in rectangles]


def test_a_drawing_has_a_box_for_every_node_and_port_and_a_line_for_every_operand() -> None:
    f = network().main
    drawing = draw_function(f)
    tree = ElementTree.fromstring(drawing)
    texts = [element.text for element in tree.iter(f"{SVG}text")]
    assert sorted(text for text in texts if text and "f32" not in text) == [
        *("a<b", "add", "mul", "relu", "x"),
    ]
    assert len(list(tree.iter(f"{SVG}path"))) == 5  # x to relu and add, both to mul, that to y
    boxes = rectangles(drawing)
    assert len(boxes) == 5
    for index, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= float(tree.attrib["width"])
        assert y + height <= float(tree.attrib["height"])
        for left, top, wide, high in boxes[:index]:
            assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y
    assert drawing == draw_function(f)


def test_what_reads_lies_below_what_is_read() -> None:
    heights = [y for _, y, _, _ in rectangles(draw_function(chain(5)))]
    assert len(heights) == 7
    assert all(above < below for above, below in pairwise(heights))


@pytest.mark.parametrize(("nodes", "note"), [(60, ""), (61, "... and 1 more nodes")])
def test_of_a_large_function_the_beginning_is_drawn(nodes: int, note: str) -> None:
    drawing = draw_function(chain(nodes - 1))
    assert ("more nodes" in drawing) is bool(note)
    assert note in drawing
    assert len(rectangles(drawing)) == 61


def test_a_function_of_nothing_is_drawn() -> None:
    assert rectangles(draw_function(glowpy.Module().create_function("f"))) == []


def test_modules_and_functions() -> None:
    module = network()
    assert repr(module) == "<Module: main (4 nodes); 1 constants of 24 bytes>"
    assert repr(glowpy.Module()) == "<Module: empty; 0 constants of 0 bytes>"
    assert repr(module.main) == "<Function main: 4 nodes, x f32[2x3] -> a<b f32[2x3]>"
    assert module.main._repr_svg_() == draw_function(module.main)
    html = ElementTree.fromstring(f"<div>{module._repr_html_()}</div>")
    assert len(list(html.iter(f"{SVG}svg"))) == 1


@pytest.mark.parametrize("text", ["f32[]", "i8[4](s=0.02,o=-3)", "bf16[1x0x7]"])
def test_types_are_shown_as_what_makes_them(text: str) -> None:
    type = parse_type(text)
    assert repr(type) == f"parse_type('{text}')"
    assert (
        eval(repr(type), {"parse_type": parse_type})
        == type
        == Type(type.kind, type.shape, type.quant)
    )


def test_what_runs() -> None:
    function = glowpy.compile(network(), "interpreter")
    expected = f"<InterpretedFunction: x f32[2x3] -> a<b f32[2x3]; {function.arena_size:,} bytes of working memory>"
    assert repr(function) == expected
    table = ElementTree.fromstring(function._repr_html_())
    cells = [cell.text for cell in table.iter("td")]
    assert cells == ["input", "x", "f32[2x3]", "output", "a<b", "f32[2x3]"]


def test_sessions() -> None:
    session = glowpy.InferenceSession(parser.parse_model(MODEL), backend="interpreter")
    assert repr(session) == "<InferenceSession of g on interpreter: x f32[n] -> y f32[n]>"
    table = ElementTree.fromstring(session._repr_html_())
    assert [cell.text for cell in table.iter("td")] == [
        *("input", "x", "f32[n]", "output", "y", "f32[n]"),
    ]


@pytest.mark.parametrize(
    ("shape", "shown"), [(None, "x f32 of any rank"), ([1, "n", None], "x f32[1 x n x ?]")]
)
def test_declarations(shape: list[int | str | None] | None, shown: str) -> None:
    assert str(ValueInfo("x", ElemKind.F32, shape)) == shown
