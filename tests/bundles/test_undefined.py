"""What object files want from elsewhere: nothing but what docs/bundles.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, bundle, parse_type
from glowpy.engine import compilation
from tests.bundles.networks import make, undefined
from tests.bundles.test_programs import EABI, LIBRARY


def elementwise(kind: str, *mnemonics: str) -> Module:
    """A network that applies operators to its two inputs, or to the first."""
    module = Module()
    f = module.create_function("main")
    a, b = (module.create_placeholder(name, parse_type(f"{kind}[8]")) for name in "ab")
    for name in mnemonics:
        create = getattr(f, f"create_{name}")
        node = create(name, a, b) if name in ("add", "mul", "div", "pow") else create(name, a)
        f.create_save(f"s_{name}", node, module.create_placeholder(f"y_{name}", a.type))
    return module


@pytest.mark.parametrize(
    ("target", "kind", "operators", "allowed"),
    [
        ("cortex-m4", "f32", ("add", "mul", "div", "exp", "tanh", "sqrt", "log"), r"$^"),
        ("cortex-m0", "f32", ("add", "mul", "div", "exp", "tanh", "sqrt"), r"__aeabi_\w+"),
        ("cortex-m7", "f64", ("add", "mul", "exp"), r"$^"),
        ("cortex-m7", "f32", ("pow", "sin"), r"$^"),
        ("cortex-m4", "f32", ("pow", "sin"), r"__aeabi_(d|f2d|u?i2d)\w*"),
        ("cortex-m4", "f64", ("add", "exp"), r"__aeabi_d\w+"),
        ("rpi2", "i32", ("div",), r"__aeabi_idiv"),
        ("rpi2", "i64", ("add", "mul", "div"), "__aeabi_ldivmod"),
        ("riscv32", "i64", ("add", "mul", "div"), "__divdi3"),
        (
            "esp32-c3",
            "f32",
            ("add", "mul", "div", "sqrt"),
            r"__(add|sub|mul|div|[lg][te])[sd]f\d|__extendsfdf2",
        ),
        ("riscv64", "i64", ("add", "mul", "div"), r"$^"),
        ("rpi4", "f64", ("pow", "sin", "div"), r"$^"),
    ],
)
def test_only_what_a_processor_lacks_is_left_to_the_compilers_library(
    target: str, kind: str, operators: tuple[str, ...], allowed: str, tmp_path: Path
) -> None:
    """As docs/bundles.md says."""
    bundle(
        elementwise(kind, *operators),
        tmp_path,
        BundleOptions("net"),
        CpuBackend(CpuOptions(target)),
    )
    symbols = undefined(tmp_path) - LIBRARY - EABI
    assert [symbol for symbol in sorted(symbols) if not re.fullmatch(allowed, symbol)] == []
    assert bool(symbols) == (allowed not in (r"$^", "__aeabi_idiv"))


@pytest.mark.parametrize("target", ["esp32-c3", "cortex-m4-nofpu"])
def test_stored_integers_need_no_library_of_floats(target: str, tmp_path: Path) -> None:
    """Nor do others, which test_digits.py and test_small.py run."""
    make(tmp_path, target, "integers")
    assert undefined(tmp_path) <= LIBRARY | EABI


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m7", "cortex-m33"])
def test_what_an_fpu_has_is_an_instruction(target: str) -> None:
    backend = CpuBackend(CpuOptions(target))
    assembly = backend.emit(compilation(elementwise("f32", "sqrt"), backend).program, "asm")
    assert "vsqrt.f32" in assembly
