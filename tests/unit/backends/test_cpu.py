"""The CPU backend: what its code looks like, and how it is bound, shared, cached and refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.backend import CompileOptions, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.codegen import generate_llvm
from glowpy.backends.cpu.options import CpuOptions
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Operand, Placeholder
from glowpy.llvm.machine import host_features, host_triple
from glowpy.support.errors import UserError

Network = Callable[[Function, Placeholder], Operand]


def network(type: str, build: Network) -> Module:
    """A module with one function from placeholder `x` to placeholder `y`."""
    module = Module()
    x = module.create_placeholder("x", parse_type(type))
    f = module.create_function("main")
    result = build(f, x)
    value = result if not isinstance(result, Placeholder) else result.value
    node = getattr(value, "result", value)
    f.create_save("save", node, module.create_placeholder("y", node.type))
    return module


def program_of(module: Module, backend: CpuBackend | None = None) -> Program:
    return compilation(module, backend or CpuBackend()).program


def llvm_of(module: Module) -> str:
    backend = CpuBackend()
    (text,) = generate_llvm({"net": program_of(module)}, backend.target, backend.kernels)
    return text


def two_layers(f: Function, x: Placeholder) -> Operand:
    weights = np.linspace(-1, 1, 8 * 8, dtype=np.float32).reshape(8, 8)
    first = f.create_mat_mul("first", x, f.module.create_constant("w1", weights))
    return f.create_mat_mul("second", first, f.module.create_constant("w2", weights + 1))


def test_equal_kernels_are_written_once() -> None:
    text = llvm_of(network("f32[12x8]", two_layers))
    assert len(re.findall(r"define internal void @net\.first\(", text)) == 1
    assert "@net.second" not in text
    assert len(re.findall(r"call void @net\.first\(", text)) == 2


def test_small_loops_are_inlined_and_small_kernels_are_not() -> None:
    """An entry point with hundreds of kernels in it would take LLVM minutes."""

    def build(f: Function, x: Placeholder) -> Operand:
        node: Operand = x
        for _ in range(50):
            node = f.create_softmax("kernel", f.create_neg("loop", node), 1)
        return node

    text = llvm_of(network("f32[2x4]", build))
    attributes = dict(re.findall(r"define internal void @net\.(\w+)\(.*\) (\w+) ", text))
    assert (attributes["kernel"], attributes["loop"]) == ("noinline", "alwaysinline")
    assert len(re.findall(r"call void @net\.kernel", text)) == 50


@pytest.mark.parametrize("features", ["avx2", "+", "+avx2,,", "+avx2, -fma"])
def test_features_have_signs(features: str) -> None:
    with pytest.raises(UserError, match="expected changes such as"):
        CpuBackend(CpuOptions(features=features))


def test_chain_after_a_product_is_its_epilogue() -> None:
    def build(f: Function, x: Placeholder) -> Operand:
        bias = f.module.create_constant("bias", np.arange(8, dtype=np.float32))
        return f.create_relu("relu", f.create_add("biased", two_layers(f, x), bias))

    module = network("f32[12x8]", build)
    text = llvm_of(module)
    assert "second_epilogue" in text
    inputs = {"x": np.random.default_rng(0).standard_normal((12, 8), dtype=np.float32)}
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    np.testing.assert_allclose(glowpy.compile(module, "cpu")(inputs)["y"], expected, rtol=1e-5)


def test_one_element_constants_become_immediates() -> None:
    def build(f: Function, x: Placeholder) -> Operand:
        return f.create_add("sum", x, f.module.create_constant("three", np.array(3, np.int32)))

    text = llvm_of(network("i32[5]", build))
    assert re.search(r"call i32 @libjit_add_i32\(i32 %r\d+, i32 3\)", text)


@pytest.mark.parametrize("shape", ["0", "0x3", "2x0x3"])
def test_tensors_without_elements_run(shape: str) -> None:
    module = network(f"f32[{shape}]", lambda f, x: f.create_exp("exp", x))
    compiled = glowpy.compile(module, "cpu", CompileOptions(verify_each=True))
    empty = np.zeros(compiled.inputs["x"].extents, np.float32)
    assert compiled({"x": empty})["y"].shape == empty.shape


def test_bound_arrays_are_used_in_place_even_if_unaligned() -> None:
    compiled = glowpy.compile(network("f32[33]", lambda f, x: f.create_neg("neg", x)), "cpu")
    instance = compiled.instance()
    memory = np.zeros(80, np.float32)
    x, y = memory[1:34], memory[35:68]
    x[:] = np.arange(33)
    instance.bind("x", x)
    instance.bind("y", y)
    instance.run()
    assert instance["y"] is y
    np.testing.assert_array_equal(y, -x)
    assert memory[0] == memory[34] == memory[68] == 0


def test_bind_refuses_what_it_cannot_use() -> None:
    instance = glowpy.compile(
        network("f32[4]", lambda f, x: f.create_neg("n", x)), "cpu"
    ).instance()
    with pytest.raises(glowpy.UserError, match="C-contiguous"):
        instance.bind("x", np.zeros(8, np.float32)[::2])
    with pytest.raises(glowpy.UserError, match="expected an array of type"):
        instance.bind("x", np.zeros(4, np.float64))
    with pytest.raises(glowpy.UserError, match="got 'z'"):
        instance.bind("z", np.zeros(4, np.float32))
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(glowpy.UserError, match="writeable"):
        instance.bind("y", frozen)
    x = np.zeros(8, np.float32)
    instance.bind("x", x[:4])
    with pytest.raises(glowpy.UserError, match="'y': expected memory of its own, got some of %x's"):
        instance.bind("y", x[3:7])
    instance.bind("y", x[4:])
    instance.bind("x", x[:4])


def test_calls_from_many_threads_agree() -> None:
    compiled = glowpy.compile(network("f32[64x8]", two_layers), "cpu")
    inputs = np.random.default_rng(1).standard_normal((16, 64, 8), dtype=np.float32)
    expected = [compiled({"x": x})["y"] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: compiled({"x": x})["y"], inputs))
    for one, other in zip(expected, results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_machine_code_is_cached(cache_folder: Path) -> None:
    module = network("f32[7]", lambda f, x: f.create_tanh("tanh", x))
    glowpy.compile(module, "cpu")
    files = sorted(cache_folder.iterdir())
    assert {file.name.partition("-")[0] for file in files} <= {"code", "target"}
    (code,) = (file for file in files if file.name.startswith("code-"))
    stamp = code.stat().st_mtime_ns
    code.touch()
    glowpy.compile(module, "cpu")
    assert sorted(cache_folder.iterdir()) == files
    assert code.stat().st_mtime_ns > stamp
    glowpy.compile(module, "cpu", CompileOptions(cache=False))
    assert sorted(cache_folder.iterdir()) == files


def test_kind_without_kernel_is_refused_with_every_place() -> None:
    def build(f: Function, x: Placeholder) -> Operand:
        first = f.create_reduce_max("first", x, (0,))
        return f.create_reduce_max("second", first, (1,))

    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.compile(network("u16[4x3]", build), "cpu")
    assert len(caught.value.diagnostics) == 2
    assert "no kernel for reduce_max on u16[1x3]" in str(caught.value)


def test_code_for_another_machine_cannot_run_here() -> None:
    module = network("f32[4]", lambda f, x: f.create_neg("n", x))
    with pytest.raises(glowpy.UserError, match="cannot run code"):
        glowpy.compile(module, CpuBackend(CpuOptions("aarch64-linux-gnu")))


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("x86_64-linux-gnu", "retq"),
        ("aarch64-linux-gnu", "ret"),
        ("armv7-linux-gnueabihf", ".fnend"),
        ("riscv64-linux-gnu", "ret"),
        ("powerpc64le-linux-gnu", "blr"),
        ("wasm32-unknown-unknown", "end_function"),
    ],
)
def test_assembly_of_every_family(target: str, instruction: str) -> None:
    module = network("f32[33]", lambda f, x: f.create_tanh("tanh", x))
    backend = CpuBackend(CpuOptions(target))
    text = backend.emit(program_of(module, backend), "asm")
    assert "glowpy_main" in text
    assert instruction in text


def test_unknown_targets_are_the_users_mistake() -> None:
    with pytest.raises(glowpy.UserError, match="z80"):
        CpuBackend(CpuOptions("z80-unknown-none"))


def small_network(f: Function, x: Placeholder) -> Operand:
    generator = np.random.default_rng(3)

    def constant(*shape: int) -> Operand:
        return f.module.create_constant("k", generator.standard_normal(shape, np.float32))

    ones, border = (1, 1), (1, 1, 1, 1)
    conv = f.create_convolution(
        "conv", x, constant(9, 3, 3, 5), constant(9), (3, 3), ones, border, ones, 1
    )
    depthwise = f.create_convolution(
        "depthwise",
        f.create_relu("relu", conv),
        constant(9, 3, 3, 1),
        constant(9),
        (3, 3),
        (2, 2),
        border,
        ones,
        9,
    )
    flat = f.create_reshape("flat", parse_type("f32[1x144]"), depthwise)
    return f.create_softmax("softmax", f.create_mat_mul("product", flat, constant(144, 7)), 1)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_kernel_variant_of_this_machine_is_right(cpu: str) -> None:
    if not host_triple().startswith("x86_64"):
        pytest.skip("another family")
    backend = CpuBackend(CpuOptions(cpu=cpu))
    if backend.target.variant.requires - host_features():
        pytest.skip(f"this machine does not run {cpu}")
    module = network("f32[1x8x8x5]", small_network)
    inputs = {"x": np.random.default_rng(4).standard_normal((1, 8, 8, 5), dtype=np.float32)}
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    result = glowpy.compile(module, backend)(inputs)["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)


def test_processor_that_lacks_something_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glowpy.backends.cpu.compiler.host_features", frozenset)
    with pytest.raises(glowpy.UserError, match="this processor lacks"):
        glowpy.compile(network("f32[4]", lambda f, x: f.create_neg("n", x)), "cpu")


def test_convolutions_of_one_dimension_are_packed() -> None:
    def build(f: Function, x: Placeholder) -> Operand:
        filter = f.module.create_constant("k", np.arange(30, dtype=np.float32).reshape(5, 3, 2))
        bias = f.module.create_constant("b", np.arange(5, dtype=np.float32))
        return f.create_convolution("conv", x, filter, bias, (3,), (2,), (1, 0), (1,), 1)

    module = network("f32[2x9x2]", build)
    assert any(inst.SCHEMA.mnemonic == "cpu_conv" for inst in program_of(module).ir.instructions)
    inputs = {"x": np.random.default_rng(2).standard_normal((2, 9, 2), dtype=np.float32)}
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    np.testing.assert_allclose(glowpy.compile(module, "cpu")(inputs)["y"], expected, rtol=1e-5)
