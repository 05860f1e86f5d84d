"""Makes the skeletons in `models/` again: what PyTorch exports of the networks of `tools.exports`, and quantized ones.

They have the widths that people use, and of each kind of layer as many as differ from each other.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from glowpy.core.random_array import random_array
from glowpy.importer import load
from glowpy.support.errors import UserError
from tools.figures.skeleton import save_skeleton

__all__ = ["FOLDER", "make_models"]

FOLDER = Path(__file__).parent / "models"

_FEWER: Mapping[str, Mapping[str, Any]] = {
    "resnet18": {},
    "mobilenetv2": {},
    "efficientnet": {},
    "convnext": {"depths": (1, 1, 2, 1)},
    "swin": {"depths": (2, 2, 2, 2)},
    "vit": {"layers": 2},
    "unet": {},
    "detector": {},
    "generator": {"blocks": 2},
    "bert": {"layers": 2},
    "gpt2": {"layers": 2},
    "llama": {"layers": 2},
    "whisper": {"layers": 2},
    "lstm": {},
}
"""The networks that are exported, with what has fewer layers than in `tools.exports`."""

_QUANTIZED: Mapping[str, Mapping[str, int]] = {"cnn": {}, "dscnn": {}, "mobilenetv2": {"batch": 1}}
"""The networks that are quantized as well, and the sizes that their open dimensions have then."""

_SMALL = {
    "cnn": """
<ir_version: 8, opset_import: ["" : 17]>
cnn (float[1,1,32,32] image, float[8,1,3,3] w0, float[8] b0, float[16,8,3,3] w1, float[16] b1, float[32,16,3,3] w2,
     float[32] b2, float[10,512] w3, float[10] b3) => (float[1,10] scores) {
  c0 = Conv<pads = [1, 1, 1, 1]>(image, w0, b0)
  r0 = Relu(c0)
  p0 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r0)
  c1 = Conv<pads = [1, 1, 1, 1]>(p0, w1, b1)
  r1 = Relu(c1)
  p1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1)
  c2 = Conv<pads = [1, 1, 1, 1]>(p1, w2, b2)
  r2 = Relu(c2)
  p2 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r2)
  f = Flatten(p2)
  s = Gemm<transB = 1>(f, w3, b3)
  scores = Softmax(s)
}
""",
    "dscnn": """
<ir_version: 8, opset_import: ["" : 17]>
dscnn (float[1,1,49,10] mfcc, float[64,1,10,4] w0, float[64] b0, float[64,1,3,3] d1, float[64] e1,
       float[64,64,1,1] p1, float[64] q1, float[64,1,3,3] d2, float[64] e2, float[64,64,1,1] p2, float[64] q2,
       float[12,64] w3, float[12] b3) => (float[1,12] scores) {
  c0 = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(mfcc, w0, b0)
  r0 = Relu(c0)
  c1 = Conv<group = 64, pads = [1, 1, 1, 1]>(r0, d1, e1)
  r1 = Relu(c1)
  c2 = Conv(r1, p1, q1)
  r2 = Relu(c2)
  c3 = Conv<group = 64, pads = [1, 1, 1, 1]>(r2, d2, e2)
  r3 = Relu(c3)
  c4 = Conv(r3, p2, q2)
  r4 = Relu(c4)
  m = GlobalAveragePool(r4)
  f = Flatten(m)
  s = Gemm<transB = 1>(f, w3, b3)
  scores = Softmax(s)
}
""",
}
"""A network for images and one for words (depthwise separable, Zhang et al. 2017) as microcontrollers run them."""


def make_models(names: list[str]) -> None:
    """Writes the skeletons of `names`, or all. Raises UserError where PyTorch is not there."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for name in names or [*_FEWER, *_SMALL]:
            path = Path(folder) / f"{name}.onnx"
            if name in _SMALL:
                onnx.save(_small(name), path)
            else:
                _export(name, path)
            save_skeleton(onnx.load(path), FOLDER / f"{name}.onnx.gz")
            if name in _QUANTIZED:
                quantized = _quantized(path, _QUANTIZED[name])
                save_skeleton(onnx.load(quantized), FOLDER / f"{name}.int8.onnx.gz")


def _small(name: str) -> onnx.ModelProto:
    """All of its inputs but the first have random numbers."""
    model, rng = onnx.parser.parse_model(_SMALL[name]), np.random.default_rng(0)
    for weight in list(model.graph.input)[1:]:
        shape = [dim.dim_value for dim in weight.type.tensor_type.shape.dim]
        numbers = rng.normal(0, 0.2, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, weight.name))
        model.graph.input.remove(weight)
    return model


def _export(name: str, path: Path) -> None:
    try:  # PyTorch is not always there
        catalogue: Any = importlib.import_module("tools.exports.catalogue")
    except ModuleNotFoundError as error:
        raise UserError(
            f"'{name}' is exported by PyTorch: {error}", note="pip install '.[models]'"
        ) from error
    export = catalogue.EXPORTS[name]
    size = replace(export.large, parameters={**export.large.parameters, **_FEWER[name]})
    if "layers" in size.parameters:
        caches = [part for part in export.shapes if part.startswith("past")]
        assert not caches or len(caches) == 2 * size.parameters["layers"]
    network, tensors = catalogue.made(export, size), catalogue.inputs(export, size.extents)
    catalogue.exported(export, network, tensors, path, dynamo=False)


def _quantized(path: Path, dims: Mapping[str, int]) -> Path:
    """The file with 8-bit integers, by the ranges that random inputs have."""
    model = load(path, dims=dims)
    function, rng = model.main, np.random.default_rng(0)
    samples, profile = path.with_suffix(".npz"), path.with_suffix(".yaml")
    arrays = {port.original: random_array(port.type, rng) for port in function.inputs}
    np.savez(samples, **{name: array[None] for name, array in arrays.items()})  # type: ignore[arg-type]
    quantized = path.with_suffix(".int8.onnx")
    for words in (
        ("profile", path, "--inputs", samples, "-o", profile),
        ("quantize", path, "--profile", profile, "-o", quantized),
    ):
        subprocess.run([sys.executable, "-m", "glowpy", *map(str, words)], check=True)
    return quantized
