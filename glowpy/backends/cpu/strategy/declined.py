"""Why a product is computed directly, and not by an algorithm with fewer multiplications: for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Protocol

from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuMatmulInst
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import WORTH_TRYING, Problem, cheapest
from glowpy.backends.cpu.strategy.strassen import choose_strassen, strassen_ways
from glowpy.backends.cpu.strategy.winograd import (
    WinogradDecision,
    choose_winograd,
    winograd_decisions,
)
from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.core.elemkind import ElemKind
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value, WeightVar
from glowpy.support.rules import Rules

__all__ = ["declined"]

_declined: Rules[Callable[..., Mapping[str, str]]] = Rules("declined")


class _Decision(Protocol):
    @property
    def cycles(self) -> float: ...


def declined(
    inst: Instruction,
    problem: Problem,
    machine: Machine,
    *,
    exact: bool,
    low_memory: bool,
    tuned: bool,
) -> Mapping[str, str]:
    """The algorithms that may come to mind for a product, and why each is not taken.

    Args:
        inst: The product.
        problem: The problem to compute, in numbers.
        machine: Whose cycles are counted.
        exact: Whether no algorithm is to round more than the plain sum.
        low_memory: Whether weights are to be no larger than those of the model.
        tuned: Whether it was measured which way is the fastest.
    """
    rule = _declined.get(type(inst))
    if rule is None or inst.operands[1].value.type.kind is not ElemKind.F32:
        return {}
    direct = cheapest(problem, machine).cycles * problem.images

    def reason(ways: Mapping[str, _Decision], best: _Decision | None) -> str:
        if exact:
            return "products are to be exact"
        if low_memory and all(isinstance(way, WinogradDecision) for way in ways.values()):
            return "weights are to take little memory"
        name, way = min(ways.items(), key=lambda item: item[1].cycles)
        if tuned and way.cycles <= WORTH_TRYING * direct:
            return "measured to be slower, or not exact enough"
        if best is not None:
            return "with these weights it is not exact enough"
        than = "not enough below" if way.cycles < direct else "more than"
        return f"{way.cycles:,.0f} cycles with {name}, {than} {direct:,.0f} directly"

    return rule(inst, machine, direct, reason)


_Reason = Callable[[Mapping[str, _Decision], _Decision | None], str]


@_declined(CpuConvInst)
def _conv(inst: CpuConvInst, machine: Machine, direct: float, reason: _Reason) -> dict[str, str]:
    result, input = inst.result.type, inst.input.type
    steps = prod(inst.strides) * prod(inst.dilation)
    if prod(inst.kernels) == 1:
        plain = steps == inst.group == 1 and not has_pads(inst.pads)
        sizes = prod(result.likely[:-1]), input.likely[-1], result.likely[-1]
        fits = plain and result.is_static and _is_constant(inst.filter)
        return _strassen(sizes, machine, direct, reason) if fits else {}
    if steps > 1:
        return {"Winograd": "it has strides or dilation"}
    if not _is_constant(inst.filter):
        return {"Winograd": "the filter is computed"}
    depth = input.likely[-1] // inst.group
    if depth < machine.lanes:
        return {"Winograd": f"a vector holds {machine.lanes} channels, and a sum is over {depth}"}
    problem = result.likely, depth, inst.kernels, inst.group, machine
    ways = {f"patches of {d.patch[0]}x{d.patch[1]}": d for d in winograd_decisions(*problem)}
    if not ways:
        return {"Winograd": "no patch is for kernels of this size"}
    return {"Winograd": reason(ways, choose_winograd(*problem, direct))}


@_declined(CpuMatmulInst)
def _matmul(
    inst: CpuMatmulInst, machine: Machine, direct: float, reason: _Reason
) -> dict[str, str]:
    result, lhs = inst.result.type, inst.lhs.type
    if not result.is_static or inst.rhs.type.rank != 3 or not _is_constant(inst.rhs):
        return {}
    sizes = prod(result.extents[:-1]), lhs.extents[-1], result.extents[-1]
    return _strassen(sizes, machine, direct, reason)


def _strassen(
    sizes: tuple[int, int, int], machine: Machine, direct: float, reason: _Reason
) -> dict[str, str]:
    """Nothing is said of those that are too small for it."""
    ways = {f"tiles of {w.pixels}x{w.vectors}": w for w in strassen_ways(*sizes, machine)}
    return {"Strassen": reason(ways, choose_strassen(*sizes, machine, direct))} if ways else {}


def _is_constant(value: Value) -> bool:
    base = value.base
    return isinstance(base, WeightVar) and base.is_constant
