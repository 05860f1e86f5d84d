"""How a convolution or a matrix product is tiled: a cost model over all decisions that fit the machine.

libjit/include/product.h walks the result by *lines* of neighbouring pixels, which are tiled one by one. A line of a
convolution is a row of the image, or just one tile, wherever rows end. The rows of a matrix product are pixels,
and so are those of a whole batch of images where a convolution looks at one pixel at a time.

The model counts processor cycles. For one step of the reduction, an element of input or four 8-bit integers for each
pixel, a tile of p pixels and v vectors takes the largest of

* p * v multiply-adds, at `Machine.multiplies` in a cycle; where p words of input and v vectors of weights are taken
  apart into `Machine.parts`, so many times more, and what that takes;
* p + v loads, at `Machine.loads` in a cycle: v vectors of weights, p elements of input;
* both, and what counts the steps, at `Machine.issue` in a cycle;
* `Machine.latency`: small tiles wait for themselves;
* the bytes of its weights, at the rate of the cache that holds a block of them. Those that are read once come from
  memory, where there are more than the second-level cache has room for: each packed block of a tile is a stream, and
  each stream after the first one makes a step 2 % longer.

Pixels that lie a multiple of 4096 bytes apart compete for the same few lines of the first-level cache, with the
weights as well: from the ninth on each makes a step 3 % longer.

Setting up and storing a tile costs a cycle for each of its vectors, and some more for the loops around it; where a
processor looks ahead so far that it stores small tiles in passing, `Machine.store_cycles` for each vector beyond.
Results of 8-bit products are mostly as small as their input, so that a vector fills only part of a line of the cache:
where the channels of a tile end within a line, each pixel takes `Machine.part_of_line` more. A tile that
is *scattered* (it spans rows, or reaches over the edge of the image) looks up a pointer for each pixel and tap. The
tiles at the end of a line and of the channels are smaller; they are counted as what they are, and each is code of
its own, hence a small price on each.

Where a processor computes vectors in two halves (`Machine.half_loads`), there are tiles of an odd number of half
vectors as well. They take 2 % longer, being twice as many instructions, and wait for weights the first time: the
processor looks ahead as many instructions, which is half as long.

* p * v sums, the parts of v weights and of one element of input have to fit into the registers and leave one free, or
  LLVM does not manage without the stack: a tile that spills is slower than any that does not.
* The choice depends on nothing but the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from math import gcd, prod

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.core.type import Type
from glowpy.support.symbolic import Dim, ceil_div, greatest, least, product

__all__ = [
    "MAX_PIXELS",
    "MAX_SUMS",
    "MAX_VECTORS",
    "WORTH_TRYING",
    "Candidate",
    "Decision",
    "Problem",
    "all_candidates",
    "candidates",
    "cheapest",
    "choose",
    "conv_problem",
    "estimate",
    "fetched_ahead",
    "matmul_problem",
    "preference",
    "product_ways",
    "step_limits",
]

_CACHE_SET_PERIOD = 4096
_LINES_IN_A_SET = 8
_PRICE_OF_A_LINE = 0.03
_PRICE_OF_A_VARIANT = 0.01
_PRICE_OF_A_STREAM = 0.02
_PRICE_OF_HALVES = 0.02
_COUNTING = 3
_LINE_BYTES = 64
_CYCLES_PER_POINTER = 1.0
_CYCLES_PER_TAP = 6.0
_UNITS = 32
"""The number of units that an instruction's work is cut into where that is free: threads finish together."""
_PIXELS_PER_UNIT = 24
"""A unit is not smaller: it passes over the weights of a block, and must have some tiles for that."""
_WORK_PER_UNIT = 1 << 17
"""The fewest multiplications of a unit: it must be worth the handing out, which takes a fraction of a microsecond."""

_USUAL_PIXELS = 32
"""Weights are packed as for so many pixels, or rows of a matrix, or as for one image if that has more: a network may
be run for any number of images or rows, and the weights are to be there once. Tiles of few pixels take several
blocks."""

_OPEN_VECTORS = 2
"""Most vectors of a tile where the number of columns is symbolic."""

WORTH_TRYING = 1.4
"""The multiple of the best modelled time from which a candidate is not worth measuring."""

# The bounds of libjit/include/tile.h.
MAX_PIXELS = 32
MAX_VECTORS = 8
MAX_SUMS = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """A product to be computed, for one image and group, or matrix.

    Attributes:
        height: Rows of output pixels; 1 for a matrix product, whose pixels are the rows of the left operand.
        width: Output pixels in a row.
        channels: Output channels.
        taps: Elements of the kernel, in the plane of the image.
        depth: Input channels of the group: elements that lie together under one tap.
        pixel_step: Elements from the input of one output pixel to that of the next.
        border: Output pixels at the left and the right of each row whose windows reach over the edge.
        images: How many images and groups there are.
        usual_pixels: Output pixels for which the weights are laid out, so that a model has them once for all sizes of a
            batch; 0 for those there are.
        most_vectors: The most vectors of a tile.
    """

    height: int
    width: int
    channels: int
    taps: int
    depth: int
    pixel_step: int
    border: tuple[int, int] = (0, 0)
    images: int = 1
    usual_pixels: int = 0
    most_vectors: int = MAX_VECTORS

    @property
    def pixels(self) -> int:
        """Output pixels of an image."""
        return self.height * self.width

    def with_open_columns(self) -> Problem:
        """Returns the problem for a symbolic number of columns: any number of vectors may be left, and has code."""
        return replace(self, most_vectors=_OPEN_VECTORS)

    def steps(self, machine: Machine) -> int:
        """Returns the number of steps of the inner loop, for one tile."""
        return self.taps * ceil_div(self.depth, machine.dot)

    def weight_bytes(self, machine: Machine) -> int:
        """Returns the number of bytes of one output channel's weights."""
        return self.steps(machine) * machine.lane_bytes


@dataclass(frozen=True, slots=True)
class Decision:
    """All that is free about a product; see libjit/include/product.h.

    Attributes:
        pixels: Pixels of a tile.
        vectors: Vectors of a tile, in output channels.
        line: Pixels that are tiled by themselves.
        slab: Lines that are computed for one block of channels before the next block.
        fetch: Elements of weights to fetch ahead at each step of the inner loop.
        packed: Vectors of output channels whose weights are packed together. Those of a tile are a multiple.
        lanes: Output channels in a vector.
        dot: Neighbours in depth that a step multiplies; 2 of floats that are rounded to bf16.
        cycles: The modelled cost, for all images; but for slabs and what is fetched ahead.
    """

    pixels: int
    vectors: int
    line: int
    slab: int
    fetch: int
    packed: int
    lanes: int
    dot: int = 1
    cycles: float = field(default=0.0, compare=False)

    @property
    def block(self) -> int:
        """Output channels whose weights are packed together."""
        return self.packed * self.lanes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tile and the lines it is laid along, with what it is thought to cost."""

    pixels: int
    vectors: int
    line: int
    lanes: int
    cycles: float


def conv_problem(
    result: Sequence[int],
    input: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> Problem:
    """A convolution: shapes N, H, W, C; the lists are about height and width, pads are top, left, bottom, right."""
    images, height, width, channels = result
    depth, taps, pixel_step = input[3] // group, prod(kernels), input[3] * strides[1]
    if taps == 1 and prod(strides) == 1 and not any(pads):
        return Problem(
            1, images * height * width, channels // group, 1, depth, pixel_step, images=group,
            usual_pixels=max(height * width, _USUAL_PIXELS),
        )  # fmt: skip
    span = (kernels[1] - 1) * dilation[1]
    left = min(ceil_div(pads[1], strides[1]), width)
    inside = max((input[2] - 1 - span + pads[1]) // strides[1] + 1, left)
    border = left, max(width - inside, 0)
    return Problem(
        height, width, channels // group, taps, depth, pixel_step, border, images * group
    )


def matmul_problem(result: Sequence[int], depth: int, matrices: int) -> Problem:
    """A matrix product with so many right sides: the rows of all left sides meet a single one as one matrix."""
    *batch, rows, columns = result
    if matrices == 1:
        rows *= prod(batch)
    images = prod(result) // max(rows * columns, 1)
    usual = _USUAL_PIXELS if matrices == 1 else 0
    return Problem(1, rows, columns, 1, depth, depth, images=images, usual_pixels=usual)


def preference(candidate: Candidate) -> tuple[float, int, int, int]:
    """Key of candidates, lowest for the best: cycles, then the most pixels and the fewest vectors."""
    return candidate.cycles, -candidate.pixels, candidate.vectors, -candidate.line


@cache
def cheapest(problem: Problem, machine: Machine) -> Candidate:
    """The best of all candidates."""
    return min(all_candidates(problem, machine), key=preference)


@cache
def choose(problem: Problem, machine: Machine) -> Decision:
    """The cheapest decision; of equally cheap ones that with more pixels, then with fewer vectors."""
    return _with_tile(problem, machine, cheapest(problem, machine))


def product_ways(problem: Problem, machine: Machine) -> Iterator[Decision]:
    """The decision that is taken, the best of each number of vectors and kind of line, other slabs, and other tiles.

    None is thought to take more than `WORTH_TRYING` times as long. Weights that are laid out for all sizes of a batch
    stay as they are.
    """
    best = choose(problem, machine)
    yield best
    limit = WORTH_TRYING * best.cycles
    tiles = [
        candidate
        for candidate in all_candidates(problem, machine)
        if candidate.cycles * problem.images <= limit
    ]
    tiles.sort(key=preference)
    kinds: dict[tuple[int, bool], Candidate] = {}
    for tile in tiles:
        kinds.setdefault((tile.vectors * tile.lanes, tile.line == tile.pixels), tile)
    lines = max(ceil_div(problem.pixels, best.line), 1)
    ways = chain(
        (_with_tile(problem, machine, tile) for tile in kinds.values()),
        (replace(best, slab=slab) for slab in (lines, ceil_div(best.slab, 2))),
        (replace(best, fetch=0),),
        (_with_tile(problem, machine, tile) for tile in tiles),
    )
    known = {best}
    for way in ways:
        if way not in known:
            known.add(way)
            yield way


def _with_tile(problem: Problem, machine: Machine, tile: Candidate) -> Decision:
    """The decision for a tile."""
    machine = machine.model(tile.lanes)
    slab = _slab(problem, machine, tile)
    fetch = _fetch(problem, machine, tile, slab)
    packed = _packed_vectors(problem, machine) or tile.vectors
    cycles = tile.cycles * problem.images
    return Decision(
        tile.pixels, tile.vectors, tile.line, slab, fetch, packed, tile.lanes, machine.dot, cycles
    )


def all_candidates(problem: Problem, machine: Machine) -> Iterator[Candidate]:
    """The candidates with whole vectors, and with half ones; with those that weights are laid out for, if they are."""
    shared = problem.usual_pixels not in (0, problem.pixels)
    lanes = cheapest(_usual(problem), machine).lanes if shared else 0
    models = machine.models if problem.most_vectors == MAX_VECTORS else (machine,)
    for model in models:
        if lanes in (0, model.lanes):
            yield from candidates(problem, model)


def candidates(problem: Problem, machine: Machine) -> Iterator[Candidate]:
    """Every tile that fits into the registers and is not larger than the result; one pixel and vector at least.

    Where weights are laid out for a usual number of pixels, a tile takes some of those blocks. Blocks of an even number
    of halves are none of halves: whole vectors take them as fast.
    """
    most = max(min(problem.most_vectors, ceil_div(problem.channels, machine.lanes)), 1)
    spare = machine.parts + (1 if machine.fused else 2)
    shared = _packed_vectors(problem, machine)
    packed = shared or 1
    for vectors in range(packed, most + 1, packed):
        if machine.is_half and (packed if shared else vectors) % 2 == 0:
            continue
        fitting = (machine.vector_registers - spare) // vectors - machine.parts
        fitting = min(fitting, MAX_PIXELS, MAX_SUMS // vectors)
        for pixels in range(1, max(fitting, 1 if vectors == 1 else 0) + 1):
            if pixels > max(problem.pixels, 1):
                break
            for line in _lines(problem, pixels):
                if pixels > line or (
                    _scatters(problem, pixels, line) and pixels > machine.pointer_registers
                ):
                    continue
                yield estimate(problem, machine, pixels, vectors, line)


@cache
def _packed_vectors(problem: Problem, machine: Machine) -> int:
    """The vectors of a packed block that are best for the usual number of pixels; 0 where each number has its own."""
    if problem.usual_pixels in (0, problem.pixels):
        return 0
    return cheapest(_usual(problem), machine).vectors


def _usual(problem: Problem) -> Problem:
    """The problem with the number of pixels that weights are laid out for."""
    return replace(problem, height=1, width=problem.usual_pixels, usual_pixels=0)


def estimate(problem: Problem, machine: Machine, pixels: int, vectors: int, line: int) -> Candidate:
    """Any tile along lines of so many pixels, whether or not it fits the machine."""
    cycles = _cost(problem, machine, pixels, vectors, line)
    return Candidate(pixels, vectors, line, machine.lanes, cycles)


def _lines(problem: Problem, pixels: int) -> tuple[int, ...]:
    """The lengths of line to consider."""
    if problem.height == 1:
        return (pixels,)
    return tuple(dict.fromkeys((problem.width, pixels)))


def _scatters(problem: Problem, pixels: int, line: int) -> bool:
    """Whether there may be scattered tiles."""
    return any(problem.border) or (problem.height > 1 and line != problem.width)


@dataclass(frozen=True, slots=True)
class _Part:
    """Equal tiles: the pixels of one, how many there are, and whether they are scattered."""

    pixels: int
    count: int
    scattered: bool


def _parts(problem: Problem, pixels: int, line: int) -> list[_Part]:
    """The tiles along all lines, for one block of channels."""
    if problem.height > 1 and line != problem.width:
        whole, rest = divmod(problem.pixels, pixels)
        return [
            part
            for part in (_Part(pixels, whole, True), _Part(rest, 1, True))
            if part.pixels and part.count
        ]
    length = problem.width if problem.height > 1 or any(problem.border) else problem.pixels
    lines = problem.pixels // max(length, 1)
    whole, rest = divmod(length, pixels)
    left, right = problem.border
    first_inside = ceil_div(left, pixels)
    last_inside = max((length - right) // pixels, 0)
    inside = max(min(last_inside, whole) - first_inside, 0)
    parts = [
        _Part(pixels, inside * lines, False),
        _Part(pixels, (whole - inside) * lines, True),
        _Part(rest, lines, bool(left and not whole) or right > 0),
    ]
    return [part for part in parts if part.pixels and part.count]


def _cost(problem: Problem, machine: Machine, pixels: int, vectors: int, line: int) -> float:
    """Modelled cycles for one image."""
    block = vectors * machine.lanes
    parts = _parts(problem, pixels, line)
    blocks = _sizes(problem.channels, block)
    cycles = 0.0
    for part in parts:
        for channels, count in blocks:
            tile = _tile_cycles(problem, machine, part, ceil_div(channels, machine.lanes), block)
            cycles += part.count * count * tile
    variants = len(parts) * len(blocks)
    cycles *= 1 + _PRICE_OF_A_VARIANT * (variants - 1)
    if machine.is_half:
        cycles *= 1 + _PRICE_OF_HALVES
        cycles += problem.weight_bytes(machine) * problem.channels / machine.third_rate
    return cycles


def _tile_cycles(
    problem: Problem, machine: Machine, part: _Part, vectors: int, block: int
) -> float:
    """Modelled cycles for one tile of `vectors`, fewer than `block` channels at the edge.

    The weights of a step lie `Decision.packed` vectors apart: `block`, the channels of a whole tile, may take several
    packed blocks.
    """
    pixels = part.pixels
    step = max(step_limits(problem, machine, pixels, vectors, block).values())
    pixel_bytes = problem.pixel_step * machine.element_bytes
    crowded = max(_lines_in_one_set(pixels, pixel_bytes) - _LINES_IN_A_SET, 0)
    step *= 1 + _PRICE_OF_A_LINE * crowded
    stores = max(pixels * vectors - machine.hidden_stores, 0)
    cycles = problem.steps(machine) * step + machine.store_cycles * stores + machine.tile_overhead
    if vectors * machine.lanes * machine.element_bytes % _LINE_BYTES:
        cycles += machine.part_of_line * pixels
    if part.scattered:
        cycles += problem.taps * (_CYCLES_PER_TAP + _CYCLES_PER_POINTER * pixels) + 2 * pixels
    return cycles


def step_limits(
    problem: Problem, machine: Machine, pixels: int, vectors: int, block: int
) -> dict[str, float]:
    """The cycles that a step takes for each thing there may be too little of, in words; the largest decides.

    The weights of a whole tile, `block` channels, are what the caches hold from one tile of pixels to the next.
    """
    work = pixels * vectors * machine.parts * (1 if machine.fused else 2)
    loads = pixels + vectors
    if machine.parts > 1:
        work += loads * machine.parts
    limits = {
        "multiplications": work / machine.multiplies,
        "loads": loads / machine.loads,
        "instructions": (work + loads + _COUNTING) / machine.issue,
        "latency": machine.latency,
    }
    weights, channel = vectors * machine.lanes * machine.lane_bytes, problem.weight_bytes(machine)
    if problem.pixels > pixels:
        limits["weights"] = _weight_cycles(machine, weights, channel * block)
    elif channel * problem.channels > machine.second_cache:  # read once, and from memory
        streams = block // machine.lanes // (_packed_vectors(problem, machine) or vectors)
        price = 1 + _PRICE_OF_A_STREAM * (max(streams, 1) - 1)
        limits["weights"] = price * weights / machine.third_rate
    return limits


def _weight_cycles(machine: Machine, weights: int, block: int) -> float:
    """Cycles to fetch so many bytes of weights out of a block of so many bytes."""
    if block <= machine.first_cache:
        return 0.0
    return weights / (machine.second_rate if block <= machine.second_cache else machine.third_rate)


def _lines_in_one_set(pixels: int, pixel_bytes: int) -> int:
    """How many pixels of a tile lie in the same set of the first-level cache."""
    if not pixel_bytes:
        return 1
    period = _CACHE_SET_PERIOD // gcd(pixel_bytes, _CACHE_SET_PERIOD)
    return ceil_div(pixels, period)


def _slab(problem: Problem, machine: Machine, tile: Candidate) -> int:
    """Lines of a slab.

    Each slab passes over all weights, each block of channels over its slab's input; what does not stay in cache is
    fetched again, and we take the order that fetches less. All input stays where it fits beside the weights of a block.
    Weights that stay in cache cost nothing to pass over: then there are slabs enough for threads to share.
    """
    lines = max(ceil_div(problem.pixels, tile.line), 1)
    window = problem.taps * problem.depth
    data = problem.pixels * min(problem.pixel_step, window) * machine.element_bytes
    channel = problem.weight_bytes(machine)
    weights = channel * problem.channels
    slabs = data // machine.slab_bytes + 1
    block = tile.vectors * machine.lanes
    blocks = max(ceil_div(problem.channels, block), 1)
    if weights <= machine.slab_bytes:
        units = ceil_div(_UNITS, blocks * max(problem.images, 1))
        pixels = max(
            _PIXELS_PER_UNIT, ceil_div(_WORK_PER_UNIT, max(problem.steps(machine) * block, 1))
        )
        slabs = max(slabs, min(units, problem.pixels // pixels))
        return max(ceil_div(lines, slabs), 1)
    stays = data + channel * block <= machine.second_cache
    whole = weights + (data if stays else blocks * data)
    sliced = data + slabs * weights
    return max(ceil_div(lines, slabs), 1) if sliced < whole else lines


def fetched_ahead(problem: Problem, machine: Machine, decision: Decision, result: Type) -> Dim:
    """`Decision.fetch` for as many output pixels as a run has, where every pixel is by itself.

    The problem has the likely number, for which the rest is decided. Every slab passes over all weights, and fetches a
    block while it computes the one before.
    """
    joined = problem.pixels == prod(result.likely[:-1])
    pixels = product(result.shape[:-1]) if joined else result.shape[-2]
    alone = problem.height == problem.taps == 1 and not any(problem.border)
    weights = problem.weight_bytes(machine) * problem.channels
    fetches = machine.prefetch_bytes and weights > machine.slab_bytes
    if isinstance(pixels, int) or not alone or not fetches:
        return decision.fetch
    tiles = greatest(ceil_div(pixels, decision.pixels), 1)
    block = decision.vectors * decision.lanes * machine.dot
    most = machine.prefetch_bytes // machine.element_bytes
    of_a_slab = least(tiles, decision.slab)
    return greatest(least(ceil_div(block, of_a_slab), most) * least(tiles - 1, 1), 0)


def _fetch(problem: Problem, machine: Machine, tile: Candidate, slab: int) -> int:
    """Elements to fetch ahead at each step.

    The weights of a cold network come from memory: fetching a block is spread over the tiles of the block before it.
    Where there is one tile, it goes ahead of what is read.
    """
    block = tile.vectors * machine.lanes * machine.dot
    lines = max(ceil_div(problem.pixels, tile.line), 1)
    tiles = lines * ceil_div(tile.line, tile.pixels)
    weights = problem.weight_bytes(machine) * problem.channels
    if not machine.prefetch_bytes or slab < lines or weights <= machine.slab_bytes:
        return 0
    if tiles < 2:
        return block if weights > machine.second_cache else 0
    return min(ceil_div(block, tiles), machine.prefetch_bytes // machine.element_bytes)


def _sizes(extent: int, step: int) -> list[tuple[int, int]]:
    """The sizes that `extent` is cut into by `step`, each with how often it occurs."""
    whole, rest = divmod(extent, step)
    return [part for part in ((step, whole), (rest, 1)) if part[0] and part[1]]
