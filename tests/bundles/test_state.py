"""Bundles of networks with variables: C keeps them by leaving them alone, and goes on where the last run ended."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, LoadError, Module, UserError, bundle
from glowpy.bundling.link import c_compiler, runner
from glowpy.bundling.load import load_bundle
from glowpy.bundling.read import manifest_digest, read_bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.engine import compile as compile_module
from glowpy.graph.parser import parse_module
from glowpy.graph.state import keep_state
from tests.bundles.networks import command, compiler_with_little_libc, need
from tests.ops.test_initial_state import X, begun, check_runs
from tests.ops.test_initial_state import module as begun_module
from tests.ops.test_shared_state import STEPS, TEXT, Expected, check_sharing
from tests.ops.test_state import PAIRS, Steps, decoder

pytestmark = pytest.mark.timeout(300)

COUNT = 50
PROMPT = (3, 1, 4)


def stateful() -> Module:
    """A decoder of two layers that keeps its cache."""
    module = decoder().clone()
    keep_state(module.main, PAIRS)
    return module


def make(folder: Path, target: str = "", **options: Any) -> Path:
    backend = CpuBackend(CpuOptions(target))
    bundle(stateful(), folder, BundleOptions("net", weights="embedded", **options), backend)
    return folder


def embedded(tokens: list[int]) -> Array:
    """The rows that stand for tokens."""
    rows = [[((token * 7 + i * 3) % 11 - 5) / 4 for i in range(16)] for token in tokens]
    return np.array([rows], np.float32)


@cache
def expected_tokens() -> list[int]:
    """What the interpreter generates, which is given all it has seen in each step."""
    steps, tokens, fresh = Steps(1), list(PROMPT), list(PROMPT)
    while len(tokens) < len(PROMPT) + COUNT:
        fresh = [int(steps.run(embedded(fresh))[0, -1].argmax())]
        tokens += fresh
    return tokens[len(PROMPT) :]


GENERATE = """\
#include "net.h"
#include <stdio.h>

#define AREA __attribute__((aligned(NET_ALIGNMENT))) uint8_t
static AREA mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

/* Runs the network on some tokens; the next one, or -1. */
static int next(const int *tokens, size_t count, size_t past) {
  net_extents_t extents = {.b = 1, .seq = count, .past = past};
  float *x = net_input_x(mutable_area);
  const float *y;
  int best = 0;
  for (size_t n = 0; n < count; n++)
    for (int i = 0; i < 16; i++) x[16 * n + (size_t)i] = (float)((tokens[n] * 7 + i * 3) % 11 - 5) / 4;
  if (net(net_constants, mutable_area, activations, &extents)) return -1;
  y = net_output_y(mutable_area) + 16 * (count - 1);
  for (int i = 1; i < 16; i++) if (y[i] > y[best]) best = i;
  return best;
}

static int generate(unsigned char *tokens) {
  const int prompt[] = {3, 1, 4};
  int token = next(prompt, 3, 0);
  for (size_t i = 0; i < 50; i++) {
    if (token < 0) return 1;
    tokens[i] = (unsigned char)token;
    token = next(&token, 1, 3 + i);
  }
  return 0;
}

int main(void) {
  unsigned char tokens[2][50];
  FILE *file = fopen("tokens.bin", "wb");
  for (size_t i = 0; i < sizeof mutable_area; i++) mutable_area[i] = 0xff;
  net_reset(mutable_area);
  if (!file || generate(tokens[0]) || generate(tokens[1])) return 1;
  if (fwrite(tokens[0], 1, sizeof tokens, file) != sizeof tokens) return 2;
  return fclose(file);
}
"""


@pytest.mark.parametrize("target", ["", "rpi4"], ids=["here", "aarch64"])
def test_a_c_program_generates_what_the_interpreter_does(target: str, tmp_path: Path) -> None:
    need("qemu-aarch64" if target else "cc")
    triple = read_bundle(make(tmp_path, target)).triple
    compiler = compiler_with_little_libc(triple) if target else c_compiler(triple)
    (tmp_path / "generate.c").write_text(GENERATE)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", *(["-static"] if target else [])]
    done = command(tmp_path, *compiler, *flags, "generate.c", "net.o", "-o", "generate")
    assert (done.returncode, done.stderr) == (0, "")
    done = command(tmp_path, *runner(triple), "./generate")
    assert done.returncode == 0, done.stderr
    first, second = np.fromfile(tmp_path / "tokens.bin", np.uint8).reshape(2, COUNT).tolist()
    assert len(set(expected_tokens())) > 4
    assert first == expected_tokens()
    assert second == expected_tokens()  # a cache is empty where there is no past


def test_headers_and_manifests_tell_of_variables(tmp_path: Path) -> None:
    make(tmp_path, selftest=2, api="dynamic")
    header = (tmp_path / "net.h").read_text()
    assert "#define NET_PAST_K0_SIZE 12480u" in header  # 3 x 2 x 65 x 8 floats
    assert (
        "/* variable 'past_k0': f32[3x2x65x8]; a run reads f32[b x 2 x past x 8] at the beginning along each axis, "
        "and leaves f32[b x 2 x past+seq x 8] */" in header
    )
    assert "static inline float *net_variable_past_k0(uint8_t *mutable_area)" in header
    assert "GLOWPY_VARIABLE = 4" in header
    (network,) = read_bundle(tmp_path).manifest["networks"]
    roles = {symbol["original"]: symbol["role"] for symbol in network["symbols"]}
    assert {name: role for name, role in roles.items() if role != "constant"} == {
        "x": "input",
        "y": "output",
        **dict.fromkeys(PAIRS, "variable"),
    }


def test_manifests_describe_the_ports_of_the_program(tmp_path: Path) -> None:
    make(tmp_path)
    stored = read_bundle(tmp_path)
    (network,) = stored.networks
    assert [network.fields] == stored.manifest["networks"]
    constants = np.zeros(stored.manifest["areas"]["constants"], np.uint8)
    ports = network.interface(constants)
    assert ports.state
    assert ports == compilation(stateful(), CpuBackend()).program.ports


def test_the_example_agrees_with_the_interpreter(tmp_path: Path) -> None:
    """What variables hold goes in and comes out of files."""
    need("cc")
    verification = verify_bundle(make(tmp_path, selftest=3))
    assert verification.passed
    assert {check.output for check in verification.checks} == {"y", *PAIRS}


def test_a_loaded_bundle_goes_on_where_it_ended(tmp_path: Path) -> None:
    network = load_bundle(make(tmp_path, emit="shared", selftest=1))
    compiled = compile_module(stateful())
    state, other = network.state(), compiled.state()
    assert [*network.inputs] == ["x"]
    for tokens in ([1, 2, 3], [4], [5]):
        outputs = network({"x": embedded(tokens)}, state=state)
        expected = compiled({"x": embedded(tokens)}, state=other)
        np.testing.assert_array_equal(outputs["y"], expected["y"])
    np.testing.assert_array_equal(state["past_v1"], other["past_v1"])
    with pytest.raises(UserError, match="expected the variables of the network"):
        network({"x": embedded([1])})
    network.selftest()


SHARED = """\
#include "net.h"
#include <stdio.h>
#include <string.h>

#define AREA __attribute__((aligned(NET_ALIGNMENT))) uint8_t
static AREA mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

int main(void) {
  const float steps[3][3] = {{1, 2, 3}, {0.5f, -1, 4}, {2, 2, -6}};
  memset(mutable_area, 0xff, sizeof mutable_area);
  net_train_reset(mutable_area);
  for (size_t i = 0; i < 3; i++) {
    net_train_extents_t extents = {.n = i};
    net_summed_extents_t after = {.n = i + 1};
    memcpy(net_train_input_x(mutable_area), steps[i], sizeof steps[i]);
    if (net_train(net_constants, mutable_area, activations, &extents)) return 1;
    memcpy(net_evaluate_input_x(mutable_area), steps[i], sizeof steps[i]);
    if (net_evaluate(net_constants, mutable_area, activations)) return 2;
    printf("%g ", (double)net_evaluate_output_z(mutable_area)[2]);
    if (net_summed(net_constants, mutable_area, activations, &after)) return 3;
    printf("%g\\n", (double)net_summed_output_total(mutable_area)[2]);
  }
  return 0;
}
"""


def test_networks_of_one_module_share_its_variables_in_c(tmp_path: Path) -> None:
    need("cc")
    bundle(parse_module(TEXT), tmp_path, BundleOptions("net", weights="embedded", selftest=1))
    (tmp_path / "shared.c").write_text(SHARED)
    triple = read_bundle(tmp_path).triple
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    done = command(tmp_path, *c_compiler(triple), *flags, "shared.c", "net.o", "-o", "shared")
    assert (done.returncode, done.stderr) == (0, "")
    done = command(tmp_path, *runner(triple), "./shared")
    assert done.returncode == 0, done.stderr
    expected, lines = Expected(), []
    for step in STEPS:
        product = step * expected.train(step)
        lines.append(f"{product[2]:g} {expected.log.sum(0)[2]:g}\n")
    assert done.stdout == "".join(lines)
    assert verify_bundle(tmp_path).passed


def test_loaded_networks_share_a_state(tmp_path: Path) -> None:
    options = BundleOptions("net", weights="embedded", emit="shared", selftest=1)
    bundle(parse_module(TEXT), tmp_path, options)
    loaded = load_bundle(tmp_path)
    networks = {name.removeprefix("net_"): one for name, one in loaded.networks.items()}
    check_sharing(networks, networks["train"].state())
    loaded.selftest()


def places(folder: Path) -> dict[str, dict[str, int]]:
    """Where the ports of each network begin."""
    return {
        network["name"]: {
            symbol["original"]: symbol["offset"]
            for symbol in network["symbols"]
            if symbol["role"] != "constant"
        }
        for network in read_bundle(folder).manifest["networks"]
    }


def test_only_networks_of_one_module_share_variables(tmp_path: Path) -> None:
    module = parse_module(TEXT)
    bundle({"a": module, "b": stateful()}, tmp_path / "two", BundleOptions("net"))
    bundle(stateful(), tmp_path / "one", BundleOptions("net"))
    two, one = places(tmp_path / "two"), places(tmp_path / "one")
    assert two["net_b"] == one["net"]
    variables = {"m": 0, "w": 64, "log": 128}
    for name, used in (("train", "m w log"), ("evaluate", "w"), ("summed", "log"), ("plain", "")):
        ports = two[f"net_a_{name}"]
        shared = used.split()
        assert {v: ports[v] for v in shared} == {v: variables[v] for v in shared}
        assert min(place for port, place in ports.items() if port not in variables) == 256


BEGUN = """\
#include "net.h"
#include <stdio.h>
#include <string.h>

#define AREA __attribute__((aligned(NET_ALIGNMENT))) uint8_t
static AREA mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

int main(void) {
  const float x[3] = {1, -1, 0.5f};
  memset(mutable_area, 0xff, sizeof mutable_area);
  for (size_t i = 0; i < 4; i++) {
    if (i % 2 == 0) net_reset(net_constants, mutable_area);
    memcpy(net_input_x(mutable_area), x, sizeof x);
    if (net(net_constants, mutable_area, activations)) return 1;
    printf("%.9g %.9g %.9g %.9g %.9g %.9g %.9g\\n",
           (double)net_variable_zero(mutable_area)[2], (double)net_variable_few(mutable_area)[2],
           (double)net_variable_same(mutable_area)[2], (double)net_variable_room(mutable_area)[2],
           (double)net_variable_low(mutable_area)[2], (double)net_variable_bell(mutable_area)[2],
           (double)net_variable_many(mutable_area)[59]);
  }
  return 0;
}
"""


def test_variables_begin_with_their_initial_values_in_c(tmp_path: Path) -> None:
    need("cc")
    bundle(begun_module(), tmp_path, BundleOptions("net", weights="embedded", selftest=1))
    (tmp_path / "begun.c").write_text(BEGUN)
    triple = read_bundle(tmp_path).triple
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    done = command(tmp_path, *c_compiler(triple), *flags, "begun.c", "net.o", "-o", "begun")
    assert (done.returncode, done.stderr) == (0, "")
    done = command(tmp_path, *runner(triple), "./begun")
    assert done.returncode == 0, done.stderr
    lines = [[np.float32(number) for number in line.split()] for line in done.stdout.splitlines()]
    first = [array.reshape(-1)[-1] + X[2] for array in begun().values()]
    second = [number + X[2] for number in first]
    assert lines == [first, second] * 2
    assert verify_bundle(tmp_path).passed


def test_loaded_bundles_begin_with_initial_values(tmp_path: Path) -> None:
    for weights in ("embedded", "file"):
        options = BundleOptions("net", weights=weights, emit="shared", selftest=1)
        bundle(begun_module(), tmp_path / weights, options)
        check_runs(load_bundle(tmp_path / weights)._only)
    path = tmp_path / "file" / "net.json"
    manifest = json.loads(path.read_text())
    place = next(s for s in manifest["networks"][0]["symbols"] if s["original"] == "few")
    place["initial"] = manifest["areas"]["constants"]
    del manifest["digest"]
    manifest["digest"] = manifest_digest(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(LoadError, match="'few' does not lie in the constants"):
        load_bundle(tmp_path / "file")


def test_examples_begin_as_the_network_does_and_go_on_from_files(tmp_path: Path) -> None:
    need("cc")
    text = """module {
      placeholder %x : f32[3]
      placeholder %y : f32[3]
      variable %w : f32[3] = [0.5, 0.25, 0.0]
      function @main {
        %t = add(%w, %x) : f32[3]
        save(%t, %w)
        save(%t, %y)
      }
    }"""
    bundle(parse_module(text), tmp_path, BundleOptions("net", weights="embedded"), CpuBackend())
    done = command(
        tmp_path,
        *c_compiler(read_bundle(tmp_path).triple),
        "-Werror",
        "main.c",
        "net.o",
        "-o",
        "net",
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = command(tmp_path, "./net")
    assert sorted(done.stdout.splitlines()) == ["w: 0.5 0.3125 0.125", "y: 0.5 0.3125 0.125"]
    for total in [0.5, 0.3125, 0.125], [0.5, 0.375, 0.25], [0.5, 0.4375, 0.375]:
        assert command(tmp_path, "./net", "w=w.bin").returncode == 0
        assert np.fromfile(tmp_path / "w.bin", np.float32).tolist() == total
    verification = verify_bundle(tmp_path)
    assert verification.passed
    assert (
        sum(check.output == "w" for check in verification.checks) >= 2
    )  # also before the first run
