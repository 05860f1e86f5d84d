"""Bundles of networks that have almost nothing: no inputs, no constants, no elements."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from glowpy import BundleOptions, Module, bundle, parse_type
from glowpy.bundling.verify import verify_bundle
from glowpy.llvm.status import Status
from glowpy.runtime.host_memory import aligned_array
from tests.bundles.networks import need


def constant_output() -> Module:
    """A network without inputs: what it stores is a constant."""
    module = Module()
    f = module.create_function("main")
    table = module.create_constant("table", np.linspace(1, 2, 24, dtype=np.float32))
    f.create_save("save", table, module.create_placeholder("y", table.type))
    return module


def no_elements() -> Module:
    """A network whose input and output have no elements."""
    module = Module()
    x, y = (module.create_placeholder(name, parse_type("f32[0x3]")) for name in "xy")
    f = module.create_function("main")
    f.create_save("save", f.create_relu("relu", x), y)
    return module


def in_place() -> Module:
    """A network whose only placeholder is read and written."""
    module = Module()
    state = module.create_placeholder("state", parse_type("f32[5]"))
    f = module.create_function("main")
    f.create_save("save", f.create_relu("relu", state), state)
    return module


def unread_input() -> Module:
    """A network with an input that the optimizer finds no use for."""
    module = Module()
    a, b, y = (module.create_placeholder(name, parse_type("f32[2x3]")) for name in "aby")
    f = module.create_function("main")
    always = module.create_constant("always", np.ones((2, 3), np.bool_))
    f.create_save("save", f.create_exp("exp", f.create_select("chosen", always, a, b)), y)
    return module


@pytest.mark.parametrize("make", [constant_output, no_elements, in_place, unread_input])
def test_programs_of_odd_networks(make: object, tmp_path: Path) -> None:
    """The self-test runs the weights inside the object, which the optimizer must not take for what it sees."""
    need("cc")
    options = BundleOptions("net", weights="embedded", selftest=1, guard=True, api="dynamic")
    bundle(make(), tmp_path, options)  # type: ignore[operator]
    verification = verify_bundle(tmp_path)
    assert verification.passed
    assert verification.selftest


def negated() -> Module:
    """A network with neither constants nor activations."""
    module = Module()
    x, y = (module.create_placeholder(name, parse_type("f32[8]")) for name in "xy")
    f = module.create_function("main")
    f.create_save("save", f.create_neg("neg", x), y)
    return module


@pytest.mark.skipif(sys.platform != "linux", reason="shared bundles are linked for Linux")
@pytest.mark.parametrize("guard", [True, False])
def test_areas_of_a_network_without_activations(guard: bool, tmp_path: Path) -> None:
    """An area without a byte may be NULL; the guard makes one of nothing but canaries."""
    result = bundle(negated(), tmp_path, BundleOptions("net", emit="shared", guard=guard))
    library = ctypes.CDLL(str(tmp_path / next(file for file in result.files if ".so" in file)))
    sizes = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))["areas"]
    assert sizes["activations"] == (128 if guard else 0)
    mutable, arena = aligned_array(128), aligned_array(256)

    def run(mutable: int | None, arena: int | None) -> int:
        return int(library.net(None, ctypes.c_void_p(mutable), ctypes.c_void_p(arena)))

    assert run(mutable.ctypes.data, arena.ctypes.data) == Status.OK
    odd = arena.ctypes.data + 32
    assert run(mutable.ctypes.data, odd) == (Status.MISALIGNED if guard else Status.OK)
    assert run(mutable.ctypes.data, None) == (Status.MISSING_AREA if guard else Status.OK)
    assert run(None, arena.ctypes.data) == Status.MISSING_AREA
