"""The nine light networks of the onnx package, with weights that make their outputs worth comparing.

onnx ships AlexNet, DenseNet-121, Inception v1 and v2, ResNet-50, ShuffleNet, SqueezeNet, VGG-19 and ZFNet-512
without their weights: each is a `ConstantOfShape`, so every output is the same number whatever the arithmetic.
`initialised` puts random weights in their place.

    python -m tools.zoo FOLDER [NAME ...]        writes the networks as FOLDER/NAME.onnx
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

from glowpy.core.tensor import Array
from glowpy.onnx_package.random_weights import with_random_weights

__all__ = ["NAMES", "batched", "example_input", "initialised", "main", "packaged"]

_FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"

NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
"""Every network of the zoo."""


def packaged(name: str) -> Path:
    """The file of a network as the onnx package has it."""
    return _FOLDER / f"light_{name}.onnx"


def example_input(model: onnx.ModelProto) -> dict[str, Array]:
    """The input onnx's own test runner gives a light network: 0, 1/n, 2/n, ... in its shape."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for info in model.graph.input:
        if info.name not in stored:
            shape = tuple(dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim)
            count = math.prod(shape)
            inputs[info.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    return inputs


def initialised(name: str, seed: int = 0) -> onnx.ModelProto:
    """A network of the zoo with random weights; the same ones for the same seed."""
    return with_random_weights(packaged(name), seed)


def batched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The model for so many images, where it was for one: reshapes keep what was the 1 at the front of their targets.

    Shapes of values in between, which other tools have noted, are left out: they are of one image.
    """
    if batch == 1:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    targets = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for name in targets & stored.keys():
        target = numpy_helper.to_array(stored[name]).copy()
        if target.size and target[0] == 1:
            target[0] = 0  # as long as the dimension of what is reshaped
            stored[name].CopyFrom(numpy_helper.from_array(target, name))
    for info in (*graph.input, *graph.output):
        first = info.type.tensor_type.shape.dim[:1]
        if info.name not in stored and first and first[0].dim_value == 1:
            first[0].dim_value = batch
    del graph.value_info[:]
    return changed


def _write(folder: Path, names: list[str]) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.onnx"
        onnx.save(initialised(name), path)
        yield path


def main() -> None:
    """Writes networks of the zoo to a folder."""
    parser = argparse.ArgumentParser(description="Write the light networks with random weights.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no network called {', '.join(unknown)}")
    for path in _write(options.folder, options.names or list(NAMES)):
        print(path)  # noqa: T201 -- the list of files is this tool's output


if __name__ == "__main__":
    main()
