"""Functions that many networks have in common, as texts: inner loops, walks, and transformations of patches.

They are those that two networks share whose layers have the same tiles and other sizes: whatever follows from the
sizes of a layer is in one of them alone. The layers are convolutions by tiles that the strategy is likely to choose,
such epilogues as most layers have, and what comes between convolutions: pools, normalizations, element-wise loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.codegen import entry_name, generate_llvm
from glowpy.backends.cpu.nodes_gen import create_cpu_conv, create_cpu_matmul, create_cpu_winograd
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import MAX_PIXELS, Problem, all_candidates
from glowpy.backends.cpu.strategy.winograd import PATCHES, patch_steps
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.llvm.code_options import CodeOptions, EntryOptions
from glowpy.support.symbolic import Dim, ceil_div, static, symbol

__all__ = ["common_texts"]

_MOST_VECTORS = 4
"""Vectors of a tile; more are seldom chosen."""

_FEWEST_SUMS, _FEWEST_OF_ONE = 14, 24
"""Sums of a whole tile of several pixels, and of one of a single vector; fewer do not fill the processor."""

_FAR_BYTES = 1 << 19
"""A residual of so many bytes is fetched before it is read."""

_KERNELS = 3, 5
"""Heights and widths of kernels that are computed by Winograd's algorithm."""

_Chain = Callable[[Function, NodeValue, NodeValue, NodeValue], NodeValue]
"""Makes what follows a convolution: of its result, of a value of the same shape, and of one for each channel."""


def common_texts(variant: Variant, machines: Sequence[Machine], triple: str) -> list[str]:
    """The texts of functions that many networks have, as they are compiled for processors of the variant.

    `machines` are models of these processors, from whose tiles the strategy chooses.
    """
    features = ",".join(f"+{name}" for name in sorted(variant.requires))
    backend = CpuBackend(CpuOptions(target=triple, cpu=variant.cpu, features=features))
    first, second = (dict.fromkeys(_texts(machines, backend, scale)) for scale in (1, 2))
    return [text for text in first if text in second]


def _texts(machines: Sequence[Machine], backend: CpuBackend, scale: int) -> list[str]:
    """The texts of all functions of a network whose sizes are so many times those of another."""
    layers = _Layers(scale)
    for model in dict.fromkeys(model for machine in machines for model in machine.models):
        _add_tiles(layers, model)
    _add_patches(layers, machines[0])
    _add_others(layers, machines[0])
    program = compilation(layers.module, backend, CompileOptions(cache=False)).program
    options = CodeOptions(EntryOptions(bound=True, parallel=True), separate=True)
    programs = {entry_name(program): program}
    return list(generate_llvm(programs, backend.target, backend.kernels, options))


def _add_tiles(layers: _Layers, machine: Machine) -> None:
    """Layers by each tile: in the middle and at the edges of an image, and alone with every chain."""
    problem = Problem(1, MAX_PIXELS, _MOST_VECTORS * machine.lanes, 1, 1, 1)
    tiles = {(tile.pixels, tile.vectors): None for tile in all_candidates(problem, machine)}
    for pixels, vectors in tiles:
        columns = vectors * machine.lanes
        if pixels <= machine.pointer_registers:
            layers.convolution(pixels, vectors, columns, 3, _nothing)
        if pixels > 1 and pixels * vectors < (_FEWEST_SUMS if vectors > 1 else _FEWEST_OF_ONE):
            layers.convolution(pixels, vectors, columns, 1, _nothing)
            continue
        for chain in (*_CHAINS, *_RESIDUALS):
            layers.convolution(pixels, vectors, columns, 1, chain)
        for chain in _RESIDUALS[1:]:
            layers.convolution(pixels, vectors, columns, 1, chain, is_far=True)
        for chain in _CHAINS[:2]:
            for fewer in range(1, vectors):
                rest = fewer * machine.lanes
                layers.convolution(pixels, vectors, columns, 1, chain, rest)
    layers.matmul(machine.lanes)
    for pixels, vectors in tiles:
        if pixels * vectors >= _FEWEST_SUMS or pixels == 1:
            layers.open_matmul(pixels, vectors, vectors * machine.lanes)


def _add_patches(layers: _Layers, machine: Machine) -> None:
    """Layers by Winograd's algorithm with every patch of some kernels, and a pool after some of them."""
    for kernel, *patch in product(_KERNELS, PATCHES, PATCHES):
        if min(patch) > kernel:
            for pool, chain in ((1, _nothing), (1, _rectified), (2, _rectified)):
                layers.winograd(kernel, tuple(patch), pool, machine.lanes, chain)


def _add_others(layers: _Layers, machine: Machine) -> None:
    """Layers of a single row, and those without products, among them such as many networks have in the same size."""
    for window, stride, pad, all_channels in _WINDOWS:
        for channels in all_channels:
            layers.max_pool(window, stride, pad, channels)
    for window, stride, pad, all_channels in _MEANS:
        for channels in all_channels:
            layers.avg_pool(window, stride, pad, channels)
    for vectors in range(1, _MOST_VECTORS + 1):
        block = vectors * machine.lanes
        rests = sorted({0, 8 % block})
        for chain, rest in product((_nothing, _with_row, _with_row_rectified), rests):
            layers.row(vectors, block, chain, rest)
    layers.softmax()
    for channels in _NORMALIZED:
        layers.local_response_normalization(channels)
    layers.image()
    for chain in (_rectified, _scaled, _added_and_rectified):
        for channels in (192, 96):
            layers.elements(channels, chain)


_Window = tuple[int, int, tuple[int, ...], tuple[int, ...]]

_WINDOWS: Sequence[_Window] = (
    (3, 2, (0, 0, 0, 0), (64, 96, 128, 192, 256, 288, 512)),
    (3, 2, (0, 0, 1, 1), (64, 128, 192, 256, 480, 512, 832)),
    (3, 2, (1, 1, 1, 1), (24, 64)),
    (3, 1, (1, 1, 1, 1), (192, 256, 480, 512, 528, 832)),
    (2, 2, (0, 0, 0, 0), (64, 128, 256, 512)),
)
"""Windows of the largest: pixels in each direction, their stride, pads, and the channels of many networks."""

_MEANS: Sequence[_Window] = (
    (2, 2, (0, 0, 0, 0), (128, 256, 512)),
    (3, 1, (1, 1, 1, 1), (192, 256, 288)),
    (3, 2, (1, 1, 1, 1), (24, 240, 480)),
)
"""The same of means."""

_NORMALIZED = 64, 96, 192, 256
"""Channels of layers that are normalized over neighbours."""


def _nothing(f: Function, value: NodeValue, other: NodeValue, row: NodeValue) -> NodeValue:
    return value


def _rectified(f: Function, value: NodeValue, other: NodeValue, row: NodeValue) -> NodeValue:
    zero = f.module.create_constant("zero", Tensor.splat(value.type, 0.0)).value
    return f.create_max("y", value, zero).result


def _with_row(f: Function, value: NodeValue, other: NodeValue, row: NodeValue) -> NodeValue:
    return f.create_add("y", value, row).result


def _scaled(f: Function, value: NodeValue, other: NodeValue, row: NodeValue) -> NodeValue:
    """Normalizes over a batch, with a ReLU."""
    return _with_row_rectified(f, f.create_mul("y", value, row).result, other, row)


def _with_row_rectified(
    f: Function, value: NodeValue, other: NodeValue, row: NodeValue
) -> NodeValue:
    return _rectified(f, _with_row(f, value, other, row), other, row)


def _added(f: Function, value: NodeValue, other: NodeValue, row: NodeValue) -> NodeValue:
    return f.create_add("y", value, other).result


def _added_and_rectified(
    f: Function, value: NodeValue, other: NodeValue, row: NodeValue
) -> NodeValue:
    return _rectified(f, _added(f, value, other, row), other, row)


def _added_to_and_rectified(
    f: Function, value: NodeValue, other: NodeValue, row: NodeValue
) -> NodeValue:
    return _rectified(f, f.create_add("y", other, value).result, other, row)


_CHAINS: tuple[_Chain, ...] = (_nothing, _rectified, _with_row)
_RESIDUALS: tuple[_Chain, ...] = (_added, _added_and_rectified, _added_to_and_rectified)


class _Layers:
    """A network whose layers have nothing to do with each other.

    Attributes:
        module: The network.
    """

    def __init__(self, scale: int) -> None:
        self.module = Module()
        self._f = self.module.create_function("main")
        self._scale = scale
        self._count = 0
        self._rows = symbol("rows", 1, 1 << 20)

    def convolution(
        self,
        pixels: int,
        vectors: int,
        block: int,
        kernel: int,
        chain: _Chain,
        rest: int = 0,
        *,
        is_far: bool = False,
    ) -> None:
        """A convolution by whole tiles, of which the outer ones are at the edges of an image where the kernel is not 1.

        After whole blocks of channels come some of which `rest` are left. A result `is_far` if it is a large one.
        """
        depth, width = 8 * self._scale, 3 * pixels * self._scale
        channels, pad = block * self._scale + rest, kernel // 2
        filter = (1, ceil_div(channels, block), kernel, kernel, depth, block)
        height = ceil_div(_FAR_BYTES, 4 * width * channels) if is_far else 3
        shapes = (1, height, width, channels), (1, height, width, depth)
        input, result, packed, bias = self._creation(*shapes, filter)
        zeros = self._constant("zeros", (depth if pad else 0,))
        node = create_cpu_conv(
            self._f, "conv", result, input, packed, bias, zeros,
            kernels=(kernel, kernel), strides=(1, 1), pads=(pad,) * 4, dilation=(1, 1), group=1,
            tile_pixels=pixels, tile_vectors=vectors, line=width if pad else pixels, slab=1, fetch=0,
        )  # fmt: skip
        self._save(node.result, chain)

    def matmul(self, lanes: int) -> None:
        """A product of matrices."""
        depth, columns = 8 * self._scale, lanes * self._scale
        types = (
            (4 * self._scale, columns),
            (4 * self._scale, depth),
            (columns // lanes, depth, lanes),
        )
        input, result, packed, _ = self._creation(*types)
        node = create_cpu_matmul(
            self._f, "matmul", result, input, packed,
            tile_pixels=4, tile_vectors=1, slab=1, fetch=0,
        )  # fmt: skip
        self._save(node.result, _nothing)

    def row(self, vectors: int, block: int, chain: _Chain, rest: int) -> None:
        """A product of one row and a matrix, whose columns are blocks and the `rest` of one."""
        depth, blocks = 8 * self._scale, self._scale + bool(rest)
        types = (1, block * self._scale + rest), (1, depth), (blocks, depth, block)
        input, result, packed, _ = self._creation(*types)
        node = create_cpu_matmul(
            self._f, "row", result, input, packed,
            tile_pixels=1, tile_vectors=vectors, slab=1, fetch=0,
        )  # fmt: skip
        self._save(node.result, chain)

    def open_matmul(self, pixels: int, vectors: int, block: int) -> None:
        """A product of matrices with any number of rows."""
        depth, columns = 8 * self._scale, block * self._scale
        types = (self._rows, columns), (self._rows, depth), (columns // block, depth, block)
        input, result, packed, _ = self._creation(*types)
        node = create_cpu_matmul(
            self._f, "open_matmul", result, input, packed,
            tile_pixels=pixels, tile_vectors=vectors, slab=1, fetch=0,
        )  # fmt: skip
        self._save(node.result, _nothing)

    def winograd(
        self, kernel: int, patch: tuple[int, ...], pool: int, lanes: int, chain: _Chain
    ) -> None:
        """A convolution by Winograd's algorithm, of a square kernel, and a pool of as many pixels in each direction."""
        kernels, pools, pad = (kernel, kernel), (pool, pool), kernel // 2
        high, wide = (step * 2 * self._scale for step in patch_steps(patch, kernels))
        depth, channels = lanes * self._scale, lanes * self._scale
        shapes = (1, high // pool, wide // pool, channels), (1, high, wide, depth)
        filter = channels // lanes, prod(patch), depth, lanes
        input, result, packed, bias = self._creation(*shapes, filter)
        node = create_cpu_winograd(
            self._f, "winograd", result, input, packed, bias,
            kernels=kernels, pads=(pad,) * 4, group=1, patch=patch, pool=pools,
            tile_pixels=4, tile_vectors=1, slab=4, bands=1, blocks=1,
        )  # fmt: skip
        self._save(node.result, chain)

    def max_pool(self, window: int, stride: int, pads: tuple[int, ...], channels: int) -> None:
        """The largest of windows."""
        input = self._image_of(stride, channels)
        node = self._f.create_max_pool("max", input, (window,) * 2, (stride,) * 2, pads, (1, 1))
        self._save(node.result, _nothing)

    def avg_pool(self, window: int, stride: int, pads: tuple[int, ...], channels: int) -> None:
        """Means of windows, of which the pads are no part."""
        input = self._image_of(stride, channels)
        node = self._f.create_avg_pool("mean", input, (window,) * 2, (stride,) * 2, pads, (1, 1))
        self._save(node.result, _nothing)

    def softmax(self) -> None:
        """Probabilities of classes, in place of what they are computed of."""
        input = self._placeholder(Type(ElemKind.F32, (1, 1000 * (2 * self._scale - 1)))).value
        scores = _rectified(self._f, input, input, input)
        self._save(self._f.create_softmax("softmax", scores, 1).result, _nothing)

    def local_response_normalization(self, channels: int) -> None:
        """A normalization over five neighbours, as networks of that time have it."""
        input = self._image_of(2, channels)
        node = self._f.create_local_response_normalization("lrn", input, 5, 0.0001, 0.75, 1.0)
        self._save(node.result, _nothing)

    def image(self) -> None:
        """A photograph whose channels become the last dimension."""
        input = self._placeholder(Type(ElemKind.F32, (1, 3, 224, 224))).value
        self._save(self._f.create_transpose("nhwc", input, (0, 2, 3, 1)).result, _nothing)

    def elements(self, channels: int, chain: _Chain) -> None:
        """Element-wise instructions on some channels of a tensor, and on all of another."""
        wide = self._placeholder(Type(ElemKind.F32, (1, 28, 28 * self._scale, 3 * channels)))
        type = wide.type.with_shape((*wide.type.shape[:3], channels))
        part = self._f.create_slice("part", type, wide.value, (0,) * 4, (1,) * 4)
        self._save(part.result, chain)
        self._save(self._placeholder(type).value, chain)

    def _image_of(self, stride: int, channels: int) -> NodeValue:
        """An input whose width and height are multiples of a stride."""
        size = 36 * self._scale * stride
        return self._placeholder(Type(ElemKind.F32, (1, size, size, channels))).value

    def _creation(
        self, result: tuple[Dim, ...], input: tuple[Dim, ...], weights: tuple[int, ...]
    ) -> tuple[NodeValue, Type, NodeValue, NodeValue]:
        """An input, the type of a result, weights and a bias, of these shapes."""
        packed = self._constant("weights", weights)
        bias = self._constant("bias", static(result[-1:]))
        type = Type(ElemKind.F32, result)
        return self._placeholder(Type(ElemKind.F32, input)).value, type, packed, bias

    def _placeholder(self, type: Type) -> Placeholder:
        self._count += 1
        return self.module.create_placeholder(f"port{self._count}", type)

    def _constant(self, name: str, shape: tuple[int, ...]) -> NodeValue:
        tensor = Tensor.splat(Type(ElemKind.F32, shape), 0.5)
        return self.module.create_constant(name, tensor).value

    def _save(self, value: NodeValue, chain: _Chain) -> None:
        """Makes an output of what follows a value."""
        other, output = self._placeholder(value.type), self._placeholder(value.type)
        row = self._placeholder(value.type.with_shape(value.type.shape[-1:]))
        result = chain(self._f, value, other.value, row.value)
        self._f.create_save("save", result, output)
