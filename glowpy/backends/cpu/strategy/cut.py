"""Cuts: how the work of a kernel that knows nothing of units is cut into equal parts.

Many instructions treat some dimension of their result independently: each index is computed by itself. There the kernel
is called for one part after the other, with that extent reduced and pointers moved. All parts are equal, so one
constant shape serves them. A rule says for a class of instructions which dimensions these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt

from glowpy.backends.cpu.insts_gen import (
    CpuPackMatrixInst,
    CpuWeightedGatherInst,
)
from glowpy.core.schema import Layout
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    ArgMaxInst,
    ArgMinInst,
    BitCastInst,
    BroadcastInst,
    ColumnsToImageInst,
    CumProdInst,
    CumSumInst,
    ExtractTensorInst,
    FindInst,
    GatherInst,
    InsertTensorInst,
    LinearAttentionInst,
    LocalResponseNormalizationInst,
    LogSoftmaxInst,
    LookupTableInst,
    MatMulInst,
    ReduceAddInst,
    ReduceMaxInst,
    ReduceMinInst,
    ReduceMulInst,
    RoiAlignInst,
    RoiMaxPoolInst,
    SampleInst,
    SoftmaxInst,
    TransposeInst,
    TreeEnsembleInst,
)
from glowpy.ir.value import Value
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, Expr, product

__all__ = ["UNIT_BYTES", "Along", "Cut", "cut_of"]

UNIT_BYTES = 1 << 16
"""The fewest bytes that a unit reads and writes: fewer take no longer than to hand them to a thread."""

_TRANSPOSED = 4
"""Units of a transposition are so many times as large: lines far apart are fetched ahead if they are long."""

_UNITS = 8
"""Enough for threads to share, so that an outer dimension is taken even if an inner one has more."""

_LINE_BYTES = 64
"""Neighbours in memory are cut at multiples of a cache line, which are whole vectors as well."""


@dataclass(frozen=True, slots=True)
class Along:
    """How an operand goes along with a dimension that is cut.

    Attributes:
        axis: Its own dimension.
        step: How far it goes there for each index that is cut.
        whole: The kernel finds its elements by offsets, and is told all of its extent.
        times: How often each of its elements is read.
    """

    axis: int
    step: int = 1
    whole: bool = False
    times: int = 1


Dimension = tuple[Along | None, ...]
"""A dimension as every operand knows it; None: all of the operand belongs to every part."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Equal parts of a dimension.

    Attributes:
        units: How many parts there are.
        part: The extent of each.
        dimension: Which dimension that is.
    """

    units: int
    part: int
    dimension: Dimension

    @property
    def axis(self) -> int:
        """The result's own dimension."""
        assert self.dimension[0] is not None
        return self.dimension[0].axis

    def shape(self, operand: int, value: Value) -> Shape:
        """The shape of an operand's part."""
        along, shape = self.dimension[operand], value.type.shape
        if along is None or along.whole:
            return shape
        return (*shape[: along.axis], self.part * along.step, *shape[along.axis + 1 :])

    def distance(self, operand: int, value: Value) -> Dim:
        """How far an operand's next part is, in elements of memory."""
        along = self.dimension[operand]
        return 0 if along is None else self.part * along.step * value.strides[along.axis]


_rules: Rules[Callable[..., Iterator[Dimension]]] = Rules("cut")


def cut_of(inst: Instruction) -> Cut | None:
    """How an instruction is cut; None if it is one unit, because it is small or nobody says more."""
    rule = _rules.get(type(inst))
    if rule is None or any(ref.value.type.is_empty for ref in inst.operands):
        return None
    cuts = [cut for dimension in rule(inst) if (cut := _parts(inst, dimension)) is not None]
    enough = [cut for cut in cuts if cut.units >= _UNITS]
    return next(iter(enough), None) or max(cuts, key=lambda cut: cut.units, default=None)


def _parts(inst: Instruction, dimension: Dimension) -> Cut | None:
    """The smallest parts that are worth handing out."""
    operands = list(zip(inst.operands, dimension, strict=True))
    moved = [(ref.value, along) for ref, along in operands if along is not None]
    if any(
        along is not None
        and ref.layout is Layout.DENSE
        and product(ref.value.type.shape[: along.axis]) != 1
        for ref, along in operands
    ):
        return None  # a part would have gaps
    extent = next(value.type.shape[along.axis] for value, along in moved if not along.whole)
    if isinstance(extent, Expr):
        return None  # parts could not be equal
    size = sum(value.type.room // extent * along.times for value, along in moved if not along.whole)
    least = UNIT_BYTES * (_TRANSPOSED if isinstance(inst, TransposeInst) else 1)
    for part in _divisors(extent)[:-1]:
        if part * size >= least and _at_lines(moved, part):
            return Cut(extent // part, part, dimension)
    return None


def _divisors(number: int) -> list[int]:
    """All of them, ascending. Takes as many steps as the root of the number."""
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return small + [number // divisor for divisor in reversed(small) if divisor**2 != number]


def _at_lines(moved: list[tuple[Value, Along]], part: int) -> bool:
    """Whether lines of neighbours stay whole; a single line may be cut anywhere."""
    return all(
        value.strides[along.axis] != 1
        or value.type.count == value.type.shape[along.axis]
        or part * along.step * value.type.kind.size % _LINE_BYTES == 0
        for value, along in moved
    )


@_rules(LocalResponseNormalizationInst)
def _all_but_channels(inst: LocalResponseNormalizationInst) -> Iterator[Dimension]:
    for axis in range(inst.result.type.rank - 1):
        yield Along(axis), Along(axis)


@_rules(BitCastInst)
def _all(inst: BitCastInst) -> Iterator[Dimension]:
    for axis in range(inst.result.type.rank):
        yield Along(axis), Along(axis)


@_rules(SoftmaxInst, LogSoftmaxInst, ArgMaxInst, ArgMinInst, CumSumInst, CumProdInst)
def _all_but_one(
    inst: SoftmaxInst | LogSoftmaxInst | ArgMaxInst | ArgMinInst | CumSumInst | CumProdInst,
) -> Iterator[Dimension]:
    for axis in range(inst.result.type.rank):
        if axis != inst.axis:
            yield Along(axis), Along(axis)


@_rules(ReduceAddInst, ReduceMulInst, ReduceMaxInst, ReduceMinInst)
def _kept(
    inst: ReduceAddInst | ReduceMulInst | ReduceMaxInst | ReduceMinInst,
) -> Iterator[Dimension]:
    for axis in range(inst.result.type.rank):
        if axis not in inst.axes:
            yield Along(axis), Along(axis)


@_rules(LinearAttentionInst)
def _sequences(inst: LinearAttentionInst) -> Iterator[Dimension]:
    """A sequence by itself, where there are factors and rates: what has no elements has no part for each."""
    yield (Along(0),) * len(inst.operands)


@_rules(TransposeInst)
def _transpose(inst: TransposeInst) -> Iterator[Dimension]:
    for axis, source in enumerate(inst.shuffle):
        yield Along(axis), Along(source)


@_rules(BroadcastInst)
def _broadcast(inst: BroadcastInst) -> Iterator[Dimension]:
    for axis, size in enumerate(inst.input.type.shape):
        yield Along(axis), Along(axis) if size == inst.result.type.shape[axis] else None


@_rules(InsertTensorInst)
def _insert(inst: InsertTensorInst) -> Iterator[Dimension]:
    for axis in range(inst.input.type.rank):
        yield Along(axis, whole=True), Along(axis)


@_rules(ExtractTensorInst)
def _extract(inst: ExtractTensorInst) -> Iterator[Dimension]:
    for axis, step in enumerate(inst.steps):
        yield Along(axis), Along(axis, step, whole=True)


@_rules(GatherInst)
def _gather(inst: GatherInst) -> Iterator[Dimension]:
    for axis in range(inst.axis):
        yield Along(axis), Along(axis), None
    for axis in range(inst.indices.type.rank):
        yield Along(inst.axis + axis), None, Along(axis)
    for axis in range(inst.axis + 1, inst.input.type.rank):
        yield Along(axis + inst.indices.type.rank - 1), Along(axis), None


@_rules(CpuWeightedGatherInst)
def _weighted_gather(inst: CpuWeightedGatherInst) -> Iterator[Dimension]:
    for axis in range(inst.axis):
        yield Along(axis), Along(axis), None, None
    yield Along(inst.axis), None, Along(0), Along(0)


@_rules(LookupTableInst, FindInst)
def _lookup(inst: LookupTableInst | FindInst) -> Iterator[Dimension]:
    for axis in range(inst.result.type.rank):
        yield Along(axis), Along(axis), None


@_rules(TreeEnsembleInst)
def _trees(inst: TreeEnsembleInst) -> Iterator[Dimension]:
    rows = Along(0, times=inst.trees.type.room // inst.trees.type.kind.size // 2)
    yield Along(0), rows, None, None, None, None


@_rules(CpuPackMatrixInst)
def _pack(inst: CpuPackMatrixInst) -> Iterator[Dimension]:
    batch = inst.input.type.rank - 2
    for axis in range(batch):
        yield Along(axis), Along(axis)
    if inst.input.type.shape[-1] % inst.block == 0:
        yield Along(batch), Along(batch + 1, inst.block)


@_rules(MatMulInst)
def _matmul(inst: MatMulInst) -> Iterator[Dimension]:
    rank = inst.result.type.rank

    def along(value: Value, axis: int) -> Along | None:
        operand_axis = axis - rank + value.type.rank
        return (
            Along(operand_axis)
            if operand_axis >= 0 and value.type.shape[operand_axis] != 1
            else None
        )

    for axis in range(rank - 2):
        yield Along(axis), along(inst.lhs, axis), along(inst.rhs, axis)
    yield Along(rank - 2), along(inst.lhs, rank - 2), None


@_rules(SampleInst)
def _sample(inst: SampleInst) -> Iterator[Dimension]:
    del inst
    yield Along(0), Along(0), Along(0)
    yield Along(1), None, Along(1)


@_rules(RoiAlignInst)
def _roi_align(inst: RoiAlignInst) -> Iterator[Dimension]:
    del inst
    yield Along(0), None, Along(0), Along(0)


@_rules(RoiMaxPoolInst)
def _roi_max_pool(inst: RoiMaxPoolInst) -> Iterator[Dimension]:
    del inst
    yield Along(0), None, Along(0)


@_rules(ColumnsToImageInst)
def _columns_to_image(inst: ColumnsToImageInst) -> Iterator[Dimension]:
    taps = product(inst.kernels)
    yield Along(0), Along(0)
    yield Along(1), Along(1, taps)
