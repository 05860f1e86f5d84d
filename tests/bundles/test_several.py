"""Bundles of several networks: one area of constants for all, areas large enough for each."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, Module, bundle, load_bundle, parse_type
from glowpy.bundling.make import random_inputs
from glowpy.bundling.options import Emit
from glowpy.bundling.write import Bundle
from glowpy.core.tensor import Array
from glowpy.ir.plan import ALIGNMENT

SHARED = np.arange(7, dtype=np.float32) - 3
BYTES = np.array([5, 250, 9], np.uint8)


def tiny() -> Module:
    """One element in, one out, and a constant of three bytes."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("u8[3]"))
    sum = f.create_add("sum", x, module.create_constant("bytes", BYTES))
    f.create_save("save", sum, module.create_placeholder("y", sum.type))
    return module


def wide() -> Module:
    """Large inputs and outputs, and no activations to speak of."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[50x7]"))
    sum = f.create_mul("product", x, module.create_constant("shared", SHARED))
    f.create_save("save", sum, module.create_placeholder("y", sum.result.type))
    return module


def deep() -> Module:
    """A small input, a large buffer in the middle, and a constant that `wide` has under another name."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[7]"))
    moved = f.create_add("moved", x, module.create_constant("same", SHARED))
    scale = module.create_constant("scale", np.linspace(0, 1, 90, dtype=np.float32)[:, np.newaxis])
    shares = f.create_softmax("shares", f.create_mul("scaled", moved, scale), 0)
    sum = f.create_reduce_max("top", shares, (0,))
    f.create_save("save", sum, module.create_placeholder("y", sum.result.type))
    return module


NETWORKS = {"tiny": tiny, "wide": wide, "deep": deep}


def make(order: tuple[str, ...], folder: Path, emit: Emit = "llvm") -> Bundle:
    models = {name: NETWORKS[name]() for name in order}
    return bundle(models, folder, BundleOptions("net", emit=emit, guard=True))


@pytest.mark.skipif(sys.platform != "linux", reason="shared bundles are linked for Linux")
@pytest.mark.parametrize("order", list(permutations(NETWORKS))[::2], ids=str)
def test_each_network_computes_what_it_does_alone(order: tuple[str, ...], tmp_path: Path) -> None:
    """The guard notices one whose area is too small for it."""
    make(order, tmp_path, "shared")
    loaded = load_bundle(tmp_path)
    for name in (*order, *order):
        alone = glowpy.compile(NETWORKS[name](), "interpreter")
        inputs = random_inputs(alone.input_ports, 3)
        outputs, expected = loaded.networks[f"net_{name}"](inputs), alone(inputs)
        np.testing.assert_allclose(outputs["y"], expected["y"], rtol=1e-5, err_msg=name)


def test_areas_are_those_of_the_largest_network(tmp_path: Path) -> None:
    sizes = {}
    for name in NETWORKS:
        folder = tmp_path / name
        make((name,), folder)
        sizes[name] = macros(folder)
    assert sizes["wide"]["MUTABLE"] > sizes["deep"]["MUTABLE"] > 0
    assert sizes["deep"]["ACTIVATIONS"] > sizes["wide"]["ACTIVATIONS"] > 0
    for order in list(permutations(NETWORKS))[1::4]:
        folder = tmp_path / "-".join(order)
        make(order, folder)
        combined = macros(folder)
        for area in ("MUTABLE", "ACTIVATIONS"):
            assert combined[area] == max(size[area] for size in sizes.values()), (order, area)


def macros(folder: Path) -> dict[str, int]:
    """The sizes of the areas in the header; those in the manifest are the same."""
    header = (folder / "net.h").read_text(encoding="utf-8")
    areas: dict[str, int] = json.loads((folder / "net.json").read_text(encoding="utf-8"))["areas"]
    sizes = {}
    for area in ("CONSTANTS", "MUTABLE", "ACTIVATIONS"):
        (size,) = re.findall(rf"#define NET_{area}_SIZE (\d+)", header)
        sizes[area] = int(size)
        assert areas[area.lower()] == int(size)
    return sizes


def test_constants_are_aligned_listed_and_stored_once(tmp_path: Path) -> None:
    make(("tiny", "wide", "deep"), tmp_path)
    weights = np.fromfile(tmp_path / "net.weights.bin", np.uint8)
    listing = (tmp_path / "net.weights.txt").read_text(encoding="utf-8")
    head, _, *lines = listing.splitlines()
    assert head.startswith(f"# {weights.size} bytes, CRC-32 ")
    places = []
    for line in lines:
        place, _, first = line.partition(": ")
        offset, size, type, name = place.split()
        array = stored(weights, int(offset), type)
        assert array.nbytes == int(size)
        assert [float(item) for item in first.split()] == array.reshape(-1)[:6].tolist()
        places.append((int(offset), int(size), name))
    assert [offset % ALIGNMENT for offset, _, _ in places] == [0] * len(places)
    assert all(start + size <= end for (start, size, _), (end, _, _) in pairwise(places))
    arrays = [stored(weights, offset, "u8[3]") for offset, size, _ in places if size == 3]
    assert [array.tolist() for array in arrays] == [BYTES.tolist()]
    assert weights.tobytes().count(SHARED.tobytes()) == 1


def stored(weights: Array, offset: int, spelled: str) -> Array:
    """A constant as it lies in the weights."""
    type = parse_type(spelled)
    return weights[offset : offset + type.room].view(type.kind.dtype).reshape(type.extents)
