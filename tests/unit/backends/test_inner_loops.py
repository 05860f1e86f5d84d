"""The inner loops of products, read in the assembly of every kind of target.

Only libjit's tiles are compiled, in the sizes that the strategy takes for a padded convolution and a matrix product.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.strategy.product import Decision, Problem, choose, conv_problem
from glowpy.backends.cpu.strategy.work import TileFunction
from glowpy.backends.cpu.target import CpuTarget, resolve_target
from glowpy.backends.cpu.tiles import call_tile, tile_function
from glowpy.core.elemkind import ElemKind
from glowpy.llvm.machine import Compiler, declarations
from glowpy.llvm.writer import Body, ModuleWriter
from libjit.compile import ROOT, compile_variant, read_targets

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="the compiler, ziglang, is not installed"
)

_IMAGE = (1, 28, 28, 128)
_PROBLEMS = {
    "convolution": conv_problem(_IMAGE, _IMAGE, (3, 3), (1, 1), (1,) * 4, (1, 1), 1),
    "product": Problem(1, 128, 768, 1, 768, 768),
}

_TILE_H = (ROOT / "include" / "tile.h").read_text()
_MANY_SUMS = int(re.findall(r"^#define MANY_SUMS (\d+)$", _TILE_H, re.MULTILINE)[0])

_STORE = re.compile(
    r"(v?mov\S*\s+%\w+, \S*\(|st[rp]|vst|fs[wdh]\s|s[wd]\s|vs\w+\.v\s|(v128|[fi]\d+)\.store)"
)
_STACK = re.compile(r"%rsp|\bsp\b|\(1\)|__stack_pointer")
_APART = re.compile(
    r"(v?(add|mul)p[sd]|v(add|mul)\.f\d+|f(add|mul)\W.*(s|d)|vf(add|mul)\.|f\d+(x\d)?\.(add|mul))\b"
)


@dataclass(frozen=True)
class Code:
    """What the inner loop of a target is made of: the instruction for a multiply-add, or for the multiplication.

    Of bytes it is the one that multiplies, and may add, as many as it can.
    """

    preset: str
    operation: str
    fused: bool = True
    kind: ElemKind = ElemKind.F32

    def __str__(self) -> str:
        return self.preset if self.kind is ElemKind.F32 else f"{self.preset} {self.kind.value}"


# fmt: off
CODES = [
    Code("x86-64-v2", r"mulps", fused=False),
    Code("x86-64-v3", r"vfmadd\d+ps"),
    Code("x86-64-v4", r"vfmadd\d+ps"),
    Code("znver4", r"vfmadd\d+ps"),
    Code("rpi3", r"fmla"),
    Code("rpi4", r"fmla"),
    Code("graviton2", r"fmla"),
    Code("graviton3", r"fmla"),
    Code("rpi2", r"vfma\.f32"),
    Code("cortex-a9", r"vmla\.f32", fused=False),  # rounds twice, in one instruction
    # To LLVM vfma is slow on Cortex-M4: indeed it takes three cycles, vmul and vadd take one each.
    Code("cortex-m4", r"vmul\.f32", fused=False),
    Code("cortex-m7", r"vfma\.f32"),
    Code("riscv64", r"fmadd\.s"),
    Code("riscv64-v", r"vfmacc\.vf"),
    Code("spacemit-x60", r"vfmacc\.vf"),
    Code("riscv32", r"fmadd\.s"),
    Code("powerpc64le", r"xvmaddasp"),
    Code("wasm", r"f32\.mul", fused=False),
    Code("wasm-simd", r"f32x4\.mul", fused=False),
    Code("wasm-relaxed", r"f32x4\.relaxed_madd"),
    Code("x86-64-v2", r"mulpd", fused=False, kind=ElemKind.F64),
    Code("x86-64-v3", r"vfmadd\d+pd", kind=ElemKind.F64),
    Code("x86-64-v4", r"vfmadd\d+pd", kind=ElemKind.F64),
    Code("rpi4", r"fmla", kind=ElemKind.F64),
    Code("rpi2", r"vfma\.f64", kind=ElemKind.F64),
    Code("cortex-a9", r"v(mul|mla)\.f64", fused=False, kind=ElemKind.F64),
    Code("riscv64", r"fmadd\.d", kind=ElemKind.F64),
    Code("riscv64-v", r"vfmacc\.vf", kind=ElemKind.F64),
    Code("powerpc64le", r"xvmaddadp", kind=ElemKind.F64),
    Code("wasm", r"f64\.mul", fused=False, kind=ElemKind.F64),
    Code("wasm-simd", r"f64x2\.mul", fused=False, kind=ElemKind.F64),
    Code("wasm-relaxed", r"f64x2\.relaxed_madd", kind=ElemKind.F64),
    Code("x86-64-v2", r"pmaddwd", fused=False, kind=ElemKind.U8),
    Code("x86-64-v3", r"vpmaddwd", fused=False, kind=ElemKind.U8),
    Code("x86-64-v4", r"vpmaddwd", fused=False, kind=ElemKind.U8),
    Code("icelake-server", r"vpdpbusd", kind=ElemKind.U8),
    Code("znver4", r"vpdpbusd", kind=ElemKind.U8),
    Code("rpi4", r"s?mul\W", fused=False, kind=ElemKind.I8),
    Code("graviton2", r"sdot", kind=ElemKind.I8),
    Code("graviton3", r"usmmla", kind=ElemKind.U8),
    Code("graviton3", r"smmla", kind=ElemKind.I8),
    Code("rpi2", r"vmul\.i16", fused=False, kind=ElemKind.I8),
    Code("cortex-m4", r"smlad", kind=ElemKind.I8),
    Code("riscv64", r"mul\W", fused=False, kind=ElemKind.I8),
    Code("riscv64-v", r"vm(acc|add)\.v[vx]", kind=ElemKind.I8),
    Code("powerpc64le", r"vmsummbm", kind=ElemKind.U8),
    Code("wasm-simd", r"i32x4\.dot_i16x8_s", fused=False, kind=ElemKind.U8),
]
# fmt: on


def tile_library(target: CpuTarget, folder: Path) -> Path:
    """Bitcode of the tiles alone."""
    (folder / "src").mkdir()
    shutil.copy(ROOT / "src" / "tile.c", folder / "src")
    output = folder / "tile.bc"
    compile_variant(read_targets()[target.variant.name], output, folder)
    return output


def assembly(
    target: CpuTarget, decision: Decision, kind: ElemKind, library: Path
) -> dict[str, str]:
    """The assembly of the regular and of the scattered tile."""
    halves = decision.lanes < target.variant.machine_for(kind).lanes
    texts = {}
    for name in ("regular", "scattered"):
        module = ModuleWriter(target.pointer_bits, target.variant.vector_bytes, None)
        tile_function(
            Body(module, "net.loop", {}),
            TileFunction(name, decision.pixels, decision.vectors, decision.block, halves=halves),
            kind,
        )
        _, text = module.separate([], visible=True)
        compiler = Compiler(target.machine, [library.read_bytes()], declarations([text]))
        texts[name] = compiler.assembly(text)
    return texts


def inner_loops(assembly: str) -> Iterator[list[str]]:
    """The instructions of each loop without another one inside."""
    lines = [line.strip() for line in assembly.splitlines()]
    lines = [line for line in lines if line and (line[0] != "." or line.endswith(":"))]
    begins, places = [], {}
    loops = []
    for number, line in enumerate(lines):
        if line.endswith(":"):
            places[line[:-1]] = number
        elif line.split("\t")[0] == "loop":  # WebAssembly's
            begins.append(number)
        elif line == "end_loop":
            loops.append((begins.pop(), number))
        elif (target := re.split(r"[\s,]+", line)[-1]) in places:
            loops.append((places[target], number))
    for first, last in loops:
        others = [loop for loop in loops if loop != (first, last)]
        if not any(first <= begin and end <= last for begin, end in others):
            yield [line for line in lines[first:last] if not line.endswith(":")]


@pytest.mark.parametrize("code", CODES, ids=str)
def test_sums_stay_in_registers(code: Code, tmp_path: Path) -> None:
    """Every step is multiply-adds, fused where the target can, with nothing stored and nothing read from the stack."""
    target = resolve_target(CpuOptions(target=code.preset))
    machine = target.variant.machine_for(code.kind)
    assert code.fused or not machine.fused
    library = tile_library(target, tmp_path)
    problems = _PROBLEMS | (
        {"halves": Problem(1, 784, 24, 1, 96, 96)} if machine.half_loads else {}
    )
    for name, problem in problems.items():
        decision = choose(problem, machine)
        assert (decision.lanes < machine.lanes) == (name == "halves")
        for kind, text in assembly(target, decision, code.kind, library).items():
            steps = [
                loop
                for loop in inner_loops(text)
                if any(re.match(code.operation, line) for line in loop)
            ]
            assert steps, f"{name}, {kind}: no {code.operation}"
            for loop in steps:
                shown = f"{name}, {kind}, {decision}:\n" + "\n".join(loop)
                operations = sum(bool(re.match(code.operation, line)) for line in loop)
                sums = decision.pixels * decision.vectors
                assert operations == sums * machine.parts, shown
                assert not any(map(_STACK.search, loop)), shown
                assert not any(map(_STORE.match, loop)), shown
                if code.fused:
                    assert not any(map(_APART.match, loop)), shown


@pytest.mark.parametrize("preset", ["x86-64-v3", "znver4", "rpi4"])
def test_a_tile_that_fetches_lines_keeps_its_sums(preset: str, tmp_path: Path) -> None:
    """Pointers may move to the stack, vectors do not. Of weights, tiles of many sums fetch two lines at each step."""
    target = resolve_target(CpuOptions(target=preset))
    decision = choose(_PROBLEMS["product"], target.variant.machine_for(ElemKind.F32))
    tile = TileFunction(
        "regular",
        decision.pixels,
        decision.vectors,
        decision.vectors * target.variant.machine.lanes,
    )
    module = ModuleWriter(target.pointer_bits, target.variant.vector_bytes, None)
    pointers = ["sums", "start", "input", "weights", "reach", "written", "read"]
    parameters = [*(f"ptr %{pointer}" for pointer in pointers), f"{module.dim} %step"]
    body = Body(module, "net.loop", {}, parameters)
    call_tile(body, tile, ElemKind.F32, [*parameters, f"{module.dim} 2", "i1 true"], "fetching")
    module.function(body, inline=False)
    _, text = module.separate([], visible=True)
    library = tile_library(target, tmp_path).read_bytes()
    code = Compiler(target.machine, [library], declarations([text])).assembly(text)
    of_weights = 1 + (decision.pixels * decision.vectors >= _MANY_SUMS)
    assert len(re.findall(r"^\s+(prefetch|prfm)", code, re.M)) == of_weights + 2 * 2
    assert not re.search(r"mov[au]ps\s+%[xyz]mm\d+, \S*\(%rsp|st[rp]\s+q\d.*\[sp", code)


def test_loops_are_found_and_spills_are_seen() -> None:
    text = """
f:
\tmovl\t%eax, (%rsp)
.LBB0_1:
\txorl\t%ecx, %ecx
.LBB0_2:
\tvfmadd231ps\t(%rdi), %zmm1, %zmm0
\tvmovups\t%zmm0, 64(%rsp)
\tjne\t.LBB0_2
\tdecq\t%rdx
\tjne\t.LBB0_1
\tretq
"""
    (loop,) = inner_loops(text)
    assert [line.split("\t")[0] for line in loop] == ["vfmadd231ps", "vmovups"]
    assert any(map(_STACK.search, loop))
    assert any(map(_STORE.match, loop))
