"""Convolutions, pools, shuffles and resizing, with what precedes and follows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.patterns.network import Network

__all__ = [
    "convolution",
    "depthwise",
    "few_channels",
    "pool",
    "resize",
    "shuffle",
    "sums_of_gathers",
    "transposed",
]


def _rank(n: Network, ranks: Sequence[int]) -> int:
    """How many sides images have; those of volumes are known, since kernels need them."""
    rank = n.rng.choice(ranks)
    n.is_open &= rank < 3
    return rank


def _taps(
    n: Network, rank: int, kernels: Sequence[int], strides: Sequence[int] = (1, 1, 1, 2, 3)
) -> dict[str, Any]:
    """Attributes of a window; a kernel may be another one along each axis."""
    kernel = n.rng.choice(kernels)
    sizes = [kernel if n.chance(0.8) else n.rng.choice(kernels) for _ in range(rank)]
    more: dict[str, Any] = {"kernel_shape": sizes}
    if n.chance(0.4):
        stride = n.rng.choice(strides)
        more["strides"] = [stride if n.chance(0.8) else n.rng.choice(strides) for _ in range(rank)]
    match n.rng.randrange(5):
        case 0:
            more["pads"] = [n.rng.randrange(size) for size in (*sizes, *sizes)]
        case 1:
            more["auto_pad"] = n.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        case 2 | 3:
            more["pads"] = [size // 2 for size in (*sizes, *sizes)]
        case _:
            pass
    return more


def _spread(n: Network, more: dict[str, Any]) -> None:
    """Gives a window dilation."""
    if n.chance(0.15) and "SAME" not in more.get("auto_pad", ""):
        more["dilations"] = [n.rng.choice((1, 2, 3)) for _ in more["kernel_shape"]]


def _image(n: Network, channels: int, rank: int = 2, least: int = 9) -> str:
    """An image with sides that no window exceeds, as an input or of a first layer."""
    sides = [n.extent(f"d{axis}", (least, least + 1, least + 5, least + 8)) for axis in range(rank)]
    batch = n.extent("batch", (1, 1, 1, 2, 3))
    if n.chance(0.75):
        return n.input((batch, channels, *sides))
    x = n.input((batch, 3, *sides))
    w = n.weights((channels, 3, *(1,) * rank))
    return str(n.op(n.rng.choice(("Relu", "Identity")), n.op("Conv", x, w)))


def _conv(n: Network, x: str, shape: Sequence[int], more: dict[str, Any], group: int = 1) -> str:
    n.blurs = True
    operands = [x, n.weights(shape, scale=1.0)]
    if n.chance(0.7):
        operands.append(n.weights(shape[:1]))
    if n.chance(0.8):
        more = {key: value for key, value in more.items() if key != "kernel_shape"}
    y: str = n.op("Conv", *operands, group=group, **more)
    if n.chance(0.15):
        channels = [n.known(np.abs(n.array(shape[:1])) + 0.5, n.dtype)]
        channels += [n.weights(shape[:1]) for _ in range(2)]
        y = n.op("BatchNormalization", y, *channels, n.known(np.full(shape[0], 0.9), n.dtype))
    return y


def _followed(n: Network, y: str, channels: int, rank: int = 2) -> str:
    """Applies nodes that become an epilogue, and some that do not."""
    for _ in range(n.rng.choice((0, 1, 1, 2, 3))):
        y = n.rng.choice((_activated, _activated, _combined))(n, y, channels, rank)
    return _moved(n, y, channels, rank) if n.chance(0.2) else y


def _activated(n: Network, y: str, channels: int, rank: int) -> str:
    """An element-wise function of one value."""
    match n.rng.randrange(5):
        case 0:
            result = n.op("Mul", y, n.op("Sigmoid", y))
        case 1:
            result = n.op("Clip", y, n.number(0.0), n.number(6.0))
        case 2:
            slopes = n.weights(n.rng.choice(((channels, *(1,) * rank), (1,))))
            result = n.op("PRelu", y, slopes)
        case 3:
            result = n.op("Div", y, n.op("Add", n.op("Abs", y), n.number(1.0)))
        case _:
            names = ("Relu", "Sigmoid", "HardSigmoid", "LeakyRelu", "Elu", "Tanh", "Softplus")
            result = n.op(n.rng.choice(names), y)
    return str(result)


def _combined(n: Network, y: str, channels: int, rank: int) -> str:
    """Together with something else: given, or made of the same."""
    square = (channels, channels, *(1,) * rank)
    match n.rng.randrange(3):
        case 0:
            result = n.op("Add", y, n.input((channels, *(1,) * rank)))
        case 1:
            gate = n.op("Conv", n.op("GlobalAveragePool", y), n.weights(square))
            result = n.op("Mul", y, n.op("Sigmoid", gate))
        case _:
            result = n.op("Add", y, n.op("Conv", y, n.weights(square)))
    return str(result)


def _moved(n: Network, y: str, channels: int, rank: int) -> str:
    """In other places, or a part of it, or reduced."""
    del channels
    match n.rng.randrange(4):
        case 0:
            pair = n.rng.choice(((y, y), (n.op("Relu", y), y)))
            result = n.op("Concat", *pair, axis=n.rng.choice((1, 1, 2)))
        case 1:
            result = n.op("Transpose", y, perm=[0, *range(2, rank + 2), 1])
        case 2:
            result = n.op("GlobalAveragePool" if n.chance(0.5) else "GlobalMaxPool", y)
        case _:
            steps = n.ints(1, n.rng.choice((1, 2)))
            result = n.op("Slice", y, n.ints(0, 1), n.ints(1 << 30, 1 << 30), n.ints(1, 2), steps)
    return str(result)


def convolution(n: Network) -> None:
    """Any convolution, most of them as Winograd's algorithm likes them, perhaps with another one after it."""
    rank = _rank(n, (2, 2, 2, 2, 2, 1, 3))
    group = n.rng.choice((1, 1, 1, 1, 2, 3))
    depth, outputs = (
        n.rng.choice((1, 3, 4, 8, 16, 17, 20, 32)),
        n.rng.choice((1, 3, 4, 8, 9, 16, 24, 40)),
    )
    more = _taps(n, rank, (1, 3, 3, 3, 3, 5, 2, 4, 7) if rank < 3 else (1, 2, 3))
    _spread(n, more)
    x = _image(n, group * depth, rank, 9 if "dilations" not in more else 20)
    if n.chance(0.15):
        x = n.op("Pad", x, n.ints(*(0, 0, *(1,) * rank) * 2))
    y = _conv(n, x, (group * outputs, depth, *more["kernel_shape"]), more, group)
    channels = group * outputs
    y = _followed(n, y, channels, rank)
    if "strides" not in more and n.chance(0.15) and "pads" in more and not n.extents:
        n.op("Conv", y, n.weights((5, channels, *(1,) * rank))) if n.chance(0.5) else n.op(
            "Relu", y
        )


def depthwise(n: Network) -> None:
    """A convolution of each channel by itself, after a pointwise one and before another."""
    rank = n.rng.choice((2, 2, 2, 1))
    channels, times = n.rng.choice((2, 3, 8, 16, 20, 33)), n.rng.choice((1, 1, 1, 1, 2))
    x = _image(n, channels, rank)
    if n.chance(0.5):
        wide = n.rng.choice((5, 16, 24, 48))
        x = _conv(n, x, (wide, channels, *(1,) * rank), {})
        x, channels = n.op(n.rng.choice(("Relu", "Identity", "Sigmoid")), x), wide
    more = _taps(n, rank, (3, 3, 5, 7, 2, 1), (1, 2, 2, 3))
    _spread(n, more)
    if "dilations" in more:
        more["pads"] = [3 * size for size in more["kernel_shape"]] * 2
    y = _conv(n, x, (channels * times, 1, *more["kernel_shape"]), more, channels)
    if n.chance(0.6):
        y = n.op("Clip", y, n.number(0.0), n.number(6.0))
    if n.chance(0.3):
        gate = n.op("GlobalAveragePool", y)
        hidden = n.op("Relu", n.op("Conv", gate, n.weights((4, channels * times, *(1,) * rank))))
        gate = n.op("Sigmoid", n.op("Conv", hidden, n.weights((channels * times, 4, *(1,) * rank))))
        y = n.op("Mul", y, gate)
    if n.chance(0.5):
        y = _conv(n, y, (12, channels * times, *(1,) * rank), {})
        _followed(n, y, 12, rank)
    else:
        _followed(n, y, channels * times, rank)


def few_channels(n: Network) -> None:
    """A convolution with few output channels."""
    rank = _rank(n, (2, 2, 1, 3))
    more = _taps(n, rank, (3, 5, 9, 7, 4, 2) if rank < 3 else (2, 3))
    outputs, depth = n.rng.choice((1, 1, 2, 3, 4)), n.rng.choice((1, 2, 3, 8, 16))
    y = _conv(n, _image(n, depth, rank), (outputs, depth, *more["kernel_shape"]), more)
    _followed(n, y, outputs, rank)


def shuffle(n: Network) -> None:
    """A shuffle of channels between convolutions of groups, and near misses of it."""
    rows, cols = n.rng.choice(
        ((2, 4), (3, 4), (2, 8), (4, 2), (3, 5), (1, 4), (4, 6), (3, 16), (3, 32), (8, 20), (3, 14))
    )
    channels = rows * cols
    groups = [count for count in (1, 2, 3, 4, 5, 6, 8) if channels % count == 0]
    before = n.rng.choice([count for count in groups if count in (1, 2, 3, 6, 8)])
    depth = {1: 6, 2: 6, 3: 6, 6: 6, 8: 8}[before]
    first = (
        n.input((n.extent("b2", (1, 2)), depth, 7, n.extent("d5", (7, 8, 10))))
        if n.chance(0.8)
        else n.input((1, depth, 8, 8))
    )
    y = (
        _conv(n, first, (channels, depth // before, 1, 1), {}, before)
        if n.chance(0.8)
        else n.input((1, channels, 7, 9))
    )
    y = _by_channel(n, y, channels)
    five = n.op("Reshape", y, _split(n, y, rows, cols))
    perm = n.rng.choice(([0, 2, 1, 3, 4],) * 8 + ([0, 2, 1, 4, 3], [0, 1, 2, 4, 3]))
    turned = n.op("Transpose", five, perm=perm)
    y = n.op("Reshape", turned, _back(n, turned, channels))
    y = _by_channel(n, y, channels)
    if n.chance(0.5):
        more = {"pads": [1, 1, 1, 1]} if n.chance(0.8) else {"strides": [2, 2]}
        y = _conv(n, y, (channels, 1, 3, 3), more, channels)
        y = _by_channel(n, y, channels)
    group = n.rng.choice(groups)
    kernel = n.rng.choice((1, 1, 1, 1, 3))
    more = {"pads": [1, 1, 1, 1]} if n.chance(0.1) else {}
    if n.chance(0.1):
        more["strides"] = [2, 2]
    y = _conv(
        n, y, (group * n.rng.choice((1, 3, 8)), channels // group, kernel, kernel), more, group
    )
    n.op("Relu", y)


def _split(n: Network, y: str, rows: int, cols: int) -> str:
    """The shape of `y` with its channels as a matrix."""
    shape = n.op("Shape", y)
    ends = [n.op("Slice", shape, n.ints(first), n.ints(last)) for first, last in ((0, 1), (2, 4))]
    return str(n.op("Concat", ends[0], n.ints(rows, cols), ends[1], axis=0))


def _back(n: Network, y: str, channels: int) -> str:
    shape = n.op("Shape", y)
    ends = [n.op("Slice", shape, n.ints(first), n.ints(last)) for first, last in ((0, 1), (3, 5))]
    return str(n.op("Concat", ends[0], n.ints(channels), ends[1], axis=0))


def _by_channel(n: Network, y: str, channels: int) -> str:
    """Applies an element-wise node, or none."""
    match n.rng.randrange(9):
        case 0 | 1:
            return str(n.op("Relu", y))
        case 2:
            return str(n.op("Add", y, n.weights((channels, 1, 1))))
        case 3:
            return str(n.op("Mul", n.number(-0.5), y))
        case 4:
            return str(n.op("Add", y, y))
        case 5:
            return str(n.op("Exp", y))
        case _:
            return y


def transposed(n: Network) -> None:
    """A transposed convolution: of many phases, and with few channels."""
    rank = _rank(n, (2, 2, 2, 1, 3))
    group = n.rng.choice((1, 1, 1, 2))
    depth, outputs = n.rng.choice((1, 3, 8, 16)), n.rng.choice((1, 1, 2, 3, 5, 8, 16))
    kernels = [n.rng.choice((2, 3, 4, 4, 5, 6) if rank < 3 else (2, 3)) for _ in range(rank)]
    strides = [n.rng.choice((1, 2, 2, 2, 3, 4)) for _ in range(rank)]
    more: dict[str, Any] = {"strides": strides}
    if n.chance(0.6):
        more["pads"] = [n.rng.randrange(min(size, 3)) for size in (*kernels, *kernels)]
    elif n.chance(0.2):
        more["auto_pad"] = "VALID"  # where windows leave gaps, SAME is another size in onnxruntime
    if n.chance(0.3) and "auto_pad" not in more:
        more["output_padding"] = [n.rng.randrange(stride) for stride in strides]
    if n.chance(0.15) and "auto_pad" not in more:
        more["dilations"] = [n.rng.choice((1, 2, 3)) for _ in kernels]
    n.blurs = True
    sides = [n.extent(f"d{axis}", (1, 3, 4, 7)) for axis in range(rank)]
    if n.extents:
        more.pop("auto_pad", None)
    x = n.input(
        (
            n.extent("batch", (1, 1, 2)),
            group * depth,
            *[max(s, 3) if not hasattr(s, "name") else s for s in sides],
        )
    )
    more = {key: value for key, value in more.items() if key != "pads" or not n.extents}
    operands = [x, n.weights((group * depth, outputs, *kernels), scale=1.0)]
    if n.chance(0.6):
        operands.append(n.weights((group * outputs,)))
    y = n.op("ConvTranspose", *operands, group=group, **more)
    if n.chance(0.3):
        n.op("Concat", y, n.op("Sigmoid", y), axis=1)
    else:
        _followed(n, y, group * outputs, rank)


def resize(n: Network) -> None:
    """Resize in all its modes."""
    rank = n.rng.choice((2, 2, 1, 3))
    sides = [n.rng.choice((1, 2, 5, 8, 13)) for _ in range(rank)]
    x = n.input((n.extent("batch", (1, 2)), n.rng.choice((1, 3, 8)), *sides))
    if n.chance(0.2):
        x = n.op("Transpose", x, perm=[0, *range(2, rank + 2), 1])
        sizes = [0, *sides, 0]
    else:
        sizes = [0, 0, *sides]
    scales = [n.rng.choice((1.0, 2.0, 0.5, 1.5, 3.0, 0.7)) if size else 1.0 for size in sizes]
    for axis, size in enumerate(sizes):
        scales[axis] = max(scales[axis], 1.0) if 0 < size < 2 else scales[axis]
    mode = n.rng.choice(("linear", "linear", "cubic", "nearest"))
    places = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": n.rng.choice(places)}
    if mode == "nearest":
        more["nearest_mode"] = n.rng.choice(
            ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        )
    if mode == "cubic":
        more["cubic_coeff_a"] = n.rng.choice((-0.75, -0.5))
        more["exclude_outside"] = n.rng.choice((0, 0, 1))
    y = n.op("Resize", x, "", n.known(np.array(scales, np.float32)), **more)
    if n.chance(0.5):
        n.op("Relu", y)


def sums_of_gathers(n: Network) -> None:
    """Sums of gathers times weights, of one tensor along one axis or nearly so."""
    rank = n.rng.choice((2, 3, 4))
    shape = [n.extent(f"d{axis}", (1, 3, 5, 8)) for axis in range(rank)]
    axis = n.rng.randrange(rank)
    shape[axis] = n.rng.choice((1, 4, 6))
    x, count = n.input(shape), n.rng.choice((1, 3, 7))
    numbers = np.random.default_rng(n.rng.getrandbits(32))

    def term() -> str:
        source = x if n.chance(0.95) else n.input(shape)
        lowest = -shape[axis] if n.chance(0.2) else 0
        places = n.known(
            numbers.integers(lowest, shape[axis], count), n.rng.choice((np.int64, np.int32))
        )
        gathered: str = n.op("Gather", source, places, axis=axis if n.chance(0.95) else axis - rank)
        if n.chance(0.2):
            return gathered
        wide = [1] * rank
        wide[axis] = count
        first = axis if n.chance(0.6) else 0
        shapes = (tuple(wide[first:]),) * 5 + ((1,), (), (count,))
        weights = n.weights(n.rng.choice(shapes))
        return str(n.op("Mul", *n.rng.choice(((gathered, weights), (weights, gathered)))))

    total = term()
    for _ in range(n.rng.choice((1, 1, 2, 3))):
        other = term()
        total = n.op("Add", *n.rng.choice(((total, other), (other, total))))
    if n.chance(0.3):
        n.op("Relu", total)


def pool(n: Network) -> None:
    """A pool, perhaps between convolutions."""
    rank = _rank(n, (2, 2, 2, 1, 3))
    channels = n.rng.choice((1, 3, 8, 16, 20))
    x = _image(n, channels, rank)
    if n.chance(0.3):
        x = _conv(n, x, (channels, channels, *(1,) * rank), {})
    more = _taps(n, rank, (1, 2, 2, 3, 3, 5))
    if "auto_pad" not in more:
        more["ceil_mode"] = n.rng.choice((0, 0, 1))
    op_type = n.rng.choice(("MaxPool", "MaxPool", "AveragePool"))
    if op_type == "AveragePool":
        more["count_include_pad"] = n.rng.choice((0, 1))
    elif n.chance(0.1) and "auto_pad" not in more:
        more["dilations"] = [n.rng.choice((1, 2)) for _ in range(rank)]
    y = n.op(op_type, x, **more)
    _followed(n, y, channels, rank)
