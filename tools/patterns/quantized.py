"""Products of quantized integers, as quantizers write them and nearly so."""

from __future__ import annotations

import numpy as np

from tools.patterns.network import Network

__all__ = ["byte_products", "quantized_layers"]


def _scale(n: Network, size: int = 0) -> str:
    numbers = np.random.default_rng(n.rng.getrandbits(32))
    shape = (size,) if size else ()
    return n.known((0.01 + 0.05 * numbers.random(shape)).astype(np.float32))


def _zero(n: Network, dtype: type, size: int = 0, *, symmetric: bool = False) -> str:
    low, high = (100, 150) if dtype is np.uint8 else (-10, 10)
    if symmetric or n.chance(0.2):
        low, high = (0, 1) if dtype is not np.uint8 else (128, 129)
    numbers = np.random.default_rng(n.rng.getrandbits(32))
    return n.known(np.asarray(numbers.integers(low, high, (size,) if size else ()), dtype))


def _dequantized(n: Network, x: str, dtype: type) -> str:
    """Quantizes floats, and dequantizes the integers."""
    scale, zero = _scale(n), _zero(n, dtype)
    return str(n.op("DequantizeLinear", n.op("QuantizeLinear", x, scale, zero), scale, zero))


def _known_weights(n: Network, shape: tuple[int, ...], axis: int) -> str:
    """Integers as constants, and their floats."""
    numbers = np.random.default_rng(n.rng.getrandbits(32))
    dtype = n.rng.choice((np.int8, np.int8, np.int8, np.uint8))
    info = np.iinfo(dtype)
    stored = n.known(numbers.integers(info.min, info.max + 1, shape, dtype))
    size = shape[axis] if n.chance(0.5) else 0
    zero = _zero(n, dtype, size, symmetric=n.chance(0.9))
    return str(n.op("DequantizeLinear", stored, _scale(n, size), zero, axis=axis))


def quantized_layers(n: Network) -> None:
    """Convolutions and products between quantizing and dequantizing."""
    n.dtype = np.float32
    dtype = n.rng.choice((np.uint8, np.int8))
    batch = n.extent("batch", (1, 1, 2))
    n.tolerance, n.least = (
        8e-2,
        0.25,
    )  # some steps: a sum that lies between two is rounded to either
    if n.chance(0.5):
        rows, depth, columns = (
            n.extent("rows", (1, 3, 16)),
            n.rng.choice((1, 4, 7, 32, 65)),
            n.rng.choice((1, 5, 16, 40)),
        )
        x = _dequantized(n, n.input((batch, rows, depth)), dtype)
        y = n.op("MatMul", x, _known_weights(n, (depth, columns), 1))
        if n.chance(0.6):
            y = n.op("Add", y, n.known(n.array((columns,))))
    else:
        group = n.rng.choice((1, 1, 1, 2, 8))
        depth, outputs = n.rng.choice((1, 3, 4, 8)), n.rng.choice((1, 4, 5, 16))
        if group == 8:
            depth = outputs = 1
        kernel, side = n.rng.choice((1, 3, 3, 5)), n.extent("side", (7, 8, 12))
        x = _dequantized(n, n.input((batch, group * depth, side, 9)), dtype)
        w = _known_weights(n, (group * outputs, depth, kernel, kernel), 0)
        operands = [x, w] + ([n.known(n.array((group * outputs,)))] if n.chance(0.6) else [])
        pads = n.rng.choice(([0] * 4, [kernel // 2] * 4, [0, kernel // 2, 0, 0]))
        y = n.op(
            "Conv",
            *operands,
            group=group,
            pads=pads,
            strides=n.rng.choice(([1, 1], [2, 2], [1, 2])),
        )
        if n.chance(0.3):
            y = n.op("MaxPool", y, kernel_shape=[2, 2])
    match n.rng.randrange(5):
        case 0:
            y = n.op("Relu", y)
        case 1:
            y = n.op("Add", y, _dequantized(n, n.op("Neg", y), dtype))
        case 2:
            y = n.op("Sigmoid", y)
        case 3:
            y = n.op("Clip", y, n.number(0.0), n.number(6.0))
        case _:
            pass
    if n.chance(0.8):
        y = _dequantized(n, y, n.rng.choice((np.uint8, np.int8)))
    n.op("Identity", y)


def byte_products(n: Network) -> None:
    """MatMulInteger and ConvInteger, whose results are exact, with what dynamic quantization puts around them."""
    n.dtype = np.float32
    columns, depth = n.rng.choice((1, 5, 16, 33)), n.rng.choice((1, 3, 4, 17, 64, 130))
    rows = n.extent("rows", (1, 2, 7, 30))
    numbers = np.random.default_rng(n.rng.getrandbits(32))
    kind = n.rng.choice((np.uint8, np.int8))
    other = n.rng.choice((np.uint8, np.int8))
    low, high = np.iinfo(other).min, np.iinfo(other).max + 1
    is_conv = n.chance(0.4)
    shape = (columns, depth, 3, 3) if is_conv else (depth, columns)
    extreme = n.chance(0.2)
    w = n.known(
        numbers.choice((low, high - 1), shape).astype(other)
        if extreme
        else numbers.integers(low, high, shape, other)
    )
    size: tuple[int, ...] = (
        (1, depth, rows, 6) if is_conv else (n.extent("batch", (1, 2)), rows, depth)
    )
    if is_conv:
        size = (1, depth, 5, n.extent("wide", (5, 8)))
    scale = ""
    if n.chance(0.4):
        x, scale, zero = n.op("DynamicQuantizeLinear", n.given(n.array(size), size), results=3)
    else:
        info = np.iinfo(kind)
        x = n.given(numbers.integers(info.min, info.max + 1, tuple(size), kind), size)
        zero = n.known(np.asarray(numbers.integers(info.min, info.max + 1), kind))
    zeros = n.known(
        np.asarray(
            numbers.integers(low, high, columns if n.chance(0.3) and not is_conv else None), other
        )
    )
    operands = [x, w, *n.rng.choice(((), (zero,), (zero, zeros)))]
    if is_conv:
        y = n.op("ConvInteger", *operands, pads=n.rng.choice(([0] * 4, [1] * 4)))
    else:
        y = n.op("MatMulInteger", *operands)
    if scale or n.chance(
        0.5
    ):  # for zeros alone any scale will do, and runtimes have different ones
        y = n.op("Cast", y, to=1)
        factor = n.known(np.full((), 0.02, np.float32))
        y = n.op("Mul", y, n.op("Mul", scale, factor) if scale else factor)
        if n.chance(0.5) and not is_conv:
            y = n.op("Add", y, n.weights((columns,)))
        if n.chance(0.3):
            n.op("Relu", y)
