"""Attention in bf16: both products are of rounded numbers, and softmax between them is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.graph.function import Function
from glowpy.graph.node import Operand
from glowpy.support.symbolic import symbol
from tests.bundles.networks import need
from tests.unit.backends.test_bf16 import backend, floats, network, rounded, run_cli


def attention(f: Function, q: Operand, k: Operand, v: Operand, *masks: Operand) -> Any:
    scores: Operand = f.create_mat_mul("s", q, f.create_transpose("kt", k, (0, 1, 3, 2)))
    for mask in masks:
        scores = f.create_add("masked", scores, mask)
    return f.create_mat_mul("o", f.create_softmax("p", scores, 3), v)


def reference(q: Array, k: Array, v: Array, *, mask: Array | None = None) -> Array:
    """In f64, of rounded operands."""
    scores = rounded(q) @ rounded(k).swapaxes(2, 3)
    scores = scores if mask is None else scores + mask
    powers = np.exp(scores - scores.max(3, keepdims=True))
    return np.asarray(powers / powers.sum(3, keepdims=True) @ rounded(v))


def operands(
    batch: int, heads: int, queries: int, keys: int, depth: int, width: int
) -> list[Array]:
    return [
        floats(batch, heads, queries, depth),
        floats(batch, heads, keys, depth, seed=1) / 2,
        floats(batch, heads, keys, width, seed=2),
    ]


def types(arrays: list[Array]) -> dict[str, Any]:
    named = zip("qkv", arrays, strict=True)
    return {name: f"f32[{'x'.join(map(str, array.shape))}]" for name, array in named}


SHAPES = [
    (1, 1, 5, 7, 3, 2),
    (2, 3, 33, 19, 9, 20),
    (1, 2, 17, 130, 64, 64),
    (1, 2, 140, 300, 65, 33),
]


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape: tuple[int, ...], masked: bool) -> None:
    """Results are off by the rounding of weights to 8 bits, which averages out."""
    arrays = operands(*shape)
    mask = np.where(floats(shape[2], shape[3], seed=3) < -1, np.float32(-1e9), np.float32(0))
    constants = {"m": mask} if masked else {}
    expected = reference(*arrays, mask=mask if masked else None)
    inputs = dict(zip("qkv", arrays, strict=True))

    def make() -> glowpy.Module:
        return network(types(arrays), constants, attention)

    own = backend()
    program = compilation(make(), own).program
    (inst,) = (i for i in program.ir.instructions if i.SCHEMA.mnemonic == "cpu_attention")
    assert inst.attrs["in_bf16"]
    plain = InterpreterBackend().function(program)
    bound = 2**-7 * np.abs(arrays[2]).max()
    for function in (glowpy.compile(make(), own), plain):
        error = function(inputs)["y"] - expected
        assert np.abs(error).max() < bound
        assert np.sqrt(np.mean(error**2)) < 2**-8 * np.sqrt(np.mean(expected**2))


def test_a_few_queries_wait_for_memory() -> None:
    """They are computed one by one, exactly, whatever the precision."""
    arrays = operands(1, 2, 3, 40, 16, 24)
    inputs = dict(zip("qkv", arrays, strict=True))
    exact, fast = (
        glowpy.compile(network(types(arrays), {}, attention), own)(inputs)["y"]
        for own in (CpuBackend(), backend())
    )
    np.testing.assert_array_equal(exact, fast)


def test_any_number_of_queries_and_keys() -> None:
    """Numbers that are found when it runs, few and many."""
    queries, keys = symbol("q", 1, 70), symbol("k", 1, 90)

    def type(rows: Any, columns: int) -> Any:
        return glowpy.parse_type(f"f32[1x2x1x{columns}]").with_shape((1, 2, rows, columns))

    module = network(
        {"q": type(queries, 12), "k": type(keys, 12), "v": type(keys, 20)}, {}, attention
    )
    function = glowpy.compile(module, backend())
    for rows, columns in ((1, 1), (3, 90), (17, 33), (70, 90), (64, 2)):
        arrays = operands(1, 2, rows, columns, 12, 20)
        result = function(dict(zip("qkv", arrays, strict=True)))["y"]
        assert np.abs(result - reference(*arrays)).max() < 0.03


def test_weights_that_are_not_finite() -> None:
    """What is NaN or infinite reaches its query, and no other."""
    arrays = operands(1, 1, 8, 9, 4, 6)
    arrays[0][0, 0, 2] = np.nan
    arrays[2][0, 0, 5, 1] = np.inf
    result = glowpy.compile(network(types(arrays), {}, attention), backend())(
        dict(zip("qkv", arrays, strict=True))
    )["y"][0, 0]
    assert np.isnan(result[2]).all()
    others = np.delete(result, 2, 0)
    assert np.isinf(others[:, 1]).all()
    assert np.isfinite(np.delete(others, 1, 1)).all()


def test_any_number_of_threads_computes_the_same_bits() -> None:
    arrays = operands(2, 3, 70, 50, 16, 16)
    inputs = dict(zip("qkv", arrays, strict=True))
    one, three = (
        glowpy.compile(network(types(arrays), {}, attention), backend(threads=threads))(inputs)["y"]
        for threads in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        ({"target": "x86_64-linux-gnu", "cpu": "znver4"}, "vdpbf16ps"),
        ({"target": "aarch64-linux-gnu", "cpu": "neoverse-v1"}, "bfdot"),
    ],
    ids=["x86-64", "aarch64"],
)
def test_instructions(options: dict[str, Any], instruction: str) -> None:
    """Both inner loops are of the processor's own instruction, and nothing is rounded by a library."""
    arrays = operands(1, 2, 64, 64, 32, 32)
    own = CpuBackend(CpuOptions(precision="bf16", **options))
    assembly = compilation(network(types(arrays), {}, attention), own).text("asm")
    assert assembly.count(instruction) > 20
    assert "__trunc" not in assembly


@pytest.mark.parametrize(
    ("target", "emulator"),
    [
        ({}, "cc"),
        ({"target": "aarch64-linux-gnu", "features": "+dotprod,+i8mm,+bf16"}, "qemu-aarch64"),
    ],
    ids=["host", "aarch64"],
)
def test_bundles(
    target: dict[str, Any], emulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of a bundle gives what the interpreter gives of the same program."""
    need(emulator)
    monkeypatch.setenv("QEMU_CPU", "max")
    own = CpuBackend(CpuOptions(precision="bf16", **target)) if target else backend()
    module = network(types(operands(1, 2, 33, 21, 9, 20)), {}, attention)
    glowpy.bundle(module, tmp_path, BundleOptions("attention", selftest=1), own)
    status, output = run_cli("verify", str(tmp_path))
    assert status == 0, output
