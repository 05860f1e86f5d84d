"""Computes the work and traffic of a program's runs, and a lower bound of their time on a machine with known peaks.

Only multiply-adds of products are counted as work, and what attention multiplies between its two products, where no
bytes of the network's memory are moved: for whatever else a run computes, it moves bytes. What a run reads
or writes in memory counts once. It comes from the level of the caches that holds all that was touched since its last
use, in this run of the network or in the one before: its `distance`. So a weight of a large network comes from memory,
and the result of the run before from a cache.

Winograd's algorithm is counted as what it is: a multiply-add at each point of its patches, also of those that reach
over the edge of an image, which is its own waste; and the passes before and after its products, in which nothing is
multiplied. They read the input and write points, read sums and write the result, at the rate of the cache that holds
a slab: what has to come from further away may come while products are computed, and counts with all other bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from glowpy.backend import Program
from glowpy.backends.cpu.insts_gen import (
    CpuAttentionInst,
    CpuBlockMatmulInst,
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuGruInst,
    CpuLstmInst,
    CpuMatmulInst,
    CpuPlainConvInst,
    CpuPlainMatmulInst,
    CpuRnnInst,
    CpuRowMatmulInst,
    CpuStrassenInst,
    CpuWeightedGatherInst,
    CpuWinogradInst,
)
from glowpy.backends.cpu.measuring.peaks import Access, Peaks
from glowpy.backends.cpu.strategy.winograd import count_patches
from glowpy.backends.cpu.variant import Variant
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
from glowpy.support.rules import Rules
from glowpy.support.symbolic import ceil_div, static

__all__ = ["Effort", "Move", "efforts"]

_macs: Rules[Callable[[Any], int]] = Rules("macs of an instruction")
"""The multiply-adds of an instruction whose shapes are known. What is no product has no rule."""


@_macs(CpuConvInst)
def _conv(inst: CpuConvInst) -> int:
    channels = inst.input.type.extents[-1] // inst.group
    return prod(inst.result.type.extents) * prod(inst.kernels) * channels


@_macs(CpuDepthwiseConvInst)
def _depthwise(inst: CpuDepthwiseConvInst) -> int:
    return prod(inst.result.type.extents) * prod(inst.kernels)


@_macs(CpuWinogradInst)
def _winograd(inst: CpuWinogradInst) -> int:
    """Counts the multiplications of Winograd's algorithm: one at each point of a patch, for each pair of channels."""
    depth = inst.input.type.extents[-1] // inst.group
    return _all_points(inst) * depth * inst.result.type.extents[-1]


def _all_points(inst: CpuWinogradInst) -> int:
    """The points of all patches, for one channel."""
    images, *pixels, _ = inst.result.type.extents
    return images * count_patches(pixels, inst.patch, inst.kernels) * prod(inst.patch)


@_macs(CpuStrassenInst)
def _strassen(inst: CpuStrassenInst) -> int:
    """Counts the multiplications of Strassen's algorithm: seven products of quarters."""
    _, half_rows, half = inst.sums.type.extents
    return 7 * half_rows * half * ceil_div(inst.result.type.extents[-1], 2)


_direct_macs: Rules[Callable[[Any], int]] = Rules("direct macs of an instruction")
"""Rules for the multiply-adds of the direct algorithm for an instruction that has another one."""


@_direct_macs(CpuWinogradInst)
def _direct_winograd(inst: CpuWinogradInst) -> int:
    depth = inst.input.type.extents[-1] // inst.group
    return prod(inst.result.type.extents) * prod(inst.kernels) * depth


@_direct_macs(CpuStrassenInst)
def _direct_strassen(inst: CpuStrassenInst) -> int:
    return prod(inst.result.type.extents) * inst.lhs.type.extents[-1]


@_macs(CpuPlainConvInst)
def _plain_conv(inst: CpuPlainConvInst) -> int:
    return prod(inst.result.type.extents) * prod(inst.filter.type.extents[1:])


_MatMul = CpuMatmulInst | CpuBlockMatmulInst | CpuRowMatmulInst | CpuPlainMatmulInst


@_macs(CpuMatmulInst, CpuBlockMatmulInst, CpuRowMatmulInst, CpuPlainMatmulInst)
def _matmul(inst: _MatMul) -> int:
    return prod(inst.result.type.extents) * inst.lhs.type.extents[-1]


@_macs(CpuAttentionInst)
def _attention(inst: CpuAttentionInst) -> int:
    """Both products, of all keys: what a causal mask hides is not computed, and counts."""
    depth, keys = inst.key.type.extents[2:]
    scores = prod(inst.query.type.extents[:3]) * keys
    return scores * (depth + inst.value.type.extents[3])


_between: Rules[Callable[[Any], int]] = Rules("multiplications between products of an instruction")
"""The multiplications of f32, with or without an addition, that an instruction makes between its products."""

_WEIGHT = 9
"""Multiplications for a weight of a score: one by the scale, eight of the exponential, as in dot_attention.c."""


@_between(CpuAttentionInst)
def _weights(inst: CpuAttentionInst) -> int:
    """An exponential for each score. Masks, the largest score, sums and factors of rows are left out."""
    return prod(inst.query.type.extents[:3]) * inst.key.type.extents[3] * _WEIGHT


@_macs(CpuLstmInst, CpuGruInst, CpuRnnInst)
def _cell(inst: CpuLstmInst | CpuGruInst | CpuRnnInst) -> int:
    return prod(inst.gates.type.extents) * inst.initial_h.type.extents[-1]


@_macs(LinearAttentionInst)
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


_steps: Rules[Callable[[Any], tuple[Move, ...]]] = Rules("steps of an instruction")
"""Rules for the moves in scratch memory before and after the products of an instruction of known shapes."""


@_steps(CpuWinogradInst)
def _patches(inst: CpuWinogradInst) -> tuple[Move, ...]:
    """Patches are read and their points written, and what products give is read and their pixels are written."""
    size, depth = inst.input.type.kind.size, inst.input.type.extents[-1]
    points, channels = _all_points(inst) * size, inst.result.type.extents[-1]
    block = inst.filter.type.extents[-1]
    slab = prod(inst.patch) * inst.slab * (depth // inst.group + block) * size
    pixels, results = (prod(value.type.extents) * size for value in (inst.input, inst.result))
    passes: list[tuple[Access, int]] = [("read", pixels), ("write", points * depth)]
    passes += [("read", points * channels), ("write", results)]
    return tuple(Move(access, bytes, slab) for access, bytes in passes)


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

    def computing(self, peaks: Peaks, variant: Variant) -> float:
        """The seconds that its multiply-adds take at least, and what is done between them and around them."""
        products = self.flops / peaks.flops_of(self.kind, variant)
        return products + 2 * self.between / peaks.flops + _seconds(self.steps, peaks)

    def moving(self, peaks: Peaks) -> float:
        """The seconds that its bytes take at least."""
        return _seconds(self.moves, peaks)

    def least(self, peaks: Peaks, variant: Variant) -> float:
        """The seconds that it takes at least: its place on the roofline."""
        return max(self.computing(peaks, variant), self.moving(peaks))

    def bound(self, peaks: Peaks, variant: Variant) -> str:
        """The resource that decides this bound: `arithmetic` or `bytes`."""
        busy = self.computing(peaks, variant) >= self.moving(peaks)
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
            macs = _counted(head, _macs)
            direct = _counted(head, _direct_macs) or macs
            between = _counted(head, _between)
            kind = head.operands[:2][-1].value.type.kind
            moves = _moves(run, places, touched)
            around = _steps.get(type(head))
            steps = () if around is None else around(head)
            result.append(Effort(index, run, macs, direct, kind, moves, steps, between))
    return result


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
            if isinstance(inst, GatherInst | DynamicSliceInst) and ref.name == "input":
                size = min(size, inst.result.type.room)
            if isinstance(inst, CpuWeightedGatherInst) and ref.name == "input":
                size = min(size, inst.result.type.room * inst.weights.type.extents[1])
            yield ref.value, "read", size
    for value in inst.writes():
        (size,) = static([value.type.size])
        yield value, "write", size
