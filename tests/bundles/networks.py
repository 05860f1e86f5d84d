"""Networks to bundle, and what tests do with bundles."""

from __future__ import annotations

import importlib.util
import io
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, Constant, CpuBackend, CpuOptions, Module, NodeValue
from glowpy.backends.cpu.options import Optimize
from glowpy.bundling import example
from glowpy.bundling.link import c_compiler
from glowpy.bundling.make import bundle
from glowpy.bundling.write import Bundle
from glowpy.cli.main import run
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters, sum_type
from glowpy.core.tensor import Tensor
from glowpy.core.type import Quant, Type
from glowpy.graph.node import Operand
from glowpy.onnx_package.networks import packaged_network

ZIG = [sys.executable, "-m", "ziglang", "cc", "-fsanitize-trap=undefined"]
"""As `c_compiler` has it, so that both use the same libraries of zig's cache."""


def mlp(extra: int = 0, rows: int = 2) -> Module:
    """A multilayer perceptron with two outputs; `extra` changes the last of its weights."""
    module = Module()
    rng = np.random.default_rng(7)
    x = module.create_placeholder("x", glowpy.parse_type(f"f32[{rows}x16]"))
    f = module.create_function("main")
    wide = module.create_constant("wide", rng.normal(0, 0.3, (16, 24)).astype(np.float32))
    bias = module.create_constant("bias", rng.normal(0, 0.3, 24).astype(np.float32))
    hidden = f.create_relu("hidden", f.create_fully_connected("first", x, wide, bias))
    last = np.random.default_rng(extra).normal(0, 0.3, (24, 6)).astype(np.float32)
    offset = module.create_constant("offset", np.zeros(6, np.float32))
    scores = f.create_fully_connected(
        "second", hidden, module.create_constant("last", last), offset
    )
    for name, node in (("scores", scores), ("y", f.create_softmax("softmax", scores, 1))):
        f.create_save(f"save_{name}", node, module.create_placeholder(name, node.result.type))
    return module


def relu() -> Module:
    """A network without constants."""
    module = Module()
    x, y = (module.create_placeholder(name, glowpy.parse_type("f32[8]")) for name in "xy")
    f = module.create_function("main")
    f.create_save("save", f.create_relu("relu", x), y)
    return module


def doubles() -> Module:
    """Products in f64: a padded convolution, a depthwise one, one whose filter is computed, and a matrix product."""
    module = Module()
    rng = np.random.default_rng(5)
    x = module.create_placeholder("x", glowpy.parse_type("f64[1x7x5x6]"))
    f = module.create_function("main")

    def weights(name: str, *shape: int) -> Constant:
        return module.create_constant(name, rng.normal(0, 0.3, shape))

    lists = (3, 3), (1, 1), (1,) * 4, (1, 1)
    first = f.create_convolution("first", x, weights("w", 10, 3, 3, 6), weights("b", 10), *lists, 1)
    hidden = f.create_relu("hidden", first)
    depths = weights("dw", 10, 3, 3, 1), weights("db", 10)
    deep = f.create_convolution("deep", hidden, *depths, *lists, 10)
    pixels = f.create_reshape("pixels", glowpy.parse_type("f64[5x1x7x10]"), deep)
    rows = f.create_reshape("rows", glowpy.parse_type("f64[1x5x7x10]"), deep)
    last = f.create_convolution(
        "last", rows, pixels, weights("c", 5), (1, 7), (1, 1), (0, 3, 0, 3), (1, 1), 1
    )
    flat = f.create_reshape("flat", glowpy.parse_type("f64[7x25]"), last)
    y = f.create_mat_mul("y", flat, weights("p", 25, 9))
    f.create_save("save", y, module.create_placeholder("result", y.result.type))
    return module


def recurrent() -> Module:
    """An LSTM from the end, a gated recurrent unit after it, and a plain layer of f64; sequences have lengths."""
    module = Module()
    rng = np.random.default_rng(6)
    x = module.create_placeholder("x", glowpy.parse_type("f32[5x3x44]"))
    f = module.create_function("main")

    def weights(name: str, *shape: int, dtype: str = "float32") -> Constant:
        return module.create_constant(name, rng.normal(0, 0.4, shape).astype(dtype))

    lengths = module.create_constant("lengths", np.array([5, 2, 3], np.int32))
    first = f.create_lstm(
        "first", x, weights("r", 4, 11, 11), weights("p", 3, 11), lengths, weights("h", 3, 11), weights("c", 3, 11),
        weights("t", 3, 2), (2, 1, 1), math.inf, reverse=True,
    )  # fmt: skip
    sums = f.create_mat_mul("sums", first.results[0], weights("w", 11, 30))
    second = f.create_gru(
        "second", sums, weights("s", 3, 10, 10), weights("b", 10), lengths, weights("i", 3, 10), weights("u", 2, 2),
        (2, 1), 0.75, reset_after=True,
    )  # fmt: skip
    wide = f.create_convert("wide", glowpy.parse_type("f64[5x3x10]"), second.results[0])
    none = module.create_constant("none", np.zeros(0, np.int32))
    third = f.create_rnn(
        "third", wide, weights("v", 1, 10, 10, dtype="float64"), none, weights("j", 3, 10, dtype="float64"),
        weights("k", 1, 2, dtype="float64"), (1,), math.inf,
    )  # fmt: skip
    for name, value in (("cell", first.results[2]), ("result", third.results[0])):
        f.create_save(f"save_{name}", value, module.create_placeholder(name, value.type))
    return module


def residual() -> Module:
    """What ResNet-50 has besides convolutions of every size and stride: two blocks around which its values go, one of
    them through a convolution, and the mean of all pixels."""
    return _residual(33, 24, [(20, 72, 2), (20, 72, 1)], 5, 10)


def residual_in_full() -> Module:
    """The layers of ResNet-50 in their whole size, all but those that are like another one: the first block of each of
    its stages, and one more of the last."""
    blocks = [(64, 256, 1), (128, 512, 2), (256, 1024, 2), (512, 2048, 2), (512, 2048, 1)]
    return _residual(224, 64, blocks, 7, 1000)


def _residual(
    size: int, depth: int, blocks: Sequence[tuple[int, int, int]], last_size: int, classes: int
) -> Module:
    """A residual network for square images; its blocks have a width inside, one outside, and a stride."""
    module = Module()
    rng = np.random.default_rng(3)
    x = module.create_placeholder("x", glowpy.parse_type(f"f32[1x{size}x{size}x3]"))
    f = module.create_function("main")

    def conv(name: str, value: Operand, channels: int, size: int, stride: int = 1) -> NodeValue:
        depth = value.type.extents[-1]
        filter = rng.normal(0, np.sqrt(2 / (size * size * depth)), (channels, size, size, depth))
        weights = module.create_constant(f"{name}_w", filter.astype(np.float32))
        bias = module.create_constant(f"{name}_b", rng.normal(0, 0.1, channels).astype(np.float32))
        lists = (size, size), (stride, stride), (size // 2,) * 4, (1, 1)
        return f.create_convolution(name, value, weights, bias, *lists, 1).result

    stem = f.create_relu("stem", conv("conv", x, depth, 7, 2))
    value = f.create_max_pool("pool", stem, (3, 3), (2, 2), (1,) * 4, (1, 1), False).result
    for number, (narrow, wide, stride) in enumerate(blocks):
        name = f"block{number}"
        inner = f.create_relu(f"{name}_in", conv(f"{name}_reduce", value, narrow, 1))
        inner = f.create_relu(f"{name}_mid", conv(f"{name}_conv", inner.result, narrow, 3, stride))
        changes = value.type.extents[-1] != wide
        around = conv(f"{name}_around", value, wide, 1, stride) if changes else value
        outer = f.create_add(f"{name}_sum", conv(f"{name}_expand", inner.result, wide, 1), around)
        value = f.create_relu(f"{name}_out", outer).result
    channels = value.type.extents[-1]
    mean = f.create_avg_pool("mean", value, (last_size,) * 2, (1, 1), (0,) * 4, (1, 1))
    flat = f.create_reshape("flat", glowpy.parse_type(f"f32[1x{channels}]"), mean)
    spread = rng.normal(0, 2.5 / np.sqrt(channels), (channels, classes))
    last = module.create_constant("last", spread.astype(np.float32))
    offset = module.create_constant("offset", np.zeros(classes, np.float32))
    y = f.create_softmax("y", f.create_fully_connected("scores", flat, last, offset), 1)
    f.create_save("save", y, module.create_placeholder("result", y.result.type))
    return module


def integers() -> Module:
    """Stored integers from end to end: convolutions of every sort, a sum, a table, pools, a product; each rounds."""
    module = Module()
    rng = np.random.default_rng(4)
    x = module.create_placeholder("x", glowpy.parse_type("u8[1x9x9x3](s=0.02,o=120)"))
    f = module.create_function("main")

    def weights(name: str, scale: float, *shape: int, axis: int) -> Constant:
        scales = tuple(scale * (1 + 0.1 * i) for i in range(shape[axis]))
        type = Type(ElemKind.I8, shape, Quant(scales, (0,) * shape[axis], axis))
        stored = rng.integers(-127, 128, shape).astype(np.int8)
        return module.create_constant(name, Tensor(type, stored))

    def conv(
        name: str, value: Operand, channels: int, size: int, group: int, result: str
    ) -> NodeValue:
        depth = value.type.extents[-1] // group
        filter = weights(f"{name}_w", 0.004, channels, size, size, depth, axis=0)
        sums = sum_type(value.type, filter.type, 0, (*value.type.shape[:-1], channels))
        steps = replace(sums, shape=(channels,), quant=replace(parameters(sums), axis=0))
        stored = rng.integers(-3000, 3000, channels).astype(np.int32)
        bias = module.create_constant(f"{name}_b", Tensor(steps, stored))
        lists = (size, size), (1, 1), (size // 2,) * 4, (1, 1)
        return f.create_convolution(
            name, value, filter, bias, *lists, group, result_type=glowpy.parse_type(result)
        ).result

    stem = conv("stem", x, 20, 3, 1, "u8[1x9x9x20](s=0.04,o=0)")
    middle = conv("middle", stem, 20, 3, 20, "i8[1x9x9x20](s=0.03,o=-5)")
    point = conv("point", middle, 20, 1, 1, "u8[1x9x9x20](s=0.05,o=131)")
    both = f.create_add(
        "both", point, stem, result_type=glowpy.parse_type("u8[1x9x9x20](s=0.07,o=90)")
    )
    bent = f.create_gelu(
        "bent", both, False, result_type=glowpy.parse_type("u8[1x9x9x20](s=0.04,o=10)")
    )
    pool = f.create_max_pool("pool", bent, (3, 3), (2, 2), (1,) * 4, (1, 1), False)
    averages = glowpy.parse_type("u8[1x1x1x20](s=0.02,o=10)")
    mean = f.create_avg_pool(
        "mean",
        pool.result,
        (5, 5),
        (1, 1),
        (0,) * 4,
        (1, 1),
        result_type=averages,
    )
    flat = f.create_reshape("flat", glowpy.parse_type("u8[1x20](s=0.02,o=10)"), mean)
    stored = rng.integers(0, 256, (20, 7)).astype(np.uint8)
    last = module.create_constant(
        "last", Tensor(glowpy.parse_type("u8[20x7](s=0.01,o=120)"), stored)
    )
    y = f.create_mat_mul("y", flat, last, result_type=glowpy.parse_type("i8[1x7](s=0.2,o=3)"))
    f.create_save("save", y, module.create_placeholder("result", y.result.type))
    return module


def light(name: str) -> Module:
    """A network of the onnx package, with random weights: its own are all alike."""
    module = glowpy.load(packaged_network(name))
    rng = np.random.default_rng(0)
    for constant in module.constants:
        type, shape = constant.type, constant.type.extents
        if not type.kind.is_float or type.count == 1:
            continue
        if math.prod(shape) > max(shape):
            fan_in = math.prod(shape) / (shape[-1] if type.rank == 2 else shape[0])
            array = rng.standard_normal(shape) * np.sqrt(2 / fan_in)
        else:
            array = 0.1 + 0.1 * rng.random(shape)
        other = module.create_constant(constant.name, array.astype(type.kind.dtype))
        constant.value.replace_all_uses_with(other.value)
        module.erase(constant)
    return module


@cache
def network(name: str) -> Module:
    """A network made above, or one of the onnx package. Not to be changed."""
    networks = (mlp, doubles, recurrent, residual, residual_in_full, integers)
    own = {f.__name__: f for f in networks}
    return own[name]() if name in own else light(name)


def make(
    folder: Path,
    target: str = "",
    name: str = "mlp",
    *,
    optimize: Optimize = "speed",
    **options: object,
) -> Bundle:
    """A bundle of a network called `net`."""
    settings = BundleOptions("net", **options)  # type: ignore[arg-type]
    backend = CpuBackend(CpuOptions(target, optimize=optimize))
    return bundle(network(name), folder, settings, backend)


def need(*programs: str) -> None:
    """Skips the test unless the programs are installed."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


_LITTLE_LIBC = Path(__file__).with_name("little_libc.c")
_MUSL = {"aarch64": "aarch64", "armv7": "arm", "riscv64": "riscv64"}


def compiler_with_little_libc(triple: str, *, system: bool = True) -> list[str]:
    """What `c_compiler` gives; zig links with little_libc.c, and compiles no C library."""
    words = c_compiler(triple, system=system)
    if "ziglang" not in words:
        return words
    package = importlib.util.find_spec("ziglang")
    assert package is not None
    assert package.origin is not None
    headers = Path(package.origin).parent / "lib" / "libc" / "include"
    machine = f"{_MUSL[triple.split('-')[0]]}-linux-musl"
    include = [f"-isystem{headers / name}" for name in (machine, "generic-musl")]
    return [*words, "-nostdlib", "-fno-stack-protector", *include, str(_LITTLE_LIBC)]


def link_little_libc(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, examples for another processor are linked with little_libc.c."""
    monkeypatch.setattr(example, "c_compiler", compiler_with_little_libc)


def command(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder."""
    return subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False
    )


def strict_program(folder: Path, shared: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Compiles a C program against a shared bundle with all warnings, and runs it."""
    (folder / "main.c").write_text(source)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion", f"-I{shared}"]
    place = [f"-Wl,-rpath,{shared}", f"{shared}/libnet.so", "-o", "main"]
    build = command(folder, "gcc", *strict, "main.c", *place)
    assert (build.returncode, build.stderr) == (0, "")
    return command(folder, "./main")


BOARD = Path(__file__).resolve().parents[2] / "docs" / "examples" / "cortex-m7"
BOARDS = {
    "cortex-m0": ("eabi", "mps2-an385"),
    "cortex-m3": ("eabi", "mps2-an385"),
    "cortex-m7": ("eabihf", "mps2-an500"),
}
"""How programs for a processor call each other, and a board that QEMU has with one like it."""

QUIT = """\
void quit(int status) {
  register uint32_t operation __asm("r0") = 0x18;
  register uint32_t reason __asm("r1") = status ? 0x20023 : 0x20026;
  __asm volatile("bkpt 0xab" : "+r"(operation) : "r"(reason) : "memory");
  for (;;) continue;
}
"""
"""Ends a program on a board with what `main` returns."""


def on_board(folder: Path, target: str, *files: Path | str) -> subprocess.CompletedProcess[str]:
    """The outcome of a program of these files, and of the example's startup code, on a board under QEMU."""
    need("qemu-system-arm")
    abi, board = BOARDS[target]
    machine = ("-target", f"thumb-freestanding-{abi}", f"-mcpu={target.replace('-', '_')}", "-O2")
    place = ("-T", BOARD / "mps2-an500.ld", "-Wl,--entry=reset", "-I", ".")
    startup = BOARD / "startup.c"
    done = command(folder, *ZIG, *machine, *place, startup, *files, "-o", "program")
    assert done.returncode == 0, done.stderr
    emulator = ("qemu-system-arm", "-M", board, "-nographic", "-semihosting")
    return command(folder, *emulator, "-kernel", "program")


def undefined(folder: Path, file: str = "net.o") -> set[str]:
    """The symbols an object file wants from others, as nm sees them."""
    need("nm")
    done = command(folder, "nm", "-u", file)
    assert done.returncode == 0, done.stderr
    return {line.split()[-1] for line in done.stdout.splitlines() if line.split()}


def glow(*words: str | Path) -> tuple[int, str, str]:
    """The exit code, results and diagnostics of a glowpy command."""
    out, errors = io.StringIO(), io.StringIO()
    return (
        run([str(word) for word in words], io.StringIO(), out, errors),
        out.getvalue(),
        errors.getvalue(),
    )


def builds(folder: Path, compiler: Sequence[str], *flags: str) -> subprocess.CompletedProcess[str]:
    """The outcome of compiling and linking main.c of a bundle called `net`."""
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    return command(folder, *compiler, *strict, *flags, "main.c", "net.o", "-o", "example")
