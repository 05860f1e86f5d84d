"""Inputs and outputs with channels last: what becomes of the graph, the header, and the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, Module, UserError, bundle, channels_last
from glowpy.core.tensor import Array
from glowpy.graph.printer import print_module
from tests.bundles.networks import glow


def camera() -> Module:
    """A convolution of an image, as an importer writes it: transpositions around it, channels first outside."""
    module = Module()
    rng = np.random.default_rng(3)
    x = module.create_placeholder("the image", glowpy.parse_type("f32[1x3x6x5]"))
    f = module.create_function("main")
    filter = module.create_constant("filter", rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32))
    bias = module.create_constant("bias", np.ones(4, np.float32))
    conv = f.create_convolution(
        "conv", f.create_transpose("nhwc", x, (0, 2, 3, 1)), filter, bias,
        (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1,
    )  # fmt: skip
    y = f.create_transpose("nchw", conv, (0, 3, 1, 2))
    f.create_save("save", y, module.create_placeholder("y", y.result.type))
    return module


def image() -> Array:
    return np.random.default_rng(0).standard_normal((1, 3, 6, 5)).astype(np.float32)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_results_are_equal_but_for_their_layout(backend: str) -> None:
    expected = glowpy.compile(camera(), backend)({"the image": image()})["y"]
    turned = glowpy.compile(channels_last(camera(), ["the image", "y"]), backend)
    result = turned({"the image": np.ascontiguousarray(image().transpose(0, 2, 3, 1))})["y"]
    np.testing.assert_array_equal(result, expected.transpose(0, 2, 3, 1))


def test_both_a_result_and_an_input() -> None:
    """What a function reads and writes is turned where it does either."""
    module = Module()
    x = module.create_placeholder("x", glowpy.parse_type("f32[2x3x4]"))
    f = module.create_function("main")
    f.create_save("save", f.create_transpose("t", f.create_relu("relu", x), (0, 2, 1)),
                  module.create_placeholder("y", glowpy.parse_type("f32[2x4x3]")))  # fmt: skip
    f.create_save("copy", x, module.create_placeholder("z", glowpy.parse_type("f32[2x3x4]")))
    elements = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    expected = glowpy.compile(module, "interpreter")({"x": elements})
    turned = glowpy.compile(channels_last(module, ["z", "x", "z"]), "interpreter")
    results = turned({"x": elements.transpose(0, 2, 1).copy()})
    np.testing.assert_array_equal(results["y"], expected["y"])
    np.testing.assert_array_equal(results["z"], expected["z"].transpose(0, 2, 1))


def test_volumes() -> None:
    module = Module()
    x = module.create_placeholder("x", glowpy.parse_type("f32[1x2x3x4x5]"))
    f = module.create_function("main")
    f.create_save("save", f.create_relu("relu", x), module.create_placeholder("y", x.type))
    assert str(channels_last(module, ["x"]).placeholders[0].type) == "f32[1x3x4x5x2]"


def test_a_bundle_has_no_transposition(tmp_path: Path) -> None:
    bundle(camera(), tmp_path / "model", BundleOptions("net"))
    assert "transpose" in (tmp_path / "model" / "net.ir").read_text()
    names = ("the image", "y")
    bundle(camera(), tmp_path / "last", BundleOptions("net", channels_last=names))
    assert "transpose" not in (tmp_path / "last" / "net.ir").read_text()
    header = (tmp_path / "last" / "net.h").read_text()
    assert '#define NET_THE_IMAGE_LAYOUT "NHWC"\n' in header
    assert "[1][6][5][3]" in header
    assert "_LAYOUT" not in (tmp_path / "model" / "net.h").read_text()


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "camera.glow"
    model = Module()
    x = model.create_placeholder("x", glowpy.parse_type("f32[1x3x4x4]"))
    f = model.create_function("main")
    f.create_save("save", f.create_relu("relu", x), model.create_placeholder("y", x.type))
    path.write_text(print_module(model))
    out = tmp_path / "out"
    status, _, errors = glow("bundle", path, "-o", out, "--layout", "x=nhwc")
    assert (status, errors) == (0, "")
    assert '#define CAMERA_X_LAYOUT "NHWC"\n' in (out / "camera.h").read_text()
    assert glow("bundle", path, "--check", out)[0] == 0
    for layout, message in (
        ("x=nchw", "--layout: expected NAME=nhwc, got 'x=nchw'"),
        ("nhwc", "--layout: expected NAME=nhwc, got 'nhwc'"),
        ("z=nhwc", "expected one of the inputs and outputs x, y, got 'z'"),
    ):
        status, _, errors = glow("bundle", path, "-o", tmp_path / "other", "--layout", layout)
        assert status == 1
        assert message in errors
        assert not (tmp_path / "other").exists()


def test_a_layout_of_one_of_several_models(tmp_path: Path) -> None:
    other = Module()
    x = other.create_placeholder("x", glowpy.parse_type("f32[4]"))
    f = other.create_function("main")
    f.create_save("save", f.create_relu("relu", x), other.create_placeholder("z", x.type))
    models = {"a": camera(), "b": other}
    bundle(models, tmp_path, BundleOptions("net", channels_last=("the image",)))
    assert "NET_A_THE_IMAGE_LAYOUT" in (tmp_path / "net.h").read_text()
    with pytest.raises(UserError, match="inputs and outputs the image, y, x, z, got 'w'"):
        bundle(models, tmp_path, BundleOptions("net", channels_last=("w",)))


def test_ranks_without_channels() -> None:
    module = Module()
    module.create_placeholder("x", glowpy.parse_type("f32[3x4]"))
    with pytest.raises(
        UserError, match=r"layout of 'x': expected a tensor of rank 3 to 5, got f32\[3x4\]"
    ):
        channels_last(module, ["x"])
