"""The memory plan: right, small, and checked by code that catches damage."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.ir.insts_gen import CopyInst, ExpInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import ALIGNMENT, MemoryPlan, Slot, parse_plan, print_plan
from glowpy.ir.runs import form_runs
from glowpy.ir.value import Mutability, Value
from glowpy.memory import plan
from glowpy.memory_check import _Place, _share_bytes, check
from glowpy.support.errors import VerifyError
from tests.unit.frontends.programs import RandomProgram, outcome

Interval = tuple[int, int, int]
"""Start, length, bytes."""

intervals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 5000)), max_size=25
)

alike = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12), st.sampled_from((0, 64, 100, 192))),
    min_size=10,
    max_size=25,
)
"""Few sizes, so that gaps are filled exactly."""


def program(buffers: list[Interval]) -> IRFunction:
    """A program whose buffers live as the intervals say."""
    f = IRFunction("main")
    x = f.create_weight("x", Type(ElemKind.I8, (1,)), Mutability.MUTABLE)
    starts: dict[int, list[Interval]] = {}
    for interval in buffers:
        starts.setdefault(interval[0], []).append(interval)
    ends: dict[int, list[Value]] = {}
    for step in range(45):
        for _, length, size in starts.get(step, []):
            value = f.create_alloc("b", Type(ElemKind.I8, (size,))).value
            f.create_splat(value, 0.0)
            ends.setdefault(step + length, []).append(value)
        f.create_neg(x, x)
        for value in ends.get(step, []):
            f.create_dealloc(value)
    return f


@settings(max_examples=60, deadline=None)
@given(intervals)
def test_plans_are_right_and_not_much_larger_than_they_must_be(buffers: list[Interval]) -> None:
    f = program(buffers)
    layout = plan(f)
    check(f, layout)
    rounded = [(s, n, -(-size // ALIGNMENT) * ALIGNMENT) for s, n, size in buffers]
    exact, bound = (
        max(sum(size for s, n, size in sizes if s <= at <= s + n) for at in range(45))
        for sizes in (buffers, rounded)
    )
    assert layout.lower_bound == exact
    assert bound <= layout.peak
    assert layout.peak <= sum(size for _, _, size in rounded)
    assert layout.peak <= 2 * bound
    assert print_plan(parse_plan(print_plan(layout))) == print_plan(layout)
    assert print_plan(plan(program(buffers))) == print_plan(layout)


Life = tuple[int, int, int, int]
"""Number, bytes, start, end."""


def _first_fit(lives: list[Life]) -> tuple[int, int]:
    """The size that placing these in order comes to, by trying every offset, and the number of the highest."""
    placed: list[tuple[int, int, int, int, int]] = []
    for number, size, start, end in lives:
        offset = 0
        while any(
            s <= end and start <= e and offset < top and bottom < offset + size
            for bottom, s, e, top, _ in placed
        ):
            offset += ALIGNMENT
        placed.append((offset, start, end, offset + size, number))
    highest = max(sorted(placed, key=lambda p: p[:3]), key=lambda p: p[3])
    return -(-highest[3] // ALIGNMENT) * ALIGNMENT, highest[4]


def _improved(lives: list[Life]) -> int:
    """The smallest size while the highest goes first, 32 times."""
    sizes = []
    for _ in range(33):
        size, highest = _first_fit(lives)
        sizes.append(size)
        lives = sorted(lives, key=lambda life: life[0] != highest)
    return min(sizes)


@settings(max_examples=30, deadline=None)
@given(alike)
def test_a_plan_is_the_best_of_first_fit_in_four_orders_and_their_improvements(
    buffers: list[Interval],
) -> None:
    layout = plan(program(buffers))
    slots = sorted((s for s in layout.activations.slots if s.live), key=lambda s: s.live or ())
    lives = [(i, s.size, *(s.live or (0, 0))) for i, s in enumerate(slots)]
    orders = (
        sorted(lives, key=lambda b: -b[1]),
        sorted(lives, key=lambda b: -b[1] * (b[3] - b[2])),
        sorted(lives, key=lambda b: (b[2] - b[3], -b[1])),
        lives,
    )
    assert layout.peak == min(map(_improved, orders))


def test_what_no_order_places_well_is_improved() -> None:
    """First fit in any of the four orders alone needs 704 bytes."""
    f = program([(0, 0, 320), (0, 4, 192), (1, 5, 192), (4, 1, 192)])
    layout = plan(f)
    check(f, layout)
    assert layout.peak == layout.lower_bound == 576


def _damaged(layout: MemoryPlan, index: int, slot: Slot) -> MemoryPlan:
    slots = list(layout.activations.slots)
    slots[index] = slot
    return replace(layout, activations=replace(layout.activations, slots=tuple(slots)))


def _overlap(layout: MemoryPlan) -> MemoryPlan:
    first, second = layout.activations.slots[:2]
    return _damaged(layout, 1, replace(second, start=first.start))


def _misaligned(layout: MemoryPlan) -> MemoryPlan:
    last = layout.activations.slots[-1]
    return _damaged(layout, -1, replace(last, start=last.start + 1, size=last.size - 1))


def _outside(layout: MemoryPlan) -> MemoryPlan:
    last = layout.activations.slots[-1]
    return _damaged(layout, -1, replace(last, start=layout.activations.size))


def _below(layout: MemoryPlan) -> MemoryPlan:
    first = layout.activations.slots[0]
    return _damaged(layout, 0, replace(first, start=-ALIGNMENT))


def _too_small(layout: MemoryPlan) -> MemoryPlan:
    first = layout.activations.slots[0]
    return _damaged(layout, 0, replace(first, size=first.size - 1))


def _missing(layout: MemoryPlan) -> MemoryPlan:
    return replace(layout, activations=replace(layout.activations, slots=()))


def _no_weight(layout: MemoryPlan) -> MemoryPlan:
    return replace(layout, mutable=replace(layout.mutable, slots=()))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_overlap, "are alive together"),
        (_misaligned, f"expected a multiple of {ALIGNMENT}"),
        (_outside, "outside the activations area"),
        (_below, "outside the activations area"),
        (_too_small, "has no slot of that size"),
        (_missing, "has no slot of that size"),
        (_no_weight, "weight %x of 1 bytes has no slot of that size"),
    ],
)
def test_damage_is_caught(damage: Callable[[MemoryPlan], MemoryPlan], message: str) -> None:
    f = program([(0, 5, 640), (2, 5, 640), (4, 9, 64)])
    layout = plan(f)
    check(f, layout)
    with pytest.raises(VerifyError) as caught:
        check(f, damage(layout))
    assert message in str(caught.value)


@pytest.mark.parametrize("mutability", [Mutability.MUTABLE, Mutability.CONSTANT])
def test_weights_do_not_share_memory_in_whatever_order_the_plan_has_them(
    mutability: Mutability,
) -> None:
    f = IRFunction("main")
    for name in "abc":
        f.create_weight(name, Type(ElemKind.I8, (200,)), mutability)
    layout = plan(f)
    area = "mutable" if mutability is Mutability.MUTABLE else "constant"
    a, b, c = getattr(layout, area).slots
    spread = {area: replace(getattr(layout, area), slots=(c, a, b))}
    check(f, replace(layout, **spread))
    moved = {area: replace(getattr(layout, area), slots=(a, c, replace(b, start=64)))}
    with pytest.raises(VerifyError, match="%a and %b overlap"):
        check(f, replace(layout, **moved))


@settings(max_examples=40, deadline=None)
@given(intervals.filter(lambda buffers: len(buffers) > 1), st.randoms(use_true_random=False))
def test_moving_a_buffer_onto_a_living_one_is_caught(
    buffers: list[Interval], rng: random.Random
) -> None:
    f = program(buffers)
    layout = plan(f)
    slots = [slot for slot in layout.activations.slots if slot.size and slot.live]
    pairs = [
        (a, b)
        for a in slots
        for b in slots
        if a is not b and a.live and b.live and a.live[0] <= b.live[1] and b.live[0] <= a.live[1]
    ]
    if not pairs:
        return
    moved, onto = rng.choice(pairs)
    index = layout.activations.slots.index(moved)
    with pytest.raises(VerifyError):
        check(f, _damaged(layout, index, replace(moved, start=onto.start)))


def test_every_pair_that_overlaps_is_named() -> None:
    f = program([(0, 9, 640), (1, 9, 64), (2, 9, 128), (3, 9, 64)])
    layout = plan(f)
    slots = tuple(replace(slot, start=0) for slot in layout.activations.slots)
    with pytest.raises(VerifyError) as caught:
        check(f, replace(layout, activations=replace(layout.activations, slots=slots)))
    assert str(caught.value).count("are alive together") == 6


def test_an_access_outside_a_life_is_caught() -> None:
    f = program([(0, 5, 64)])
    alloc, *rest = f.instructions
    ended = next(i for i in rest if i.SCHEMA.mnemonic == "dealloc")
    f.replace_instructions([alloc, ended, *(i for i in rest if i is not ended)])
    with pytest.raises(VerifyError, match="splat uses %b while its buffer is not alive"):
        check(f, plan(f))


def test_buffers_that_do_not_live_together_share_memory() -> None:
    layout = plan(program([(0, 0, 640), (1, 0, 640), (2, 0, 640)]))
    assert layout.peak == 640
    assert {slot.start for slot in layout.activations.slots} == {0}


@pytest.mark.parametrize(
    "buffers",
    [
        [(0, 4, 128), (5, 4, 256), (4, 3, 256), (2, 1, 320)],
        [(3, 3, 320), (1, 3, 64), (0, 2, 128), (0, 0, 256)],
        [(6, 0, 128), (5, 2, 256), (1, 3, 320), (2, 4, 128)],
        [(2, 3, 192), (6, 3, 256), (1, 1, 256), (3, 4, 192)],
    ],
    ids=["by size", "by size and length", "by length", "by start"],
)
def test_whatever_order_is_best_is_found(buffers: list[Interval]) -> None:
    """Placed first fit in any other of these orders, the buffers need more than is ever alive."""
    alive = (sum(size for s, n, size in buffers if s <= at <= s + n) for at in range(45))
    assert plan(program(buffers)).peak == max(alive)


def _views(*views: tuple[int, tuple[int, ...], tuple[int, ...]]) -> tuple[IRFunction, list[Value]]:
    """Views of one weight of 4 x 6 elements: offset, shape, strides."""
    f = IRFunction("main")
    x = f.create_weight("x", Type(ElemKind.F32, (4, 6)), Mutability.MUTABLE)
    types = [Type(ElemKind.F32, shape) for _, shape, _ in views]
    values = [
        f.create_view("v", type, x, offset, strides).value
        for type, (offset, _, strides) in zip(types, views, strict=True)
    ]
    return f, values


@pytest.mark.parametrize(
    ("result", "input", "clash"),
    [
        ((0, (4, 3), (6, 1)), (3, (4, 3), (6, 1)), False),
        ((0, (4, 3), (6, 1)), (2, (4, 3), (6, 1)), True),
        ((0, (4, 3), (6, 1)), (0, (4, 3), (6, 1)), False),  # in place
        ((0, (4, 3), (6, 1)), (0, (4, 3), (3, 1)), True),  # other elements from the same one on
        ((0, (2, 2, 3), (12, 6, 1)), (0, (2, 2, 3), (12, 6, 1)), False),
        ((1, (4,), (6,)), (7, (4,), ()), True),
        ((1, (4,), (6,)), (8, (4,), ()), False),
        ((0, (2, 6), ()), (12, (2, 6), ()), False),
        ((0, (2, 6), ()), (11, (2, 6), ()), True),
    ],
)
def test_what_is_written_over_another_operand_is_caught(
    result: tuple[int, tuple[int, ...], tuple[int, ...]],
    input: tuple[int, tuple[int, ...], tuple[int, ...]],
    clash: bool,
) -> None:
    for cls in (ExpInst, CopyInst):
        f, operands = _views(result, input)
        f.add(cls(operands, {}))
        if clash:
            with pytest.raises(VerifyError, match=r"writes %v over bytes of %v_1"):
                check(f, plan(f))
        else:
            check(f, plan(f))


def test_a_view_that_ends_outside_its_base_is_caught() -> None:
    f, _ = _views((4, (4, 2), (6, 1)))
    check(f, plan(f))
    f, _ = _views((5, (4, 2), (6, 1)))
    with pytest.raises(VerifyError, match="view %v ends outside %x"):
        check(f, plan(f))


LOOPS = """irfunction @main {
  declare
    %x = weight f32[64] mutable
    %y = weight i8[64] mutable
    %sum = weight f32[1] mutable
  program
    %a = alloc f32[64]
    %low = view f32[32], @in %a {offset=0}
    %high = view f32[32], @in %a {offset=32}
    %left = view f32[32], @in %x {offset=0}
    %right = view f32[32], @in %x {offset=32}
    %b = alloc i32[64]
@
    dealloc @out %a
    dealloc @out %b
}
"""
CHAIN = "exp @out %a, @in %x; convert @out %b, @in %a; convert @out %y, @in %b"


def looping(steps: str) -> IRFunction:
    """The program of `LOOPS` with these instructions."""
    lines = [f"    {step.strip()}" for step in steps.split(";")]
    return parse_irfunction(LOOPS.replace("@\n", "\n".join([*lines, ""]), 1))


def test_what_one_loop_writes_and_reads_has_no_memory() -> None:
    f = looping(CHAIN)
    assert plan(f).peak == 512
    form_runs(f)
    layout = plan(f)
    check(f, layout)
    assert (layout.peak, layout.registers) == (0, ("a", "b"))
    assert "  registers {\n    %a\n    %b\n  }\n" in print_plan(layout)
    assert print_plan(parse_plan(print_plan(layout))) == print_plan(layout)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (f"{CHAIN}; reduce_add @out %sum, @in %a {{axes=[0]}}", "reduce_add reads %a in memory"),
        (f"splat @out %a {{value=1.0}}; {CHAIN.split('; ', 1)[1]}", "splat writes %a in memory"),
        (
            f"{CHAIN}; reduce_add @out %sum, @in %x {{axes=[0]}}; neg @out %x, @in %a",
            "neg reads %a, which is in registers of another loop",
        ),
        (
            "exp @out %low, @in %left; neg @out %right, @in %high",
            "neg reads %high, which its loop has not computed",
        ),
    ],
)
def test_what_is_needed_in_memory_is_not_in_registers(steps: str, message: str) -> None:
    f = looping(steps)
    form_runs(f)
    layout = plan(f)
    check(f, layout)
    assert "a" not in layout.registers
    slots = tuple(slot for slot in layout.activations.slots if slot.name != "a")
    activations = replace(layout.activations, slots=slots)
    with pytest.raises(VerifyError) as caught:
        check(f, replace(layout, activations=activations, registers=("a", *layout.registers)))
    assert message in str(caught.value)
    with pytest.raises(VerifyError, match="%a is in registers and in memory"):
        check(f, replace(layout, registers=("a", *layout.registers)))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_compute_the_same_with_buffers_in_registers(seed: int) -> None:
    f = RandomProgram(random.Random(seed)).f
    expected = outcome(f)
    form_runs(f)
    for name, array in outcome(f).items():
        np.testing.assert_array_equal(array, expected[name])


def _random_place(rng: random.Random) -> _Place:
    """Rows in a row-major tensor, or any dimensions at small distances."""
    element, rank = rng.choice([1, 2, 4]), rng.randint(0, 3)
    shape = [rng.randint(1, 3) for _ in range(rank)]
    steps = [element * rng.choice([1, 2, 3, 4, 6, 8, 12, 24]) for _ in range(rank)]
    if rank and rng.random() < 0.5:
        steps = [element]
        for size in shape[:0:-1]:
            steps.insert(0, steps[0] * size * rng.choice([1, 1, 2, 3]))
    return _Place(
        Value("base", Type(ElemKind.U8, (999,))),
        element * rng.randint(0, 12),
        tuple(shape),
        tuple(steps),
        element,
    )


def _bytes_of(place: _Place) -> set[int]:
    starts = {place.start}
    for size, step in zip(place.shape, place.steps, strict=True):
        starts = {start + index * step for start in starts for index in range(size)}
    return {start + index for start in starts for index in range(place.element)}


def test_places_share_bytes_if_and_only_if_a_byte_is_in_both() -> None:
    rng, shared = random.Random(5), 0
    for _ in range(3000):
        a, b = _random_place(rng), _random_place(rng)
        if rng.random() < 0.5:  # such as other columns of the same matrix
            b = replace(a, start=b.start)
        expected = bool(_bytes_of(a) & _bytes_of(b))
        assert _share_bytes(a, b) == expected, (a, b)
        shared += expected
    assert 500 < shared < 2500
