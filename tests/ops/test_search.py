"""What finds elements, each operator by itself, and the extents that come of it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glowpy
from glowpy import UserError
from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import (
    DefineNode,
    NonMaxSuppressionNode,
    NonZeroNode,
    TopKNode,
    UniqueNode,
)
from glowpy.graph.parser import parse_module
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import DefineInst
from glowpy.ir.verifier import verify_irfunction
from glowpy.opt.graph.dce import DcePass
from glowpy.support.errors import VerifyError
from glowpy.support.symbolic import Dim, symbol
from tests.ops.harness import (
    INTS,
    NUMBERS,
    Case,
    Row,
    check_row,
    on_every_backend,
    onnx_reference,
    random_array,
)
from tests.unit.networks import SearchingNetwork, arrays_for, execute, same_numbers, unoptimized

TESTED = (DefineNode,)


def undefined_after(rows: Array, room: int) -> Array:
    """Rows, and then others about which nothing is said."""
    whole = np.ma.zeros((room, *rows.shape[1:]), rows.dtype)
    whole[: len(rows)] = rows
    whole[len(rows) :] = np.ma.masked
    return whole


# Each operator by itself.

_SPARSE = [(), (1,), (64,), (65,), (200,), (5, 7), (3, 4, 5), (2, 1, 3, 2), (70, 3), (0, 3), (4, 0)]


def _non_zero_cases(kind: ElemKind) -> Iterator[Case]:
    rng = np.random.default_rng(1)
    for shape in _SPARSE:
        for share in (0.0, 0.1, 0.6, 1.0):
            kept = rng.random(shape) < share
            input = np.where(kept, np.ones(shape, kind.dtype), np.zeros(shape, kind.dtype))
            if kind.is_float:
                input = np.where(
                    kept, np.array(np.nan if share < 1 else -1e-30, kind.dtype), -input
                )
            places = np.stack(np.nonzero(np.atleast_1d(kept)), -1)[:, 1 * (not shape) :]
            places = places.reshape(int(kept.sum()), len(shape)).astype(np.int64)
            count = np.array([len(places)])
            yield Case([input], [undefined_after(places, kept.size), count])


def random_bits(kind: ElemKind, shape: tuple[int, ...]) -> Array:
    """Any number of a kind: huge ones, tiny ones and several NaNs among floats."""
    rng = np.random.default_rng(len(shape))
    if kind is ElemKind.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    return np.frombuffer(rng.bytes(math.prod(shape) * kind.size), kind.dtype).reshape(shape).copy()


def _unique_cases(kind: ElemKind) -> Iterator[Case]:
    shapes = [(1, 1), (7, 1), (40, 1), (33, 2), (24, 3), (5, 0), (0, 2), (700, 3), (900, 1)]
    for seed, shape in enumerate(shapes):
        input = random_bits(kind, shape) if shape[0] == 900 else random_array(kind, shape, seed)
        if kind.is_float and shape[1]:
            input.reshape(-1)[::4] = -0.0
            input.reshape(-1)[1::5] = np.nan
        for in_order in (True, False):
            yield Case([input], _unique(input, in_order), {"sorted": in_order})


def _unique(input: Array, in_order: bool) -> list[Array]:
    """One row after the other."""
    rows = [tuple((x != x, 0 if x != x else x) for x in row) for row in input.tolist()]
    often = Counter(rows)
    different = sorted(often) if in_order else list(often)
    places = {row: number for number, row in reversed(list(enumerate(rows)))}
    numbers = {row: number for number, row in enumerate(different)}
    first = np.array([places[row] for row in different], np.int64)
    inverse = np.array([numbers[row] for row in rows], np.int64)
    counts = np.array([often[row] for row in different], np.int64)
    room = len(rows)
    number = np.array([len(different)])
    return [undefined_after(first, room), inverse, undefined_after(counts, room), number]


def _suppression_cases(kind: ElemKind) -> Iterator[Case]:
    rng = np.random.default_rng(2)
    for images, classes, number, limit, overlap, threshold, centers in (
        (1, 1, 12, 12, 0.5, 0.0, False),
        (2, 3, 40, 7, 0.3, 0.4, False),
        (1, 2, 90, 50, 0.9, 0.1, True),
        (1, 1, 90, 90, 1.0, np.nan, False),
        (1, 1, 30, 3, 0.0, 0.2, True),
        (1, 1, 5, 0, 0.5, 0.0, False),
        (1, 1, 9, 9, 0.5, 2.0, False),
        (1, 4, 200, 9, 0.5, 0.9, False),  # most blocks of scores have no candidate, or few
        (1, 1, 128, 9, 0.5, 2.0, False),
        (1, 0, 9, 9, 0.5, 0.0, False),
        (1, 2, 300, 300, 0.9, 0.0, False),  # the best of many are chosen, then those of the rest
    ):
        levels = 150 if number == 300 else 16
        boxes = rng.integers(0, 12, (images, number, 4)).astype(kind.dtype)
        scores = (rng.integers(0, levels, (images, classes, number)) / levels).astype(kind.dtype)
        attributes = {"center_point_box": 1} if centers else {}
        inputs = [np.array([limit]), np.array([overlap], np.float32)]
        if threshold == threshold:
            inputs.append(np.array([threshold], np.float32))
        (rows,) = (
            onnx_reference("NonMaxSuppression", [boxes, scores, *inputs], opset=11, **attributes)
            if classes and limit
            else [np.zeros((0, 3), np.int64)]
        )
        given = [boxes, scores, *inputs[:2], np.array([threshold], np.float32)]
        room = images * classes * min(limit, number)
        expected = [undefined_after(rows.reshape(-1, 3), room), np.array([len(rows)])]
        yield Case(given, expected, {"centers": centers, "room": room})


_RANKED: list[tuple[tuple[int, ...], int, int]] = [
    ((1,), 0, 1),
    ((7,), 0, 3),
    ((40,), 0, 40),
    ((100,), 0, 1),
    ((300,), 0, 3),
    ((2, 75), 1, 7),
    ((3, 17), 1, 5),
    ((17, 3), 0, 4),
    ((40, 35), 0, 1),  # lines side by side
    ((2, 30, 20), 1, 5),
    ((20, 2, 16), 0, 16),
    ((16, 17), 0, 16),
    ((2, 9, 4), 1, 9),
    ((2, 0, 3), 1, 0),
    ((4, 5), 1, 0),
    ((0, 5), 1, 2),
    ((200,), 0, 40),  # places are collected and sorted several times
    ((1500,), 0, 60),
    ((2, 700), 1, 350),
    ((600, 2), 0, 600),
]


def _top_k_cases(kind: ElemKind) -> Iterator[Case]:
    """Few different values, so that there are equal ones, or all that there are; NaN among them."""
    for seed, (shape, axis, k) in enumerate(_RANKED):
        input = random_array(kind, shape, seed)
        if seed % 2 == 1 or shape == (200,):
            input = random_bits(kind, shape)
        if shape == (200,):
            input = np.sort(input)  # the largest come last
        if kind.is_float and input.size > 4:
            input.reshape(-1)[1::6] = np.nan
            input.reshape(-1)[2::7] = -np.inf
        for largest in (True, False):
            places = np.empty((*shape[:axis], k, *shape[axis + 1 :]), np.int64)
            for at in np.ndindex(*shape[:axis], *shape[axis + 1 :]):
                line = (*at[:axis], slice(None), *at[axis:])
                keys = [(x != x, 0 if x != x else x) for x in input[line].tolist()]
                order = sorted(range(len(keys)), key=lambda i: (keys[i], -i if largest else i))
                places[line] = (order[::-1] if largest else order)[:k]
            expected = [np.take_along_axis(input, places, axis), places]
            yield Case([input], expected, {"axis": axis, "k": k, "largest": largest})


KINDS = (ElemKind.F32, ElemKind.F64, *INTS, ElemKind.BOOL)
ROWS = [
    Row(NonZeroNode, KINDS, _non_zero_cases),
    Row(UniqueNode, KINDS, _unique_cases),
    Row(TopKNode, NUMBERS, _top_k_cases),
    Row(NonMaxSuppressionNode, (ElemKind.F32,), _suppression_cases),
]


@on_every_backend(ROWS)
def test_search(row: Row, backend: str) -> None:
    check_row(row, backend)


# What follows.

BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])


def found(f: Function, input: Operand, name: str) -> tuple[NodeValue, Dim]:
    """Where a vector is not zero, and how often."""
    node = f.create_non_zero(name, input)
    count = symbol(f"{name}_count", 0, node.type.extents[0])
    f.create_define("define", node.results[1], (count,))
    type = Type(ElemKind.I64, (count, 1))
    rows = f.create_slice(name, type, node.result, (0, 0), (1, 1))
    return f.create_reshape(name, Type(ElemKind.I64, (count,)), rows).result, count


def saved(f: Function, **values: Operand) -> Module:
    """The module of a function that gives these outputs."""
    for name, value in values.items():
        f.create_save(
            f"save_{name}", value, f.module.create_placeholder(name, value_of(value).type)
        )
    return f.module


def network() -> Module:
    """What is not zero in two vectors, one after the other; as many ones; and how many there are in all."""
    module = Module()
    x, y = (module.create_placeholder(name, parse_type("f32[9]")) for name in ("x", "y"))
    f = module.create_function("main")
    # What depends on the counts alone is made before they are known.
    total = symbol("x_count", 0, 9) + symbol("y_count", 0, 9)
    ones = f.create_splat("ones", Type(ElemKind.F32, (total,)), 1.0)
    extents = f.create_extents("extents", (total, symbol("x_count", 0, 9)))
    parts = []
    for vector in (x, y):
        places, _ = found(f, vector, vector.name)
        parts.append(f.create_gather(f"{vector.name}_parts", vector, places, 0))
    return saved(f, all=f.create_concat("all", parts, 0), ones=ones, extents=extents)


@BACKENDS
def test_what_is_found_says_what_extents_are(backend: str) -> None:
    module = network()
    compiled = glowpy.compile(module, backend, CompileOptions(verify_each=True))
    rng = np.random.default_rng(3)
    for share in (0.5, 0.0, 1.0, 0.2, 0.5):
        x, y = (np.where(rng.random(9) < share, rng.random(9), 0).astype(np.float32) for _ in "xy")
        outputs = compiled({"x": x, "y": y})
        np.testing.assert_array_equal(outputs["all"], np.concatenate([x[x != 0], y[y != 0]]))
        np.testing.assert_array_equal(outputs["ones"], np.ones(np.count_nonzero([x, y])))
        assert outputs["extents"].tolist() == [np.count_nonzero([x, y]), np.count_nonzero(x)]


def test_networks_with_found_extents_read_back_as_they_print() -> None:
    text = str(network())
    assert "symbol x_count 0..9\n" in text
    assert "define(%x_1.count) {symbols=[x_count]}" in text
    assert str(parse_module(text)) == text


@BACKENDS
def test_instances_have_what_the_last_run_found(backend: str) -> None:
    compiled = glowpy.compile(network(), backend)
    instance = compiled.instance()
    assert instance["all"].shape == (18,)
    for x, y in (([1, 0, 2], [3]), ([0], [0]), ([4], [5, 6])):
        instance["x"][...], instance["y"][...] = np.zeros((2, 9))
        instance["x"][: len(x)], instance["y"][: len(y)] = x, y
        instance.run()
        assert instance["all"].tolist() == [item for item in [*x, *y] if item]


class Shapes:
    """Notes the shapes of what every instruction has written."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[int, ...]]] = {}

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        pass

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        self.seen.setdefault(inst.name, []).append(next(iter(operands.values())).shape)


@BACKENDS
def test_observers_see_what_is_found(backend: str) -> None:
    compiled = glowpy.compile(network(), backend, CompileOptions(instrument=True))
    compiled.observer = shapes = Shapes()
    x, y = np.zeros((2, 9), np.float32)
    x[:3] = y[:1] = 1
    for _ in range(2):
        compiled({"x": x, "y": y})
        x[...] = 0
    assert (4,) in shapes.seen["ones"]
    assert (1,) in shapes.seen["ones"]
    assert [shape for shape in shapes.seen["y_parts"] if len(shape) == 1] == [(1,), (1,)]


@BACKENDS
def test_arrays_for_outputs_have_the_shape_that_is_found(backend: str) -> None:
    compiled = glowpy.compile(network(), backend)
    inputs = {"x": np.eye(9, dtype=np.float32)[0], "y": np.eye(9, dtype=np.float32)[8]}
    out = np.zeros(2, np.float32)
    assert compiled(inputs, {"all": out})["all"] is out
    assert out.tolist() == [1, 1]
    with pytest.raises(
        UserError, match=r"'all': expected an array of type f32\[2\], got float32\[3\]"
    ):
        compiled(inputs, {"all": np.zeros(3, np.float32)})


@BACKENDS
def test_an_extent_is_clamped_into_its_bounds(backend: str) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("i64[2]"))
    few, many = symbol("few", 2, 5), symbol("many", 0, 7)
    f.create_define("define", x, (few, many))
    ones = f.create_splat("ones", Type(ElemKind.F32, (few, many)), 1.0)
    compiled = glowpy.compile(saved(f, ones=ones), backend)
    for numbers, shape in (((3, 7), (3, 7)), ((-1, -1), (2, 0)), ((9, 1 << 62), (5, 7))):
        assert compiled({"x": np.array(numbers)})["ones"].shape == shape


def test_what_nobody_asks_is_not_found() -> None:
    module = network()
    f = module.main
    for save in f.saves[1:]:
        f.erase(save)
    DcePass().run(f, None)  # type: ignore[arg-type]
    assert sorted(f.definitions) == ["x_count", "y_count"]
    f.erase(f.saves[0])
    DcePass().run(f, None)  # type: ignore[arg-type]
    assert not f.nodes


def test_a_symbol_is_defined_once() -> None:
    module = network()
    definition = module.main.definitions["x_count"]
    module.main.create_define("again", definition.input, definition.symbols)
    with pytest.raises(VerifyError, match="define: symbol 'x_count' is known already"):
        glowpy.compile(module)


def test_a_symbol_of_an_input_is_not_defined() -> None:
    module = Module()
    f = module.create_function("main")
    n = symbol("n", 0, 9)
    x = module.create_placeholder("x", Type(ElemKind.F32, (n,)))
    node = f.create_non_zero("places", x)
    f.create_define("define", node.results[1], (n,))
    with pytest.raises(VerifyError, match="define: symbol 'n' is known already"):
        glowpy.compile(saved(f, y=f.create_neg("y", x)))


def test_a_definition_has_a_number_for_each_symbol() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("i64[2]"))
    n = symbol("n", 0, 9)
    f.create_define("define", x, (n,))
    f.create_define("define", x, (n * 2, 3))
    with pytest.raises(VerifyError) as info:
        glowpy.compile(saved(f, y=f.create_splat("y", Type(ElemKind.F32, (n,)), 1.0)))
    assert "expected an i64 for each of 1 symbols, got i64[2]" in str(info.value)
    assert "expected different symbols, got 2*n, 3" in str(info.value)


def test_instructions_come_after_what_defines_their_symbols() -> None:
    ir = unoptimized(network()).ir
    verify_irfunction(ir)
    definitions = [inst for inst in ir.instructions if isinstance(inst, DefineInst)]
    others = [inst for inst in ir.instructions if inst not in definitions]
    ir.instructions = [*others, *definitions]
    with pytest.raises(VerifyError, match="symbol 'x_count' is used before it is defined"):
        verify_irfunction(ir)
    ir.instructions = [*definitions, definitions[0]]
    with pytest.raises(VerifyError, match=r"symbol '._count' is defined twice"):
        verify_irfunction(ir)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_random_networks_find_the_same(rng: random.Random) -> None:
    """The CPU's optimized code, and the interpreter on the network as it stands."""
    check_random_network(rng)


def check_random_network(rng: random.Random) -> None:
    module = SearchingNetwork(rng).module
    reference = unoptimized(module)
    compiled = glowpy.compile(module, "cpu", CompileOptions(verify_each=True, cache=False))
    for seed, extents in enumerate(({"m": 1, "n": 0}, {"m": 5, "n": 4}, {"m": 3, "n": 2})):
        inputs = arrays_for(module.main.parameters, seed, extents)
        expected = execute(reference, inputs)
        same_numbers(compiled({name: inputs[name] for name in compiled.inputs}), expected)
