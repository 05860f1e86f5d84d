"""Memory of values, translation of predicates, lifetimes, and rules that text cannot break."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.ir.insts_gen import AllocInst, DeallocInst, ExpInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import lifetimes
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.printer import print_irfunction
from glowpy.ir.value import Mutability, Value
from glowpy.ir.verifier import verify_irfunction
from glowpy.irgen import generate
from glowpy.schedule import schedule
from glowpy.support.errors import UnsupportedError, VerifyError
from tests.unit.networks import RandomNetwork, optimized, unoptimized

F32 = Type(ElemKind.F32, (4,))
BOOL = Type(ElemKind.BOOL, (4,))


@pytest.fixture
def f() -> IRFunction:
    f = IRFunction("main")
    f.create_weight("x", F32, Mutability.MUTABLE)
    f.create_weight("out", F32, Mutability.MUTABLE)
    return f


def test_views_know_their_bytes(f: IRFunction) -> None:
    x = f.weights["x"]
    tail = f.create_view("tail", Type(ElemKind.F32, (2,)), x, 2).value
    last = f.create_view("last", Type(ElemKind.I32, (1,)), tail, 1).value
    assert last.base is x
    assert (tail.byte_offset, last.byte_offset) == (8, 12)
    assert tail.overlaps(last)
    assert x.overlaps(last)
    head = f.create_view("head", Type(ElemKind.F32, (2,)), x, 0).value
    assert not head.overlaps(tail)
    assert not head.overlaps(f.weights["out"])
    assert f.create_view("again", Type(ElemKind.F32, (1, 2)), x, 2).value.same_memory(tail)
    assert f.values[-1].source is x


def test_strided_views_know_their_elements() -> None:
    f = IRFunction("main")
    x = f.create_weight("x", Type(ElemKind.F32, (4, 6)), Mutability.MUTABLE)

    def view(source: Value, shape: tuple[int, ...], offset: int, *strides: int) -> Value:
        return f.create_view("v", Type(ElemKind.F32, shape), source, offset, strides).value

    left, right = view(x, (4, 2), 0, 6, 1), view(x, (4, 4), 2, 6, 1)
    assert (right.byte_offset, right.span, right.strides) == (8, 4 * 22, (6, 1))
    assert (x.strides, x.is_contiguous, right.is_contiguous) == ((6, 1), True, False)
    assert not left.overlaps(right)
    assert x.overlaps(left)
    column = view(right, (4,), 1, 6)
    assert (column.base, column.byte_offset) == (x, 12)
    assert column.overlaps(right)
    assert not column.overlaps(left)
    assert view(x, (1, 4, 1), 3, 24, 6, 1).same_memory(column)
    assert not view(x, (4,), 3).same_memory(column)
    column.relocate(2, (6,))
    assert column.byte_offset == 16
    again = parse_irfunction(print_irfunction(f))
    assert print_irfunction(again) == print_irfunction(f)
    assert "%v_2 = view f32[4], @in %v_1 {offset=2, strides=[6]}" in print_irfunction(again)
    assert "%v_4 = view f32[4], @in %x {offset=3}" in print_irfunction(again)


def test_long_chains_of_views_know_their_bytes_when_the_base_changes(f: IRFunction) -> None:
    wide = f.create_weight("wide", Type(ElemKind.F32, (100,)), Mutability.MUTABLE)
    buffer = f.create_alloc("b", Type(ElemKind.F32, (50,))).value
    views = [f.create_view("v", Type(ElemKind.F32, (49,)), buffer, 1)]
    for size in range(48, 38, -1):
        views.append(f.create_view("v", Type(ElemKind.F32, (size,)), views[-1].value, 1))
    in_wide = f.create_view("w", Type(ElemKind.F32, (50,)), wide, 20).value
    for base, start in ((buffer, 0), (wide, 80)):
        for _ in range(3):
            for number, view in enumerate(views, 1):
                assert view.value.base is base
                assert view.value.byte_offset == start + 4 * number
        views[0].replace_value(buffer, in_wide)


def test_names_of_values_that_vanish_are_free_again(f: IRFunction) -> None:
    alloc = f.create_alloc("a", F32)
    f.create_dealloc(alloc.value)
    assert f.fresh_name("a") == "a_1"
    f.replace_instructions([])
    assert f.fresh_name("a") == "a"


def test_the_predicate_of_a_node_reaches_its_instructions() -> None:
    module = Module()
    x, p, out = (
        module.create_placeholder(name, type)
        for name, type in (("x", F32), ("p", BOOL), ("out", F32))
    )
    g = module.create_function("main")
    g.create_save("s", g.predicated(g.create_exp("e", x), p), out)
    ir = generate(g, schedule(g))
    inst = next(inst for inst in ir.instructions if isinstance(inst, ExpInst))
    assert inst.predicate is ir.weights["p"]
    assert (inst.name, inst.loc) == ("e", g.nodes[0].loc)
    assert ir.weights["p"] in list(inst.reads())
    verify_irfunction(ir)


def test_nodes_that_should_have_been_lowered_are_unsupported() -> None:
    module = Module()
    x, out = module.create_placeholder("x", F32), module.create_placeholder("out", F32)
    g = module.create_function("main")
    g.create_save("s", g.create_relu("r", x), out)
    with pytest.raises(UnsupportedError, match="no instruction computes relu"):
        generate(g, schedule(g))


def test_lifetimes_count_accesses_through_views(f: IRFunction) -> None:
    x, out = f.weights["x"], f.weights["out"]
    a = f.create_alloc("a", F32).value
    f.create_exp(a, x)
    v = f.create_view("v", Type(ElemKind.F32, (4, 1)), a, 0).value
    f.create_neg(f.create_view("w", Type(ElemKind.F32, (4, 1)), out, 0).value, v)
    f.create_dealloc(a)
    lives = lifetimes(f)
    assert (lives[a].start, lives[a].end) == (0, 5)
    assert (lives[a].writes, lives[a].reads) == ([1], [4])
    assert (lives[x].start, lives[x].end, lives[x].accesses) == (-1, 6, [1])
    assert lives[out].accesses == [4]


def test_a_buffer_that_is_never_deallocated_is_reported(f: IRFunction) -> None:
    f.create_alloc("a", F32)
    with pytest.raises(VerifyError, match="buffer %a is never deallocated"):
        verify_irfunction(f)


def test_values_of_nowhere_are_reported(f: IRFunction) -> None:
    alloc = AllocInst([], {}, name="a", type=F32)
    f.create_exp(alloc.value, f.weights["x"])
    f.add(DeallocInst([alloc.value], {}))
    with pytest.raises(VerifyError, match="exp: %a is used before it is made"):
        verify_irfunction(f)


def test_attributes_are_checked(f: IRFunction) -> None:
    f.create_splat(f.weights["out"], 0.0).attrs["value"] = 1
    with pytest.raises(VerifyError, match="splat: attribute value must be of kind 'float'"):
        verify_irfunction(f)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_programs_read_back(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    for program in (unoptimized(module), optimized(module)):
        text = print_irfunction(program.ir)
        again = parse_irfunction(text)
        verify_irfunction(again)
        assert print_irfunction(again) == text
