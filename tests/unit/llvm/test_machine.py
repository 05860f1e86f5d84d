"""What LLVM is given and makes of it: above all, that what is not defined is not called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest
from llvmlite.binding import parse_assembly

from glowpy.llvm import machine
from glowpy.llvm.head import Head
from glowpy.llvm.machine import (
    Compiler,
    InvalidIRError,
    LoadedCode,
    Machine,
    declarations,
    host_cpu,
    host_triple,
    needed_pieces,
)
from glowpy.llvm.objects import compile_objects, compile_whole, load_objects
from glowpy.llvm.writer import Body, ModuleWriter
from glowpy.support.errors import InternalError
from tests.unit.llvm.pieces import piece

HOST = Machine(host_triple(), host_cpu(), "")

CALL = """
{declaration}
define float @net.first(float %x) {{
  %y = call float @{symbol}(float %x)
  ret float %y
}}
"""


def calling(symbol: str, *, external: bool = False) -> str:
    writer = ModuleWriter(64, 16, None)
    writer.declare(symbol, "float", ["float"], external=external)
    return CALL.format(declaration=writer._globals[symbol], symbol=symbol)


def test_functions_that_differ_in_what_llvm_may_make_of_loops_are_two() -> None:
    writer = ModuleWriter(64, 16, None)
    names = []
    for loops_only in (False, True, False):
        body = Body(writer, "net.move", {})
        body.loops_only = loops_only
        names.append(writer.function(body, inline=False))
    assert names[0] == names[2] != names[1]
    texts = [text for text in writer.separate([]) if '"no-builtin-memcpy"' in text]
    assert [names[1] in text for text in texts] == [True]


def kernel(symbol: str, factor: float) -> bytes:
    """A library of one function, which multiplies."""
    text = f"define linkonce_odr float @{symbol}(float %x) {{ %y = fmul float %x, {factor} ret float %y }}"
    return piece(parse_assembly(text).as_bitcode(), [symbol], [])


def object_code(text: str) -> bytes:
    return Compiler(HOST, (), declarations([text])).object_code(text)


def test_call_of_what_no_library_defines_is_refused_with_both_names() -> None:
    message = r"no library defines libjit_cum_sum_f32, called by net\.first"
    with pytest.raises(InvalidIRError, match=message):
        object_code(calling("libjit_cum_sum_f32"))
    with pytest.raises(InternalError, match=message):
        compile_objects([calling("libjit_cum_sum_f32")], HOST, (), use_cache=False)


def test_pieces_of_libraries_are_those_that_are_needed() -> None:
    first = piece(b"A\n", ["k_dot"], []) + piece(b"BB", ["k_conv"], ["k_dot", "calloc"])
    first += piece(b"C", ["k_add", "k_sub"], [])
    other = piece(b"D", ["m_conv"], ["k_conv"]) + piece(b"E", ["m_add"], [])

    def needed(*names: str) -> list[bytes]:
        lines = [f"declare void @{name}(ptr, ptr @other)" for name in names]
        return needed_pieces([other, first], lines)

    assert needed() == needed("k") == []
    assert needed("k_add") == needed("k_add", "k_sub") == [b"C"]
    assert needed("k_conv") == [b"A\n", b"BB"]
    assert needed("k_sub", "m_conv") == [b"D", b"A\n", b"BB", b"C"]


def test_kernels_are_read_once_for_networks_that_need_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else was needed with them, the code is the same."""
    read: list[Sequence[str]] = []

    def noted(libraries: Sequence[bytes], needed: Sequence[str]) -> list[bytes]:
        read.append(needed)
        return needed_pieces(libraries, needed)

    monkeypatch.setattr(machine, "needed_pieces", noted)
    monkeypatch.setattr(machine, "_KERNELS", {})
    monkeypatch.setattr(machine, "_MOST_KERNELS", 2)
    library = [kernel("once", 2.0) + kernel("twice", 3.0)]
    once, twice, apart = (calling(name) for name in ("once", "twice", "once_more"))

    def code(texts: Sequence[str], which: int = 0) -> bytes:
        return Compiler(HOST, library, declarations(texts)).object_code(texts[which])

    both = [code([once, twice], which) for which in (0, 1)]
    assert [code([once]), code([twice])] == both
    assert len(read) == 2
    with pytest.raises(InvalidIRError):
        code([apart])  # takes the place of what was used longest ago
    assert [code([twice]), len(read)] == [both[1], 3]
    assert [code([once]), len(read)] == [both[0], 4]
    library = [kernel("once", 5.0) + kernel("twice", 3.0)]
    assert code([once]) != both[0]


def test_vectors_are_as_wide_as_the_machines() -> None:
    head = Head("void", "f", "")
    assert '"prefer-vector-width"="256"' in ModuleWriter(64, 32, None).begin(head)


def test_another_process_says_no_more_than_that() -> None:
    with pytest.raises(InternalError, match="no library defines missing") as caught:
        compile_whole(calling("missing"), HOST, (), "optimized")
    assert "Traceback" not in str(caught.value)


def test_functions_of_libraries_are_measured() -> None:
    module = parse_assembly("""
define linkonce_odr void @deep(ptr %x) noinline nounwind {
  %big = alloca [400 x i8]
  store volatile ptr %big, ptr %x
  ret void
}
""").as_bitcode()
    text = """
declare void @deep(ptr)
define void @main(ptr %x) nounwind {
  call void @deep(ptr %x)
  ret void
}
"""
    library = piece(module, ["deep"], [])
    _, frames = compile_whole(text, HOST, [library], "measured")
    assert frames["deep"] >= 400
    assert frames.keys() <= {"main", "deep"}


def test_external_functions_are_left_to_whoever_links() -> None:
    assert b"callback" in object_code(calling("callback", external=True))


def test_code_that_wants_what_the_process_lacks_is_not_loaded() -> None:
    code = object_code(calling("nobody_has_this", external=True))
    with pytest.raises(InternalError, match="this process does not have nobody_has_this"):
        load_objects(HOST, [code])


def test_objects_may_call_each_other_and_the_process() -> None:
    first = object_code(calling("cosf", external=True))
    second = """
declare float @net.first(float) "glowpy-external"
define float @main(float %x) {
  %y = call float @net.first(float %x)
  ret float %y
}
"""
    code = LoadedCode(HOST, [first, object_code(second)])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.address("main"))
    assert function(0.0) == 1.0


def test_wrong_text_is_refused() -> None:
    with pytest.raises(InvalidIRError):
        object_code("define nonsense")
