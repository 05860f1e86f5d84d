"""Every operator has all it needs: rules at each level, a kernel, a test row, one spelling."""

from __future__ import annotations

import importlib
import re
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest

import glowpy.backends.cpu.operations  # noqa: F401 - the meaning of instructions
from glowpy.autodiff.derivative import derivative
from glowpy.backends.cpu import insts_gen as cpu_insts
from glowpy.backends.cpu import nodes_gen as cpu_nodes
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.schema import Access, Quantized, Trait
from glowpy.graph.builder_gen import Builder as GraphBuilder
from glowpy.graph.infer import infer
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import NODES, DequantizeNode, QuantizeNode, RescaleNode, SaveNode
from glowpy.graph.verifier import verify
from glowpy.ir.builder_gen import IRBuilder
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    INSTS,
    AllocInst,
    ConvolutionInst,
    CopyInst,
    DeallocInst,
    DefineInst,
    ExtentsInst,
    ExtractTensorInst,
    GruInst,
    IfInst,
    InsertTensorInst,
    LoopInst,
    LstmInst,
    RnnInst,
    SplatInst,
    ViewInst,
)
from glowpy.irgen import irgen
from glowpy.llvm.kernel import KernelSpec
from glowpy.llvm.scalars_gen import SCALARS
from glowpy.lower import lower
from tests.ops.harness import Row

ALL_NODES: tuple[type[Node], ...] = (*NODES, *cpu_nodes.NODES)
ALL_INSTS: tuple[type[Instruction], ...] = (*INSTS, *cpu_insts.INSTS)
MNEMONICS = {cls.SCHEMA.mnemonic for cls in ALL_INSTS}

MEMORY = {AllocInst, DeallocInst, ViewInst}
"""They say where memory is; nothing is executed for them."""

EMITTED = MEMORY | {CopyInst, DefineInst, ExtentsInst, IfInst, LoopInst, SplatInst}
"""Reviewed: the code generator emits these itself, they need no kernel."""

PACKED = {ConvolutionInst, LstmInst, GruInst, RnnInst}
"""Reviewed: instructions of which the CPU backend computes others, whatever their kinds are."""

ADDRESS_LEVEL = EMITTED - {DefineInst, ExtentsInst, IfInst, LoopInst, SplatInst} | {
    InsertTensorInst,
    ExtractTensorInst,
}
"""Reviewed: instructions without a node; saves, concats, slices, pads and reshapes need them."""


def test_the_instructions_that_touch_no_element_are_those_of_memory() -> None:
    assert {cls for cls in ALL_INSTS if Trait.MEMORY in cls.SCHEMA.traits} == MEMORY


def _id(cls: type[Node] | type[Instruction]) -> str:
    return cls.__name__


def _lacks(cls: type[Node] | type[Instruction], rule: str, place: str = "") -> str:
    where = place or (f"glowpy/backends/{cls.BACKEND}/" if cls.BACKEND else "glowpy/ops/")
    return (
        f"{cls.__name__} has no '{rule}' rule: declare one with @{rule}({cls.__name__}) in {where}"
    )


@pytest.mark.parametrize("cls", ALL_NODES, ids=_id)
def test_node_has_a_type(cls: type[Node]) -> None:
    schema = cls.SCHEMA
    traits = {Trait.ELEMENTWISE, Trait.TYPED} & schema.traits
    assert traits or not schema.results or cls in infer, _lacks(cls, "infer")


@pytest.mark.parametrize("cls", ALL_NODES, ids=_id)
def test_node_says_what_quantized_operands_mean(cls: type[Node]) -> None:
    if cls.SCHEMA.quant is Quantized.RULE:
        assert cls in infer or cls in verify, _lacks(cls, "verify")
    same = {inst for inst in ALL_INSTS if inst.SCHEMA.mnemonic == cls.SCHEMA.mnemonic}
    written_out = cls.SCHEMA.quant is Quantized.NUMBERS and Trait.ELEMENTWISE in cls.SCHEMA.traits
    expected = Quantized.REFUSED if written_out else cls.SCHEMA.quant
    assert {inst.SCHEMA.quant for inst in same} <= {expected}


@pytest.mark.parametrize("cls", ALL_NODES, ids=_id)
def test_node_is_lowered_or_translated(cls: type[Node]) -> None:
    known = cls in lower or cls in irgen or cls.SCHEMA.mnemonic in MNEMONICS
    known |= cls in (QuantizeNode, DequantizeNode, RescaleNode)  # by the pass lower-quantized
    assert known, _lacks(cls, "lower")


@pytest.mark.parametrize("cls", NODES, ids=_id)
def test_node_has_a_derivative_or_a_reason(cls: type[Node]) -> None:
    schema = cls.SCHEMA
    if schema.inputs and schema.results:  # a gradient may pass through it
        known = cls in derivative
        assert known or schema.no_derivative, (
            f"{_lacks(cls, 'derivative')}, or say no_derivative=... in its spec"
        )
        assert not (known and schema.no_derivative), f"{cls.__name__} has a derivative after all"


@pytest.mark.parametrize("cls", ALL_INSTS, ids=_id)
def test_instruction_has_a_meaning(cls: type[Instruction]) -> None:
    assert cls in interpret or cls in MEMORY, _lacks(cls, "interpret")
    assert not (cls in interpret and cls in MEMORY), f"nothing is executed for {cls.__name__}"


@pytest.mark.parametrize("cls", ALL_INSTS, ids=_id)
def test_instruction_has_a_kernel(cls: type[Instruction]) -> None:
    mnemonic = cls.SCHEMA.mnemonic
    places = (mnemonic in KERNELS) + (mnemonic in SCALARS) + (cls in EMITTED | PACKED)
    assert places == 1, (
        f"{cls.__name__} has {places} kernels: its spec declares one, unless EMITTED or PACKED"
    )
    assert (mnemonic in SCALARS) == (Trait.ELEMENTWISE in cls.SCHEMA.traits)


@pytest.mark.parametrize("cls", INSTS, ids=_id)
def test_instruction_has_a_node(cls: type[Instruction]) -> None:
    nodes = {node.SCHEMA.mnemonic: node for node in NODES}
    node = nodes.get(cls.SCHEMA.mnemonic)
    assert (node is None) == (cls in ADDRESS_LEVEL)
    if node is not None and not cls.SCHEMA.variadic:
        operands = cls.SCHEMA.operands
        names = [spec.name for spec in operands if spec.access is not Access.SCRATCH]
        assert names == [*node.SCHEMA.results, *node.SCHEMA.inputs]
        assert cls.SCHEMA.attrs == node.SCHEMA.attrs


@cache
def _tested() -> frozenset[type[Node]]:
    folder = Path(__file__).parents[1] / "ops"
    tested: set[type[Node]] = set()
    for path in folder.glob("test_*.py"):
        module = importlib.import_module(f"tests.ops.{path.stem}")
        rows: list[Row] = getattr(module, "ROWS", [])
        tested.update(row.cls for row in rows)
        tested.update(getattr(module, "TESTED", ()))
    return frozenset(tested)


@pytest.mark.parametrize("cls", NODES, ids=_id)
def test_node_has_a_test_row(cls: type[Node]) -> None:
    if cls is not SaveNode:  # every case of every row ends in one
        assert cls in _tested(), f"{cls.__name__} has no row in tests/ops/: add one to ROWS"


@pytest.mark.parametrize("cls", [*ALL_NODES, *ALL_INSTS], ids=_id)
def test_spellings_agree(cls: type[Node] | type[Instruction]) -> None:
    stem = cls.__name__.removesuffix("Node").removesuffix("Inst")
    mnemonic = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()
    assert cls.SCHEMA.mnemonic == mnemonic
    if not cls.BACKEND:
        builder = GraphBuilder if issubclass(cls, Node) else IRBuilder
        assert callable(vars(builder)[f"create_{mnemonic}"])


@pytest.mark.parametrize("spec", [*KERNELS.values(), *SCALARS.values()], ids=attrgetter("mnemonic"))
def test_kernel_exists(spec: KernelSpec) -> None:
    missing = sorted(set(spec.symbols()) - LIBJIT.symbols(CpuBackend().target.variant))
    assert not missing, (
        f"libjit/src defines no {', '.join(missing)}, which {spec.mnemonic} declares"
    )
