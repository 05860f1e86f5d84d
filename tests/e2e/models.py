"""Small networks that together touch every stage; each is the only function of a module."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glowpy import Module, parse_type
from glowpy.core.tensor import Array
from glowpy.graph.node import Placeholder


def ramp(*shape: int) -> Array:
    """Exact values in [-1, 1) that are the same on every machine."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 37) % 64 - 32) / 32).astype(np.float32).reshape(shape)


def port(m: Module, name: str, type: str) -> Placeholder:
    return m.create_placeholder(name, parse_type(type))


def mlp() -> Module:
    """Two layers and a softmax."""
    m = Module()
    x, y = port(m, "x", "f32[2x8]"), port(m, "y", "f32[2x4]")
    f = m.create_function("mlp")
    w1, b1 = m.create_constant("w1", ramp(8, 16)), m.create_constant("b1", ramp(16))
    w2, b2 = m.create_constant("w2", ramp(16, 4)), m.create_constant("b2", ramp(4))
    hidden = f.create_relu("hidden", f.create_fully_connected("fc1", x, w1, b1))
    scores = f.create_fully_connected("fc2", hidden, w2, b2)
    f.create_save("save", f.create_softmax("prob", scores, axis=1), y)
    return m


def residual() -> Module:
    """A block as in ResNet: convolution, normalisation, relu, and the input added again."""
    m = Module()
    x, y = port(m, "x", "f32[1x6x6x4]"), port(m, "y", "f32[1x3x3x4]")
    f = m.create_function("residual")
    w, b = m.create_constant("w", ramp(4, 3, 3, 4)), m.create_constant("b", ramp(4))
    conv = f.create_convolution("conv", x, w, b, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    scale, shift = m.create_constant("scale", ramp(4)), m.create_constant("shift", ramp(4))
    mean = m.create_constant("mean", ramp(4) / 2)
    variance = m.create_constant("variance", np.abs(ramp(4)) + 0.5)
    norm = f.create_batch_normalization("norm", conv, scale, shift, mean, variance, 3, 1e-5)
    out = f.create_relu("relu", f.create_add("sum", norm, x))
    pool = f.create_max_pool("pool", out, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False)
    f.create_save("save", pool, y)
    return m


def layouts() -> Module:
    """Channels first at both ends, as an ONNX model has them."""
    m = Module()
    x, y = port(m, "x", "f32[1x3x4x4]"), port(m, "y", "f32[1x5x4x4]")
    f = m.create_function("layouts")
    w, b = m.create_constant("w", ramp(5, 1, 1, 3)), m.create_constant("b", ramp(5))
    inner = f.create_transpose("to_last", x, (0, 2, 3, 1))
    conv = f.create_convolution("conv", inner, w, b, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    outer = f.create_transpose("to_first", conv, (0, 3, 1, 2))
    again = f.create_transpose("again", f.create_relu("relu", outer), (0, 2, 3, 1))
    f.create_save("save", f.create_transpose("back", again, (0, 3, 1, 2)), y)
    return m


def branches() -> Module:
    """Two branches of one input, one after the other in the result."""
    m = Module()
    x, y = port(m, "x", "f32[2x6]"), port(m, "y", "f32[2x9]")
    f = m.create_function("branches")
    left = f.create_slice("left", parse_type("f32[2x3]"), x, (0, 0), (1, 2))
    right = f.create_tanh("right", x)
    joined = f.create_concat("joined", [f.create_exp("exp", left), right], 1)
    f.create_save("save", joined, y)
    return m


def integers() -> Module:
    """((x - 2) + 5) + 100 on one i32."""
    m = Module()
    x, y = port(m, "x", "i32[]"), port(m, "y", "i32[]")
    f = m.create_function("integers")
    two, five, hundred = (m.create_constant(f"c{n}", np.array(n, np.int32)) for n in (2, 5, 100))
    less = f.create_sub("less", x, two)
    f.create_save("save", f.create_add("c", f.create_add("b", less, five), hundred), y)
    return m


def lookup() -> Module:
    """Rows of a table picked by indices, then their mean."""
    m = Module()
    indices, y = port(m, "indices", "i64[2x3]"), port(m, "y", "f32[2x1x4]")
    f = m.create_function("lookup")
    rows = f.create_gather("rows", m.create_constant("table", ramp(10, 4)), indices, 0)
    f.create_save("save", f.create_reduce_mean("mean", rows, (1,)), y)
    return m


MODELS: dict[str, Callable[[], Module]] = {
    make.__name__: make for make in (mlp, residual, layouts, branches, integers, lookup)
}
