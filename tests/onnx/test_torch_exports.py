"""Networks that PyTorch exports, with both of its exporters: they agree with PyTorch, at all extents of what is open.

Without torch these tests are skipped: docs/testing.md says how to run them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import glowpy
from glowpy.core.tensor import Array
from glowpy.session.programs import Programs
from glowpy.support.symbolic import Dim, symbol

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch exports with")
catalogue = pytest.importorskip("tools.exports.catalogue")
transformers = pytest.importorskip("tools.exports.transformers")

pytestmark = pytest.mark.timeout(600)

NUM_EXTENTS = 20
EXPORTS: dict[str, Any] = catalogue.EXPORTS
BRIEF = ("swin", "detector")
"""What the slower of the exporters exports in tests that are not slow."""

_SIZES = {"batch": (1, 4), "h": (8, 64), "w": (8, 64)}
OPEN: dict[str, Any] = {
    **{name: EXPORTS[name] for name in ("bert", "distilbert", "t5encoder", "cliptext")},
    "gpt": replace(EXPORTS["cliptext"], network=transformers.Gpt, outputs=("logits",)),
    **{
        name: EXPORTS[name]
        for name in ("gpt2", "llama", "t5decoder", "lstm", "deeplab", "generator", "sound")
    },
    "vit of any size": replace(
        EXPORTS["vit"],
        small=catalogue.Size({"sizes": True}, {"batch": 2, "h": 40, "w": 48}),
        free=_SIZES,
    ),
    **{
        f"unet, {mode}": replace(
            EXPORTS["unet"],
            small=catalogue.Size({"mode": mode}, {"batch": 2, "h": 40, "w": 48}),
            free=_SIZES,
        )
        for mode in ("bilinear", "aligned", "nearest", "doubled")
    },
}
MULTIPLES = {"unet, doubled": {"h": 4, "w": 4}}


@dataclass(frozen=True)
class File:
    """What an exporter wrote of a network."""

    name: str
    export: Any
    network: Any
    path: Path

    @property
    def multiples(self) -> Mapping[str, int]:
        return MULTIPLES.get(self.name, {})

    @property
    def dims(self) -> dict[str, Dim]:
        """Its open dimensions."""
        dims: dict[str, Dim] = {}
        for name, (low, high) in self.export.free.items():
            step = self.multiples.get(name, 1)
            part = symbol(name, low // step, high // step) if step > 1 else symbol(name, low, high)
            dims[name] = step * part
        if "total" in self.export.shapes.get("mask", ()):
            dims["total"] = dims["past"] + dims["seq"]
        return dims

    def arrays(self, extents: Mapping[str, int]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Inputs of these extents, and what PyTorch makes of them."""
        tensors = catalogue.inputs(self.export, extents, seed=sum(extents.values()))
        results = catalogue.outputs(self.network, tensors)
        feeds = {name: tensor.numpy() for name, tensor in tensors.items()}
        return feeds, dict(zip(self.export.outputs, results, strict=True))

    def extents(self) -> Iterator[dict[str, int]]:
        """As exported; all lowest, all highest, all 1 or as near as may be; and others."""
        rng, free = random.Random(0), self.export.free
        exported = dict(self.export.small.extents)
        yield exported
        for choose in (min, max, lambda bounds: max(bounds[0], 1)):
            yield exported | {name: choose(bounds) for name, bounds in free.items()}
        for _ in range(NUM_EXTENTS - 4):
            sizes = {name: rng.randint(*bounds) for name, bounds in free.items()}
            steps = self.multiples
            yield exported | {n: size - size % steps.get(n, 1) for n, size in sizes.items()}


def _file(name: str, export: Any, folder: Path, *, dynamo: bool) -> File:
    network = catalogue.made(export, export.small)
    tensors = catalogue.inputs(export, export.small.extents)
    path = catalogue.exported(export, network, tensors, folder / "net.onnx", dynamo=dynamo)
    return File(name, export, network, path)


def _params(names: Mapping[str, Any], brief: tuple[str, ...], *, scripted: bool) -> list[Any]:
    """Each network with each exporter. All that `scripted` is true for and what is brief is not slow."""
    return [
        pytest.param(
            (name, dynamo),
            id=f"{name}-{'dynamo' if dynamo else 'script'}",
            marks=[pytest.mark.slow] * (name not in brief if dynamo else not scripted),
        )
        for name in names
        for dynamo in (False, True)
    ]


@pytest.fixture(scope="module", params=_params(EXPORTS, BRIEF, scripted=True))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> File:
    name, dynamo = request.param
    return _file(name, EXPORTS[name], tmp_path_factory.mktemp("exported"), dynamo=dynamo)


@pytest.fixture(scope="module", params=_params(OPEN, (), scripted=False))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> File:
    name, dynamo = request.param
    return _file(name, OPEN[name], tmp_path_factory.mktemp("exported"), dynamo=dynamo)


def _assert_close(actual: Mapping[str, Array], expected: Mapping[str, Array], message: str) -> None:
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].shape == array.shape, f"{name} {message}"
        atol = 1e-4 * float(np.abs(array).max(initial=0.0))
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=atol, err_msg=message)


def test_open_dimensions_stay_open_and_outputs_are_torchs(exported: File) -> None:
    network = glowpy.compile(glowpy.load(exported.path, dims=exported.dims), "interpreter")
    for extents in list(exported.extents())[: 3 if exported.export.free else 1]:
        feeds, expected = exported.arrays(extents)
        _assert_close(network(feeds), expected, str(extents))


def test_a_session_gives_what_torch_gives(exported: File) -> None:
    session = glowpy.InferenceSession(exported.path)
    for extents in list(exported.extents())[: 2 if exported.export.free else 1]:
        feeds, expected = exported.arrays(extents)
        outputs = dict(zip(exported.export.outputs, session.run(None, feeds), strict=True))
        _assert_close(outputs, expected, str(extents))


def test_what_is_free_is_open_in_the_file(exported: File) -> None:
    """So that these tests test something."""
    export, graph = exported.export, onnx.load(exported.path).graph
    assert [info.name for info in graph.input] == list(export.shapes)
    for info in graph.input:
        type = info.type.tensor_type
        assert (type.elem_type == TensorProto.INT64) == (info.name in export.integers)
        dims = [dim.dim_param or dim.dim_value for dim in type.shape.dim]
        small = export.small.extents
        fixed = [
            d if not isinstance(d, str) or export.is_open(d) else small[d]
            for d in export.shapes[info.name]
        ]
        assert dims == fixed


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_one_compilation_serves_all_extents(opened: File, backend: str) -> None:
    network = glowpy.compile(glowpy.load(opened.path, dims=opened.dims), backend)
    for extents in opened.extents():
        feeds, expected = opened.arrays(extents)
        _assert_close(network(feeds), expected, str(extents))


def test_a_session_compiles_a_few_times(opened: File, monkeypatch: pytest.MonkeyPatch) -> None:
    session = glowpy.InferenceSession(opened.path, backend="interpreter")
    functions: set[int] = set()
    compiled = Programs._compiled

    def count(self: Programs, *args: Any) -> Any:
        function = compiled(self, *args)
        functions.add(id(function))
        return function

    monkeypatch.setattr(Programs, "_compiled", count)
    for extents in reversed(list(opened.extents())):
        feeds, expected = opened.arrays(extents)
        outputs = dict(zip(opened.export.outputs, session.run(None, feeds), strict=True))
        _assert_close(outputs, expected, str(extents))
    assert len(functions) <= 6
