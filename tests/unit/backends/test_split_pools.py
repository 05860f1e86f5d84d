"""Pools are computed one dimension after the other where that makes vectors of pixels."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import glowpy
from glowpy import CpuBackend
from glowpy.engine import compilation
from glowpy.graph.nodes_gen import TransposeNode
from glowpy.support.symbolic import symbol
from tests.unit.networks import same_numbers

POOLS = {
    "few channels": (3, "MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>", 2),
    "few means": (2, "AveragePool<kernel_shape=[2, 3], pads=[0, 1, 1, 1], count_include_pad=1>", 2),
    "means of columns": (2, "AveragePool<kernel_shape=[3, 1], pads=[1, 0, 1, 0]>", 0),
    "means that are rounded once": (2, "AveragePool<kernel_shape=[3, 2], pads=[0, 1, 2, 0]>", 2),
    "planes": (9, "MaxPool<kernel_shape=[3, 5], strides=[2, 2], pads=[1, 2, 1, 2]>", 2),
    "planes of means": (8, "AveragePool<kernel_shape=[2, 2], strides=[2, 2]>", 2),
    "many channels": (16, "MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>", 2),
}
"""Channels, the pool, and how many transposes there are."""


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_planes(name: str) -> None:
    """At open extents as the interpreter has it, and no image is transposed once more than before."""
    channels, pool, transposes = POOLS[name]
    text = f"""<ir_version: 8, opset_import: ["" : 19]>
        net (float[N, {channels}, H, W] x) => (float[N, {channels}, P, Q] y) {{ y = {pool}(x) }}"""
    model = onnx.parser.parse_model(text)
    dims = {"N": (1, 3), "H": (33, 41), "W": (33, 36)}
    opened = {key: symbol(key, *pair) for key, pair in dims.items()}
    stages = compilation(glowpy.load(model, dims=opened), CpuBackend())
    assert sum(isinstance(node, TransposeNode) for node in stages.lowered.nodes) == transposes
    compiled = stages.compiled
    expected = glowpy.compile(glowpy.load(model, dims=opened), "interpreter")
    for shape in ((1, channels, 33, 33), (2, channels, 40, 34)):
        x = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        same_numbers(compiled(x), expected(x))
