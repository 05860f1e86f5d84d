"""A small network that is profiled, and what it is profiled with."""

from __future__ import annotations

import numpy as np

import glowpy
from glowpy.core.tensor import Array


def network(weight: float = 2.0) -> glowpy.Module:
    """Something that is optimized (an addition of zero), something that is lowered (gelu), and two outputs."""
    module = glowpy.Module()
    f = module.create_function("main")
    type = glowpy.parse_type("f32[2x3]")
    x, y, z = (module.create_placeholder(name, type) for name in ("an input", "y", "z"))
    weights = module.create_constant("w", np.full((2, 3), weight, np.float32))
    zero = module.create_constant("zero", np.full((2, 3), -0.0, np.float32))
    scaled = f.create_mul("scaled", f.create_add("plus", x, zero), weights)
    gelu = f.create_gelu("gelu", scaled, False)
    f.create_save("save", gelu, y)
    f.create_save("save", f.create_relu("relu", scaled), z)
    return module


def samples(count: int, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.5, 8, count)
    return [{"an input": (scale * rng.normal(size=(2, 3))).astype(np.float32)} for scale in spread]
