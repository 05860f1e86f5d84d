"""Models that take and give stored integers: which types they have then, and that nothing else is different."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, Module, UserError, bundle, integer_ports, quantization
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.quantization.convert import integers_of
from tests.bundles.networks import glow
from tests.unit.quantization.digits import mlp

HEAD = "module {\n  placeholder %x : f32[2x3x4]\n  placeholder %y : f32[2x4x3]\n"
BODY = """
    %turned = transpose(%x) {shuffle=[0,2,1]} : f32[2x4x3]
    %stored = quantize(%turned) : u8[2x4x3](s=0.5,o=7)
    %numbers = dequantize(%stored) : f32[2x4x3]
    %sum = add(%numbers, %numbers) : f32[2x4x3]
    %rounded = quantize(%sum) : i8[2x4x3](s=2.0,o=-3)
    %result = dequantize(%rounded) : f32[2x4x3]
    save(%result, %y)
"""


def model(body: str = BODY, head: str = HEAD) -> Module:
    return parse_module(f"{head}  function @main {{\n{body}  }}\n}}\n")


def types(module: Module) -> list[str]:
    return [str(port.type) for port in module.placeholders]


def test_types_are_those_that_are_quantized() -> None:
    module = model()
    assert types(integer_ports(module)) == ["u8[2x3x4](s=0.5,o=7)", "i8[2x4x3](s=2.0,o=-3)"]
    assert types(module) == ["f32[2x3x4]", "f32[2x4x3]"]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_integers_are_the_same(backend: str) -> None:
    module = model()
    stored = np.random.default_rng(0).integers(0, 256, (2, 3, 4)).astype(np.uint8)
    numbers = (stored.astype(np.float32) - 7) * np.float32(0.5)
    expected = glowpy.compile(module, backend)({"x": numbers})["y"]
    result = glowpy.compile(integer_ports(module), backend)({"x": stored})["y"]
    assert result.dtype == np.int8
    np.testing.assert_array_equal((result.astype(np.float32) + 3) * 2, expected)


@pytest.mark.parametrize("form", ["glow", "onnx"])
def test_a_file_has_the_ports_of_the_network_that_it_was_exported_from(
    form: str, tmp_path: Path
) -> None:
    """In ONNX files a product is one of floats, between conversions."""
    sample = {"x": np.random.default_rng(0).normal(size=(100, 8, 8, 1)).astype(np.float32)}
    profile = quantization.profile(mlp(100), [sample])
    module = quantization.quantize(mlp(100), profile)
    if form == "onnx":
        glowpy.save(module, tmp_path / "net.onnx")
        module = glowpy.load(tmp_path / "net.onnx")
    ports = integer_ports(module)
    assert [port.type.kind for port in ports.placeholders] == [ElemKind.U8, ElemKind.I32]
    x, y = (port.type for port in ports.placeholders)
    sums = glowpy.compile(ports)({"x": integers_of(x, sample["x"])})["y"]
    numbers = glowpy.compile(module)(sample)["y"]
    steps = np.array(parameters(y).scales, np.float32)
    np.testing.assert_array_equal(sums.astype(np.float32) * steps, numbers)


def test_nothing_is_converted_at_the_ports(tmp_path: Path) -> None:
    bundle(model(), tmp_path, BundleOptions("net", integer_ports=True))
    text = (tmp_path / "net.ir").read_text()
    assert "div" not in text
    assert text.count("saturate") == 1
    header = (tmp_path / "net.h").read_text()
    assert "#define NET_X_ZERO 7\n" in header
    assert "#define NET_Y_SCALE 2.0f\n" in header


def test_outputs_may_be_moved_and_an_input_an_output() -> None:
    moved = "    %t = transpose(%result) {shuffle=[0,2,1]} : f32[2x3x4]\n    save(%t, %z)\n"
    head = HEAD + "  placeholder %z : f32[2x3x4]\n"
    ports = integer_ports(model(BODY + moved, head))
    assert types(ports)[2] == "i8[2x3x4](s=2.0,o=-3)"
    result = glowpy.compile(ports, "interpreter")({"x": np.full((2, 3, 4), 9, np.uint8)})
    np.testing.assert_array_equal(result["z"], result["y"].transpose(0, 2, 1))


def test_sums_have_a_scale_for_each_channel() -> None:
    body = "    %p = quantize(%x) : i32[2x3x4](s=[0.5,0.25,1.0],o=[0,0,0],axis=1)\n"
    body += "    %n = dequantize(%p) : f32[2x3x4]\n    save(%n, %y)\n"
    ports = integer_ports(model(body, HEAD.replace("2x4x3", "2x3x4")))
    assert [parameters(port.type).axis for port in ports.placeholders] == [1, 1]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("    %z = relu(%x) : f32[2x3x4]\n    save(%z, %w)\n", "x"),
        (
            "    %z = quantize(%x) : u8[2x3x4](s=0.25,o=7)\n    %o = dequantize(%z) : f32[2x3x4]\n"
            "    save(%o, %w)\n",
            "x",
        ),
        ("    %z = add(%numbers, %result) : f32[2x4x3]\n    save(%z, %v)\n", "v"),
        ("    save(%x, %w)\n", "x"),
    ],
)  # fmt: skip
def test_floats_that_are_needed_are_named(more: str, name: str) -> None:
    head = HEAD + "  placeholder %v : f32[2x4x3]\n  placeholder %w : f32[2x3x4]\n"
    with pytest.raises(
        UserError, match=rf"integer ports: expected '{name}' to be quantized"
    ) as error:
        integer_ports(model(BODY + more, head))
    assert "quantize the model first" in error.value.diagnostics[0].note


def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "net.glow").write_text(print_module(model()))
    out = tmp_path / "out"
    status, _, errors = glow("bundle", tmp_path / "net.glow", "-o", out, "--integer-ports")
    assert (status, errors) == (0, "")
    assert "NET_X_SCALE" in (out / "net.h").read_text()
    assert glow("bundle", tmp_path / "net.glow", "--check", out)[0] == 0
