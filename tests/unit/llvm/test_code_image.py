"""Object files that are loaded without LLVM: calls of each other and of the process, constants, tables, variables."""

from __future__ import annotations

import ctypes
import json
import mmap
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from glowpy.llvm import code_image
from glowpy.llvm.code_image import (
    LinkedCode,
    LoadedImage,
    MissingFunctionError,
    is_loadable,
    link,
    load_code,
)
from glowpy.llvm.machine import Compiler, Machine, declarations, host_cpu, host_triple
from glowpy.support.errors import ResourceError

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
    code, end, _ = image(ENTRY, OTHER).ends
    start = loaded.address("through") - image(ENTRY, OTHER).functions["through"]
    with open("/proc/self/maps", encoding="utf-8") as lines:
        maps = [line.split()[:2] for line in lines]
    ranges = [([int(bound, 16) for bound in where.split("-")], rights) for where, rights in maps]
    parts = [
        [rights for (low, high), rights in ranges if low <= start + place < high]
        for place in (0, code - 1, code, end - 1, end)
    ]
    assert parts == [["r-xp"], ["r-xp"], ["r--p"], ["r--p"], ["rw-p"]]
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


def test_images_are_of_x86_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not is_loadable()


def test_a_system_without_a_library_of_mathematics(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ctypes.CDLL

    def opened(name: str | None, *, use_errno: bool = False) -> ctypes.CDLL:
        return library(name if name is None else "libnone.so", use_errno=use_errno)

    code_image._libraries.cache_clear()
    try:
        with monkeypatch.context() as patches:
            patches.setattr(ctypes, "CDLL", opened)
            loaded = LoadedImage(image(OTHER.replace("hidden ", "")))
    finally:
        code_image._libraries.cache_clear()
    assert function(loaded, "thrice", ctypes.c_double, ctypes.c_double)(2.0) == 6.0


def test_a_system_that_refuses_to_run_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(image(ENTRY, OTHER).payload())
    script = f"""
import ctypes, pathlib, sys
from glowpy.llvm.code_image import LinkedCode, load_code
from glowpy.support.errors import UserError
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: since Linux 6.3
    sys.exit("unknown")
try:
    load_code(LinkedCode.parse(pathlib.Path({str(path)!r}).read_bytes()), None)
except UserError as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if process.stderr == "unknown\n":
        pytest.skip("a kernel that does not refuse")
    assert process.stderr == ""
    message, note = process.stdout.splitlines()
    assert message.startswith("expected a process that may run generated code, got one")
    assert message.endswith("mprotect: Permission denied")
    assert note.startswith("note: allow memory that is run")


def test_a_process_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(ResourceError, match="not enough memory"):
        load_code(image(ENTRY, OTHER), lambda: HOST)


def changed(payload: bytes, field: int, value: object) -> bytes:
    """The payload with another value in a field."""
    line, _, content = payload.partition(b"\n")
    fields = json.loads(line)
    fields[field] = value
    return json.dumps(fields).encode() + b"\n" + content


CODE, SIZE = 4096, 3 * 4096
"""Bytes of the code of these objects, and of their image."""
DAMAGE: list[tuple[int, object]] = [
    (0, [0, 4096, SIZE]),
    (0, [8192, 4096, SIZE]),
    (0, [100, 4096, SIZE]),
    (0, [4096, 8192, SIZE + 4096]),
    (0, [4096, SIZE]),
    (0, None),
    (1, {"through": CODE}),
    (1, {"through": -1}),
    (1, {"through": "0"}),
    (1, []),
    (2, [[SIZE - 7, 0]]),
    (2, [[-1, 0]]),
    (2, [[0, SIZE + 1]]),
    (2, [[0, -1]]),
    (2, [0]),
    (3, {"hypot": [SIZE - 7]}),
    (3, {"hypot": [-8]}),
    (3, {"hypot": 0}),
]


@pytest.mark.parametrize(("field", "value"), DAMAGE)
def test_a_place_outside_an_image_is_damage(field: int, value: object) -> None:
    code = image(ENTRY, OTHER)
    assert (code.ends[0], code.ends[2]) == (CODE, SIZE)
    payload = code.payload()
    assert LinkedCode.parse(payload) == code
    with pytest.raises(ValueError, match="expected"):
        LinkedCode.parse(changed(payload, field, value))


@pytest.mark.parametrize("cut", [0, 5, -4096, -1])
def test_a_cut_image_is_damage(cut: int) -> None:
    with pytest.raises(ValueError, match=r"Expecting|expected"):
        LinkedCode.parse(image(ENTRY, OTHER).payload()[:cut])


def test_a_name_that_two_objects_define_is_left_to_llvm() -> None:
    assert link(compiled(OTHER, OTHER)) is None
    weak = OTHER.replace("hidden", "weak hidden")
    assert link(compiled(OTHER, weak)) is None
    assert link(compiled(weak, weak)) is not None


def test_jumps_to_the_process_are_aligned() -> None:
    code = image(ENTRY, OTHER)
    stubs = [
        place for place in range(code.ends[0]) if code.content[place : place + 2] == b"\xff\x25"
    ]
    assert stubs
    assert all(place % 16 == 0 for place in stubs)
