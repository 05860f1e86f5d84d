"""The networks that are exported: their inputs, what of them is open, and how small and how large they are.

Small ones are for tests, large ones have the widths that people use, for measurements.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxscript
import torch
from torch import Tensor, nn
from torch.onnx import symbolic_helper

from tools.exports import convolutional, sound, text, transformers, windows

__all__ = ["EXPORTS", "TIMED", "Export", "Size", "exported", "inputs", "made", "outputs"]

Extents = Mapping[str, int]


@dataclass(frozen=True)
class Size:
    """How large a network is: parameters of its class, and extents of its inputs."""

    parameters: Mapping[str, Any]
    extents: Extents


@dataclass(frozen=True)
class Export:
    """A network and what it is exported with.

    Attributes:
        network: Its class.
        shapes: The shapes of its inputs, with names of extents.
        outputs: Their names.
        small: The defaults of its parameters are small, too.
        large: As people use it.
        free: Bounds of the extents that stay open.
        integers: Inputs of so many different integers; all others are floats.
    """

    network: Callable[..., nn.Module]
    shapes: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    small: Size
    large: Size
    free: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    integers: Mapping[str, int] = field(default_factory=dict)

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """Open dimensions of each input."""
        return {
            name: {a: d for a, d in enumerate(dims) if isinstance(d, str) and self.is_open(d)}
            for name, dims in self.shapes.items()
        }

    def is_open(self, dim: str) -> bool:
        """Whether `dim` is an extent, or a total of such, that is open."""
        return dim in self.free or (dim == "total" and "past" in self.free)


def made(export: Export, size: Size) -> nn.Module:
    """The network with random weights, and with normalizations that change something."""
    torch.manual_seed(0)
    network = export.network(**size.parameters).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return network


def inputs(export: Export, extents: Extents, seed: int = 0) -> dict[str, Tensor]:
    """Random inputs. A mask hides the last words of the second text, or the first ones if they are cached."""
    rng = np.random.default_rng(seed)
    if "past" in extents:
        extents = {**extents, "total": extents["past"] + extents["seq"]}
    arrays = {}
    for name, dims in export.shapes.items():
        shape = [extents[dim] if isinstance(dim, str) else dim for dim in dims]
        if name == "mask":
            array = np.ones(shape, np.int64)
            hidden = slice(0, 2) if "total" in dims else slice(max(shape[1] - 2, 1), None)
            array[1:2, hidden] = 0
        elif name in export.integers:
            array = rng.integers(0, export.integers[name], shape)
        else:
            array = rng.standard_normal(shape).astype(np.float32)
        arrays[name] = torch.from_numpy(array)
    return arrays


def grouped(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the positional arguments of a call of the network: caches come as a list of pairs."""
    caches = [value for name, value in values.items() if name.startswith("past")]
    pairs = list(zip(caches[::2], caches[1::2], strict=True))
    single_values = [value for name, value in values.items() if not name.startswith("past")]
    return (*single_values, pairs) if pairs else tuple(single_values)


def outputs(network: nn.Module, tensors: Mapping[str, Tensor]) -> list[Any]:
    """Runs the network in PyTorch, and returns arrays."""
    with torch.no_grad():
        results = network(*grouped(tensors))
    return [r.numpy() for r in (results if isinstance(results, list | tuple) else [results])]


def exported(
    export: Export, network: nn.Module, tensors: Mapping[str, Tensor], path: Path, *, dynamo: bool
) -> Path:
    """The file that one of PyTorch's exporters writes."""
    how: dict[str, Any] = {"input_names": list(tensors), "output_names": list(export.outputs)}
    if dynamo:
        how |= {"dynamic_shapes": grouped(export.axes), "verbose": False, "external_data": False}
        how["custom_translation_table"] = {
            torch.ops.glowpy_exports.suppressed.default: _suppressed_in_onnx
        }
    else:
        how |= {"dynamic_axes": export.axes, "opset_version": 17}
        torch.onnx.register_custom_op_symbolic("glowpy_exports::suppressed", _suppression, 17)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(network, grouped(tensors), str(path), dynamo=dynamo, **how)
        finally:
            logging.disable(logging.NOTSET)
    return path


@symbolic_helper.parse_args("v", "v", "i", "f", "f")
def _suppression(g: Any, boxes: Any, scores: Any, most: int, overlap: float, score: float) -> Any:
    """NonMaxSuppression as the exporter of TorchScript writes it."""
    limits = [torch.tensor([most]), torch.tensor([overlap]), torch.tensor([score])]
    constants = [g.op("Constant", value_t=limit) for limit in limits]
    return g.op("NonMaxSuppression", boxes, scores, *constants)


def _suppressed_in_onnx(boxes: Any, scores: Any, most: int, overlap: float, score: float) -> Any:
    """NonMaxSuppression as the other exporter writes it."""
    op: Any = onnxscript.opset18
    return op.NonMaxSuppression(
        boxes,
        scores,
        op.Constant(value_ints=[most]),
        op.Constant(value_floats=[overlap]),
        op.Constant(value_floats=[score]),
    )


def _image(*, batch: str | int = "batch") -> dict[str, tuple[int | str, ...]]:
    return {"image": (batch, 3, "h", "w")}


def _classifier(
    network: Callable[..., nn.Module],
    large: Mapping[str, Any],
    small: Mapping[str, Any] | None = None,
) -> Export:
    """One for images of a fixed size, in batches of any."""
    return Export(
        network,
        _image(),
        ("classes",),
        Size(small or {}, {"batch": 2, "h": 32, "w": 32}),
        Size({"classes": 1000, **large}, {"batch": 1, "h": 224, "w": 224}),
        {"batch": (1, 4)},
    )


_PIXELS = {"batch": (1, 2), "h": (8, 64), "w": (8, 64)}
_WORDS: tuple[int | str, ...] = ("batch", "seq")
_TEXTS = {"batch": (1, 4), "seq": (1, 24)}
_BASE = {"width": 768, "heads": 12, "layers": 12}
_GPT2 = {**_BASE, "words": 50000, "most": 1024}
_TEXT = {"batch": 1, "seq": 128}
_FEW: Extents = {"batch": 2, "seq": 6}


def _text(
    network: Callable[..., nn.Module],
    names: str,
    outputs: tuple[str, ...],
    large: Mapping[str, Any],
    *,
    extents: Extents = _TEXT,
    small: Mapping[str, Any] | None = None,
) -> Export:
    """Inputs of numbers of words, and others of two."""
    integers = {name: 50 if name == "ids" else 2 for name in names.split()}
    shapes = dict.fromkeys(integers, _WORDS)
    sizes = Size(small or {}, _FEW), Size(large, extents)
    return Export(network, shapes, outputs, *sizes, _TEXTS, integers)


def _cache(name: str, layers: int) -> list[str]:
    """The names of its parts."""
    return [f"{name}_{layer}_{part}" for layer in range(layers) for part in ("key", "value")]


def _decoder(
    network: Callable[..., nn.Module],
    heads: int,
    large: Mapping[str, Any],
    large_heads: int,
    layers: int = 2,
) -> Export:
    """A step with a cache."""
    across = network is text.T5Decoder
    names = _cache("past", layers)
    shapes: dict[str, tuple[int | str, ...]] = {"ids": _WORDS}
    if across:
        shapes |= {"states": ("batch", "source", "width"), "mask": ("batch", "source")}
    else:
        shapes["mask"] = ("batch", "total")
    small = {**_FEW, "past": 7, "heads": heads, "size": 8, "source": 5, "width": 32}
    size = large["width"] // large["heads"]
    wide = {"batch": 1, "seq": 1, "past": 128, "heads": large_heads, "size": size}
    wide |= {"source": 64, "width": large["width"]}
    return Export(
        network,
        shapes | dict.fromkeys(names, ("batch", "heads", "past", "size")),
        ("logits", *(name.replace("past", "present") for name in names)),
        Size({"layers": layers}, small),
        Size({**large, "layers": layers}, wide),
        _TEXTS | {"past": (0, 40)} | ({"source": (1, 24)} if across else {}),
        {"ids": 50, "mask": 2},
    )


def _sound(transform: str) -> Export:
    return Export(
        sound.SoundClassifier,
        {"samples": ("batch", "length")},
        ("classes",),
        Size({"transform": transform}, {"batch": 2, "length": 512}),
        Size(
            {"transform": transform, "window": 512, "hop": 160, "mels": 64, "width": 32},
            {"batch": 1, "length": 32000},
        ),
        {"batch": (1, 4), "length": (512, 1024)},
    )


_FEW_STAGES = {"stages": ((1, 8, 1, 1, 3), (4, 12, 2, 2, 5), (4, 16, 2, 2, 3)), "last": 40}
EXPORTS = {
    "resnet18": _classifier(convolutional.ResNet, {"width": 64}),
    "mobilenetv2": _classifier(convolutional.MobileNet, {}, _FEW_STAGES),
    "efficientnet": _classifier(convolutional.EfficientNet, {}, _FEW_STAGES),
    "convnext": _classifier(convolutional.ConvNeXt, {"width": 96, "depths": (3, 3, 9, 3)}),
    "swin": _classifier(
        windows.Swin,
        {"width": 96, "size": 224, "window": 7, "depths": (2, 2, 6, 2), "head": 32},
    ),
    "vit": _classifier(windows.Vit, {**_BASE, "patch": 16, "grid": 14}),
    "unet": Export(
        convolutional.UNet,
        _image(),
        ("classes",),
        Size({}, {"batch": 2, "h": 40, "w": 48}),
        Size({"width": 32}, {"batch": 1, "h": 256, "w": 256}),
        _PIXELS,
    ),
    "deeplab": Export(
        convolutional.DeepLab,
        _image(),
        ("classes",),
        Size({}, {"batch": 2, "h": 40, "w": 48}),
        Size({"width": 64, "classes": 21}, {"batch": 1, "h": 256, "w": 256}),
        _PIXELS,
    ),
    "detector": Export(
        convolutional.Detector,
        _image(batch=1),
        ("boxes", "kinds", "scores"),
        Size({}, {"h": 64, "w": 48}),
        Size({"width": 32, "classes": 20, "most": 20}, {"h": 320, "w": 320}),
    ),
    "generator": Export(
        convolutional.Generator,
        _image(),
        ("large",),
        Size({}, {"batch": 2, "h": 12, "w": 9}),
        Size({"width": 64, "blocks": 8}, {"batch": 1, "h": 64, "w": 64}),
        {"batch": (1, 2), "h": (5, 16), "w": (5, 16)},
    ),
    "bert": _text(
        transformers.Bert, "ids mask types", ("states", "pooled"), {**_BASE, "words": 30000}
    ),
    "distilbert": _text(
        text.DistilBert,
        "ids mask",
        ("classes",),
        {**_BASE, "layers": 6, "words": 30000, "most": 512},
    ),
    "t5encoder": _text(
        text.T5Encoder,
        "ids mask",
        ("states",),
        {"width": 512, "heads": 8, "layers": 6, "words": 32000, "buckets": 32, "far": 128},
    ),
    "cliptext": _text(
        text.ClipText,
        "ids",
        ("vector",),
        {"width": 512, "heads": 8, "layers": 12, "words": 49000, "outputs": 512},
        extents={"batch": 1, "seq": 77},
    ),
    "gpt2": _decoder(transformers.Cached, 4, _GPT2, 12),
    "llama": _decoder(
        transformers.Llama, 2, {"width": 1024, "heads": 16, "groups": 4, "words": 32000}, 4
    ),
    "t5decoder": _decoder(text.T5Decoder, 4, {"width": 512, "heads": 8, "words": 32000}, 8),
    "lstm": _text(
        text.Tagger,
        "ids",
        ("tags",),
        {"kind": "LSTM", "width": 128, "inner": 256, "words": 10000, "tags": 20},
        extents={"batch": 1, "seq": 100},
        small={"kind": "LSTM"},
    ),
    "gru": _text(
        text.Tagger,
        "ids",
        ("tags",),
        {"kind": "GRU", "width": 128, "inner": 256, "words": 10000, "tags": 20},
        extents={"batch": 1, "seq": 100},
        small={"kind": "GRU"},
    ),
    "whisper": Export(
        sound.Whisper,
        {"mel": ("batch", "mels", "frames")},
        ("states",),
        Size({}, {"batch": 2, "mels": 20, "frames": 48}),
        Size(
            {"width": 384, "heads": 6, "layers": 4, "mels": 80, "length": 1500},
            {"batch": 1, "mels": 80, "frames": 3000},
        ),
        {"batch": (1, 2)},
    ),
    "sound": _sound("stft"),
    "sound by convolution": _sound("conv"),
}

_IMAGES = ("mobilenetv2", "efficientnet", "convnext", "swin", "vit", "unet", "detector", "resnet18")
TIMED = {
    **{name: EXPORTS[name] for name in (*_IMAGES, "bert")},
    "gpt2 prefill": Export(
        transformers.Prefill,
        {"ids": _WORDS, "mask": _WORDS},
        ("logits", *_cache("present", 12)),
        Size({"layers": 12}, _FEW),
        Size(_GPT2, _TEXT),
        integers={"ids": 50, "mask": 2},
    ),
    "gpt2 decode": _decoder(transformers.Cached, 4, _GPT2, 12, layers=12),
    "llama decode": EXPORTS["llama"],
    "lstm": EXPORTS["lstm"],
}
"""The exports that `tools/bench.py` times."""
