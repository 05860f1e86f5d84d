"""Damaged models: whatever a few changed bytes do, the answer is a module or a UserError, soon."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import onnx
import onnx.backend.test
import pytest

import glowpy
from glowpy.importer.onnx.opening import open_onnx
from tests.onnx.host_models import host_models
from tools import zoo

DATA = Path(onnx.backend.test.__file__).parent / "data"
KINDS = ("simple", "pytorch-converted", "pytorch-operator")
FOLDERS = {path.name: path for kind in KINDS for path in sorted((DATA / kind).iterdir())}
MODELS = {name: FOLDERS[name] / "model.onnx" for name in sorted(FOLDERS)[::6]} | {
    name: zoo.packaged(name) for name in ("squeezenet", "shufflenet")
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_damaged_model_is_refused_or_imported(name: str) -> None:
    content, rng = MODELS[name].read_bytes(), random.Random(name)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 3, 10))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if rng.random() < 0.2:
            del damaged[rng.randrange(len(damaged)) :]
        with suppress(glowpy.UserError):
            glowpy.load(bytes(damaged))


def test_damaged_nodes_are_refused_or_imported() -> None:
    """Inputs, outputs, operators and attributes exchanged between nodes of one network."""
    rng = random.Random(0)
    for _ in range(60):
        model = onnx.load(zoo.packaged("shufflenet"))
        nodes = model.graph.node
        for _ in range(rng.choice((1, 2, 5))):
            one, other = rng.choice(nodes), rng.choice(nodes)
            match rng.randrange(5):
                case 0 if one.input and other.input:
                    one.input[rng.randrange(len(one.input))] = rng.choice(list(other.input))
                case 1:
                    one.op_type = other.op_type
                case 2:
                    del one.attribute[:]
                    one.attribute.extend(other.attribute)
                case 3 if one.attribute:
                    attribute = rng.choice(list(one.attribute))
                    for index in range(len(attribute.ints)):
                        attribute.ints[index] = rng.choice((-1, 0, 1, 7, 1 << 40, -(1 << 63)))
                    attribute.i = rng.choice((-1, 0, 3, (1 << 63) - 1))
                case _:
                    del one.input[rng.randrange(len(one.input) + 1) :]
        with suppress(glowpy.UserError):
            glowpy.load(model)


def test_damaged_models_of_strings_are_refused_or_opened() -> None:
    """What a session computes itself: ONNX's inference of types must not get to see what would crash it."""
    contents = [model.SerializeToString() for model in host_models()]
    rng = random.Random(0)
    for _ in range(400):
        damaged = bytearray(rng.choice(contents))
        for _ in range(rng.choice((1, 2, 4))):
            place = rng.randrange(len(damaged))
            match rng.randrange(3):
                case 0:
                    damaged[place] = rng.randrange(256)
                case 1:
                    del damaged[place : place + rng.randint(1, 8)]
                case _:
                    other = rng.choice(contents)
                    start = rng.randrange(len(other))
                    damaged[place:place] = other[start : start + rng.randint(1, 30)]
        with suppress(glowpy.UserError):
            open_onnx(bytes(damaged))
