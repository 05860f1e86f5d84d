"""What backends say they can run: of operations, of nodes before lowering, and of whole networks."""

from __future__ import annotations

import pytest

import glowpy
from glowpy import CpuBackend, InterpreterBackend, Module, UnsupportedError, parse_type
from glowpy.backend import Operation
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.engine import compilation, unsupported
from glowpy.graph.parser import parse_module
from glowpy.llvm.kernels import Kernels
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.variant import KernelVariant


def network(op: str, type: str) -> Module:
    """A network that applies an operator, with the attributes after its name, to its input twice."""
    text = """module {
      placeholder %x : TYPE  placeholder %y : TYPE
      function @main { %first = OP(%x) ATTRS : TYPE  %second = OP(%first) ATTRS : TYPE  save(%second, %y) }
    }"""
    name, _, attrs = op.partition(" ")
    text = text.replace("OP", name).replace("ATTRS", attrs).replace("TYPE", type)
    return parse_module(text, "net.glow")


def operation(mnemonic: str, *types: str) -> Operation:
    names = ("result", "input")[: len(types)]
    return Operation(mnemonic, dict(zip(names, map(parse_type, types), strict=True)), {})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (operation("exp", "f32[4]", "f32[4]"), ""),
        (operation("exp", "f16[4]", "f16[4]"), "no kernel for exp on f16[4], f16[4]"),
        (operation("splat", "f32[4]"), ""),
        (operation("splat", "f16[4]"), ""),
        (operation("copy", "bf16[4]", "bf16[4]"), ""),
        (operation("convert", "f64[4]", "i8[4]"), ""),
        (operation("convert", "f32[4]", "f16[4]"), ""),
        (operation("relu", "f32[4]", "f32[4]"), "no kernel for relu on f32[4], f32[4]"),
        (operation("nonsense", "f32[4]"), "no kernel for nonsense on f32[4]"),
    ],
    ids=str,
)
def test_cpu_answers_for_operations(asked: Operation, reason: str) -> None:
    backend = CpuBackend()
    assert backend.unsupported(asked) == reason
    assert backend.supports(asked) == (not reason)


def test_interpreter_answers_for_operations() -> None:
    backend = InterpreterBackend()
    assert backend.supports(operation("exp", "f16[4]", "f16[4]"))
    assert not backend.supports(operation("relu", "f32[4]", "f32[4]"))


def test_node_and_its_instruction_are_one_operation() -> None:
    module = network("exp", "f32[4]")
    program = compilation(module, "interpreter").program
    inst = next(inst for inst in program.ir.instructions if inst.SCHEMA.mnemonic == "exp")
    expected = operation("exp", "f32[4]", "f32[4]")
    assert Operation.of_node(module.main.nodes[0]) == Operation.of_inst(inst) == expected


LRN = "local_response_normalization {alpha=1.0, beta=0.5, k=1.0, size=3}"


@pytest.mark.parametrize(
    ("op", "type", "reasons"),
    [
        ("exp", "f32[4]", []),
        ("relu", "f64[4]", []),  # lowered
        ("exp", "f16[4]", []),  # in f32
        ("relu", "bf16[4]", []),  # lowered, and in f32
        ("softmax {axis=0}", "f64[4]", []),
        (LRN, "f64[4]", []),
        ("reduce_max {axes=[0]}", "u16[1]", ["no kernel for reduce_max on u16[1], u16[1]"]),
    ],
)
def test_nodes_are_answered_for_before_they_are_lowered(
    op: str, type: str, reasons: list[str]
) -> None:
    node = network(op, type).main.nodes[0]
    assert unsupported(node, CpuBackend()) == reasons
    assert unsupported(node, InterpreterBackend()) == []


class Lacking(KernelLibrary):
    """libjit as it would be if nobody had written a kernel of exp."""

    def symbols(self, variant: KernelVariant) -> frozenset[str]:
        return LIBJIT.symbols(variant) - {"libjit_exp_f32"}


class LackingBackend(CpuBackend):
    libraries = (Lacking(LIBJIT.name, LIBJIT.folder, LIBJIT.packaged, LIBJIT.specs),)


def test_refusal_names_every_node_its_place_and_what_to_write() -> None:
    with pytest.raises(UnsupportedError) as caught:
        glowpy.compile(network("exp", "f32[4]"), LackingBackend())
    first, second = caught.value.diagnostics
    assert str(first) == (
        "net.glow:3:24: %first: cpu backend: no kernel for exp on f32[4], f32[4]: "
        "classgen/specs/elementwise.py declares libjit_exp_f32, which the kernels of libjit for "
        f"{CpuBackend().target.variant.name} do not define\n"
        "  exp @out %y, @in %x"
    )
    assert "%second" in second.message
    assert glowpy.compile(network("exp", "f64[4]"), LackingBackend()).inputs  # nothing else lacks


def test_two_libraries_with_kernels_of_one_instruction_are_at_odds() -> None:
    message = r"the kernel of \w+ is declared twice: classgen/specs/.*, classgen/specs/"
    with pytest.raises(glowpy.InternalError, match=message):
        Kernels((LIBJIT, LIBJIT), CpuBackend().target.variant)


def test_node_of_another_backend_is_told_from_one_that_was_not_lowered() -> None:
    text = """module {
      placeholder %x : f32[2x4]  placeholder %y : f32[2x8]  constant %w : f32[1x4x8] = splat 1.0
      function @main {
        %p = cpu_matmul(%x, %w) {tile_pixels=2, tile_vectors=1, slab=1, fetch=0} : f32[2x8]
        save(%p, %y)
      }
    }"""
    module = parse_module(text, "net.glow", extra=CpuBackend.nodes)
    with pytest.raises(UnsupportedError) as caught:
        glowpy.compile(module, "interpreter")
    (diagnostic,) = caught.value.diagnostics
    assert str(diagnostic) == (
        "net.glow:4:9: %p: cpu_matmul belongs to the cpu backend, expected a node that this one knows\n"
        "note: compile it for the cpu backend"
    )
