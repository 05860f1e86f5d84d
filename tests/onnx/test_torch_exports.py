"""Networks that PyTorch exports, with both of its exporters: one compilation agrees with onnxruntime at all extents.

Without torch these tests are skipped: docs/testing.md says how to run them.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.symbolic import Dim, symbol

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch exports with")
networks = pytest.importorskip("tests.onnx.torch_models")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RANGES = {"batch": (1, 4), "seq": (1, 24), "past": (0, 40), "h": (8, 64), "w": (8, 64)}
NUM_EXTENTS = 20

Axes = dict[int, str]


@dataclass(frozen=True)
class Export:
    """A network, what it is exported with, and its open dimensions.

    Attributes:
        network: Makes it.
        shapes: Of its inputs, with the names of open dimensions.
        outputs: Their names.
        integers: Inputs of so many different integers; all others are floats.
        multiples: What extents are multiples of.
    """

    network: Callable[[], Any]
    shapes: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    integers: Mapping[str, int] = field(default_factory=dict)
    multiples: Mapping[str, int] = field(default_factory=dict)


def _decoder(network: Callable[[], Any], heads: int) -> Export:
    caches = [f"past_{layer}_{part}" for layer in range(2) for part in ("key", "value")]
    shapes: dict[str, tuple[int | str, ...]] = {"ids": ("batch", "seq"), "mask": ("batch", "total")}
    shapes |= dict.fromkeys(caches, ("batch", heads, "past", 8))
    outputs = ("logits", *(name.replace("past", "present") for name in caches))
    return Export(network, shapes, outputs, {"ids": 50, "mask": 2})


WORDS = ("batch", "seq")
IMAGE: dict[str, tuple[int | str, ...]] = {"image": ("batch", 3, "h", "w")}
EXPORTS = {
    "bert": Export(
        lambda: networks.Bert(),
        {"ids": WORDS, "mask": WORDS, "types": WORDS},
        ("states", "pooled"),
        {"ids": 50, "mask": 2, "types": 2},
    ),
    "gpt": Export(lambda: networks.Gpt(), {"ids": WORDS}, ("logits",), {"ids": 50}),
    "gpt with a cache": _decoder(lambda: networks.Cached(), 4),
    "llama": _decoder(lambda: networks.Llama(), 2),
    "vit": Export(lambda: networks.Vit(), {"image": ("batch", 3, 32, 32)}, ("classes",)),
    "vit of any size": Export(lambda: networks.Vit(sizes=True), IMAGE, ("classes",)),
    "u-net": Export(lambda: networks.UNet(), IMAGE, ("y",)),
    "u-net, corners aligned": Export(lambda: networks.UNet("aligned"), IMAGE, ("y",)),
    "u-net, nearest": Export(lambda: networks.UNet("nearest"), IMAGE, ("y",)),
    "u-net of multiples": Export(
        lambda: networks.UNet("doubled"), IMAGE, ("y",), {}, {"h": 4, "w": 4}
    ),
}


def _example(
    export: Export, extents: Mapping[str, int], rng: np.random.Generator
) -> dict[str, Array]:
    """Inputs of these extents. Some of the first words of the first text are padding."""
    arrays: dict[str, Array] = {}
    for name, dims in export.shapes.items():
        shape = [extents[dim] if isinstance(dim, str) else dim for dim in dims]
        if name == "mask":
            arrays[name] = np.ones(shape, np.int64)
            if shape[0] > 1 and shape[1] > 2:
                arrays[name][0, :2] = 0
        elif name in export.integers:
            arrays[name] = rng.integers(0, export.integers[name], shape)
        else:
            arrays[name] = rng.standard_normal(shape).astype(np.float32)
    return arrays


def _with_total(extents: dict[str, int]) -> dict[str, int]:
    total = {"total": extents["past"] + extents["seq"]} if "past" in extents else {}
    return extents | total


def _symbols(export: Export) -> list[str]:
    names = {dim for dims in export.shapes.values() for dim in dims if isinstance(dim, str)}
    return sorted(names - {"total"})


def _extents(export: Export) -> Iterator[dict[str, int]]:
    """All lowest, all highest, all 1 or as near as may be, and others."""
    rng, names = random.Random(0), _symbols(export)
    steps = {name: export.multiples.get(name, 1) for name in names}
    bounds = [RANGES[name] for name in names]
    for sizes in (
        [low for low, _ in bounds],
        [high for _, high in bounds],
        [max(low, 1) for low, _ in bounds],
    ):
        yield _with_total(dict(zip(names, sizes, strict=True)))
    for _ in range(NUM_EXTENTS - 3):
        numbers = {name: rng.randint(*RANGES[name]) for name in names}
        yield _with_total({n: size - size % steps[n] for n, size in numbers.items()})


def _exported(export: Export, dynamo: bool, path: Path) -> Path:
    """The file that torch writes."""
    torch.manual_seed(0)
    extents = _with_total({"batch": 2, "seq": 5, "past": 7, "h": 40, "w": 48})
    arrays = _example(export, extents, np.random.default_rng(0))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    axes: dict[str, Axes] = {
        name: {axis: dim for axis, dim in enumerate(dims) if isinstance(dim, str)}
        for name, dims in export.shapes.items()
    }
    args, dynamic = _grouped(tensors), _grouped(axes)
    names = {"input_names": list(arrays), "output_names": list(export.outputs)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            how = (
                {
                    "dynamo": True,
                    "dynamic_shapes": dynamic,
                    "verbose": False,
                    "external_data": False,
                }
                if dynamo
                else {"dynamo": False, "dynamic_axes": axes, "opset_version": 17}
            )
            torch.onnx.export(export.network().eval(), args, str(path), **names, **how)
        finally:
            logging.disable(logging.NOTSET)
    return path


def _grouped(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the network is called with: caches come as a list of pairs."""
    caches = [value for name, value in values.items() if name.startswith("past")]
    pairs = list(zip(caches[::2], caches[1::2], strict=True))
    others = [value for name, value in values.items() if not name.startswith("past")]
    return (*others, pairs) if pairs else tuple(others)


@pytest.fixture(scope="module", params=[False, True], ids=["script", "dynamo"])
def dynamo(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module", params=EXPORTS)
def exported(
    request: pytest.FixtureRequest, dynamo: bool, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Export, Path]:
    export = EXPORTS[request.param]
    return export, _exported(export, dynamo, tmp_path_factory.mktemp("exported") / "net.onnx")


def _reference(path: Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def _dims(export: Export) -> dict[str, Dim]:
    dims: dict[str, Dim] = {}
    for name in _symbols(export):
        (low, high), step = RANGES[name], export.multiples.get(name, 1)
        dims[name] = (
            step * symbol(name, low // step, high // step) if step > 1 else symbol(name, low, high)
        )
    if "past" in dims:
        dims["total"] = dims["past"] + dims["seq"]
    return dims


def _assert_close(actual: Array, expected: Array, message: str) -> None:
    assert actual.shape == expected.shape, message
    scale = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * scale, err_msg=message)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_one_compilation_serves_all_extents(exported: tuple[Export, Path], backend: str) -> None:
    export, path = exported
    reference, rng = _reference(path), np.random.default_rng(0)
    network = glowpy.compile(glowpy.load(path, dims=_dims(export)), backend)
    for extents in _extents(export):
        feeds = _example(export, extents, rng)
        outputs = network(feeds)
        for name, expected in reference(feeds).items():
            _assert_close(outputs[name], expected, f"{name} {extents}")


def test_a_session_compiles_a_few_times(
    exported: tuple[Export, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    export, path = exported
    reference, rng = _reference(path), np.random.default_rng(0)
    session = glowpy.InferenceSession(path, backend="interpreter")
    functions: set[int] = set()
    compiled = type(session)._compiled

    def count(self: glowpy.InferenceSession, *args: Any) -> Any:
        function = compiled(self, *args)
        functions.add(id(function))
        return function

    monkeypatch.setattr(type(session), "_compiled", count)
    for extents in reversed(list(_extents(export))):
        feeds = _example(export, extents, rng)
        for output, expected in zip(
            session.run(None, feeds), reference(feeds).values(), strict=True
        ):
            _assert_close(output, expected, str(extents))
    assert len(functions) <= 6


def test_floats_are_what_the_ports_of_exports_have(exported: tuple[Export, Path]) -> None:
    """All that is open is open in the file, so that these tests test something."""
    export, path = exported
    graph = onnx.load(path).graph
    for info in graph.input:
        type = info.type.tensor_type
        assert (type.elem_type == TensorProto.INT64) == (info.name in export.integers)
        dims = [dim.dim_param or dim.dim_value for dim in type.shape.dim]
        assert dims == list(export.shapes[info.name])
