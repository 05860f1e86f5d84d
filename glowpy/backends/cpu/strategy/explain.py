"""Explains the decisions about a program's products, with the alternatives: for people, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from math import prod
from textwrap import wrap

from glowpy.backend import Program
from glowpy.backends.cpu.attention import multiplied_kind
from glowpy.backends.cpu.insts_gen import (
    CpuAttentionInst,
    CpuByteWinogradInst,
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuMatmulInst,
    CpuStrassenInst,
    CpuWinogradInst,
)
from glowpy.backends.cpu.packing import tile_lanes
from glowpy.backends.cpu.strategy.attention import FEW_QUERIES, choose_attention, key_tiles
from glowpy.backends.cpu.strategy.declined import declined
from glowpy.backends.cpu.strategy.depthwise import depthwise_decision
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import (
    Candidate,
    Problem,
    all_candidates,
    cheapest,
    choose,
    conv_problem,
    estimate,
    fetched_ahead,
    matmul_problem,
    preference,
    step_limits,
)
from glowpy.backends.cpu.strategy.strassen import choose_strassen, strassen_ways
from glowpy.backends.cpu.strategy.winograd import (
    choose_winograd,
    convolved_shape,
    winograd_decisions,
)
from glowpy.backends.cpu.strategy.work import group_of, work_of
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, Expr, highest, likely_extent
from glowpy.support.text import Attr

__all__ = ["Explanation", "Row", "explain", "explanations_text"]

_WIDTH, _JOINT = 160, "\xa0"
"""The width of lines that describe a product, and the character that keeps a name and its number on one line."""

_SHOWN = 6
"""Candidates of each product: the best ones."""

_problem_of: Rules[Callable[..., Problem]] = Rules("problem_of")
_explanation_of: Rules[Callable[..., Explanation]] = Rules("explanation_of")


@_problem_of(CpuConvInst)
def _conv(inst: CpuConvInst) -> Problem:
    lists = inst.kernels, inst.strides, tuple(map(likely_extent, inst.pads)), inst.dilation
    return conv_problem(inst.result.type.likely, inst.input.type.likely, *lists, inst.group)


@_problem_of(CpuMatmulInst)
def _matmul(inst: CpuMatmulInst) -> Problem:
    matrices = prod(inst.rhs.type.likely[:-3])
    result = inst.result.type
    problem = matmul_problem(result.likely, inst.lhs.type.likely[-1], matrices)
    return problem.with_open_columns() if isinstance(result.shape[-1], Expr) else problem


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate.

    Attributes:
        pixels: Pixels of a tile.
        vectors: Vectors of a tile; halves count as such.
        line: Pixels that are tiled by themselves.
        cycles: The modelled cycles of all tiles.
        limit: The resource that decides how long a step takes.
        in_use: Whether the instruction's attributes say so.
    """

    pixels: int
    vectors: float
    line: int
    cycles: float
    limit: str
    in_use: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Decisions about one product.

    Attributes:
        name: The name of the instruction.
        mnemonic: The mnemonic of the instruction.
        problem: The problem to compute, in numbers.
        decision: The attributes that are free; those that depend on symbolic extents as texts.
        units: How many parts the work is cut into.
        loops: The inner loops: kind, pixels x vectors.
        rows: The best candidates, and the one in use if it is none of them; empty for a depthwise convolution.
        overridden: Whether another decision is in use than the strategy takes.
        function: The function that it is in, if others call it; empty for the network itself.
        tuned: Whether another decision was measured to be faster.
        declined: Other algorithms, and passes that make something else of such products, and why they do not.
        halves: Whether the vectors of its tiles are halves of whole ones.
    """

    name: str
    mnemonic: str
    problem: Mapping[str, object]
    decision: Mapping[str, Attr]
    units: int
    loops: tuple[str, ...]
    rows: tuple[Row, ...]
    overridden: bool
    function: str = ""
    tuned: bool = False
    declined: Mapping[str, str] = field(default_factory=dict)
    halves: bool = False

    @property
    def tile(self) -> str:
        """Its pixels and vectors as far as they are decided, for people; see `TileFunction.name`."""
        sizes = [
            self.decision[name] for name in ("tile_pixels", "tile_vectors") if name in self.decision
        ]
        if self.halves and isinstance(sizes[-1], int):
            sizes[-1] = f"{sizes[-1] / 2:g}"
        return "x".join(map(str, sizes))

    @property
    def summary(self) -> str:
        """All of it in one line: what was decided, and what its inner loop waits for."""
        texts = ["tuned"] if self.tuned else []
        texts += [self.tile] if self.tile else []
        texts += [
            f"{name} {value}"
            for name, value in self.decision.items()
            if value and name not in ("tile_pixels", "tile_vectors")
        ]
        texts.append(f"{self.units} units")
        for row in self.rows:
            if row.in_use:
                best = self.rows[0].cycles or 1.0
                more = f" (+{row.cycles / best - 1:.1%})" if row.cycles > best else ""
                texts += [f"{row.cycles:,.0f} cycles{more}", f"waits for {row.limit}"]
        return ", ".join(texts)


def explain(
    program: Program,
    machine_for: Callable[[ElemKind], Machine],
    *,
    exact: bool = False,
    low_memory: bool = False,
    measured: Collection[str] = (),
    tuned: Collection[str] = (),
) -> Iterator[Explanation]:
    """An explanation for every product of a program and of what it calls, by the models of a variant for each kind.

    They are in order, and those of a function that is called come before those of its caller.

    Args:
        program: A program that a backend has compiled.
        machine_for: The model of the processor for a kind.
        exact: Whether no algorithm was to round more than the plain sum.
        low_memory: Whether weights were to be no larger than those of the model.
        measured: The names of products of which it was measured how they are computed best.
        tuned: Those of them for which another decision is faster than that of the model.
    """
    for called in (*program.callees, program):
        for inst, machine, explanation in _explained(called.ir, machine_for):
            name = explanation.name
            reasons = dict(called.declined.get(name, {}))
            if type(inst) in _problem_of:
                problem = _problem_of[type(inst)](inst)
                is_tuned = name in measured
                reasons |= declined(
                    inst, problem, machine, exact=exact, low_memory=low_memory, tuned=is_tuned
                )
            yield replace(
                explanation,
                function="" if called is program else called.ir.name,
                tuned=name in tuned,
                declined=reasons,
            )


def _explained(
    f: IRFunction, machine_for: Callable[[ElemKind], Machine]
) -> Iterator[tuple[Instruction, Machine, Explanation]]:
    for inst in f.instructions:
        rule = _explanation_of.get(type(inst))
        if rule is not None:
            kind = inst.operands[1].value.type.kind
            machine = machine_for(
                multiplied_kind(inst) if isinstance(inst, CpuAttentionInst) else kind
            )
            if isinstance(inst, CpuByteWinogradInst):
                yield inst, machine, _by_patches(inst, machine, machine_for(inst.filter.type.kind))
            else:
                yield inst, machine, rule(inst, machine)


@_explanation_of(CpuDepthwiseConvInst)
def _depthwise(inst: CpuDepthwiseConvInst, machine: Machine) -> Explanation:
    shape = inst.result.type.likely
    group = group_of(inst)
    decision = depthwise_decision(shape, inst.kernels, inst.strides, inst.dilation, machine, group)
    decided = {"tile_pixels": inst.tile_pixels, "slab": inst.slab, "vectors": inst.vectors}
    return Explanation(
        inst.name,
        inst.SCHEMA.mnemonic,
        {"height": shape[1], "width": shape[2], "channels": shape[3]},
        decided,
        highest(work_of(inst, machine.lanes).units),
        (),
        (),
        tuple(decided.values()) != (decision.pixels, decision.slab, decision.vectors),
    )


@_explanation_of(CpuWinogradInst)
@_explanation_of(CpuByteWinogradInst)
def _winograd(inst: CpuWinogradInst | CpuByteWinogradInst, machine: Machine) -> Explanation:
    return _by_patches(inst, machine, machine)


def _by_patches(
    inst: CpuWinogradInst | CpuByteWinogradInst, machine: Machine, of_points: Machine
) -> Explanation:
    """Explains Winograd's algorithm, whose points may be of another kind than the input."""
    pool = inst.pool if isinstance(inst, CpuWinogradInst) else (1, 1)
    shape = convolved_shape(inst.result.type.likely, pool)
    input = inst.input.type.likely
    depth = input[3] // inst.group
    decisions = winograd_decisions(shape, depth, inst.kernels, inst.group, of_points)
    ones, pads = (1, 1), tuple(map(likely_extent, inst.pads))
    direct = conv_problem(shape, input, inst.kernels, ones, pads, ones, inst.group)
    cycles = cheapest(direct, machine).cycles * direct.images
    problem = {"height": shape[1], "width": shape[2], "channels": shape[3], "depth": depth}
    costs = {f"{d.patch[0]}x{d.patch[1]}": f"{d.cycles:,.0f} cycles" for d in decisions}
    best = choose_winograd(shape, depth, inst.kernels, inst.group, of_points, cycles)
    free = ("patch", "tile_pixels", "tile_vectors", "slab", "bands", "blocks")
    work = work_of(inst, machine.lanes)
    return Explanation(
        inst.name,
        inst.SCHEMA.mnemonic,
        {**problem, "direct": f"{cycles:,.0f} cycles", **costs},
        {name: inst.attrs[name] for name in free},
        highest(work.units),
        tuple(loop.name for loop in (*work.tiles, *work.patches) if loop is not None),
        (),
        best is None
        or (best.patch, best.pixels, best.vectors, best.slab)
        != (inst.patch, inst.tile_pixels, inst.tile_vectors, inst.slab),
    )


@_explanation_of(CpuStrassenInst)
def _strassen(inst: CpuStrassenInst, machine: Machine) -> Explanation:
    *rows, columns = inst.result.type.extents
    sizes = prod(rows), inst.lhs.type.extents[-1], columns, machine
    direct = cheapest(matmul_problem(inst.result.type.extents, sizes[1], 1), machine).cycles
    costs = {f"{d.pixels}x{d.vectors}": f"{d.cycles:,.0f} cycles" for d in strassen_ways(*sizes)}
    best = choose_strassen(*sizes, direct)
    numbers = {"rows": sizes[0], "depth": sizes[1], "columns": columns}
    free = ("tile_pixels", "tile_vectors", "slab", "bands", "pairs")
    work = work_of(inst, machine.lanes)
    return Explanation(
        inst.name,
        inst.SCHEMA.mnemonic,
        {**numbers, "direct": f"{direct:,.0f} cycles", **costs},
        {name: inst.attrs[name] for name in free},
        highest(work.units),
        tuple(tile.name for tile in work.tiles if tile is not None),
        (),
        best is None
        or (best.pixels, best.vectors, best.slab)
        != (inst.tile_pixels, inst.tile_vectors, inst.slab),
    )


@_explanation_of(CpuAttentionInst)
def _attention(inst: CpuAttentionInst, machine: Machine) -> Explanation:
    """The rows are the tiles of scores, and how long all scores of a group of queries take by each; few have none."""
    batch, heads, queries, depth = inst.query.type.likely
    keys, width = inst.value.type.likely[2:]
    best = choose_attention(max(batch * heads, 1), queries, max(keys, 1), depth, width, machine)
    few = queries <= FEW_QUERIES
    free = ("block",) if few else ("rows", "block", "tile_keys", "tile_rows", "group")
    tiles = [] if few else key_tiles(queries, max(keys, 1), depth, machine)
    shown = [tile for i, tile in enumerate(tiles) if i < _SHOWN or tile.keys == inst.tile_keys]
    numbers = {"heads": batch * heads, "queries": queries, "keys": keys, "depth": depth}
    kind = {"in": ElemKind.BF16.value} if inst.in_bf16 else {}
    decided = {name: inst.attrs[name] for name in free}
    attrs = asdict(best)
    return Explanation(
        inst.name,
        inst.SCHEMA.mnemonic,
        {**numbers, "width": width, **kind},
        decided,
        inst.units,
        _alone(width, machine) if few else (),
        tuple(
            Row(
                tile.keys,
                tile.vectors,
                tile.keys,
                tile.cycles,
                tile.limit,
                tile.keys == inst.tile_keys,
            )
            for tile in shown
        ),
        {**decided, "units": inst.units} != {name: attrs[name] for name in (*free, "units")},
    )


def _alone(width: int, machine: Machine) -> tuple[str, ...]:
    """The loops of one query: over a key, and over all keys for 4 vectors, one vector or one element of the values."""
    vectors, rest = divmod(width, machine.lanes)
    sums = {"sum 1x4": vectors >= 4, "sum 1x1": vectors % 4 > 0 or rest > 0}
    return ("dot 1x1", *(name for name, runs in sums.items() if runs))


@_explanation_of(CpuConvInst, CpuMatmulInst)
def _product(inst: Instruction, machine: Machine) -> Explanation:
    problem = _problem_of[type(inst)](inst)
    free = ("tile_pixels", "tile_vectors", "line", "slab", "fetch")
    decision = {name: _dim(inst.attrs[name]) for name in free if name in inst.attrs}
    pixels, vectors = (likely_extent(decision[name]) for name in ("tile_pixels", "tile_vectors"))
    lanes = tile_lanes(inst.operands[2].value.type, machine.lanes)
    in_use = pixels, vectors, likely_extent(decision.get("line", pixels)), lanes
    ranked = sorted(all_candidates(problem, machine), key=preference)
    shown = list(islice(ranked, _SHOWN))
    if in_use not in [_tile(candidate) for candidate in shown]:
        shown.append(estimate(problem, machine.model(lanes), *in_use[:3]))
    work = work_of(inst, machine.lanes)
    loops = [tile.name for tile in work.tiles if tile is not None]
    kind = inst.operands[1].value.type.kind
    return Explanation(
        inst.name,
        inst.SCHEMA.mnemonic,
        {**asdict(problem), **({"in": kind.value} if kind is ElemKind.BF16 else {})},
        {name: value if isinstance(value, int) else str(value) for name, value in decision.items()},
        highest(work.units),
        tuple(loops),
        tuple(_row(candidate, problem, machine, in_use) for candidate in shown),
        any(
            (likely_extent(decision[name]) if name == "line" else decision[name]) != value
            for name, value in _taken(problem, machine, inst.operands[0].value.type).items()
            if name in decision
        ),
        halves=lanes < machine.lanes,
    )


def _dim(attr: Attr) -> Dim:
    assert isinstance(attr, int | Expr)
    return attr


def _taken(problem: Problem, machine: Machine, result: Type) -> dict[str, Dim]:
    """Returns the strategy's decision, as attributes; lines for the likely extents."""
    best = choose(problem, machine)
    tile = {"tile_pixels": best.pixels, "tile_vectors": best.vectors}
    fetch = fetched_ahead(problem, machine, best, result)
    return {**tile, "line": best.line, "slab": best.slab, "fetch": fetch}


def _tile(candidate: Candidate) -> tuple[int, int, int, int]:
    return candidate.pixels, candidate.vectors, candidate.line, candidate.lanes


def _row(
    candidate: Candidate, problem: Problem, machine: Machine, in_use: tuple[int, int, int, int]
) -> Row:
    pixels, vectors, line, lanes = _tile(candidate)
    limits = step_limits(problem, machine.model(lanes), pixels, vectors, vectors * lanes)
    limit = max(limits, key=lambda name: limits[name])
    shown = vectors if lanes == machine.lanes else vectors / 2
    return Row(pixels, shown, line, candidate.cycles, limit, _tile(candidate) == in_use)


def explanations_text(explanations: Iterable[Explanation], *, as_json: bool) -> str:
    """All that is known of each product: as a list in JSON, or in a few lines with the candidate in use marked `*`."""
    if as_json:
        return json.dumps([asdict(explanation) for explanation in explanations], indent=2) + "\n"
    return "\n".join(map(_text, explanations)) or "no products\n"


def _text(e: Explanation) -> str:
    numbers = [f"{name} {value}".replace(" ", _JOINT) for name, value in e.problem.items()]
    head = f"%{e.name} = {e.mnemonic}{e.function and f' in @{e.function}'}: {', '.join(numbers)}"
    head_lines = wrap(
        head, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    decided = ", ".join(f"{name}={value}" for name, value in e.decision.items())
    by = " (tuned)" if e.tuned else " (overridden)" if e.overridden else ""
    lines = [
        *(line.replace(_JOINT, " ") for line in head_lines),
        f"  {decided}{by}",
        f"  {e.units} units" + (f", inner loops: {', '.join(e.loops)}" if e.loops else ""),
    ]
    if e.rows:
        lines.append("     tile    line          cycles            a step waits for")
        best = e.rows[0].cycles or 1.0
        for row in e.rows:
            tile = f"{row.pixels}x{row.vectors:g}"
            more = f"+{100 * (row.cycles / best - 1):.1f} %"
            lines.append(
                f"  {'*' if row.in_use else ' '}  {tile:<6} {row.line:>5} {row.cycles:>15,.0f} {more:>9}  {row.limit}"
            )
    lines += [f"  not by {name}: {reason}" for name, reason in e.declined.items()]
    return "\n".join(lines) + "\n"
