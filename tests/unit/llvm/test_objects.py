"""Objects of single functions: by how many processes they are made, and which of them a change makes anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.core.type import parse_type
from glowpy.graph.function import Module
from glowpy.llvm import cache, objects
from glowpy.llvm.machine import Machine, host_cpu, host_triple
from glowpy.llvm.objects import compile_objects
from glowpy.support.errors import InternalError

HOST = Machine(host_triple(), host_cpu(), "")
TEXTS = [f"define i32 @number{number}() {{ ret i32 {number} }}" for number in range(13)]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(cache, "cache_directory", lambda: tmp_path / "code")
    return tmp_path / "code"


def layers(*widths: int, name: str = "main") -> Module:
    """Products one after the other, the first of 8 columns, each with a softmax."""
    module = Module()
    f = module.create_function(name)
    node = module.create_placeholder(f"{name}_in", parse_type("f32[16x8]")).value
    for index, width in enumerate(widths):
        shape = node.type.shape[1], width
        weights = np.linspace(-1, 1, shape[0] * width, dtype=np.float32).reshape(shape)
        constant = module.create_constant(f"{name}_w{index}", weights)
        node = f.create_mat_mul(f"{name}_product{index}", node, constant).result
        node = f.create_softmax(f"{name}_softmax{index}", node, 1).result
    f.create_save("save", node, module.create_placeholder(f"{name}_out", node.type))
    return module


def compiled(module: Module, folder: Path) -> set[str]:
    """The objects that did not exist before."""
    before = {path.name for path in folder.glob("*.o")}
    glowpy.compile(module, CpuBackend())
    return {path.name for path in folder.glob("*.o")} - before


def test_a_change_of_one_layer_compiles_that_layer_and_the_entry_point(folder: Path) -> None:
    """The function of the last product, its epilogue, its softmax, and the entry point; tiles and walk are there."""
    assert len(compiled(layers(24, 40, 8), folder)) == 14
    assert len(compiled(layers(24, 40, 9), folder)) == 4
    assert not compiled(layers(24, 40, 8), folder)


def test_networks_share_equal_functions(folder: Path) -> None:
    compiled(layers(24, 40, 8), folder)
    assert len(compiled(layers(24, 40, name="other"), folder)) == 1


def test_the_number_of_processes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = compile_objects(TEXTS[:3], HOST, [], use_cache=False)
    monkeypatch.setattr(objects, "usable_cores", lambda: 3)
    together = compile_objects(TEXTS, HOST, [], use_cache=False)
    assert together[:3] == alone
    assert len(set(together)) == len(TEXTS)


def test_equal_texts_are_compiled_once(folder: Path) -> None:
    first, second = compile_objects([TEXTS[0], TEXTS[0]], HOST, [], use_cache=True)
    assert first == second
    assert len(list(folder.glob("*.o"))) == 1


@pytest.mark.parametrize("wrong", [0, 12])
def test_text_that_llvm_refuses_is_an_error_in_every_process(
    monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    monkeypatch.setattr(objects, "usable_cores", lambda: 3)
    texts = [*TEXTS[:wrong], "define nonsense", *TEXTS[wrong + 1 :]]
    with pytest.raises(InternalError, match="LLVM refuses generated code"):
        compile_objects(texts, HOST, [], use_cache=False)


def test_the_processes_refuse_text_as_well() -> None:
    with objects._worker(HOST, [], "object_code", []) as worker:
        assert worker.compile(TEXTS[0]) == worker.compile(TEXTS[0])
        with pytest.raises(InternalError, match="LLVM refuses generated code"):
            worker.compile("define nonsense")
        with pytest.raises(InternalError):
            worker.compile(TEXTS[0])
