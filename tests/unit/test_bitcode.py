"""Which variant is chosen, and when its bitcode is compiled."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path

import pytest

from glowpy.backends.cpu import bitcode
from glowpy.backends.cpu.bitcode import (
    VARIANTS,
    Variant,
    baseline_variant,
    bitcode_path,
    select_variant,
    variant_named,
)
from glowpy.support.errors import InternalError, UnsupportedError, UserError

V2 = {"cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"}
V3 = V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}


@pytest.mark.parametrize(
    ("triple", "features", "expected"),
    [
        ("x86_64-unknown-linux-gnu", V2, "x86_64_v2"),
        ("x86_64-unknown-linux-gnu", V3, "x86_64_v3"),
        ("x86_64-pc-windows-msvc", V3 - {"fma"}, "x86_64_v2"),
        ("x86_64-apple-darwin", V3 | {"avxvnni"}, "x86_64_v3_avxvnni"),
        ("x86_64-unknown-linux-gnu", V4, "x86_64_v4"),
        ("x86_64-unknown-linux-gnu", V4 | {"avx512vnni", "avxvnni"}, "x86_64_v4_vnni"),
        ("arm64-apple-darwin", {"neon"}, "aarch64_neon"),
        ("aarch64-linux-gnu", {"neon", "dotprod"}, "aarch64_dotprod"),
        ("armv7-unknown-linux-gnueabihf", {"neon"}, "armv7_neon"),
        ("thumbv7em-none-eabihf", (), "thumbv7em"),
        ("riscv64-unknown-linux-gnu", {"a", "c", "d", "f", "m"}, "riscv64"),
        ("wasm32-unknown-unknown", (), "wasm32"),
        ("powerpc64le-unknown-linux-gnu", (), "powerpc64le"),
    ],
)
def test_select_variant(triple: str, features: Sequence[str], expected: str) -> None:
    assert select_variant(triple, features).name == expected


def test_select_variant_when_the_processor_is_too_old() -> None:
    with pytest.raises(UnsupportedError, match=r"expected x86_64 with cx16 \(variant x86_64_v2\)"):
        select_variant("x86_64-unknown-linux-gnu", V2 - {"cx16"})


def test_select_variant_when_there_is_no_such_family() -> None:
    with pytest.raises(
        UnsupportedError, match=r"expected an architecture of aarch64, arm, .* got 'vax'"
    ):
        select_variant("vax-dec-ultrix", ())


def test_baseline_variant_is_the_first_of_its_family() -> None:
    assert baseline_variant("x86_64-unknown-linux-gnu") == variant_named("x86_64_v2")


def test_variant_named_when_there_is_none() -> None:
    with pytest.raises(UserError, match="no kernel variant 'vax': expected one of x86_64_v2, "):
        variant_named("vax")


def test_a_later_variant_of_a_family_has_no_shorter_vectors() -> None:
    for worse, better in pairwise(VARIANTS):
        if worse.family == better.family:
            assert better.vector_bytes >= worse.vector_bytes


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of the variants that were compiled, in a library of one file and an empty cache folder."""
    library = tmp_path / "libjit"
    (library / "src").mkdir(parents=True)
    (library / "include").mkdir()
    for name in ("compile.py", "variants.toml", "src/a.c"):
        (library / name).write_text("")
    names: list[str] = []

    def compile_nothing(variant: Variant, path: Path) -> None:
        names.append(variant.name)
        path.write_bytes(b"BC")

    monkeypatch.setattr(bitcode, "_LIBRARY", library)
    monkeypatch.setattr(bitcode, "_IS_CHECKOUT", True)
    monkeypatch.setattr(bitcode, "_compile", compile_nothing)
    monkeypatch.setattr(bitcode, "user_cache_path", lambda *_, **__: tmp_path / "cache")
    return names


def path_now(variant: Variant) -> Path:
    bitcode_path.cache_clear()
    try:
        return bitcode_path(variant)
    finally:
        bitcode_path.cache_clear()


def test_bitcode_is_compiled_once(compiled: list[str]) -> None:
    wasm = variant_named("wasm32")
    assert path_now(wasm) == path_now(wasm)
    assert compiled == ["wasm32"]


def test_bitcode_is_compiled_again_when_a_kernel_changes(
    compiled: list[str], tmp_path: Path
) -> None:
    wasm = variant_named("wasm32")
    before = path_now(wasm)
    (tmp_path / "libjit" / "src" / "a.c").write_text("int x;\n")
    assert path_now(wasm) != before
    assert compiled == ["wasm32", "wasm32"]


def test_only_the_latest_files_are_kept(compiled: list[str], tmp_path: Path) -> None:
    wasm = variant_named("wasm32")
    for count in range(12):
        (tmp_path / "libjit" / "src" / "a.c").write_text(f"int x{count};\n")
        last = path_now(wasm)
    kept = list((tmp_path / "cache" / "bitcode").glob("wasm32-*.bc"))
    assert len(compiled) == 12
    assert len(kept) == 8
    assert last in kept


def test_packaged_bitcode_is_used_as_it_is(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wasm32.bc").write_bytes(b"BC")
    monkeypatch.setattr(bitcode, "_PACKAGED", tmp_path)
    monkeypatch.setattr(bitcode, "_IS_CHECKOUT", False)
    assert path_now(variant_named("wasm32")) == tmp_path / "wasm32.bc"
    assert compiled == []


def test_bitcode_path_when_ziglang_is_not_installed(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(bitcode, "version", no_version)
    with pytest.raises(
        UserError, match="the kernels of wasm32 have to be compiled, and ziglang"
    ) as caught:
        path_now(variant_named("wasm32"))
    assert "pip install 'glowpy[cross]'" in str(caught.value)
    assert compiled == []


def test_bitcode_path_when_the_cache_cannot_be_made(compiled: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="and the cache folder cannot be made"):
        path_now(variant_named("wasm32"))
    assert compiled == []


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (1, InternalError, r"libjit does not compile for wasm32:\nwhat the script says"),
        (3, UserError, "the kernels of wasm32 cannot be compiled: what the script says"),
    ],
)
def test_bitcode_path_when_the_script_fails(
    status: int, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess(["python"], status, "", "what the script says\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(error, match=message):
        bitcode._compile(variant_named("wasm32"), Path("never.bc"))


def test_the_module_does_not_load_llvm() -> None:
    code = "import sys, glowpy.backends.cpu.bitcode; print('llvmlite' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
