"""Machine code kept on disk: when it is taken again, and what is thrown away."""

from __future__ import annotations

import os
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from glowpy.llvm import cache
from glowpy.llvm.cache import code_key, read_code, write_codes
from glowpy.llvm.machine import Machine, host_cpu, host_triple
from glowpy.llvm.objects import compile_objects

PARTS = ("define i32 @first() { ret i32 1 }", "define i32 @second() { ret i32 2 }")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(cache, "cache_directory", lambda: tmp_path / "code")
    return tmp_path / "code"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_code_is_named_after_each_part() -> None:
    keys = {code_key(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""))}
    assert len(keys) == 4
    assert code_key("a", "bc") == code_key("a", "bc")


def test_what_was_written_is_read(folder: Path) -> None:
    assert read_code("key") is None
    write_codes({"key": b"code"})
    assert read_code("key") == b"code"
    assert names(folder) == {"key.o"}
    write_codes({"key": b"other"})
    assert read_code("key") == b"other"


def test_what_was_used_longest_ago_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAX_BYTES", 100)
    for age, key in enumerate(("a", "b", "c")):
        write_codes({key: bytes(30)})
        os.utime(folder / f"{key}.o", (1000 + age, 1000 + age))
    assert read_code("a") is not None  # used again
    write_codes({"d": bytes(30)})
    assert names(folder) == {"a.o", "c.o", "d.o"}
    write_codes({"whole": bytes(100)})
    assert names(folder) == {"whole.o"}
    write_codes({"too large": bytes(101)})
    assert "too large.o" not in names(folder)


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    write_codes({"key": b"code"})
    assert read_code("key") is None


def test_code_is_taken_for_the_same_machine_only(folder: Path) -> None:
    here = Machine(host_triple(), host_cpu(), "")
    first = compile_objects(PARTS, here, [], use_cache=True)
    assert len(names(folder)) == 2
    (folder / f"{sorted(names(folder))[0]}").write_bytes(b"what is in the cache")
    again = compile_objects(PARTS, here, [], use_cache=True)
    assert sorted(map(bytes, {*again} - {*first})) == [b"what is in the cache"]
    assert compile_objects(PARTS, here, [], use_cache=False) == first
    generic = Machine(host_triple(), "", "")
    assert b"what is in the cache" not in compile_objects(PARTS, generic, [], use_cache=True)
    assert len(names(folder)) == 4


def test_code_is_made_anew_for_another_library(folder: Path, tmp_path: Path) -> None:
    here = Machine(host_triple(), host_cpu(), "")
    library = tmp_path / "library.bc"
    for number in (1, 2):
        source = f"define linkonce_odr i32 @known() {{ ret i32 {number} }}"
        library.write_bytes(llvm.parse_assembly(source).as_bitcode())
        os.utime(library, (1000 + number, 1000 + number))
        compile_objects(PARTS[:1], here, [library], use_cache=True)
        assert len(names(folder)) == number
        compile_objects(PARTS[:1], here, [library], use_cache=True)
        assert len(names(folder)) == number
