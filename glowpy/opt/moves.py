"""Buffers that become part of other memory, where their elements may have gaps, and what that makes of their views.

A buffer is a row-major tensor of some shape, its *frame*. Where it moves, neighbours along two of its dimensions may no
longer be one loop: an image keeps rows of pixels in one loop when its channels become some channels of another image,
but not pixels and channels. So what touches the buffer needs some *pairs* of dimensions to stay one loop: all of them,
and no gaps along the last one, if it takes no strides; the last one's neighbours together, if it takes rows; those that
lie in one of its own dimensions, if it looks at the buffer in another shape. What has moved into a buffer by then moves
with it, and has its needs still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from glowpy.core.schema import Layout
from glowpy.core.strides import are_distinct, embedded, merged_loops, span_of, strides_of
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import ExtractTensorInst, InsertTensorInst, TransposeInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.ir.value import Value
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import Dim, UndecidedError, highest, is_at_most
from glowpy.support.text import Attr

__all__ = ["Move", "Moves", "Takes", "place", "read_in_place", "takes_fast"]

Takes = Callable[[Layout, Shape, Shape], bool]
"""Whether an operand of this layout and shape may get these strides."""


_SHORTEST_ROW = 8
"""Loops over fewer neighbours cost as much as the copy they save, for everybody who reads them."""


def _takes(layout: Layout, shape: Shape, strides: Shape) -> bool:
    del shape
    return layout.takes(strides)


def takes_fast(layout: Layout, shape: Shape, strides: Shape) -> bool:
    """Whether loops over an operand with these strides are about as fast as without gaps."""
    if not layout.takes(strides):
        return False
    if layout is Layout.ROWS:  # each row is one loop, but few rows make no tile
        return len(shape) < 2 or highest(shape[-2]) >= _SHORTEST_ROW
    size, step = merged_loops(shape, strides)[-1]
    return layout is Layout.TRANSPOSED or (step == 1 and highest(size) >= _SHORTEST_ROW)


Pair = tuple[int, int]
"""Two dimensions of a frame, with none but dimensions of 1 between them; or the last one, and what would follow it."""


@dataclass(frozen=True, slots=True)
class Move:
    """A view that may stand for a buffer, the frame and its strides there, and what that needs."""

    view: ViewInst
    frame: Shape
    strides: Shape
    needs: frozenset[Pair]


class Moves:
    """The buffers that a pass has moved, as views that stand for them. The views of these are wrong until `settle`."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._frames: dict[Value, tuple[Shape, Shape]] = {}
        """The frame and its strides, in elements of what the moved buffer is a view of."""
        self._inherited: dict[Value, set[Pair]] = {}
        """Pairs that buffers moved into another one require of that buffer."""

    def possible(
        self,
        buffer: Value,
        mover: Instruction,
        frame: Shape,
        source: Value,
        at: Dim,
        strides: Shape,
        takes: Takes = _takes,
    ) -> Move | None:
        """The view of `source` from element `at` on that could stand for `buffer`; None if a user of that forbids it.

        `mover` is the instruction that is not needed any more.
        """
        try:
            needs = self._needs(buffer, mover, frame, takes)
            if not all(_is_one_loop(frame, strides, pair) for pair in needs):
                return None
            steps = _embedded(frame, strides, 0, buffer.type.shape, ())[1]
        except UndecidedError:
            return None
        shape, kind = buffer.type.shape, buffer.type.kind
        inside = is_at_most(0, at) and is_at_most(
            at + span_of(shape, steps), source.span // kind.size
        )
        if not inside or (steps and not are_distinct(shape, steps)):
            return None  # nobody knows, with extents that are open
        attrs: dict[str, Attr] = {"offset": at, "strides": steps}
        view = ViewInst((source,), attrs, name=buffer.name, type=buffer.type, loc=mover.loc)
        return Move(view, frame, strides, frozenset(needs))

    def enter(self, move: Move) -> ViewInst:
        """Notes that the view of `move`, which is returned, stands for a buffer from now on."""
        self._frames[move.view.value] = (move.frame, move.strides)
        self._inherited.setdefault(move.view.source, set()).update(move.needs)
        return move.view

    def outermost(self, value: Value) -> Value:
        """The outermost moved buffer that `value` is part of, whose place is right; `value` itself if there is none."""
        outer, above = value, value
        while (source := above.source) is not None:
            if above in self._frames:
                outer = above
            above = source
        return outer

    def _needs(self, buffer: Value, mover: Instruction, frame: Shape, takes: Takes) -> set[Pair]:
        wide = [axis for axis, size in enumerate(frame) if size != 1]
        pairs = [] if 0 in frame else list(pairwise((*wide, len(frame))))
        inherited = self._inherited.get(buffer, set())
        if inherited and frame != buffer.type.shape:
            return set(pairs)
        needs = set(inherited)
        for value, layouts in self._users(buffer, mover):
            if len(needs) == len(pairs):
                break
            steps = () if value.is_contiguous else value.strides
            shape = value.type.shape
            at = value.byte_offset // value.type.kind.size
            for pair in pairs:
                moved = embedded(frame, _parted(frame, pair), at, shape, steps)
                if moved is None or (
                    moved[1] and not all(takes(layout, shape, moved[1]) for layout in layouts)
                ):
                    needs.add(pair)
        return needs

    def _users(self, buffer: Value, mover: Instruction) -> Iterator[tuple[Value, set[Layout]]]:
        """The buffer, its views, theirs, and so on, and which gaps those that use one of these allow."""
        values = [buffer]
        while values:
            value = values.pop()
            layouts = set()
            for inst in self._events.users(value):
                if isinstance(inst, ViewInst):
                    if inst.value not in self._frames:
                        values.append(inst.value)
                elif inst is not mover:
                    layouts |= {ref.layout for ref in inst.operands if ref.value is value}
                    if inst.predicate is value:
                        layouts.add(Layout.DENSE)
            yield value, layouts

    def settle(self, program: Sequence[Instruction]) -> None:
        """Gives every view of a moved buffer, or of a view of it, its offset and strides.

        What a moved buffer is a view of stands before it in the program. Linear time.
        """
        roots = [
            inst.value
            for inst in program
            if isinstance(inst, ViewInst) and inst.value in self._frames
        ]
        places: dict[Value, tuple[Dim, Shape]] = {}
        for root in roots:
            self._settle(root, places)
        for value, (offset, strides) in places.items():
            value.relocate(offset, strides)
        self._frames.clear()

    def _settle(self, root: Value, places: dict[Value, tuple[Dim, Shape]]) -> None:
        frame, strides = self._frames[root]
        values: list[tuple[Value, Dim, Dim]] = [(root, 0, 0)]
        while values:
            source, start, moved_start = values.pop()
            for inst in self._events.users(source):
                if not isinstance(inst, ViewInst):
                    continue
                value, at = inst.value, start + inst.offset
                if value.type.is_empty:  # it has no place, and so have its views
                    places[value] = 0, ()
                    values.append((value, start, moved_start))
                    continue
                moved, own = _embedded(frame, strides, at, value.type.shape, inst.strides)
                places[value] = moved - moved_start, own
                if value not in self._frames:
                    values.append((value, at, moved))
                    continue
                shape, steps = self._frames[value]
                steps = _embedded(frame, strides, at, shape, steps)[1]
                self._frames[value] = shape, steps or strides_of(shape)


def _is_one_loop(frame: Shape, strides: Shape, pair: Pair) -> bool:
    outer, inner = pair
    return strides[outer] == (frame[inner] * strides[inner] if inner < len(frame) else 1)


def _parted(frame: Shape, pair: Pair) -> Shape:
    """Strides with which all dimensions are one loop without gaps, but for those of `pair`."""
    return tuple(
        stride * (2 if axis <= pair[0] else 1) for axis, stride in enumerate(strides_of(frame))
    )


def _embedded(
    frame: Shape, frame_strides: Shape, offset: Dim, shape: Shape, strides: Shape
) -> tuple[Dim, Shape]:
    moved = embedded(frame, frame_strides, offset, shape, strides)
    if moved is None:
        raise InternalError(f"elements of {frame} cannot be moved to strides {frame_strides}")
    return moved


def read_in_place(
    f: IRFunction,
    events: Events,
    index: int,
    inst: ExtractTensorInst | TransposeInst,
    at: Dim,
    strides: Shape,
    takes: Takes = _takes,
) -> bool:
    """Makes the result of `inst` a view of its input, from element `at` on, if nothing is in the way."""
    if not _stays(events, index, inst):
        return False
    moves = Moves(events)
    move = moves.possible(inst.result, inst, inst.result.type.shape, inst.input, at, strides, takes)
    if move is None:
        return False
    view = moves.enter(move)
    events.forget(index, inst)
    f.names.release(inst.result.name)
    view.value.name = f.fresh_name(inst.result.name)
    events.append(index, view)
    events.merge(inst.result, view.value)
    moves.settle([view])
    return True


def _stays(events: Events, index: int, inst: ExtractTensorInst | TransposeInst) -> bool:
    """Whether only this instruction writes the result, and the input stays until that dies."""
    result = inst.result
    if result not in events.alloc or events.used_before(result, index):
        return False
    if events.is_written_elsewhere(result, index):
        return False
    last = events.last(result)
    return not any(event.writes for event in events.within(inst.input, index + 1, last + 1))


def place(
    f: IRFunction,
    events: Events,
    index: int,
    inst: InsertTensorInst | TransposeInst,
    view: ViewInst,
) -> None:
    """Makes the buffer of the input of `inst` the view of the result, which must be allocated by then."""
    result, buffer = inst.result, inst.input.base
    events.forget(index, inst)
    slot = events.alloc[buffer]
    if result in events.alloc and events.alloc[result] > slot:
        events.hoist(result, slot)
    f.names.release(buffer.name)
    view.value.name = f.fresh_name(buffer.name)
    events.stand_in(buffer, view)
    events.merge(buffer, view.value)
