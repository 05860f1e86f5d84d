"""Objects of single functions: by how many processes they are made, and which of them a change makes anew."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.core.type import parse_type
from glowpy.graph.function import Module
from glowpy.llvm import objects
from glowpy.llvm.machine import Machine, host_cpu, host_triple
from glowpy.llvm.objects import compile_objects
from glowpy.support.cache import Key, write
from glowpy.support.errors import InternalError
from tests.unit.llvm.pieces import piece

HOST = Machine(host_triple(), host_cpu(), "")
KNOWN = "define linkonce_odr i32 @known() { ret i32 %d }"
TEXTS = [f"define i32 @number{number}() {{ ret i32 {number} }}" for number in range(13)]


def layers(*widths: int, name: str = "main") -> Module:
    """Products one after the other, the first of 8 columns, each with the logarithm of a softmax."""
    module = Module()
    f = module.create_function(name)
    node = module.create_placeholder(f"{name}_in", parse_type("f32[16x8]")).value
    for index, width in enumerate(widths):
        shape = node.type.extents[1], width
        weights = np.linspace(-1, 1, shape[0] * width, dtype=np.float32).reshape(shape)
        constant = module.create_constant(f"{name}_w{index}", weights)
        node = f.create_mat_mul(f"{name}_product{index}", node, constant).result
        node = f.create_log_softmax(f"{name}_softmax{index}", node, 1).result
    f.create_save("save", node, module.create_placeholder(f"{name}_out", node.type))
    return module


def compiled(module: Module, cache_folder: Path) -> set[str]:
    """The objects that did not exist before."""
    before = {path.name for path in cache_folder.glob("code-*")}
    glowpy.compile(module, CpuBackend())
    return {path.name for path in cache_folder.glob("code-*")} - before


def test_a_change_of_one_layer_compiles_that_layer_and_the_entry_point(cache_folder: Path) -> None:
    """The last softmax, and the entry point with the call of the product; tiles, walk and epilogue are there."""
    assert len(compiled(layers(24, 40, 13), cache_folder)) == 12
    assert len(compiled(layers(24, 40, 14), cache_folder)) == 2
    assert not compiled(layers(24, 40, 13), cache_folder)


def test_networks_share_equal_functions(cache_folder: Path) -> None:
    compiled(layers(24, 40, 13), cache_folder)
    assert len(compiled(layers(24, 40, name="other"), cache_folder)) == 1


def test_the_number_of_processes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = compile_objects(TEXTS[:3], HOST, [], use_cache=False)
    monkeypatch.setattr(objects, "usable_cores", lambda: 3)
    together = compile_objects(TEXTS, HOST, [], use_cache=False)
    assert together[:3] == alone
    assert len(set(together)) == len(TEXTS)


def test_equal_texts_are_compiled_once(cache_folder: Path) -> None:
    first, second = compile_objects([TEXTS[0], TEXTS[0]], HOST, [], use_cache=True)
    assert first == second
    assert len(list(cache_folder.glob("code-*"))) == 1


@pytest.mark.parametrize("wrong", [0, 12])
def test_text_that_llvm_refuses_is_an_error_in_every_process(
    monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    monkeypatch.setattr(objects, "usable_cores", lambda: 3)
    texts = [*TEXTS[:wrong], "define nonsense", *TEXTS[wrong + 1 :]]
    with pytest.raises(InternalError, match="LLVM refuses generated code"):
        compile_objects(texts, HOST, [], use_cache=False)


@pytest.mark.parametrize(
    "error", [IndexError, StopIteration, MemoryError, SystemExit, KeyboardInterrupt]
)
@pytest.mark.parametrize("place", [objects._Here, objects._Worker])
def test_whatever_a_thread_raises_is_raised_to_the_caller(
    monkeypatch: pytest.MonkeyPatch, place: type, error: type[BaseException]
) -> None:
    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(objects, "usable_cores", lambda: 2)
    monkeypatch.setattr(place, "compile", fail)
    with pytest.raises(error):
        compile_objects(TEXTS, HOST, [], use_cache=False)


def test_the_processes_refuse_text_as_well() -> None:
    with objects._worker(HOST, [], "object_code", []) as worker:
        assert worker.compile(TEXTS[0]) == worker.compile(TEXTS[0])
        with pytest.raises(InternalError, match="LLVM refuses generated code"):
            worker.compile("define nonsense")
        with pytest.raises(InternalError):
            worker.compile(TEXTS[0])


@pytest.mark.parametrize("cores", [1, 8])
def test_code_is_found_with_any_number_of_cores(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(objects, "usable_cores", lambda: 2)
    assert compiled(layers(24, 40), cache_folder)
    monkeypatch.setattr(objects, "usable_cores", lambda: cores)
    assert not compiled(layers(24, 40), cache_folder)


def test_code_is_found_for_the_same_machine_and_kernels_only(cache_folder: Path) -> None:
    library, other = (
        piece(llvm.parse_assembly(KNOWN % number).as_bitcode(), ["known"], []) for number in (1, 2)
    )
    generic = Machine(host_triple(), "", "")
    for machine, libraries in ((HOST, [library]), (HOST, [other]), (HOST, []), (generic, [])):
        before = set(cache_folder.glob("code-*"))
        for _ in range(2):
            compile_objects(TEXTS[:1], machine, libraries, use_cache=True)
            assert len({*cache_folder.glob("code-*")} - before) == 1


def test_code_comes_from_the_cache_if_that_is_wanted(cache_folder: Path) -> None:
    texts = TEXTS[:2]
    first = compile_objects(texts, HOST, [], use_cache=True)
    (entry, _) = sorted(cache_folder.glob("code-*"))
    write(Key("code", entry.name.removeprefix("code-")), b"what is in the cache")
    again = compile_objects(texts, HOST, [], use_cache=True)
    assert {*again} - {*first} == {b"what is in the cache"}
    assert compile_objects(texts, HOST, [], use_cache=False) == first


def test_a_process_of_limited_memory_does_not_compile_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LLVM ends the process in which it finds no memory."""
    resource = pytest.importorskip("resource")

    def here(*given: object) -> None:
        raise AssertionError("compiled here")

    monkeypatch.setattr(objects, "_Here", here)
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(AssertionError, match="compiled here"):
        compile_objects(TEXTS[:1], HOST, [], use_cache=False)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46, unlimited[1]))
    try:
        (code,) = compile_objects(TEXTS[:1], HOST, [], use_cache=False)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
    assert code
