"""Epilogues: what finishes a product, as the function that its kernel calls for each tile of sums.

Where little is to be done, a tile and its epilogue are one function as well: a *finished* tile, whose sums never leave
the registers. It finds all that tells one layer from another in memory, so that many layers share it.

The ABI is in libjit/README.md. See docs/adr/0016-tiles-and-epilogues.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glowpy.backends.cpu.strategy.work import TileFunction, Work
from glowpy.backends.cpu.tiles import TILED_WORK, call_tile
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AddInst, ConvertInst, MaxInst, MinInst, MulInst, SubInst
from glowpy.ir.run import Run
from glowpy.ir.value import Value
from glowpy.llvm.element_types import memory_type
from glowpy.llvm.stack import StackContext, element_steps, emit_members, linear, merged_axes
from glowpy.llvm.writer import Body
from glowpy.support.symbolic import Dim, ceil_div, highest

__all__ = ["emit_epilogue"]

_SIMPLE = AddInst | SubInst | MulInst | MaxInst | MinInst
"""Instructions that need hardly a register."""

_NEAR_BYTES = 1 << 18
"""The size above which little of a memory is found in the first two caches."""

_LINE_BYTES = 64
"""The number of bytes that one prefetch fetches."""


def _is_simple(inst: Instruction, head: Instruction) -> bool:
    """Whether an instruction needs hardly a register. After a product in bf16, one rounds to bf16."""
    rounds = isinstance(inst, ConvertInst) and inst.result.type.kind is ElemKind.BF16
    return isinstance(inst, _SIMPLE) or (
        rounds and head.operands[1].value.type.kind is ElemKind.BF16
    )


def emit_epilogue(
    run: Run,
    context: StackContext,
    caller: Body,
    work: Work,
) -> tuple[str, str, str]:
    """The epilogue of a run whose head is a product: (function, finished tile or nothing, environment for both).

    The function runs the members after the head on a tile of sums, which it is handed, and stores what is needed of
    them, and of the sums. What calls tiles is shared by many layers, and so is this: where rows lie at equal distances,
    these are in the environment.
    """
    head, module = run.head, caller.module
    values = [head.operands[0].value, *(r.value for inst in run.following for r in inst.operands)]
    chain = _Chain(run, context, {value: element_steps(value, run.shape) for value in values})
    row_steps = chain.row_steps if any(work.tiles) else None
    distances = _distances(row_steps)
    numbers = [f"{module.dim} %{name}" for name in ("ld", "row", "col", "rows", "cols")]
    parameters = ["ptr noalias %tile", *numbers]
    parameters += [f"{module.dim} {name}" for name in distances.values()]
    body = Body(module, f"{caller.name}_tile", caller.lines, parameters, caller.symbols)
    _write_loops(body, chain, work, row_steps, distances)
    finish = module.function(body, inline=True)

    environment = _Environment(caller)
    function = Body(
        module, f"{caller.name}_epilogue", caller.lines, ["ptr %env", "ptr %tile", *numbers]
    )
    function.at(head)
    arguments = [*environment.pointers(function, body.memories), "ptr %tile", *numbers]
    arguments += environment.numbers(function, tuple(distances))
    function.line(f"call void @{finish}({', '.join(arguments)})")
    finished = ""
    if work.finished is not None:
        finished = _finished_tile(chain, work.finished, work.block, environment)
    # A walk that calls tiles is shared by many products; any other kernel is made for one, with its epilogue inside.
    inline = module.has_debug_info or not work.tiles
    return f"@{module.function(function, inline=inline)}", finished, environment.write()


def _write_loops(
    body: Body,
    chain: _Chain,
    work: Work,
    row_steps: Mapping[Value, Dim] | None,
    distances: Mapping[Dim, str],
) -> None:
    """The loops over the elements of a tile of sums.

    There is one of its own for tiles of `work.block` columns, which most have: LLVM makes whole vectors of it. A row of
    a tile lies in one row of the result, whose last dimension is a row.
    """
    head, dim, block, steps = chain.run.head, body.module.dim, work.block, chain.steps
    body.at(head)
    result = head.operands[0].value

    def loops(columns: int | str, ld: str) -> None:
        with body.loop("%rows") as row:
            at = body.let(f"mul nuw nsw {dim} {row}, {ld}")
            number = body.let(f"add nuw nsw {dim} %row, {row}")
            starts = (
                _row_starts(body, number, chain.run.shape, steps)
                if row_steps is None
                else _equal_starts(body, number, row_steps, distances)
            )
            with body.loop(columns, unroll=False) as col:
                place = body.let(f"add nuw nsw {dim} {at}, {col}")
                column = body.let(f"add nuw nsw {dim} %col, {col}")

                def index(value: Value) -> str:
                    inner = linear(body, [column], steps[value][-1:])
                    return body.let(f"add nuw nsw {dim} {starts[value]}, {inner}")

                total = body.load(result.type.kind, "%tile", place)
                following, context = chain.run.following, chain.context
                emit_members(body, following, context, index, body.pointer, (head, total))

    if not work.only_blocks and highest(result.type.shape[-1]) >= block:
        with body.returning_if(body.let(f"icmp eq {dim} %cols, {block}")):
            loops(block, str(block))
    loops(*((block, str(block)) if work.only_blocks else ("%cols", "%ld")))


def _distances(row_steps: Mapping[Value, Dim] | None) -> dict[Dim, str]:
    """The names of the parameters for all distances between rows, but 0."""
    distinct = dict.fromkeys(() if row_steps is None else row_steps.values())
    return {step: f"%s{index}" for index, step in enumerate(s for s in distinct if s != 0)}


class _Environment:
    """Environment that the caller hands to a kernel's epilogue: pointers to memory, and numbers of the same size."""

    def __init__(self, caller: Body) -> None:
        self.caller = caller
        self._items: list[str] = []

    def pointers(self, function: Body, values: Sequence[Value]) -> list[str]:
        """The memories of values, as arguments that `function` loads."""
        items = [f"ptr {self.caller.pointer(value)}" for value in values]
        return [self._load(function, item) for item in items]

    def numbers(self, function: Body, dims: Sequence[Dim]) -> list[str]:
        """Dimensions, as arguments that `function` loads."""
        dim = self.caller.module.dim
        return [self._load(function, f"{dim} {self.caller.number(number)}") for number in dims]

    def _load(self, function: Body, item: str) -> str:
        if item not in self._items:
            self._items.append(item)
        type = item.split(" ", 1)[0]
        slot = self._slot(function, "%env", self._items.index(item))
        return f"{type} {function.let(f'load {type}, ptr {slot}')}"

    def write(self) -> str:
        """Stores all that functions load; returns the pointer to it."""
        environment = self.caller.alloca(f"[{max(len(self._items), 1)} x ptr]")
        for index, item in enumerate(self._items):
            self.caller.line(f"store {item}, ptr {self._slot(self.caller, environment, index)}")
        return environment

    def _slot(self, body: Body, environment: str, slot: int) -> str:
        return body.let(f"getelementptr inbounds ptr, ptr {environment}, {body.module.dim} {slot}")


@dataclass(frozen=True)
class _Chain:
    """A product and what follows it.

    Attributes:
        run: Both.
        context: Facts about the whole program.
        steps: How far apart neighbours lie in every value: see `element_steps`.
    """

    run: Run
    context: StackContext
    steps: Mapping[Value, Shape]

    @property
    def row_steps(self) -> dict[Value, Dim] | None:
        """How far apart rows lie; None where they are not at equal distances."""
        outer = {value: step[:-1] for value, step in self.steps.items()}
        axes, _ = merged_axes(self.run.shape[:-1], tuple(outer.values()))
        if len(axes) > 1:
            return None
        return {value: step[axes[0]] if axes else 0 for value, step in outer.items()}

    @property
    def written(self) -> tuple[Value, list[Value]]:
        """The widest value that is stored, whose rows are fetched while the tile computes, and narrower ones."""
        result = self.run.result
        stored = [result] + [
            inst.operands[0].value for inst in self.run.members if self.context.needed(inst)
        ]
        widest = max(stored, key=lambda value: value.type.kind.size)
        narrow = [v for v in dict.fromkeys(stored) if v.type.kind.size < widest.type.kind.size]
        return widest, narrow

    @property
    def far(self) -> list[Value]:
        """Values that come from memory, each element once, and are not likely to be in a near cache."""
        places = {inst.operands[0].value.place for inst in self.run.members}
        read = [ref.value for inst in self.run.following for ref in inst.operands[1:]]
        return [
            value
            for value in dict.fromkeys(read)
            if value.place not in places
            and value.type.count == self.run.head.operands[0].value.type.count
            and highest(value.type.size) > _NEAR_BYTES
        ]


def _finished_tile(
    chain: _Chain, tile: TileFunction, columns: int, environment: _Environment
) -> str:
    """The name of a `finished_t`; empty where its members need registers, or rows lie at odd distances."""
    caller, row_steps = environment.caller, chain.row_steps
    if row_steps is None or not all(
        _is_simple(inst, chain.run.head) for inst in chain.run.following
    ):
        return ""
    head, module, dim = chain.run.head, caller.module, caller.module.dim
    steps = _distances(row_steps)
    finish = _finish(chain, tile.pixels, columns, steps, row_steps, caller)
    pointers = ["%start", "%input", "%weights", "%reach"]
    places = [f"{dim} %row", f"{dim} %col"]
    name = f"{caller.name.partition('.')[0]}.finished_{tile.pixels}x{tile.vectors}{'_half' * tile.halves}"
    parameters = ["ptr %env", *(f"ptr {pointer}" for pointer in pointers), *places]
    body = Body(module, name, caller.lines, parameters)
    body.at(head)
    kind = head.operands[0].value.type.kind
    type = f"[{tile.pixels * columns} x {memory_type(kind)}]"
    sums = body.alloca(f"{type}, align {module.vector_bytes}")
    lines = _Lines(body, environment, columns)
    written, rounded = chain.written
    read = None
    for value in rounded:
        lines.fetch(value, row_steps[value], tile.pixels, writes=True)
    for value in chain.far:
        if read is None and _alike(value, written, row_steps):
            read = value
        else:
            lines.fetch(value, row_steps[value], tile.pixels)
    arguments = [f"ptr {pointer}" for pointer in (sums, *pointers)]
    arguments += lines.arguments(written, read, row_steps[written])
    call_tile(body, tile, head.operands[1].value.type.kind, arguments, "fetching")
    arguments = [*environment.pointers(body, finish.memories), f"ptr {sums}", *places]
    arguments += environment.numbers(body, tuple(steps))
    body.line(f"call void @{module.function(finish, inline=True)}({', '.join(arguments)})")
    return module.function(body, inline=module.has_debug_info, work=TILED_WORK)


def _finish(
    chain: _Chain,
    pixels: int,
    columns: int,
    names: Mapping[Dim, str],
    row_steps: Mapping[Value, Dim],
    caller: Body,
) -> Body:
    """A function that finishes a tile of constant size. It is handed the distances of rows, `names`, after the place.

    There is a loop for each row, so that every place in the tile is a constant: then LLVM needs no memory for it.
    """
    module, dim, head = caller.module, caller.module.dim, chain.run.head
    numbers = [f"{dim} {name}" for name in ("%row", "%col", *names.values())]
    body = Body(module, f"{caller.name}_finish", caller.lines, ["ptr noalias %tile", *numbers])
    body.at(head)
    kind = head.operands[0].value.type.kind
    for row in range(pixels):
        number = body.let(f"add nuw nsw {dim} %row, {row}")
        starts = _equal_starts(body, number, row_steps, names)
        with body.loop(columns, unroll=False, wholly=True) as col:
            column = body.let(f"add nuw nsw {dim} %col, {col}")

            def index(value: Value, starts: dict[Value, str] = starts, column: str = column) -> str:
                inner = linear(body, [column], chain.steps[value][-1:])
                return body.let(f"add nuw nsw {dim} {starts[value]}, {inner}")

            place = body.let(f"add nuw nsw {dim} {col}, {row * columns}")
            total = body.load(kind, "%tile", place)
            emit_members(
                body, chain.run.following, chain.context, index, body.pointer, (head, total)
            )
    return body


def _alike(value: Value, other: Value, row_steps: Mapping[Value, Dim]) -> bool:
    """Whether rows of both are as far apart, and elements as large."""
    return row_steps[value] == row_steps[other] and value.type.kind.size == other.type.kind.size


@dataclass(frozen=True)
class _Lines:
    """Lines of memory that a finished tile of some columns fetches: its stores wait for them otherwise."""

    body: Body
    environment: _Environment
    columns: int

    def fetch(self, value: Value, step: Dim, pixels: int, *, writes: bool = False) -> None:
        """Fetches what a tile's members read of a value, or write, all at once."""
        body, size = self.body, value.type.kind.size
        body.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        (distance,) = (item.split()[1] for item in self.environment.numbers(body, [step]))
        for row in range(pixels):
            number = body.let(f"add nuw nsw {body.module.dim} %row, {row}")
            for column in range(0, self.columns, _LINE_BYTES // size):
                address = self._address(value, number, distance, column)
                body.line(
                    f"call void @llvm.prefetch.p0(ptr {address}, i32 {writes:d}, i32 3, i32 1)"
                )

    def arguments(self, written: Value, read: Value | None, step: Dim) -> list[str]:
        """Returns the arguments of `libjit_tile_fetching` for a tile of `written`, and of `read` in the same way."""
        body, dim, size = self.body, self.body.module.dim, written.type.kind.size
        (distance,) = (item.split()[1] for item in self.environment.numbers(body, [step]))
        ends = [
            self._address(value, "%row", distance, 0) if value else "null"
            for value in (written, read)
        ]
        bytes = body.let(f"mul nuw nsw {dim} {distance}, {size}")
        lines = ceil_div(self.columns * size, _LINE_BYTES)
        reads = f"i1 {str(read is not None).lower()}"
        return [*(f"ptr {end}" for end in ends), f"{dim} {bytes}", f"{dim} {lines}", reads]

    def _address(self, value: Value, row: str, distance: str, column: int) -> str:
        body, dim = self.body, self.body.module.dim
        (pointer,) = (item.split()[1] for item in self.environment.pointers(body, [value]))
        start = body.let(f"mul nuw nsw {dim} {row}, {distance}")
        first = body.let(f"add nuw nsw {dim} {start}, %col")
        place = body.let(f"add nuw nsw {dim} {first}, {column}")
        type = memory_type(value.type.kind)
        return body.let(f"getelementptr {type}, ptr {pointer}, {dim} {place}")


def _equal_starts(
    body: Body, row: str, row_steps: Mapping[Value, Dim], distances: Mapping[Dim, str]
) -> dict[Value, str]:
    """Returns the address in every value of row number `row`, where rows lie at equal distances of these names."""
    dim = body.module.dim
    starts = {s: body.let(f"mul nuw nsw {dim} {row}, {name}") for s, name in distances.items()}
    return {value: starts.get(step, "0") for value, step in row_steps.items()}


def _row_starts(
    body: Body, row: str, shape: Shape, steps: Mapping[Value, Shape]
) -> dict[Value, str]:
    """Returns the address in every value of row number `row` of `shape`."""
    dim, outer = body.module.dim, shape[:-1]
    axes, counts = merged_axes(outer, [step[:-1] for step in steps.values()])
    indices: list[str] = []
    for count in reversed(counts[1:]):
        number = body.number(count)
        indices.insert(0, body.let(f"urem {dim} {row}, {number}"))
        row = body.let(f"udiv {dim} {row}, {number}")
    indices.insert(0, row)
    return {
        value: linear(body, indices, [step[axis] for axis in axes] or [0])
        for value, step in steps.items()
    }
