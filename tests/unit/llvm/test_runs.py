"""Code of runs for a target that is no CPU: loops, copies and splats, and what a device launches."""

import re

import numpy as np
from llvmlite.binding import parse_assembly

from glowpy.core.schema import Trait
from glowpy.core.tensor import Tensor
from glowpy.core.type import parse_type
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.run import Run
from glowpy.ir.verifier import verify_irfunction
from glowpy.llvm.head import Heads
from glowpy.llvm.kernels import Kernels
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.machine import Compiler, Machine, declarations
from glowpy.llvm.runs import emit_run, runs_to_compute, stack_context
from glowpy.llvm.scalars_gen import SCALARS
from glowpy.llvm.variant import LIBJIT_FOLDER, KernelVariant
from glowpy.llvm.writer import Body, ModuleWriter
from tests.unit.llvm.pieces import piece

PROGRAM = """irfunction @main {
  declare
    %x = weight f32[4x6] mutable
    %y = weight f32[4x6] mutable
    %two = weight f32[1] constant
    %none = weight f32[0] mutable
  program
    %one = alloc f32[]
    %rest = alloc f32[4x6]
    splat @out %one {value=1.0}
    splat @out %rest {value=3.0}
    run @scaled {
      add @out %rest, @in %rest, @in %one
      mul @out %y, @in %rest, @in %two
    }
    copy @out %none, @in %none
    softmax @out %rest, @in %x {axis=1}
    dealloc @out %one
    dealloc @out %rest
}
"""
DEVICE = Machine("nvptx64-nvidia-cuda", "sm_80", "")
KERNELS = """
define linkonce_odr float @libjit_add_f32(float %x, float %y) { %z = fadd float %x, %y ret float %z }
define linkonce_odr float @libjit_mul_f32(float %x, float %y) { %z = fmul float %x, %y ret float %z }
"""


def program() -> IRFunction:
    f = parse_irfunction(PROGRAM)
    verify_irfunction(f)
    return f


DEVICE_VARIANT = KernelVariant(
    "sm_80", "nvptx", DEVICE.triple, DEVICE.cpu, frozenset(), frozenset(), 4, True
)
LIBRARY = Kernels([KernelLibrary("libjit", LIBJIT_FOLDER, None, SCALARS)], DEVICE_VARIANT)


def symbol(inst: Instruction) -> str:
    return LIBRARY.symbol(inst) if inst.has(Trait.ELEMENTWISE) else "device_softmax"


def written(f: IRFunction, heads: Heads) -> tuple[list[str], list[str]]:
    """A module for each run, and the kernels that were left to the target."""
    module = ModuleWriter(64, 4, None, heads=heads)
    lines = dict.fromkeys(f.instructions, 0)
    kernels = []

    def kernel(body: Body, run: Run) -> None:
        kernels.append(run.head.SCHEMA.mnemonic)
        module.declare(symbol(run.head), "void", ["ptr"])
        body.line(f"call void @{symbol(run.head)}(ptr {body.pointer(run.result)})")

    constants = {"two": Tensor(parse_type("f32[1]"), np.array([2.0], np.float32))}
    context = stack_context(f, constants, symbol)
    for run in runs_to_compute(f, context):
        body = Body(module, f"main.{run.name}", lines)
        emit_run(body, run, context, kernel)
        module.function(body, inline=False)
    return module.separate([], visible=True)[1:], kernels


def test_every_run_that_computes_something_is_a_function() -> None:
    modules, kernels = written(program(), Heads("nounwind"))
    text = "".join(modules)
    heads = re.findall(r"define void @main\.(\w+)\(.*\) noinline nounwind \{", text)
    assert sorted(heads) == ["scaled", "softmax", "splat"]
    assert kernels == ["softmax"]
    assert len(re.findall("call float @libjit_(add|mul)_f32", text)) == 2, (
        "each member, for an element"
    )
    assert "float 0x4000000000000000" in text, "a constant of one element is part of the code"


def test_a_device_launches_functions_by_a_convention_of_its_own() -> None:
    modules, _ = written(program(), Heads("nounwind", "ptx_kernel"))
    library = piece(parse_assembly(KERNELS).as_bitcode(), ["libjit_add_f32", "libjit_mul_f32"], [])
    texts = [text for text in modules if "device_softmax" not in text]
    compiler = Compiler(DEVICE, (library,), declarations(texts))
    assemblies = "".join(compiler.assembly(text) for text in texts)
    assert sorted(re.findall(r"\.visible \.entry main\.(\w+)\(", assemblies)) == [
        "scaled",
        "splat",
    ]
    assert "add.rn.f32" in assemblies
