"""Instrumented networks: observers on both backends, the perf map, and the operands they see."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backend import CompileOptions
from glowpy.backends.cpu.measuring.jitdump import jitdump_path
from glowpy.backends.cpu.measuring.perf_map import perf_map_path
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.debugging.observers import _range
from glowpy.graph.function import Module
from glowpy.ir.inst import Instruction
from glowpy.support.symbolic import symbol


class Recorder:
    """Keeps what it sees: (moment, mnemonic, operands)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Array]]] = []

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        self.keep("before", inst, operands)

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        self.keep("after", inst, operands)

    def keep(self, moment: str, inst: Instruction, operands: Mapping[str, Array]) -> None:
        copies = {name: array.copy() for name, array in operands.items()}
        self.seen.append((moment, inst.SCHEMA.mnemonic, copies))


def chain() -> Module:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[3x33]"))
    y = module.create_placeholder("y", parse_type("f32[3x33]"))
    f = module.create_function("main")
    f.create_save("save", f.create_neg("negated", f.create_exp("power", x)), y)
    return module


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_observer_sees_operands_with_gaps(backend: str) -> None:
    """The halves of a concat of channels, which are computed in place."""
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[3x2]"))
    f = module.create_function("main")
    joined = f.create_concat("c", [f.create_abs("a", x), f.create_neg("n", x)], 1)
    f.create_save("save", joined, module.create_placeholder("y", parse_type("f32[3x4]")))
    compiled = glowpy.compile(module, backend, CompileOptions(instrument=True))
    recorder = Recorder()
    compiled.observer = recorder
    numbers = np.arange(-3, 3, dtype=np.float32).reshape(3, 2)
    y = compiled({"x": numbers})["y"]
    np.testing.assert_array_equal(y, np.hstack([np.abs(numbers), -numbers]))
    seen = {
        mnemonic: operands["result"]
        for moment, mnemonic, operands in recorder.seen
        if moment == "after"
    }
    assert sorted(seen) == ["abs", "neg"]
    np.testing.assert_array_equal(seen["abs"], np.abs(numbers))
    np.testing.assert_array_equal(seen["neg"], -numbers)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_observer_sees_every_instruction(backend: str) -> None:
    compiled = glowpy.compile(chain(), backend, CompileOptions(instrument=True))
    recorder = Recorder()
    compiled.observer = recorder
    x = np.linspace(-1, 1, 99, dtype=np.float32).reshape(3, 33)
    y = compiled({"x": x})["y"]
    moments = [(moment, mnemonic) for moment, mnemonic, _ in recorder.seen]
    assert moments == [("before", "exp"), ("after", "exp"), ("before", "neg"), ("after", "neg")]
    np.testing.assert_array_equal(recorder.seen[0][2]["input"], x)
    np.testing.assert_allclose(recorder.seen[1][2]["result"], np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(recorder.seen[2][2]["input"], recorder.seen[1][2]["result"])
    np.testing.assert_array_equal(recorder.seen[3][2]["result"], y)
    np.testing.assert_array_equal(recorder.seen[3][2]["input"], y)  # neg works in place


def open_chain() -> Module:
    """y = -exp(x) of the halves of x, one above the other."""
    module, symbols = Module(), {"n": symbol("n", 1, 9)}
    x = module.create_placeholder("x", parse_type("f32[n x 6]", symbols))
    y = module.create_placeholder("y", parse_type("f32[2*n x 3]", symbols))
    f, half = module.create_function("main"), parse_type("f32[n x 3]", symbols)
    halves = [f.create_slice("half", half, x, (0, start), (1, 1)) for start in (0, 3)]
    powers = f.create_exp("power", f.create_concat("joined", halves, 0))
    f.create_save("save", f.create_neg("negated", powers), y)
    return module


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_observer_sees_the_extents_of_the_run(backend: str) -> None:
    compiled = glowpy.compile(open_chain(), backend, CompileOptions(instrument=True))
    for rows in (9, 1, 4):
        compiled.observer = recorder = Recorder()
        x = np.linspace(-1, 1, rows * 6, dtype=np.float32).reshape(rows, 6)
        y = compiled({"x": x})["y"]
        power, negated = (
            next(
                seen for moment, name, seen in recorder.seen if (moment, name) == ("after", wanted)
            )
            for wanted in ("exp", "neg")
        )
        joined = np.concatenate([x[:, :3], x[:, 3:]])
        np.testing.assert_allclose(power["result"], np.exp(joined), rtol=1e-6)
        np.testing.assert_array_equal(negated["result"], y)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_observer_is_told_static_types(backend: str) -> None:
    """Also where it runs the same network at other extents meanwhile."""
    compiled = glowpy.compile(open_chain(), backend, CompileOptions(instrument=True))
    counts: dict[int, set[int]] = {}

    class Nested:
        def __init__(self, rows: int) -> None:
            self.rows = rows

        def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            if self.rows > 1:
                compiled.observer = Nested(self.rows - 1)
                compiled({"x": np.ones((self.rows - 1, 6), np.float32)})
                compiled.observer = self

        def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            types = {ref.name: ref.value.type for ref in inst.operands}
            assert {n: type.extents for n, type in types.items()} == {
                n: array.shape for n, array in operands.items()
            }
            counts.setdefault(self.rows, set()).add(types["result"].extents[0])

    compiled.observer = Nested(2)
    compiled({"x": np.ones((2, 6), np.float32)})
    assert (max(counts[1]), max(counts[2])) == (2, 4)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_what_an_observer_raises_reaches_the_caller(backend: str) -> None:
    class Picky(Recorder):
        def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            super().after(inst, operands)
            raise ValueError("enough")

    compiled = glowpy.compile(chain(), backend, CompileOptions(instrument=True))
    compiled.observer = recorder = Picky()
    with pytest.raises(ValueError, match="enough"):
        compiled({"x": np.ones((3, 33), np.float32)})
    assert len(recorder.seen) == 2


def test_a_signal_before_the_observer_is_called_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while operands are looked up: Python has nobody to tell who called machine code."""
    compiled = glowpy.compile(chain(), "cpu", CompileOptions(instrument=True))
    compiled.observer = Recorder()

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glowpy.backends.cpu.jit._array_at", stopped)
    with pytest.raises(KeyboardInterrupt):
        compiled({"x": np.zeros((3, 33), np.float32)})


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_instrumented_network_runs_without_observer(backend: str) -> None:
    x = np.ones((3, 33), np.float32)
    plain = glowpy.compile(chain(), backend)({"x": x})["y"]
    result = glowpy.compile(chain(), backend, CompileOptions(instrument=True))({"x": x})["y"]
    np.testing.assert_array_equal(result, plain)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_observer_sees_an_operand_without_elements(backend: str) -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[0x3]"))
    y = module.create_placeholder("y", parse_type("f32[1x3]"))
    f = module.create_function("main")
    f.create_save("save", f.create_reduce_add("sum", x, axes=(0,)), y)
    compiled = glowpy.compile(module, backend, CompileOptions(instrument=True))
    compiled.observer = recorder = Recorder()
    np.testing.assert_array_equal(compiled({"x": np.zeros((0, 3), np.float32)})["y"], [[0] * 3])
    assert {(0, 3), (1, 3)} == {a.shape for _, _, seen in recorder.seen for a in seen.values()}


@pytest.mark.parametrize("kind", list(ElemKind))
def test_printed_range(kind: ElemKind) -> None:
    least = 0.5 if kind is ElemKind.F8E8M0 else 0  # powers of two
    array = np.array([1, least, 1]).astype(kind.dtype)
    assert _range(array) == ("[False, True]" if kind is ElemKind.BOOL else f"[{least}, 1]")
    assert _range(array[:0]) == "empty"
    if kind.is_float:
        for bad in (np.nan, np.inf, -np.inf):
            assert _range(np.array([1, bad]).astype(kind.dtype)) == "not finite"


def test_function_compiled_without_instrumentation_ignores_observers() -> None:
    compiled = glowpy.compile(chain(), "cpu")
    recorder = Recorder()
    compiled.observer = recorder
    compiled({"x": np.ones((3, 33), np.float32)})
    assert recorder.seen == []


def test_perf_map_names_instructions() -> None:
    path = perf_map_path()
    before = path.read_text() if path.exists() else ""
    glowpy.compile(chain(), CpuBackend(CpuOptions(perf_map=True)))
    lines = path.read_text()[len(before) :].splitlines()
    path.unlink()
    sizes = {name: int(size, 16) for _, size, name in (line.split(" ", 2) for line in lines)}
    assert sizes["glowpy_main.power"] > 0
    assert sizes["glowpy_main_bound"] > 0


def test_jitdump_holds_code_and_lines(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    backend = CpuBackend(CpuOptions(jitdump=str(dumps), debug=str(tmp_path / "ir")))
    compiled = glowpy.compile(chain(), backend, CompileOptions(cache=False))
    content = jitdump_path(dumps).read_bytes()
    magic, version, size, machine, *_ = struct.unpack_from("<IIIIIIQQ", content)
    assert (magic, version, size) == (0x4A695444, 1, 40)
    (own,) = struct.unpack_from("<H", Path(sys.executable).read_bytes(), 18)  # ELF's e_machine
    assert machine == own
    assert struct.unpack_from("<I", content, 20) == (os.getpid(),)
    records = []
    at = size
    while at < len(content):
        kind, length, _ = struct.unpack_from("<IIQ", content, at)
        records.append((kind, content[at + 16 : at + length]))
        at += length
    assert at == len(content)
    lines = {}
    for kind, record in records:
        if kind == 2:
            address, _ = struct.unpack_from("<QQ", record)
            lines[address] = struct.unpack_from("<QII", record, 16)[1]
    loads = {}
    for kind, record in records:
        if kind == 0:
            _, _, _, address, code_size, _ = struct.unpack_from("<IIQQQQ", record)
            name, _, code = record[40:].partition(b"\0")
            assert len(code) == code_size
            loads[name.decode()] = address
    ir = (tmp_path / "ir" / "glowpy_main.ir").read_text().splitlines()
    assert ir[lines[loads["glowpy_main.power"]] - 1].strip().startswith("exp ")
    assert compiled.inputs  # alive until here: the code has not moved
