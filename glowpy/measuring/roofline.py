"""Computes the work and traffic of a program's runs, and a lower bound of their time on a machine with known peaks.

Only multiply-adds of products are counted as work, and what attention multiplies between its two products, where no
bytes of the network's memory are moved: for whatever else a run computes, it moves bytes. What a run reads
or writes in memory counts once. It comes from the level of the caches that holds all that was touched since its last
use, in this run of the network or in the one before: its `distance`. So a weight of a large network comes from memory,
and the result of the run before from a cache.

What an instruction of a backend multiplies and moves, rules beside the instruction say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from glowpy.backend import Program
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import Extents
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    DynamicSliceInst,
    GatherInst,
    InsertTensorInst,
    LinearAttentionInst,
)
from glowpy.ir.run import Run
from glowpy.ir.value import Value
from glowpy.measuring.peaks import Access, Peaks
from glowpy.support.rules import Rules
from glowpy.support.symbolic import static

__all__ = [
    "Effort",
    "Move",
    "between_products_of",
    "direct_macs_of",
    "efforts",
    "macs_of",
    "multiplied_kind_of",
    "read_of_input",
    "steps_of",
]

macs_of: Rules[Callable[[Any], int]] = Rules("macs of an instruction")
"""The multiply-adds of an instruction whose shapes are known. What is no product has no rule."""


direct_macs_of: Rules[Callable[[Any], int]] = Rules("direct macs of an instruction")
"""Rules for the multiply-adds of the direct algorithm for an instruction that has another one."""

between_products_of: Rules[Callable[[Any], int]] = Rules(
    "multiplications between products of an instruction"
)
"""The multiplications of f32, with or without an addition, that an instruction makes between its products."""


@macs_of(LinearAttentionInst)
def _linear_attention(inst: LinearAttentionInst) -> int:
    """A step adds to the state, multiplies it by queries, and by the key where there are rates."""
    lines = 1 if inst.rates.type.is_empty else 2
    depth = inst.key.type.extents[3]
    return depth * (lines * prod(inst.value.type.extents) + prod(inst.result.type.extents))


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes that a run reads or writes, whose last use was `distance` other bytes ago."""

    access: Access
    bytes: int
    distance: int


steps_of: Rules[Callable[[Any], tuple[Move, ...]]] = Rules("steps of an instruction")
"""Rules for the moves in scratch memory before and after the products of an instruction of known shapes."""


multiplied_kind_of: Rules[Callable[[Any], ElemKind]] = Rules("multiplied kind of an instruction")
"""Rules for the kind of the numbers that an instruction multiplies, where that may be another than its operands'."""


read_of_input: Rules[Callable[[Any], int]] = Rules("bytes that an instruction reads of its input")
"""The most bytes of its input that an instruction of known shapes reads, where that need not be all."""


@read_of_input(GatherInst, DynamicSliceInst)
def _elements(inst: GatherInst | DynamicSliceInst) -> int:
    return inst.result.type.room


@dataclass(frozen=True)
class Effort:
    """Work and traffic of a run.

    Attributes:
        index: The number of its head in the program.
        run: The computation, for the extents that were asked for.
        macs: Multiply-adds of the product that are computed.
        direct_macs: Those that the direct algorithm needs.
        kind: The kind of the numbers that they multiply.
        moves: Its reads and writes in memory.
        steps: Its reads and writes before and after its products, while nothing is multiplied.
        between: Multiplications of f32 that it makes between its products, each as long as a multiply-add.
    """

    index: int
    run: Run
    macs: int
    direct_macs: int
    kind: ElemKind
    moves: tuple[Move, ...]
    steps: tuple[Move, ...] = ()
    between: int = 0

    @property
    def flops(self) -> int:
        """The number of operations: a multiply-add is two."""
        return 2 * self.macs

    @property
    def bytes(self) -> int:
        """All that it reads and writes."""
        return sum(move.bytes for move in self.moves)

    def computing(self, peaks: Peaks) -> float:
        """The seconds that its multiply-adds take at least, and what is done between them and around them."""
        products = self.flops / peaks.flops_of(self.kind)
        return products + 2 * self.between / peaks.flops + _seconds(self.steps, peaks)

    def moving(self, peaks: Peaks) -> float:
        """The seconds that its bytes take at least."""
        return _seconds(self.moves, peaks)

    def least(self, peaks: Peaks) -> float:
        """The seconds that it takes at least: its place on the roofline."""
        return max(self.computing(peaks), self.moving(peaks))

    def bound(self, peaks: Peaks) -> str:
        """The resource that decides this bound: `arithmetic` or `bytes`."""
        busy = self.computing(peaks) >= self.moving(peaks)
        return "arithmetic" if busy else "bytes"


def _seconds(moves: Sequence[Move], peaks: Peaks) -> float:
    return sum(move.bytes / peaks.bandwidth(move.access, move.distance) for move in moves)


def efforts(program: Program, extents: Extents) -> list[Effort]:
    """The effort of every run of a program that is run again and again, for these extents of its symbols.

    Those that are not given, such as what the network finds, are their likely ones. What `if` and `loop` call counts
    as nothing.
    """
    likely = {name: extent.likely for name, extent in program.ir.symbols.items()}
    numbers = {inst: index for index, inst in enumerate(program.ir.instructions)}
    twins = program.ir.at({**likely, **extents}).runs
    indices = [numbers[run.head] for run in program.ir.runs]
    places = _places(program)
    touched: dict[object, int] = {}
    for _ in range(2):  # the second run of the network finds what the first one left
        result = []
        for index, run in zip(indices, twins, strict=True):
            head = run.head
            macs = _counted(head, macs_of)
            direct = _counted(head, direct_macs_of) or macs
            between = _counted(head, between_products_of)
            kind = _multiplied_kind(head)
            moves = _moves(run, places, touched)
            around = steps_of.get(type(head))
            steps = () if around is None else around(head)
            result.append(Effort(index, run, macs, direct, kind, moves, steps, between))
    return result


def _multiplied_kind(head: Instruction) -> ElemKind:
    rule = multiplied_kind_of.get(type(head))
    return head.operands[:2][-1].value.type.kind if rule is None else rule(head)


def _counted(inst: Instruction, rules: Rules[Callable[[Any], int]]) -> int:
    rule = rules.get(type(inst))
    return 0 if rule is None else rule(inst)


def _places(program: Program) -> Mapping[str, object]:
    """Identifies the memory of buffers, by their names; those in registers have none.

    Buffers that begin at the same byte of the activations are one: what was written there is there.
    """
    plan = program.plan
    places: dict[str, object] = {slot.name: slot.start for slot in plan.activations.slots}
    return places | {
        slot.name: slot.name for area in (plan.mutable, plan.constant) for slot in area.slots
    }


def _moves(run: Run, places: Mapping[str, object], touched: dict[object, int]) -> tuple[Move, ...]:
    """Computes the moves of a run, and adds its places to `touched`: bytes by place, the last touched one last."""
    sizes: dict[tuple[object, Access], int] = {}
    written: set[object] = set()
    for inst in run.members:
        for value, access, size in _operands(inst):
            place = places.get(value.base.name)
            if place is None or (access == "read" and place in written):
                continue
            if access == "write":
                written.add(place)
            sizes[place, access] = max(sizes.get((place, access), 0), size)
    moves = tuple(
        Move(access, size, _distance(place, touched)) for (place, access), size in sizes.items()
    )
    for (place, _), size in sizes.items():
        touched.pop(place, None)
        touched[place] = size
    return moves


def _distance(place: object, touched: dict[object, int]) -> int:
    """The bytes of all that was touched since. Only networks of many runs whose data lies far away take long."""
    distance = 0
    for other, size in reversed(touched.items()):
        if other == place:
            break
        distance += size
    return distance


def _operands(inst: Instruction) -> Iterator[tuple[Value, Access, int]]:
    """Yields the values that an instruction reads, then those that it writes, with the number of bytes."""
    if isinstance(inst, InsertTensorInst):  # the rest of the result stays as it is
        (size,) = static([inst.input.type.size])
        yield inst.input, "read", size
        yield inst.result, "write", size
        return
    for ref in inst.operands:
        if ref.access.reads:
            (size,) = static([ref.value.type.size])
            rule = read_of_input.get(type(inst)) if ref.name == "input" else None
            yield ref.value, "read", size if rule is None else min(size, rule(inst))
    for value in inst.writes():
        (size,) = static([value.type.size])
        yield value, "write", size
