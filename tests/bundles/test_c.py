"""What C and C++ see of a bundle: the header, the table, and every status."""

from __future__ import annotations

import shutil
from pathlib import Path
from string import Template

import pytest

import glowpy
from tests.bundles.networks import ZIG, builds, command, make, need, network

pytestmark = pytest.mark.timeout(300)
COMPILERS = {"gcc": ["gcc"], "zig": ZIG}

SELFTEST = """\
#include "net.h"

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE + 1];

int main(void) {
  if (net_selftest(net_constants, 0, activations) != GLOWPY_MISSING_AREA) return 90;
  if (net_selftest(net_constants, mutable_area + 4, activations) != GLOWPY_MISALIGNED) return 91;
  if (net_selftest(net_constants, mutable_area, 0) != GLOWPY_MISSING_AREA) return 92;
  return net_selftest(net_constants, mutable_area, activations);
}
"""

THREADS = """\
#include <pthread.h>

#define TIMES 200

static void *repeat(void *unused) {
  _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE + 1];
  size_t failures = 0;
  for (int i = 0; i < TIMES; i++) failures += net_selftest(constants, mutable_area, activations) != 0;
  (void)unused;
  return (void *)failures;
}

"""
JOINED = """\
  pthread_t threads[4];
  size_t failures = 0;
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, repeat, 0);
  for (int i = 0; i < 4; i++) {
    void *result;
    pthread_join(threads[i], &result);
    failures += (size_t)result;
  }
  (void)mutable_area, (void)activations;
  return failures != 0;"""

HARNESS = Template("""\
#include "net.h"
#include <stdio.h>

static _Alignas(NET_ALIGNMENT) uint8_t constants[NET_CONSTANTS_SIZE];
static _Alignas(NET_ALIGNMENT) uint8_t areas[NET_MUTABLE_SIZE + NET_ACTIVATIONS_SIZE + 4 * NET_ALIGNMENT];

int main(void) {
  uint8_t *mutable_area = areas, *activations = areas + NET_MUTABLE_SIZE;
  FILE *file = fopen("net.weights.bin", "rb");
  if (!file || fread(constants, 1, sizeof constants, file) != sizeof constants) return 100;
  activations += (NET_ALIGNMENT - (size_t)activations % NET_ALIGNMENT) % NET_ALIGNMENT;
  $code
}
""")

STATUS = {
    "done": ("net(constants, mutable_area, activations)", "GLOWPY_OK", 0),
    "no constants": ("net(0, mutable_area, activations)", "GLOWPY_MISSING_AREA", 1),
    "no mutable area": ("net(constants, 0, activations)", "GLOWPY_MISSING_AREA", 1),
    "no activations": ("net(constants, mutable_area, 0)", "GLOWPY_MISSING_AREA", 1),
    "odd constants": ("net(constants + 4, mutable_area, activations)", "GLOWPY_MISALIGNED", 2),
    "odd mutable area": ("net(constants, mutable_area + 32, activations)", "GLOWPY_MISALIGNED", 2),
    "odd activations": ("net(constants, mutable_area, activations + 1)", "GLOWPY_MISALIGNED", 2),
    # The output lies where the canary in front of the activations is.
    "overlap": ("net(constants, activations - NET_Y_OFFSET, activations)", "GLOWPY_OVERRUN", 3),
    "no weights": ("net_check_weights(0)", "GLOWPY_MISSING_AREA", 1),
    "whole weights": ("net_check_weights(constants)", "GLOWPY_OK", 0),
    "one bit": ("(constants[70] ^= 1, net_check_weights(constants))", "GLOWPY_CORRUPT_WEIGHTS", 4),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guarded")
    make(folder, guard=True)
    return folder


@pytest.mark.parametrize("case", list(STATUS))
def test_status(case: str, guarded: Path) -> None:
    need("gcc")
    call, name, number = STATUS[case]
    code = f"return {call} == {name} ? {number} : 99;"
    (guarded / "harness.c").write_text(HARNESS.substitute(code=code))
    built = command(guarded, "gcc", "-std=c11", "-Wall", "harness.c", "net.o", "-o", "harness")
    assert built.returncode == 0, built.stderr
    assert command(guarded, "./harness").returncode == number


def test_without_a_guard_nobody_notices(tmp_path: Path) -> None:
    """So that the guard's report above is the guard's doing."""
    need("gcc")
    make(tmp_path)
    code = f"return {STATUS['overlap'][0]};"
    (tmp_path / "harness.c").write_text(HARNESS.substitute(code=code))
    built = command(tmp_path, "gcc", "-std=c11", "harness.c", "net.o", "-o", "harness")
    assert built.returncode == 0, built.stderr
    assert command(tmp_path, "./harness").returncode == 0


def test_selftest_notices_other_weights(tmp_path: Path) -> None:
    need("gcc")
    make(tmp_path, weights="embedded", selftest=1)
    (tmp_path / "harness.c").write_text(SELFTEST)
    build = ("gcc", "-std=c99", "harness.c", "net.o", "-o", "harness")
    assert command(tmp_path, *build).returncode == 0
    assert command(tmp_path, "./harness").returncode == 0
    code_file = tmp_path / "net.o"
    bias = next(
        constant for constant in network("mlp").constants if constant.name == "bias"
    ).array.tobytes()
    before, middle, after = code_file.read_bytes().partition(bias)
    assert middle
    code_file.write_bytes(before + bytes(byte ^ 0xC0 for byte in bias) + after)
    assert command(tmp_path, *build).returncode == 0
    assert command(tmp_path, "./harness").returncode == 5


def test_selftest_runs_in_several_threads(tmp_path: Path) -> None:
    """Each with memory of its own, and with weights that do not lie in the object."""
    need("gcc")
    make(tmp_path, weights="file", selftest=3)
    head, body = HARNESS.substitute(code=JOINED).split("int main", 1)
    (tmp_path / "harness.c").write_text(f"{head}{THREADS}int main{body}")
    built = command(tmp_path, "gcc", "-std=c11", "-pthread", "harness.c", "net.o", "-o", "harness")
    assert built.returncode == 0, built.stderr
    assert command(tmp_path, "./harness").returncode == 0


@pytest.mark.parametrize("compiler", list(COMPILERS))
@pytest.mark.parametrize("api", ["static", "dynamic"])
def test_header_and_example_are_strict_c99(api: str, compiler: str, tmp_path: Path) -> None:
    need(*(["gcc"] if compiler == "gcc" else []))
    make(tmp_path, api=api, guard=True)
    done = builds(tmp_path, COMPILERS[compiler])
    assert (done.returncode, done.stderr) == (0, "")
    assert command(tmp_path, "./example").returncode == 0


def test_header_is_cpp17(tmp_path: Path) -> None:
    make(tmp_path, api="dynamic", weights="embedded", selftest=1)
    (tmp_path / "main.cpp").write_text(
        '#include "net.h"\n'
        "int main() { return net_config.num_networks ? net_selftest(net_constants, 0, 0) : 99; }\n"
    )
    compiler = ["g++"] if shutil.which("g++") else [*ZIG[:-1], "c++"]
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    done = command(tmp_path, *compiler, *strict, "main.cpp", "net.o", "-o", "example")
    assert (done.returncode, done.stderr) == (0, "")
    assert command(tmp_path, "./example").returncode == 1  # no areas


TABLE = """\
#include "net.h"
#include <stdio.h>

_Static_assert(NET_X_SIZE == 2 * 16 * 4, "x");
_Static_assert(NET_Y_COUNT == 12, "y");

int main(void) {
  size_t i, n;
  printf("%s %d %d\\n", net_config.name, (int)net_config.num_networks, (int)net_config.alignment);
  printf("%d %d %d %d\\n", net_config.constants_size == NET_CONSTANTS_SIZE, net_config.mutable_size == NET_MUTABLE_SIZE,
         net_config.activations_size == NET_ACTIVATIONS_SIZE, net_config.constants_crc32 == NET_CONSTANTS_CRC32);
  for (n = 0; n < net_config.num_networks; n++) {
    const glowpy_network_t *network = &net_config.networks[n];
    printf("%s %d\\n", network->name, network->run == net);
    for (i = 0; i < network->num_symbols; i++) {
      const glowpy_symbol_t *s = &network->symbols[i];
      if (s->role == GLOWPY_CONSTANT) continue;
      printf("%s %d %d %dx%d %d %d %g\\n", s->name, s->role == GLOWPY_INPUT, s->kind == GLOWPY_F32, (int)s->dims[0],
             (int)s->dims[1], (int)s->rank, (int)s->size, (double)s->scale);
    }
  }
  return 0;
}
"""


def test_the_table_of_the_dynamic_api(tmp_path: Path) -> None:
    need("gcc")
    make(tmp_path, api="dynamic")
    (tmp_path / "table.c").write_text(TABLE)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    done = command(tmp_path, "gcc", *strict, "table.c", "net.o", "-o", "table")
    assert (done.returncode, done.stderr) == (0, "")
    assert command(tmp_path, "./table").stdout.splitlines() == [
        "net 1 64",
        "1 1 1 1",
        "net 1",
        "x 1 1 2x16 2 128 0",
        "scores 0 1 2x6 2 48 0",
        "y 0 1 2x6 2 48 0",
    ]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "net.weights.bin: cannot be opened"),
        (lambda file: file.write_bytes(file.read_bytes()[:-8]), "net.weights.bin: expected"),
        (lambda file: file.write_bytes(b"\1" + file.read_bytes()[1:]), "the weights are corrupt"),
    ],
)
def test_the_example_and_damaged_weights(damage: object, message: str, tmp_path: Path) -> None:
    need("gcc")
    make(tmp_path)
    assert builds(tmp_path, ["gcc"]).returncode == 0
    assert command(tmp_path, "./example").returncode == 0
    damage(tmp_path / "net.weights.bin")  # type: ignore[operator]
    done = command(tmp_path, "./example")
    assert done.returncode != 0
    assert message in done.stderr


def test_a_compiler_for_another_target_refuses(tmp_path: Path) -> None:
    make(tmp_path, "rpi4")
    done = builds(tmp_path, [*ZIG, "-target", "x86_64-linux-gnu"])
    assert done.returncode != 0
    assert "net was made for aarch64: bundle the model again for this target" in done.stderr


@pytest.mark.parametrize(
    ("emit", "weights"), [("obj", "file"), ("lib", "embedded"), ("shared", "embedded")]
)
def test_cmake(emit: str, weights: str, tmp_path: Path) -> None:
    need("cmake", "cc")
    make(tmp_path, emit=emit, weights=weights)
    for words in (("-S", ".", "-B", "build"), ("--build", "build")):
        done = command(tmp_path, "cmake", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    done = command(tmp_path, "build/net_example")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("y: ")


PROJECT = """cmake_minimum_required(VERSION 3.13)
project(app C)
add_subdirectory(bundle)
add_subdirectory(part)
"""
PART = """add_executable(app app.c)
target_link_libraries(app PRIVATE net)
"""
APP = '#include "net.h"\nint main(void) { return net == 0; }\n'


@pytest.mark.parametrize("emit", ["obj", "lib", "shared"])
def test_cmake_as_a_part_of_a_project(emit: str, tmp_path: Path) -> None:
    """The library is known outside of its folder, and the example is not built."""
    need("cmake", "cc")
    make(tmp_path / "bundle", emit=emit, weights="embedded")
    (tmp_path / "part").mkdir()
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "part/CMakeLists.txt").write_text(PART)
    (tmp_path / "part/app.c").write_text(APP)
    for words in (("-S", ".", "-B", "build"), ("--build", "build")):
        done = command(tmp_path, "cmake", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert command(tmp_path, "build/part/app").returncode == 0
    assert not list(tmp_path.rglob("net_example"))


def test_gnu_as_assembles_the_text_with_debug_information(tmp_path: Path) -> None:
    need("gcc", "readelf")
    make(tmp_path, emit="asm", debug=True)
    done = command(tmp_path, "gcc", "-c", "net.s", "-o", "net.o")
    assert (done.returncode, done.stderr) == (0, "")
    assert "net.ir" in command(tmp_path, "readelf", "--debug-dump=decodedline", "net.o").stdout


def test_header_says_what_stored_integers_stand_for(tmp_path: Path) -> None:
    make(tmp_path, name="integers")
    header = (tmp_path / "net.h").read_text()
    for line in (
        "NET_X_SCALE 0.02f",
        "NET_X_ZERO 120",
        "NET_RESULT_SCALE 0.2f",
        "NET_RESULT_ZERO 3",
    ):
        assert f"#define {line}\n" in header


def test_header_has_a_scale_for_each_channel(tmp_path: Path) -> None:
    module = glowpy.Module()
    type = glowpy.parse_type("i8[2x3](s=[0.5,1e-09],o=[0,7],axis=0)")
    f = module.create_function("main")
    x = module.create_placeholder("x", type)
    turned = f.create_transpose("t", x, (1, 0))
    f.create_save("save", turned, module.create_placeholder("y", turned.result.type))
    glowpy.bundle(module, tmp_path, glowpy.BundleOptions("net"))
    header = (tmp_path / "net.h").read_text()
    for line in (
        "NET_X_AXIS 0u",
        "NET_X_SCALES {0.5f, 1e-09f}",
        "NET_Y_AXIS 1u",
        "NET_Y_ZEROS {0, 7}",
    ):
        assert f"#define {line}\n" in header
