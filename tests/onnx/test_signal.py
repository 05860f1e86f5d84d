"""Transforms of signals of any length, against numpy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import graph_model, info

EXAMPLES = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run(
    op_type: str,
    opset: int,
    signal: Array,
    inputs: list[Array | None],
    backend: str = "interpreter",
    **attributes: Any,
) -> Array:
    """One node of a signal and of what is known of it."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(inputs)]
    stored = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    node = helper.make_node(op_type, ["x", *names], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(signal.dtype), None)
    model = graph_model([node], [info("x", signal)], [output], opset, stored)
    (result,) = glowpy.InferenceSession(model, backend=backend).run(None, {"x": signal})
    return np.asarray(result)


def close(got: Array, expected: Array, units: float = 8) -> None:
    """The root mean square of errors, by that of the result."""
    pairs = np.stack([expected.real, expected.imag], -1) if np.iscomplexobj(expected) else expected
    assert got.shape == pairs.shape
    error = np.sqrt(np.sum((got - pairs) ** 2) / np.sum(pairs**2))
    assert error < units * np.finfo(got.dtype).eps


def signal_of(seed: int, *shape: int) -> Array:
    return (
        np.random.default_rng(seed)
        .standard_normal(shape)
        .astype([np.float32, np.float64][seed % 2])
    )


def numbers(signal: Array) -> Array:
    wide = signal.astype(np.float64)
    return np.asarray(wide[..., 0] + (1j * wide[..., 1] if wide.shape[-1] == 2 else 0))


LENGTHS = st.one_of(st.integers(1, 128), st.sampled_from([211, 254, 509]))


@EXAMPLES
@given(
    LENGTHS,
    st.integers(1, 140),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_dft(length: int, rows: int, parts: int, inverse: bool, half: bool, seed: int) -> None:
    """Those with large factors are convolutions. What is longer than the transform is cut off."""
    signal = signal_of(seed, 2, rows, 3, parts)
    given = numbers(signal)
    if inverse:
        expected = (np.fft.irfft if half else np.fft.ifft)(given, length, axis=1)
    else:
        expected = np.fft.fft(given, length, axis=1)
        expected = expected[:, : length // 2 + 1] if half else expected
    expected = expected[..., None] if inverse and half else expected
    axes = [np.array(length), np.array(1)]
    attributes: dict[str, Any] = {"inverse": int(inverse), "onesided": int(half)}
    got = run("DFT", 20, signal, list(axes), **attributes)
    if np.linalg.norm(expected):
        close(got, expected)


@pytest.mark.parametrize("axis", range(3))
def test_dft_along_every_axis(axis: int) -> None:
    signal = signal_of(0, 4, 5, 6, 2)
    close(run("DFT", 17, signal, [], axis=axis), np.fft.fft(numbers(signal), axis=axis))


@pytest.mark.parametrize("length", [53, 106])
def test_large_factors_on_cpu(length: int) -> None:
    signal = signal_of(length % 2, 2, length, 2)
    close(run("DFT", 17, signal, [], backend="cpu"), np.fft.fft(numbers(signal), axis=1))


@EXAMPLES
@given(
    st.integers(1, 24), st.integers(1, 9), st.integers(0, 40), st.booleans(), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
def test_stft(length: int, step: int, more: int, weighted: bool, half: bool, seed: int) -> None:
    """Frames overlap, adjoin, or leave something out; the end may be in none."""
    signal = signal_of(seed, 2, length + more, 1)
    window = signal_of(seed + 2, length) if weighted else np.ones(length, signal.dtype)
    starts = range(0, more + 1, step)
    frames = np.stack([signal[:, start : start + length, 0] for start in starts], 1)
    transform = np.fft.rfft if half else np.fft.fft
    inputs = [np.array(step), window] if weighted else [np.array(step), None, np.array(length)]
    got = run("STFT", 17, signal, list(inputs), onesided=int(half))
    close(got, transform(frames.astype(np.float64) * window))
