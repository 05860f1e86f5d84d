"""The rows of the table: which network is compiled for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx

from glowpy.backends.cpu.options import CpuOptions
from glowpy.graph.function import Module
from glowpy.importer import load
from glowpy.support.symbolic import Dim, symbol
from tools.figures.models import FOLDER
from tools.figures.skeleton import filled
from tools.zoo import NAMES, initialised

__all__ = ["ROWS", "Row"]


@dataclass(frozen=True)
class Row:
    """One network and one machine.

    Attributes:
        name: Its name in the table.
        model: Reads the file, with random weights.
        options: The options it is compiled with.
        dims: The sizes of dimensions that the file leaves open: a number, or a symbol that stays open.
        bundled: Whether it is made a bundle, whose sizes are figures, too.
        emulated: Whether the instructions that a run of the bundle takes are counted.
    """

    name: str
    model: Callable[[], onnx.ModelProto]
    options: CpuOptions
    dims: Mapping[str, Dim] = field(default_factory=dict)
    bundled: bool = False
    emulated: bool = False

    def load(self) -> Module:
        """The network, of which these dimensions are open."""
        return load(self.model(), dims=self.dims)


_SERVER = CpuOptions("x86-64-v4")


def _stored(name: str) -> Callable[[], onnx.ModelProto]:
    return lambda: filled(FOLDER / f"{name}.onnx.gz")


def _light(name: str) -> Row:
    return Row(name, lambda: initialised(name), _SERVER)


def _export(name: str, title: str = "", **dims: Dim) -> Row:
    return Row(title or name, _stored(name), _SERVER, dims)


def _bundle(name: str, target: str, *, emulated: bool = False) -> Row:
    options = CpuOptions(target)
    return Row(f"{name} on {target}", _stored(name), options, bundled=True, emulated=emulated)


_ROWS = (
    *map(_light, NAMES),
    _export("resnet18", batch=1),
    _export("mobilenetv2", batch=1),
    _export("efficientnet", batch=1),
    _export("convnext", batch=1),
    _export("swin", batch=1),
    _export("vit", batch=1),
    _export("unet", batch=1, h=256, w=256),
    _export("detector"),
    _export("generator", batch=1, h=64, w=64),
    _export("bert", batch=1, seq=128),
    _export("gpt2", batch=1, seq=1, past=128, total=129),
    _export("llama", batch=1, seq=1, past=128, total=129),
    _export("whisper", batch=1),
    _export("lstm", batch=1, seq=100),
    _export("mobilenetv2.int8"),
    _export("resnet18", "resnet18, open batch", batch=symbol("batch", 1, 8)),
    _export("bert", "bert, open length", batch=1, seq=symbol("seq", 1, 128)),
    _export("unet", "unet, open image", batch=1, h=symbol("h", 32, 256), w=symbol("w", 32, 256)),
    _bundle("cnn", "cortex-m7", emulated=True),
    _bundle("cnn.int8", "cortex-m4", emulated=True),
    _bundle("dscnn.int8", "cortex-m4", emulated=True),
    _bundle("dscnn", "x86-64-v3", emulated=True),
    _bundle("dscnn.int8", "rpi4"),
    _bundle("cnn", "riscv64-v"),
    _bundle("dscnn", "wasm-simd"),
)
ROWS: Mapping[str, Row] = {row.name: row for row in _ROWS}
"""Every row by its name, in the order of the table."""
