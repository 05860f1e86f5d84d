"""The compiler script: what it writes, for every target, and what it says when it cannot."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.cpu.variant import VARIANTS, Variant, variant_named
from libjit.compile import (
    ROOT,
    CompileError,
    CompilerError,
    check_versions,
    compile_variant,
    host_variants,
    read_targets,
)

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

KERNEL = """\
#include "libjit.h"

INLINE float twice(float x) { return x * 2.0f; }

KERNEL void libjit_probe_f32(float *result, const float *input, const ints_t *result_shape, const ints_t *input_shape) {
  dim_t n = count(result_shape), i = 0;
  for (; i + LANES <= n; i += LANES) *(vf *)(result + i) = *(const vf *)(input + i) * 2.0f;
  for (; i < n; i++) result[i] = twice(input[i]);
}
"""
OTHER = """\
#include "libjit.h"

INLINE float twice(float x) { return x + x; }

KERNEL float libjit_other_f32(float x) { return twice(x); }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library of two files that both have a helper of the same name."""
    root = tmp_path / "library"
    (root / "src").mkdir(parents=True)
    (root / "include").symlink_to(ROOT / "include")
    (root / "src" / "probe.c").write_text(KERNEL)
    (root / "src" / "other.c").write_text(OTHER)
    return root


USED = """\
#include "libjit.h"

LATE dim_t twice(const ints_t *shape) { return 2 * count(shape); }

KERNEL dim_t libjit_third(const ints_t *shape) { return twice(shape) + 1; }
KERNEL dim_t libjit_fourth(const ints_t *shape) { return twice(shape) + 2; }
"""


def pieces(library: Path) -> list[tuple[dict[str, Any], bytes]]:
    """What the pieces of a library contain, and their bitcode."""
    content, result = library.read_bytes(), []
    while content:
        line, rest = content.split(b"\n", 1)
        contents = json.loads(line)
        result.append((contents, rest[: contents["size"]]))
        content = rest[contents["size"] :]
    return result


def parsed(library: Path) -> llvm.ModuleRef:
    """All pieces in one module."""
    first, *others = [llvm.parse_bitcode(bitcode) for _, bitcode in pieces(library)]
    for other in others:
        for function in other.functions:
            if function.linkage is llvm.Linkage.linkonce_odr:
                function.linkage = "external"  # else it would be left out, as nobody calls it
        first.link_in(other)
    return first


@pytest.mark.parametrize("name", read_targets())
def test_compile_variant_for_each_target(
    name: str, library: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = read_targets()[name]
    compile_variant(target, tmp_path / "out.bc", library)
    module = parsed(tmp_path / "out.bc")
    defined = {function.name for function in module.functions if not function.is_declaration}
    assert defined == {"libjit_probe_f32", "libjit_other_f32"}
    assert (tmp_path / "out.symbols").read_text() == "libjit_other_f32\nlibjit_probe_f32\n"
    module.triple = target.triple
    features = ",".join(f"+{feature}" for feature in variant_named(name).requires)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=features, opt=3
    )
    assert len(machine.emit_object(module)) > 100
    assert capfd.readouterr().err == ""


def test_vectors_are_those_of_the_header(library: Path, tmp_path: Path) -> None:
    (library / "src" / "probe.c").write_text(
        '#include "libjit.h"\n'
        "KERNEL int libjit_bytes(void) { return VECTOR_BYTES; }\n"
        "KERNEL int libjit_doubles(void) { return 1000 + DOUBLE_LANES; }\n"
    )
    for variant in VARIANTS:
        compile_variant(read_targets()[variant.name], tmp_path / "out.bc", library)
        text, doubles = str(parsed(tmp_path / "out.bc")), variant.double_machine.lanes
        assert f"ret i32 {variant.vector_bytes}\n" in text, variant.name
        assert f"ret i32 {1000 + doubles}\n" in text, variant.name


def test_bitcode_can_be_inlined_into_any_caller(library: Path, tmp_path: Path) -> None:
    compile_variant(read_targets()["x86_64_v4"], tmp_path / "out.bc", library)
    text = str(parsed(tmp_path / "out.bc"))
    assert "alwaysinline" in text
    for attribute in ("target-cpu", "target-features", "tune-cpu", "min-legal-vector-width"):
        assert attribute not in text


def test_bitcode_is_the_same_from_another_folder(library: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else" / "where"
    elsewhere.parent.mkdir()
    target = read_targets()["aarch64_neon"]
    compile_variant(target, tmp_path / "first.bc", library)
    library.rename(elsewhere)
    compile_variant(target, tmp_path / "second.bc", elsewhere, jobs=1)
    content = (tmp_path / "first.bc").read_bytes()
    assert content == (tmp_path / "second.bc").read_bytes()
    assert str(tmp_path).encode() not in content


def test_parts_are_made_of_changed_files_alone(library: Path, tmp_path: Path) -> None:
    target, parts = read_targets()["aarch64_neon"], tmp_path / "parts"
    parts.mkdir()
    compile_variant(target, tmp_path / "out.bc", library, parts=parts)
    before = {file: file.stat().st_mtime_ns for file in parts.iterdir()}
    assert len(before) == 2
    (library / "src" / "other.c").write_text(OTHER.replace("x + x", "x * 3"))
    compile_variant(target, tmp_path / "parts.bc", library, parts=parts)
    after = {file: file.stat().st_mtime_ns for file in parts.iterdir()}
    assert len(after) == 3
    assert before.items() <= after.items()
    compile_variant(target, tmp_path / "whole.bc", library)
    assert (tmp_path / "parts.bc").read_bytes() == (tmp_path / "whole.bc").read_bytes()


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("x86_64_v4", "x86_64_v4_vnni", 2),
        ("aarch64_neon", "aarch64_dotprod", 2),
        ("x86_64_v3", "x86_64_v4", 1),
        ("thumbv6m", "thumbv7em", 2),
        ("riscv64", "riscv64_v", 1),
        ("riscv32", "riscv32_f", 2),
        ("wasm32", "riscv32", 0),
    ],
)
def test_variants_share_what_is_the_same(
    first: str, second: str, shared: int, library: Path, tmp_path: Path
) -> None:
    digests: list[str] = []
    for name in (first, second):
        compile_variant(read_targets()[name], tmp_path / "out.bc", library, announce=digests.extend)
    assert len(set(digests)) == 4 - shared


def test_a_piece_says_what_it_defines_and_uses(library: Path, tmp_path: Path) -> None:
    (library / "src" / "other.c").write_text(
        OTHER + "float libjit_far_f32(float);\n"
        "KERNEL float libjit_near_f32(float x) { return libjit_far_f32(x); }\n"
    )
    compile_variant(read_targets()["aarch64_neon"], tmp_path / "out.bc", library)
    (other, _), (probe, _) = pieces(tmp_path / "out.bc")
    assert other["defines"] == ["libjit_near_f32", "libjit_other_f32"]
    assert other["uses"] == ["libjit_far_f32"]
    assert (probe["defines"], probe["uses"]) == (["libjit_probe_f32"], [])


def test_no_function_is_defined_twice(library: Path, tmp_path: Path) -> None:
    (library / "src" / "again.c").write_text(OTHER)
    with pytest.raises(CompileError, match="two files define libjit_other_f32"):
        compile_variant(read_targets()["aarch64_neon"], tmp_path / "out.bc", library)
    assert not (tmp_path / "out.bc").exists()


def test_a_late_function_is_shared_until_a_kernel_is_inlined(library: Path, tmp_path: Path) -> None:
    (library / "src" / "probe.c").write_text(USED)
    compile_variant(read_targets()["aarch64_neon"], tmp_path / "out.bc", library)
    text = str(parsed(tmp_path / "out.bc"))
    assert text.count("call i64 @twice(") == 2
    attributes = re.search(r"define internal .*@twice\(.*(#\d+) \{", text)
    assert attributes
    assert re.search(rf"attributes {attributes[1]} = {{.*alwaysinline", text)


def test_wrong_c_shows_what_clang_says_and_leaves_nothing(library: Path, tmp_path: Path) -> None:
    (library / "src" / "wrong.c").write_text("int f(void) { return missing; }\n")
    with pytest.raises(CompileError, match=r"wrong\.c does not compile for x86_64_v2:") as caught:
        compile_variant(read_targets()["x86_64_v2"], tmp_path / "out" / "x.bc", library)
    assert "use of undeclared identifier 'missing'" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_kernels_do_not_call_a_libc_that_a_bundle_lacks(library: Path, tmp_path: Path) -> None:
    (library / "src" / "probe.c").write_text(
        '#include "libjit.h"\n'
        "KERNEL float libjit_root_f32(float x) { return __builtin_sqrtf(x); }\n"
    )
    compile_variant(read_targets()["x86_64_v2"], tmp_path / "out.bc", library)
    assert "@llvm.sqrt.f32" in str(parsed(tmp_path / "out.bc"))


def test_no_sources(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no kernels to compile: expected C files in"):
        compile_variant(read_targets()["wasm32"], tmp_path / "out.bc", tmp_path)


def test_check_versions_when_clang_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    check_versions()
    monkeypatch.setattr(llvm, "llvm_version_info", (3, 9, 1))
    with pytest.raises(
        CompilerError, match="is newer than llvmlite's LLVM: expected at most 3, got"
    ):
        check_versions()


@pytest.mark.parametrize(
    ("machine", "first"),
    [
        ("x86_64", ["x86_64_v2"]),
        ("AMD64", ["x86_64_v2"]),
        ("arm64", ["aarch64_neon"]),
        ("vax", []),
    ],
)
def test_host_variants(machine: str, first: list[str]) -> None:
    assert host_variants(machine)[:1] == first


def run_script(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "compile.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_script_without_path_and_home(library: Path, tmp_path: Path) -> None:
    output = tmp_path / "v3.bc"
    options = ["--variant", "x86_64_v3", "--output", str(output), "--root", str(library)]
    done = run_script(*options, environment={"PATH": ""})
    assert (done.returncode, done.stderr) == (0, "")
    assert parsed(output).triple == "x86_64-unknown-linux-gnu"


def test_script_when_the_variant_is_unknown() -> None:
    done = run_script("--variant", "vax", "--output", "vax.bc", environment=dict(os.environ))
    assert done.returncode == 2
    assert "no variant 'vax': expected one of x86_64_v2, " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_libjit_compiles_without_a_warning(variant: Variant) -> None:
    """Other tests find what is compiled here in the cache."""
    assert not LIBJIT.warnings(variant)
