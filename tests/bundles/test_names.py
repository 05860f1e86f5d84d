"""Names of models, networks and tensors that mean something else in C, or are the same once they are C."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, UserError, bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.graph.printer import print_module
from tests.bundles.networks import command, glow, mlp, need, relu

HERE = CpuBackend(CpuOptions("x86-64-v2"))


def through(*names: tuple[str, str]) -> Module:
    """A network that only has inputs and outputs, of the given names."""
    module = Module()
    f = module.create_function("main")
    for number, (x, y) in enumerate(names):
        ports = [module.create_placeholder(name, glowpy.parse_type("f32[4]")) for name in (x, y)]
        f.create_save(f"save{number}", f.create_relu(f"relu{number}", ports[0]), ports[1])
    return module


@pytest.mark.parametrize(
    "names",
    [
        [("x", "y"), ("X", "Y")],
        [("constants", "activations")],
        [("mutable", "mutable_area")],
        [("int", "return")],
        [("NULL", "a_size"), ("a", "EOF")],
    ],
    ids=str,
)
def test_inputs_and_outputs_whose_macros_would_be_the_same(
    names: list[tuple[str, str]], tmp_path: Path
) -> None:
    need("cc")
    bundle(through(*names), tmp_path, BundleOptions("net"))
    verification = verify_bundle(tmp_path)
    assert verification.passed
    assert {check.output for check in verification.checks} == {y for _, y in names}


def test_networks_whose_macros_would_be_the_same(tmp_path: Path) -> None:
    """`net_a` with an output `b_y` and `net_a_b` with an output `y` would both have NET_A_B_Y_OFFSET."""
    need("cc")
    models = {"a": through(("b_x", "b_y")), "a_b": through(("x", "y"))}
    bundle(models, tmp_path, BundleOptions("net"))
    assert verify_bundle(tmp_path).passed


def test_names_in_comments_and_strings(tmp_path: Path) -> None:
    need("cc")
    names = ["a/*b", "a*/b", "a\\", "a\nb", "a\u202eb", 'a"%s']
    module = through(*((name, f"y{number}") for number, name in enumerate(names)))
    bundle(module, tmp_path, BundleOptions("net", api="dynamic"))
    assert verify_bundle(tmp_path).passed


@pytest.mark.parametrize("instrument", ["", "debug"])
def test_names_that_are_longer_than_those_of_files(
    instrument: Literal["", "debug"], tmp_path: Path
) -> None:
    need("cc")
    long = "encoder.layers.0.self_attn." * 10
    pairs = [(f"{long}{x}", f"{long}{y}") for x, y in ("ac", "bd")]
    bundle(through(*pairs), tmp_path, BundleOptions("net", instrument=instrument))
    verification = verify_bundle(tmp_path)
    assert verification.passed
    assert {check.output for check in verification.checks} == {y for _, y in pairs}


@pytest.mark.parametrize(
    "name",
    [
        *("int", "new", "bool", "main", "printf", "exp", "string", "stdint", "linux", "transfer"),
        *("path", "libjit_crc32", "glowpy_symbol_t", "__x", "n\u00e9"),
    ],
)
def test_names_a_bundle_cannot_have(name: str) -> None:
    with pytest.raises(UserError, match=f"'{name}'") as caught:
        BundleOptions(name)
    assert "--name" in str(caught.value)


def test_every_name_in_the_example_is_one_a_bundle_cannot_have(tmp_path: Path) -> None:
    result = bundle(mlp(), tmp_path, BundleOptions("zzz", weights="embedded", selftest=1), HERE)
    assert "main.c" in result.files
    text = re.sub(
        r"""/\*.*?\*/|"[^"\n]*"|'.'""", " ", (tmp_path / "main.c").read_text(), flags=re.DOTALL
    )
    words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"#.*", "", text)))
    free = []
    for word in sorted(words):
        if "zzz" in word.lower():
            continue
        try:
            BundleOptions(word)
        except UserError:
            continue
        free.append(word)
    assert free == []


def test_a_name_that_makes_the_guard_of_a_system_header(tmp_path: Path) -> None:
    need("cc")
    bundle(relu(), tmp_path, BundleOptions("_stdint"))
    assert verify_bundle(tmp_path).passed


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"a": relu(), "A": relu()}, "expected networks with different names"),
        ({"selftest": relu(), "b": relu()}, "'net_selftest'"),
        ({"config": relu(), "b": relu()}, "'net_config'"),
        ({"a b": relu(), "b": relu()}, "'net_a b'"),
    ],
    ids=str,
)
def test_networks_a_bundle_cannot_have(
    models: dict[str, Module], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        bundle(models, tmp_path / "out", BundleOptions("net"), HERE)
    assert not (tmp_path / "out").exists()


def test_the_command_says_how_to_choose_another_name(tmp_path: Path) -> None:
    (tmp_path / "string.glow").write_text(print_module(relu()))
    status, _, errors = glow("bundle", tmp_path / "string.glow", "-o", tmp_path / "out")
    assert status == 1
    assert "'string'" in errors
    assert "--name" in errors


def test_a_library_of_several_networks_lists_each(tmp_path: Path) -> None:
    """A program that calls nothing but one network is linked with it all the same."""
    need("cc")
    bundle({"a": relu(), "b": relu()}, tmp_path, BundleOptions("net", emit="lib", weights="header"))
    (tmp_path / "only.c").write_text(
        '#include "net.h"\n'
        "static _Alignas(64) uint8_t m[NET_MUTABLE_SIZE], a[NET_ACTIVATIONS_SIZE + 1], c[NET_CONSTANTS_SIZE + 1];\n"
        "int main(void) { return net_b(c, m, a); }\n"
    )
    done = command(tmp_path, "cc", "only.c", "libnet.a", "-o", "only")
    assert done.returncode == 0, done.stderr
    assert command(tmp_path, "./only").returncode == 0
