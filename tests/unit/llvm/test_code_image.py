"""Object files that are loaded without LLVM: calls of each other and of the process, constants, tables, variables."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable

import pytest

from glowpy.llvm.code_image import (
    LinkedCode,
    LoadedImage,
    MissingFunctionError,
    is_loadable,
    link,
)
from glowpy.llvm.machine import Compiler, Machine, declarations, host_cpu, host_triple

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="images are of x86-64 in ELF"
)

HOST = Machine(host_triple() if sys.platform == "linux" else "x86_64-linux-gnu", host_cpu(), "")
ENTRY = """
@table = constant [2 x ptr] [ptr @twice, ptr @thrice]
@count = internal global i64 5
declare hidden double @thrice(double) "glowpy-external"
declare double @hypot(double, double) "glowpy-external"
declare ptr @memcpy(ptr, ptr, i64) "glowpy-external"
define hidden double @twice(double %x) noinline { %y = fmul double %x, 2.0 ret double %y }
define double @through(i64 %which, double %x) {
  %place = getelementptr [2 x ptr], ptr @table, i64 0, i64 %which
  %function = load ptr, ptr %place
  %y = call double %function(double %x)
  ret double %y
}
define double @length(double %x, double %y) { %z = call double @hypot(double %x, double %y) ret double %z }
define i64 @counted() {
  %old = load volatile i64, ptr @count
  %new = add i64 %old, 1
  store volatile i64 %new, ptr @count
  ret i64 %new
}
define ptr @copied(ptr %to, ptr %from, i64 %size) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %size)
  ret ptr %r
}
"""
OTHER = "define hidden double @thrice(double %x) { %y = fmul double %x, 3.0 ret double %y }"


def compiled(*texts: str) -> list[bytes]:
    return [Compiler(HOST, (), declarations([text])).object_code(text) for text in texts]


def image(*texts: str) -> LinkedCode:
    code = link(compiled(*texts))
    assert code is not None
    return code


@pytest.fixture(scope="module")
def loaded() -> LoadedImage:
    assert is_loadable()
    return LoadedImage(LinkedCode.parse(image(ENTRY, OTHER).payload()))


def function(loaded: LoadedImage, name: str, *types: type) -> Callable[..., float]:
    return ctypes.CFUNCTYPE(*types)(loaded.address(name))


def test_functions_call_each_other_and_the_process(loaded: LoadedImage) -> None:
    d, n = ctypes.c_double, ctypes.c_size_t
    through = function(loaded, "through", d, n, d)
    assert [through(0, 7.0), through(1, 7.0)] == [14.0, 21.0]
    assert function(loaded, "length", d, d, d)(3.0, 4.0) == 5.0
    to, source = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"abcdefg")
    function(loaded, "copied", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, n)(
        ctypes.addressof(to), ctypes.addressof(source), 8
    )
    assert to.value == b"abcdefg"


def test_variables_belong_to_one_image(loaded: LoadedImage) -> None:
    other = LoadedImage(image(ENTRY, OTHER))
    counted = [function(one, "counted", ctypes.c_size_t) for one in (loaded, other)]
    assert [counted[0](), counted[0](), counted[1]()] == [6, 7, 6]


def test_only_visible_functions_have_names(loaded: LoadedImage) -> None:
    assert loaded.address("twice") == loaded.address("nothing") == 0
    assert {"through", "length", "counted"} < set(image(ENTRY, OTHER).functions)


def test_code_is_not_written_and_the_rest_not_run(loaded: LoadedImage) -> None:
    with open("/proc/self/maps", encoding="utf-8") as lines:
        maps = [line.split()[:2] for line in lines]
    owners = [
        rights
        for where, rights in maps
        for low, high in [[int(end, 16) for end in where.split("-")]]
        if low <= loaded.address("through") < high
    ]
    assert owners == ["r-xp"]
    assert all(mmap.PAGESIZE % 4096 == 0 == end % 4096 for end in image(ENTRY, OTHER).ends)


def test_what_a_process_does_not_have() -> None:
    text = 'declare i32 @none_such() "glowpy-external" define i32 @f() { %r = call i32 @none_such() ret i32 %r }'
    with pytest.raises(MissingFunctionError, match="none_such"):
        LoadedImage(image(text))


@pytest.mark.parametrize(
    "change",
    [
        lambda code: b"\xcf\xfa\xed\xfe" + code[4:],
        lambda code: code[:18] + b"\xb7\0" + code[20:],  # aarch64
    ],
)
def test_other_files_are_left_to_llvm(change: Callable[[bytes], bytes]) -> None:
    (code,) = compiled(OTHER)
    assert link([change(code)]) is None


def test_variables_of_threads_are_left_to_llvm() -> None:
    text = "@own = thread_local global i32 1 define i32 @f() { %r = load i32, ptr @own ret i32 %r }"
    assert link(compiled(text)) is None
