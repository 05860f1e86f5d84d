"""Functions that many networks have: an ordinary network has some of them, and code in stock has the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend
from glowpy.backends.cpu.codegen import entry_name, generate_llvm
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.target import portable_machine
from glowpy.backends.cpu.variant import machines_of, variant_named
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.llvm.code_options import CodeOptions, EntryOptions
from glowpy.llvm.machine import host_cpu, host_features
from glowpy.llvm.objects import compile_objects
from glowpy.llvm.stock import write_stock
from tools.common_functions import common_texts


def network() -> Module:
    """Two convolutions of 28 x 28 pixels, of which the second adds the input of the first."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1x28x28x64]")).value
    value = x
    for index, (kernel, pad) in enumerate(((3, 1), (1, 0))):
        weights = np.random.default_rng(index).normal(size=(64, kernel, kernel, 64)) / 24
        filter = module.create_constant("filter", weights.astype(np.float32))
        bias = module.create_constant("bias", np.zeros(64, np.float32))
        lists = (kernel, kernel), (1, 1), (pad,) * 4, (1, 1), 1
        value = f.create_convolution("conv", value, filter, bias, *lists).result
        if index:
            value = f.create_add("sum", value, x).result
        value = f.create_relu("relu", value).result
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


def functions(module: Module, backend: CpuBackend) -> list[str]:
    program = compilation(module, backend).program
    options = CodeOptions(EntryOptions(bound=True, parallel=True), separate=True)
    return list(
        generate_llvm({entry_name(program): program}, backend.target, backend.kernels, options)
    )


def test_code_in_stock_has_the_same_bits(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, backend = network(), CpuBackend()
    variant = backend.target.variant
    machine, kernels = portable_machine(backend.target), backend.kernels.bitcode
    common = set(common_texts(variant, [variant.machine], machine.triple))
    texts = [text for text in functions(module, backend) if text in common]
    called = {
        name
        for name in ("cpu_conv", "tile_fetching", "tile_scattered")
        if any(name in t for t in texts)
    }
    assert {"cpu_conv", "tile_fetching"} <= called
    inputs = {"x": np.random.default_rng(9).normal(size=(1, 28, 28, 64)).astype(np.float32)}
    expected = glowpy.compile(module, CpuBackend())(inputs)["y"]
    compiled = set(cache_folder.glob("code-*"))
    assert len(compiled) > len(texts)

    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "other"))
    stock = tmp_path / "brought"
    stock.mkdir()
    objects = compile_objects(texts, machine, kernels, use_cache=False)
    write_stock(stock, variant.name, machine, kernels, dict(zip(texts, objects, strict=True)))
    monkeypatch.setattr("glowpy.backends.cpu.compiler.STOCK_FOLDER", stock)
    result = glowpy.compile(module, CpuBackend())(inputs)["y"]
    assert result.tobytes() == expected.tobytes()
    assert len(list((tmp_path / "other").glob("code-*"))) == len(compiled) - len(set(texts))


@pytest.mark.parametrize(
    "options", [CpuOptions(cpu=host_cpu()), CpuOptions(features=f"+{min(host_features())}")]
)
def test_code_for_what_is_named_is_not_in_stock(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, options: CpuOptions
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the stock is opened")

    monkeypatch.setattr("glowpy.backends.cpu.compiler.open_stock", refuse)
    module = Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, parse_type("f32[3]")) for name in "xy")
    f.create_save("save", f.create_neg("neg", x.value).result, y)
    glowpy.compile(module, CpuBackend(options))
    with pytest.raises(AssertionError, match="the stock is opened"):
        glowpy.compile(module, CpuBackend())


@pytest.mark.parametrize("name", ["x86_64_v2", "x86_64_v3", "x86_64_v4", "aarch64_neon"])
def test_every_variant_has_them(name: str) -> None:
    """An installation makes those of its whole family, also of variants with few lanes."""
    variant = variant_named(name)
    triple = portable_machine(CpuBackend().target).triple
    assert len(list(common_texts(variant, machines_of(variant), triple))) > 100
