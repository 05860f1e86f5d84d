"""Bundles of networks with symbolic dimensions: what C sees, for all extents, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, UserError, bundle
from glowpy.bundling.c_dims import DIM_FUNCTIONS, c_dim
from glowpy.bundling.c_names import member_name
from glowpy.bundling.load import load_bundle
from glowpy.bundling.make import outdated, random_inputs
from glowpy.bundling.read import read_bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.printer import print_module
from glowpy.support.symbolic import Dim, at_extents, greatest, least, symbol
from tests.bundles.networks import (
    QUIT,
    command,
    glow,
    link_little_libc,
    mlp,
    need,
    on_board,
    strict_program,
)

pytestmark = pytest.mark.timeout(300)

SEEN, LENGTH = symbol("seen", 0, 9), symbol("length", 1, 4)
EXTENTS = [{"seen": seen, "length": length} for seen in (0, 1, 5, 9) for length in (1, 2, 4)]


def attention(seen: Dim = SEEN, length: Dim = LENGTH) -> Module:
    """A network that attends to what it has seen before; one output has a row for two words, and always one."""
    module = Module()
    weights = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    dims = {"seen": seen, "length": length}
    past = module.create_placeholder("past", glowpy.parse_type("f32[1 x seen x 8]", dims))
    x = module.create_placeholder("x", glowpy.parse_type("f32[1 x length x 8]", dims))
    f = module.create_function("main")
    present = f.create_concat("present", [past, x], 1)
    query = f.create_mat_mul("query", x, module.create_constant("w", weights))
    scores = f.create_mat_mul("scores", query, f.create_transpose("keys", present, (0, 2, 1)))
    y = f.create_mat_mul("y", f.create_softmax("chances", scores, 2), present)
    pairs = f.create_max_pool(
        "pairs",
        f.create_reshape("image", glowpy.parse_type("f32[1 x length x 1 x 8]", dims), y),
        (2, 1),
        (2, 1),
        (0, 0, 1, 0),
        (1, 1),
        False,
    )
    for name, node in (("y", y), ("present", present), ("pairs", pairs)):
        f.create_save(f"save_{name}", node, module.create_placeholder(name, node.result.type))
    return module


def make(folder: Path, target: str = "", **options: Any) -> Path:
    bundle(attention(), folder, BundleOptions("net", **options), CpuBackend(CpuOptions(target)))
    return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with everything in it. Not to be changed."""
    folder = tmp_path_factory.mktemp("shared")
    return make(folder, emit="shared", api="dynamic", weights="embedded", selftest=4, parallel=True)


def test_results_have_the_bits_of_code_that_sessions_run(shared: Path) -> None:
    """Nothing is left in memory between runs that another one would notice: extents grow and shrink."""
    if sys.platform != "linux":
        pytest.skip("shared bundles are linked for Linux")
    network, compiled = load_bundle(shared), glowpy.compile(attention())
    reference = glowpy.compile(attention(), "interpreter")
    for seed, extents in enumerate([*EXTENTS, *reversed(EXTENTS)]):
        arrays = random_inputs(compiled.input_ports, seed, extents)
        outputs, expected = network(arrays), compiled(arrays)
        for name, array in reference(arrays).items():
            np.testing.assert_array_equal(outputs[name], expected[name])
            np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6)
    network.selftest()
    assert str(network.outputs["present"]) == "f32[1 x length+seen x 8]"
    with pytest.raises(UserError, match=r"expected 'seen' in 0\.\.9, got 10"):
        network({"past": np.zeros((1, 10, 8), np.float32), "x": np.zeros((1, 1, 8), np.float32)})
    assert network.instance(seen=2, length=3)["present"].shape == (1, 5, 8)


HARNESS = """\
#include "net.h"
#include <stdio.h>
#include <string.h>

_Static_assert(NET_SEEN_MIN == 0 && NET_SEEN_MAX == 9 && NET_LENGTH_MIN == 1 && NET_LENGTH_MAX == 4, "bounds");
_Static_assert(NET_PAST_SIZE == 9 * 32 && NET_PRESENT_COUNT == 13 * 8 && NET_PAIRS_SIZE == 2 * 32, "at the bounds");

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

static int untouched(void) {
  for (size_t i = 0; i < sizeof mutable_area; i++) if (mutable_area[i] != 0xa5) return 0;
  for (size_t i = 0; i < sizeof activations; i++) if (activations[i] != 0xa5) return 0;
  return 1;
}

static int refused(void) {
  const net_extents_t wrong[] = {{10, 1}, {0, 0}, {0, 5}, {(size_t)-1, 1}, {9, (size_t)1 << (sizeof(size_t) * 8 - 1)}};
  memset(mutable_area, 0xa5, sizeof mutable_area);
  memset(activations, 0xa5, sizeof activations);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    net_extents_t extents = wrong[i];
    if (net(net_constants, mutable_area, activations, &extents) != GLOWPY_OUT_OF_BOUNDS) return 0;
    if (net_parallel(net_constants, mutable_area, activations, &extents, NULL, NULL) != GLOWPY_OUT_OF_BOUNDS) return 0;
    if (memcmp(&extents, wrong + i, sizeof extents)) return 0;
  }
  return net(net_constants, mutable_area, activations, NULL) == GLOWPY_MISSING_AREA && untouched();
}

int main(void) {
  const glowpy_network_t *network = net_config.networks;
  const glowpy_open_network_t *open = net_open_networks;
  net_extents_t e;
  size_t dims[4];
  if (!refused()) return 1;
  if (network->run || (void *)open->run != (void *)net || open->num_extents != 2) return 2;
  for (e.seen = 0; e.seen <= NET_SEEN_MAX; e.seen++)
    for (e.length = NET_LENGTH_MIN; e.length <= NET_LENGTH_MAX; e.length++) {
      size_t numbers[] = {e.seen, e.length};
      if (net(net_constants, mutable_area, activations, &e)) return 3;
      if (open->run(net_constants, mutable_area, activations, numbers)) return 4;
      net_dims_pairs(&e, dims);
      printf("%d %d: %dx%dx%dx%d %d %d;", (int)e.seen, (int)e.length, (int)dims[0], (int)dims[1], (int)dims[2],
             (int)dims[3], (int)net_count_pairs(&e), (int)net_size_present(&e));
      for (uint64_t i = 0; i < network->num_symbols; i++) {
        uint64_t table[8];
        if (network->symbols[i].role == GLOWPY_CONSTANT) continue;
        open->dims(numbers, i, table);
        for (uint32_t d = 0; d < network->symbols[i].rank; d++) printf(" %d", (int)table[d]);
      }
      printf("\\n");
    }
  for (uint64_t i = 0; i < open->num_extents; i++)
    printf("%s %d %d\\n", open->extents[i].name, (int)open->extents[i].min, (int)open->extents[i].max);
  return net_selftest(net_constants, mutable_area, activations);
}
"""


def test_what_c_sees(shared: Path, tmp_path: Path) -> None:
    """Sizes and dimensions at every extent, the table, and the code for others, with which nothing is written."""
    need("gcc")
    done = strict_program(tmp_path, shared, HARNESS)
    assert done.returncode == 0
    *lines, seen, length = done.stdout.splitlines()
    assert (seen, length) == ("seen 0 9", "length 1 4")
    expected = []
    for n in range(10):
        for m in range(1, 5):
            pairs, both = (m - 1) // 2 + 1, n + m
            ports = f"1 {n} 8 1 {m} 8 1 {m} 8 1 {both} 8 1 {pairs} 1 8"
            shapes = f"1x{pairs}x1x8 {8 * pairs} {32 * both}"
            expected.append(f"{n} {m}: {shapes}; {ports}")
    assert lines == expected


def test_the_example(tmp_path: Path) -> None:
    """It takes extents, and has the highest without; a description has the dimensions of the run."""
    need("cc", "cmake")
    make(tmp_path, emit="lib", instrument="debug", guard=True)
    verification = verify_bundle(tmp_path)
    assert verification.passed
    assert {tuple(check.extents.values()) for check in verification.checks} == {
        (9, 4),
        (0, 1),
        (4, 2),
    }
    for words in (("-S", ".", "-B", "build"), ("--build", "build")):
        done = command(tmp_path, "cmake", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    done = command(tmp_path, "build/net_example", "--seen=3", "--length=2", "present=present.bin")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "present.bin").stat().st_size == 5 * 32
    dumps = {file.name.split(".", 1)[1]: file.stat().st_size for file in tmp_path.glob("0*.bin")}
    assert dumps["insert_tensor.present_1.after.bin"] == 5 * 32
    assert dumps["insert_tensor.past.before.bin"] == 3 * 32
    for word in ("--sen=3", "--help", "--seen", "3"):
        done = command(tmp_path, "build/net_example", word)
        assert done.returncode == 2
        assert done.stderr.startswith(
            f"{word}: unknown\nusage: net [NAME=VALUE]..., with names of:"
        )
        assert " --seen " in done.stderr
    for word in ("--seen=10", "--length=0", "--length=", "--seen=1x", "--seen=-1"):
        done = command(tmp_path, "build/net_example", word)
        assert (done.returncode, done.stderr.split(":")[1][:9]) == (1, " expected"), word


def test_another_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("qemu-aarch64")
    link_little_libc(monkeypatch)
    make(tmp_path, "rpi4", selftest=5)
    assert verify_bundle(tmp_path).passed


CHECK_ITSELF = f"""\
#include "net.h"

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

{QUIT}
int main(void) {{
  net_extents_t extents = {{NET_SEEN_MAX + 1, NET_LENGTH_MAX}};
  if (net(net_constants, mutable_area, activations, &extents) != GLOWPY_OUT_OF_BOUNDS) return 1;
  return net_selftest(net_constants, mutable_area, activations);
}}
"""


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_a_microcontroller(optimize: Any, tmp_path: Path) -> None:
    """Code that is small checks no pointers, but extents."""
    need("qemu-system-arm")
    options = BundleOptions("net", weights="embedded", selftest=5)
    backend = CpuBackend(CpuOptions("cortex-m7", optimize=optimize))
    bundle(attention(), tmp_path, options, backend)
    (tmp_path / "main.c").write_text(CHECK_ITSELF)
    done = on_board(tmp_path, "cortex-m7", "main.c", "net.o")
    assert done.returncode == 0, done.stdout + done.stderr


def test_networks_with_and_without_extents(tmp_path: Path) -> None:
    """One bundle has both, with arguments and macros of their own; C++ reads the header as well."""
    need("g++", "cc")
    models = {"open": attention(), "one": attention(3, 2), "mlp": mlp()}
    bundle(models, tmp_path, BundleOptions("net", api="dynamic", weights="embedded", selftest=2))
    assert verify_bundle(tmp_path).passed
    (tmp_path / "main.cpp").write_text(
        '#include "net.h"\n'
        "alignas(NET_ALIGNMENT) static uint8_t mutable_area[NET_MUTABLE_SIZE];\n"
        "alignas(NET_ALIGNMENT) static uint8_t activations[NET_ACTIVATIONS_SIZE];\n"
        "int main() {\n"
        "  net_open_extents_t extents = {NET_OPEN_SEEN_MAX, NET_OPEN_LENGTH_MIN};\n"
        "  if (net_open_count_present(&extents) != 80 || NET_ONE_PRESENT_COUNT != 40) return 90;\n"
        "  if (!net_open_networks[0].run || net_open_networks[1].run || !net_config.networks[1].run) return 91;\n"
        "  if (net_open(net_constants, mutable_area, activations, &extents)) return 92;\n"
        "  if (net_one(net_constants, mutable_area, activations)) return 93;\n"
        "  return net_selftest(net_constants, mutable_area, activations);\n"
        "}\n"
    )
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    done = command(tmp_path, "g++", *strict, "main.cpp", "net.o", "-o", "main")
    assert (done.returncode, done.stderr) == (0, "")
    assert command(tmp_path, "./main").returncode == 0


def test_symbols_whose_names_mean_something_in_c(tmp_path: Path) -> None:
    """Members of structures are words of their own: of these only keywords and macros are changed."""
    need("cc")
    assert [member_name(name) for name in ("int", "length", "I", "index")] == [
        "dim_int",
        "length",
        "dim_I",
        "index",
    ]
    module = Module()
    f = module.create_function("main")
    for number, name in enumerate(("int", "size", "Size", "extents", "argc", "x1", "NULL")):
        type = glowpy.parse_type(f"f32[{name} x 2]", {name: symbol(name, 1, 3)})
        x = module.create_placeholder("x" if number == 0 else f"x{number}", type)
        relu = f.create_relu(f"relu{number}", x)
        f.create_save(f"s{number}", relu, module.create_placeholder(f"y{number}", type))
    bundle(module, tmp_path, BundleOptions("net", weights="header"))
    assert verify_bundle(tmp_path).passed
    (network,) = read_bundle(tmp_path).manifest["networks"]
    assert [(extent["symbol"], extent["name"]) for extent in network["extents"]] == [
        ("int", "dim_int"),
        ("size", "size"),
        ("Size", "Size_1"),
        ("extents", "extents"),
        ("argc", "argc"),
        ("x1", "x1"),
        ("NULL", "dim_NULL"),
    ]


def test_a_header_for_tensors_of_nothing(tmp_path: Path) -> None:
    """As many elements at every extent: their number is none that follows from it."""
    need("cc")
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (symbol("n", 0, 3), 0)))
    f.create_save("save", f.create_relu("relu", x), module.create_placeholder("y", x.type))
    bundle(module, tmp_path, BundleOptions("net", weights="header"))
    assert verify_bundle(tmp_path).passed


@pytest.mark.parametrize("other", ["a_extents_t", "a_reset"])
def test_a_network_called_like_what_another_may_have(other: str, tmp_path: Path) -> None:
    models = {"a": attention(), other: mlp()}
    for order in (models, dict(reversed(models.items()))):
        with pytest.raises(UserError, match="the bundle has a 'net_a"):
            bundle(order, tmp_path, BundleOptions("net"), CpuBackend(CpuOptions("x86-64-v2")))


def test_c_computes_dimensions_as_python_does(tmp_path: Path) -> None:
    need("gcc")
    a, b = symbol("a", 0, 9), symbol("b", 1, 7)
    dims: list[Dim] = [
        5,
        a,
        60 - 3 * a,
        a * b - a + 2 * b * b,
        (a - b + 7) // 3,
        (2 * a - 20) // b + 30,
        -(-a // 4),
        least(a, b, 3),
        greatest(a - b, 2 - b, -4) + 9,
        least((a - 9) // 2, b - 6) + 20,
        greatest((b - a) // 4 * a, a // b) + 40,
    ]
    spelled = {"a": "a", "b": "b"}
    rows = "".join(f'  printf("%lld ", (long long)({c_dim(dim, spelled)}));\n' for dim in dims)
    (tmp_path / "main.c").write_text(
        f"#include <stdio.h>\n{DIM_FUNCTIONS}\nint main(void) {{\n"
        "  for (size_t a = 0; a < 10; a++) for (size_t b = 1; b < 8; b++) {\n"
        f'{rows}  printf("\\n");\n  }}\n  return 0;\n}}\n'
    )
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    done = command(tmp_path, "gcc", *strict, "main.c", "-o", "main")
    assert (done.returncode, done.stderr) == (0, "")
    assert command(tmp_path, "./main").stdout.splitlines() == [
        "".join(f"{at_extents(dim, {'a': n, 'b': m})} " for dim in dims)
        for n in range(10)
        for m in range(1, 8)
    ]


@pytest.mark.parametrize(
    ("seen", "options", "message"),
    [
        (symbol("seen", 0), {}, "expected dimensions with bounds in a bundle, got seen"),
        (symbol("seen", 0, 1 << 26), {}, "expected areas that 32-bit code reaches all of"),
        (SEEN, {"max_ram": 1000}, r"(?s)bytes of RAM, .*memory is for seen=9, length=4"),
    ],
)
def test_refusals(seen: Dim, options: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    backend = CpuBackend(CpuOptions("cortex-m7"))
    with pytest.raises(UserError, match=message):
        bundle(attention(seen), tmp_path / "out", BundleOptions("net", **options), backend)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("high", "fits"), [(2_700_000, True), (2_800_000, False)])
def test_a_dimension_is_computed_without_overflow(high: int, fits: bool, tmp_path: Path) -> None:
    """769/1024 of an extent takes more than 31 bits on the way: the code counted bytes below zero."""
    n = symbol("n", 1, high)
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.U8, (n,)))
    part = f.create_slice("part", Type(ElemKind.U8, (769 * n // 1024,)), x, (0,), (1,))
    f.create_save("save", part, module.create_placeholder("y", part.type))
    small, large = (CpuBackend(CpuOptions(target)) for target in ("cortex-m7", "rpi4"))
    options = BundleOptions("net")
    bundle(module, tmp_path / "large", options, large)
    if fits:
        bundle(module, tmp_path / "small", options, small)
    else:
        message = r"expected dimensions that 32-bit code computes, got div\(769\*n,1024\)"
        with pytest.raises(UserError, match=message):
            bundle(module, tmp_path / "small", options, small)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "relu.glow").write_text(print_module(pooled(symbol("n", 2, 8))), encoding="utf-8")
    words = ("bundle", tmp_path / "relu.glow", "-o", tmp_path / "out")
    status, printed, errors = glow(*words)
    assert (status, errors) == (0, "")
    assert "relu: n = 2..8; memory is for the highest" in printed
    assert outdated(pooled(symbol("n", 2, 8)), tmp_path / "out") == []
    assert len(outdated(pooled(symbol("n", 2, 9)), tmp_path / "out")) == 1
    need("cc")
    status, printed, errors = glow("verify", tmp_path / "out")
    assert (status, errors) == (0, "")
    assert all(f"n={extent}" in printed for extent in (2, 5, 8))


def pooled(n: Dim) -> Module:
    """A network without constants."""
    module = Module()
    type = glowpy.parse_type("f32[n x 3]", {"n": n})
    x, y = (module.create_placeholder(name, type) for name in "xy")
    f = module.create_function("main")
    f.create_save("save", f.create_relu("relu", x), y)
    return module
