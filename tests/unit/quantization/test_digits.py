"""Handwritten digits: what quantization costs networks that were trained, and that all backends agree on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import glowpy
from glowpy import quantization
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.quantization import Conversion, Entropy, MeanSquaredError, Options, Profile, Schema
from tests.unit.quantization.digits import accuracy, cnn, digits, mlp

BATCH = 100
LOST = 0.3
"""Percentage points of accuracy."""

Network = Callable[[int], glowpy.Module]


@cache
def profiled(network: Network) -> Profile:
    known, _ = digits()
    batches = [known.images[start : start + BATCH] for start in range(0, 8 * BATCH, BATCH)]
    return quantization.profile(network(BATCH), [{"x": batch} for batch in batches])


@cache
def converted(network: Network) -> Conversion:
    """With the defaults: asymmetric activations, symmetric weights with a scale for each channel."""
    return quantization.convert(network(BATCH), profiled(network))


def scores(module: glowpy.Module, backend: str | glowpy.Backend) -> Array:
    """Of the digits to test with."""
    _, unseen = digits()
    function = glowpy.compile(module, backend)
    batches = np.split(unseen.images, len(unseen.images) // BATCH)
    return np.concatenate([function({"x": batch})["y"] for batch in batches])


@cache
def accuracy_in_floats(network: Network) -> float:
    return accuracy(scores(network(BATCH), "cpu"))


@cache
def reference(network: Network) -> Array:
    return scores(converted(network).module, "interpreter")


@pytest.mark.parametrize("network", [mlp, cnn])
def test_accuracy(network: Network) -> None:
    before, after = accuracy_in_floats(network), accuracy(reference(network))
    assert before > 95
    assert before - after <= LOST
    assert not converted(network).floats
    assert converted(network).bytes_after < 0.3 * converted(network).bytes_before


@pytest.mark.parametrize("target", ["", "cortex-m7", "cortex-m4-nofpu"])
def test_working_memory_is_less_than_a_third(target: str) -> None:
    """Sums of products, and what becomes of them until they are integers of 8 bits, are in registers."""
    backend = glowpy.CpuBackend(glowpy.CpuOptions(target=target))
    integers = compilation(converted(cnn).module, backend).program.plan
    assert integers.peak <= 0.3 * compilation(cnn(BATCH), backend).program.plan.peak
    assert integers.registers


@pytest.mark.parametrize("processor", ["", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("network", [mlp, cnn])
def test_the_same_bits(network: Network, processor: str) -> None:
    """Of the interpreter and of every kind of kernels that this machine runs."""
    needed = {"x86-64-v2": "sse4_2", "x86-64-v3": "avx2", "x86-64-v4": "avx512bw"}
    if processor and needed.get(processor, "sse2") not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this machine is no {processor}")
    backend = glowpy.CpuBackend(glowpy.CpuOptions(cpu=processor))
    expected = reference(network)
    assert scores(converted(network).module, backend).tobytes() == expected.tobytes()


@pytest.mark.parametrize("network", [mlp, cnn])
def test_onnxruntime_agrees(network: Network, tmp_path: Path) -> None:
    """On what is exported: the same digits for 1,000 random images, and scores that differ by two steps at most."""
    module = converted(network).module
    path = tmp_path / "quantized.onnx"
    glowpy.save(module, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    function = glowpy.compile(module)
    rng = np.random.default_rng(5)
    for _ in range(10):
        x = rng.random((BATCH, 8, 8, 1), np.float32)
        (theirs,) = session.run(None, {"x": x})
        ours = function({"x": x})["y"]
        assert np.array_equal(ours.argmax(1), theirs.argmax(1))
        size = profiled(network)["dense1" if network is mlp else "dense2"].size
        assert np.abs(ours - theirs).max() <= 2 * size / 255


@pytest.mark.parametrize("network", [mlp, cnn])
def test_sixteen_bits(network: Network, tmp_path: Path) -> None:
    """The same bits everywhere; onnxruntime agrees if it computes as the file says, and fuses nothing."""
    options = Options(activations=ElemKind.I16, assert_all=True)
    module = quantization.quantize(network(BATCH), profiled(network), options)
    expected = scores(module, "interpreter")
    assert accuracy(expected) >= accuracy_in_floats(network) - LOST / 3
    for processor in ("", "x86-64", "x86-64-v2"):
        backend = glowpy.CpuBackend(glowpy.CpuOptions(cpu=processor))
        assert scores(module, backend).tobytes() == expected.tobytes()
    path = tmp_path / "quantized.onnx"
    glowpy.save(module, path)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, plain, providers=["CPUExecutionProvider"])
    x = digits()[1].images[:BATCH]
    (theirs,) = session.run(None, {"x": x})
    size = profiled(network)["dense1" if network is mlp else "dense2"].size
    assert np.abs(expected[:BATCH] - theirs).max() <= 2 * size / 65535
    again = glowpy.compile(glowpy.load(path))({"x": x})["y"]
    assert again.tobytes() == expected[:BATCH].tobytes()


@pytest.mark.parametrize(
    "options",
    [
        Options(schema=Schema.SYMMETRIC, activations=ElemKind.I8),
        Options(schema=Schema.SYMMETRIC_U8),
        Options(schema=Schema.POWER_OF_TWO),
        Options(per_channel=False),
        Options(activations=ElemKind.I16),
        Options(activations=ElemKind.I16, schema=Schema.SYMMETRIC, bias=ElemKind.I16),
        Options(bias=ElemKind.I16),
        Options(bias=ElemKind.F32),
        Options(calibration=Entropy()),
        Options(calibration=MeanSquaredError()),
        Options(skip_first=True, skip_last=True),
    ],
    ids=repr,
)
def test_other_options(options: Options) -> None:
    """Some are worse than the defaults, none by much."""
    module = quantization.quantize(cnn(BATCH), profiled(cnn), options)
    assert accuracy(scores(module, "cpu")) >= accuracy_in_floats(cnn) - 3 * LOST
