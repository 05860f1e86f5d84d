"""Which variant of the kernels is chosen, and when its bitcode is compiled."""

import importlib.util
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path

import pytest

from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.target import resolve_target
from glowpy.backends.cpu.variant import (
    VARIANTS,
    Variant,
    baseline_variant,
    for_processor,
    select_variant,
    variant_named,
)
from glowpy.llvm import library
from glowpy.llvm.library import KernelLibrary
from glowpy.support.cache import Key, read, write
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
        ("aarch64-linux-gnu", {"neon", "dotprod", "i8mm"}, "aarch64_i8mm"),
        ("armv7-unknown-linux-gnueabihf", {"neon"}, "armv7_neon"),
        ("thumbv7em-none-eabihf", {"dsp", "vfp4d16sp"}, "thumbv7em"),
        ("thumbv8m.main-none-eabi", {"dsp"}, "thumbv7em_dsp"),
        ("thumbv7m-none-eabi", (), "thumbv7m"),
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


def test_baseline_variant_passes_floats_as_the_triple_does() -> None:
    assert baseline_variant("thumbv7em-none-eabi") == variant_named("thumbv7m")
    assert baseline_variant("thumbv7em-none-eabihf") == variant_named("thumbv7em")
    assert baseline_variant("thumbv7em-none-eabi", "cortex-m4") == variant_named("thumbv7em")


def test_variant_named_when_there_is_none() -> None:
    with pytest.raises(UserError, match="no kernel variant 'vax': expected one of x86_64_v2, "):
        variant_named("vax")


def test_a_later_variant_of_a_family_has_no_shorter_vectors() -> None:
    for worse, better in pairwise(VARIANTS):
        if worse.family == better.family:
            assert better.vector_bytes >= worse.vector_bytes


def test_a_processor_may_have_a_model_of_its_own() -> None:
    """Zen 4 starts half as many products of 64 bytes; all else is that of the variant, the kernels as well."""
    variant = variant_named("x86_64_v4_vnni")
    zen = for_processor(variant, "znver4")
    assert zen.machine.multiplies == variant.machine.multiplies / 2
    same = {"machine", "double_machine", "byte_machine", "word_machine", "bf16_machine"}
    for field in set(Variant.__slots__) - same:
        assert getattr(zen, field) == getattr(variant, field)
    assert for_processor(variant, "sapphirerapids") is variant
    assert resolve_target(CpuOptions(cpu="znver4")).variant == zen


WASM = variant_named("wasm32")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of the variants that were compiled, of a library of one file, with an empty cache folder."""
    folder = tmp_path / "kernels"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.c").write_text("")
    names: list[str] = []

    def compile_nothing(self: KernelLibrary, variant: Variant, path: Path) -> str:
        names.append(variant.name)
        path.write_bytes(b"BC" + (self.folder / "src" / "a.c").read_bytes())
        path.with_suffix(".symbols").write_text("mine_a_f32\nmine_b_f32\n")
        return "a.c:1: warning: empty"

    monkeypatch.setattr(KernelLibrary, "_compile", compile_nothing)
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "cache"))
    return names


def mine(tmp_path: Path, packaged: Path | None = None) -> KernelLibrary:
    """The library, as a process that begins now sees it."""
    return KernelLibrary("mine", tmp_path / "kernels", packaged, {})


def test_bitcode_is_compiled_once(compiled: list[str], tmp_path: Path) -> None:
    assert mine(tmp_path).bitcode(WASM) == mine(tmp_path).bitcode(WASM)
    assert compiled == ["wasm32"]


def test_symbols_come_with_the_bitcode(compiled: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        assert mine(tmp_path).symbols(WASM) == {"mine_a_f32", "mine_b_f32"}
    assert compiled == ["wasm32"]


def test_warnings_come_with_the_bitcode(compiled: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        assert mine(tmp_path).warnings(WASM) == "a.c:1: warning: empty"
        assert mine(tmp_path).bitcode(WASM) == b"BC"
    assert compiled == ["wasm32"]


def test_bitcode_is_compiled_again_when_a_kernel_changes(
    compiled: list[str], tmp_path: Path
) -> None:
    before = mine(tmp_path).bitcode(WASM)
    (tmp_path / "kernels" / "src" / "a.c").write_text("int x;\n")
    assert mine(tmp_path).bitcode(WASM) != before
    assert compiled == ["wasm32", "wasm32"]


def test_identity_is_that_of_the_kernels_that_were_loaded(
    compiled: list[str], tmp_path: Path
) -> None:
    """Machine code of a process would be kept, and recalled, as if it were of kernels edited meanwhile."""
    kernels = mine(tmp_path)
    before = kernels.identity(WASM)
    kernels.bitcode(WASM)
    (tmp_path / "kernels" / "src" / "a.c").write_text("int x;\n")
    assert kernels.identity(WASM) == before
    assert mine(tmp_path).identity(WASM) != before
    assert compiled == ["wasm32"]


def test_bitcode_is_compiled_again_when_the_entry_is_damaged(
    compiled: list[str], tmp_path: Path
) -> None:
    content = mine(tmp_path).bitcode(WASM)
    (entry,) = (tmp_path / "cache").glob("bitcode-*")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert mine(tmp_path).bitcode(WASM) == content
    assert mine(tmp_path).bitcode(WASM) == content
    assert compiled == ["wasm32", "wasm32"]


def test_packaged_bitcode_is_used_as_it_is(compiled: list[str], tmp_path: Path) -> None:
    (tmp_path / "wasm32.bc").write_bytes(b"BC packaged")
    (tmp_path / "wasm32.symbols").write_text("mine_a_f32\n")
    assert mine(tmp_path, packaged=tmp_path).bitcode(WASM) == b"BC packaged"
    assert mine(tmp_path, packaged=tmp_path).symbols(WASM) == {"mine_a_f32"}
    assert mine(tmp_path, packaged=tmp_path).origin(WASM) == str(tmp_path / "wasm32.bc")
    assert compiled == []
    mine(tmp_path, packaged=tmp_path).bitcode(variant_named("riscv64"))
    assert compiled == ["riscv64"]


def test_bitcode_when_ziglang_is_not_installed(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(library, "version", no_version)
    with pytest.raises(
        UserError, match="the kernels of wasm32 have to be compiled, and ziglang"
    ) as caught:
        mine(tmp_path).bitcode(WASM)
    assert "pip install 'glowpy[cross]'" in str(caught.value)
    assert compiled == []


@pytest.mark.parametrize("place", ["a file", "off"])
def test_bitcode_is_compiled_by_every_process_without_a_cache(
    compiled: list[str], place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("where the folder should be")
    monkeypatch.setenv("GLOWPY_CACHE_DIR", place if place == "off" else str(tmp_path / place))
    assert mine(tmp_path).bitcode(WASM) == mine(tmp_path).bitcode(WASM) == b"BC"
    assert compiled == ["wasm32", "wasm32"]


SMALL = "float libjit_%s(float x) { return x * %sf; }\n"


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="there is no compiler")
def test_files_that_did_not_change_are_taken_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "cache"))
    digests: list[str] = []
    part_key = library._part_key

    def noted(digest: str) -> Key:
        digests.append(digest)
        return part_key(digest)

    monkeypatch.setattr(library, "_part_key", noted)
    sources = tmp_path / "kernels" / "src"
    sources.mkdir(parents=True)
    for name in ("one", "two"):
        (sources / f"{name}.c").write_text(SMALL % (name, "2.0"))
    assert mine(tmp_path).symbols(WASM) == {"libjit_one", "libjit_two"}
    one, two = digests
    (sources / "two.c").write_text(SMALL % ("three", "3.0"))
    write(part_key(one), read(part_key(two)) or b"")  # something else, so that we see it
    assert mine(tmp_path).symbols(WASM) == {"libjit_two", "libjit_three"}
    assert digests[2] == one
    assert read(part_key(digests[3]))


@pytest.fixture
def script_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    def fail(status: int) -> None:
        script = tmp_path / "fails.py"
        script.write_text(
            f"import sys\nprint('what the script says', file=sys.stderr)\nsys.exit({status})\n"
        )
        monkeypatch.setattr(library, "compile_script", lambda: script)

    return fail


def test_kernels_of_a_package_that_do_not_compile(
    script_fails: Callable[[int], None], tmp_path: Path
) -> None:
    script_fails(1)
    with pytest.raises(UserError, match="the kernels of mine do not compile for wasm32") as caught:
        mine(tmp_path)._compile(WASM, tmp_path / "never.bc")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.context == "what the script says"
    assert diagnostic.note == f"mend them in {tmp_path / 'kernels' / 'src'}"


def test_kernels_of_libjit_that_do_not_compile(
    script_fails: Callable[[int], None], tmp_path: Path
) -> None:
    script_fails(1)
    with pytest.raises(InternalError, match=r"libjit do not compile for wasm32:\nwhat the script"):
        LIBJIT._compile(WASM, tmp_path / "never.bc")


def test_kernels_that_the_compiler_does_not_fit(
    script_fails: Callable[[int], None], tmp_path: Path
) -> None:
    script_fails(3)
    message = "the kernels of wasm32 cannot be compiled: what the script says"
    with pytest.raises(UserError, match=message):
        mine(tmp_path)._compile(WASM, tmp_path / "never.bc")
