"""Random networks for property tests: every choice comes from one `random.Random`, which hypothesis can shrink."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

import glowpy
from glowpy.backend import CompileOptions, Program
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import type_at
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.graph.nodes_gen import (
    AvgPoolNode,
    BatchNormalizationNode,
    ConvolutionNode,
    FullyConnectedNode,
    ReduceAddNode,
    SoftmaxNode,
    TanhNode,
)
from glowpy.irgen import generate
from glowpy.lower import LowerPass
from glowpy.passes import PassContext
from glowpy.recipe import build_program, generate_ir, graph_recipe
from glowpy.schedule import schedule
from glowpy.support.errors import UserError
from glowpy.support.symbolic import highest, symbol

__all__ = [
    "RandomNetwork",
    "Step",
    "SymbolicNetwork",
    "arrays_for",
    "check_on_cpu",
    "execute",
    "optimized",
    "same_numbers",
    "unoptimized",
]

_SHAPES = ((2, 3), (1, 2, 3, 4), (2, 3, 4), (6,), (1, 3, 3, 2), (4, 1, 2), (0, 3), ())
_CONVERTIBLE = [kind for kind in ElemKind if not kind.is_code]
_KINDS = (ElemKind.F32, ElemKind.F32, ElemKind.F32, ElemKind.I32, ElemKind.U8)


Step: TypeAlias = "Callable[[RandomNetwork, NodeValue], NodeValue | None]"


class RandomNetwork:
    """Builds a module with one function of up to `size` nodes and up to three outputs."""

    def __init__(self, rng: random.Random, size: int = 14) -> None:
        self.rng = rng
        self.module = Module()
        self.f: Function = self.module.create_function("main")
        self.values: list[NodeValue] = [self._placeholder(i) for i in range(rng.randint(1, 3))]
        self._inexact: set[NodeValue] = set()
        count = rng.randint(1, size)
        while self.f.num_nodes < count:
            before = self.f.num_nodes
            result = self.step()
            for node in self.f.nodes[before:]:
                if isinstance(node, _ROUNDING) or self._inexact.intersection(node.inputs):
                    self._inexact.update(node.results)
            if result is not None and highest(result.type.count) <= 4096:
                self.values.append(result)
        for value in {id(v): v for v in rng.choices(self.values[-4:], k=3)}.values():
            self._save(value)
        if rng.random() < 0.3:
            self._predicate()

    def step(self) -> NodeValue | None:
        """One more node, or several; None where a step finds nothing to do."""
        return self.rng.choice(self.steps)(self, self.rng.choice(self.values[-6:]))

    @property
    def steps(self) -> Sequence[Step]:
        """What a step may be, some several times."""
        return _STEPS

    def _save(self, value: NodeValue) -> None:
        """To a placeholder of its own, or to an input that no other save writes."""
        free = [
            p
            for p in self.module.placeholders
            if p.type == value.type and p not in self.f.outputs and self.rng.random() < 0.3
        ]
        output = (
            free[0] if free else self.module.create_placeholder(f"out_{value.name}", value.type)
        )
        self.f.create_save("save", value, output)

    def _predicate(self) -> None:
        """Gives some nodes predicates: for all elements, or one for each."""
        whole = self.module.create_placeholder("p", Type(ElemKind.BOOL, ()))
        for node in self.f.nodes:
            if node.results and self.rng.random() < 0.3:
                mask = node.type.with_kind(ElemKind.BOOL)
                chosen = self.rng.choice(
                    (whole, *(p for p in self.module.placeholders if p.type == mask))
                )
                self.f.predicated(node, chosen)

    def is_exact(self, value: NodeValue) -> bool:
        """Whether `value` is the same, to the bit, in whatever order it is computed."""
        return value not in self._inexact

    def _placeholder(self, number: int) -> NodeValue:
        type = Type(self.rng.choice(_KINDS), self.rng.choice(_SHAPES))
        if number == 0 and self.rng.random() < 0.3:
            type = Type(ElemKind.F32, (1, 4, 3, 2))
        return self.module.create_placeholder(f"in_{number}", type).value

    def constant(self, type: Type) -> NodeValue:
        """A constant, often of the numbers that passes look for."""
        if self.rng.random() < 0.3:
            return self.f.create_splat("splat", type, float(self.rng.choice((0, 1, 2)))).result
        array = np.zeros(type.extents, np.int64)
        for index in np.ndindex(*type.extents):
            array[index] = self.rng.choice((0, 1, 2, 3, 5))
        if self.rng.random() < 0.3:
            array[...] = self.rng.choice((0, 1))
        return self.module.create_constant("c", array.astype(type.kind.dtype)).value

    def image(self, value: NodeValue) -> NodeValue:
        """Something with a batch, two spatial dimensions and channels, if there is any; else `value`."""
        images = [v for v in self.values if v.type.rank == 4 and v.type.kind is ElemKind.F32]
        return self.rng.choice(images[-3:]) if images and self.rng.random() < 0.8 else value

    def companion(self, value: NodeValue) -> NodeValue:
        """Something that broadcasts with `value`: another value of its type, or a constant."""
        alike = [v for v in self.values if v.type == value.type]
        if self.rng.random() < 0.5:
            return self.rng.choice(alike)
        shape = tuple(self.rng.choice((1, size)) for size in value.type.shape)
        if self.rng.random() < 0.4:
            shape = shape[self.rng.randint(0, len(shape)) :]
        return self.constant(Type(value.type.kind, shape))


class SymbolicNetwork(RandomNetwork):
    """The same with symbolic extents. Steps that ask for what bounds leave open, or are impossible, are taken back."""

    SYMBOLS: ClassVar = {"m": symbol("m", 1, 5), "n": symbol("n", 0, 4)}
    _M, _N = SYMBOLS["m"], SYMBOLS["n"]
    _TYPES = (
        *((_M, 3), (1, _M, 3, 4), (_N, 3, _M), (2, _M, _N), (_M,), (_M + _N, 2), (1, _M, _M, 2)),
        *((_N,), (2, 2 * _M, 3)),
    )

    def step(self) -> NodeValue | None:
        """One more node, or several, or none."""
        before = self.f.num_nodes
        try:
            return super().step()
        except (UserError, TypeError):
            for node in reversed(self.f.newest(self.f.num_nodes - before)):
                self.f.erase(node)  # what it read may be read again
            return None

    def _placeholder(self, number: int) -> NodeValue:
        if (
            number == 0
        ):  # says what both symbols are, and is read: an input that is not is no input of the program
            type = Type(ElemKind.F32, (self._M, self._N))
            value = self.module.create_placeholder("in_0", type).value
            copy = self.module.create_placeholder("read", type)
            self.f.create_save("read_in_0", value, copy)
            return value
        type = Type(self.rng.choice(_KINDS), self.rng.choice(self._TYPES))
        return self.module.create_placeholder(f"in_{number}", type).value

    def constant(self, type: Type) -> NodeValue:
        """A constant, or a splat where the type has symbols."""
        if type.is_static:
            return super().constant(type)
        return self.f.create_splat("splat", type, float(self.rng.choice((0, 1, 2)))).result


class SearchingNetwork(SymbolicNetwork):
    """The same with extents that the network finds: of what is not zero in values that are the same to the bit."""

    def step(self) -> NodeValue | None:
        """One more node, or several, or none."""
        x = self.rng.choice(self.values)
        if self.rng.random() > 0.25 or not self.is_exact(x) or highest(x.type.count) > 100:
            return super().step()
        f, most = self.f, highest(x.type.count)
        count = symbol(self.module.names.take("count"), 0, most)
        search = f.create_non_zero("search", x)
        if not isinstance(count, int):
            f.create_define("define", search.results[1], (count,))
        rank = x.type.rank
        places = Type(ElemKind.I64, (count, rank))
        rows = f.create_slice("rows", places, search, (0, 0), (1, 1)).result
        if not rank or self.rng.random() < 0.3:
            return f.create_convert("places", places.with_kind(ElemKind.I32), rows).result
        axis = self.rng.randrange(rank)
        column = Type(ElemKind.I64, (count, 1))
        picked = f.create_slice("column", column, rows, (0, axis), (1, 1))
        vector = f.create_reshape("vector", Type(ElemKind.I64, (count,)), picked)
        return f.create_gather("found", x, vector, axis).result


def _binary(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    lhs, rhs = x, net.companion(x)
    if net.rng.random() < 0.3:
        lhs, rhs = rhs, lhs
    if lhs.type.kind is ElemKind.BOOL:
        return net.f.create_and("and", lhs, rhs).result
    creates = (net.f.create_add, net.f.create_sub, net.f.create_mul, net.f.create_max)
    return net.rng.choice(creates)("binary", lhs, rhs).result


def _unary(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    f = net.f
    if x.type.kind is ElemKind.BOOL:
        return f.create_not("not", x).result
    if x.type.kind is ElemKind.U8:
        return None
    creates: tuple[Callable[[str, NodeValue], object], ...] = (f.create_neg, f.create_abs)
    if x.type.kind.is_float:
        creates = (f.create_neg, f.create_relu, f.create_tanh, f.create_abs)
    net.rng.choice(creates)("unary", x)
    return f.nodes[-1].result


def _clip(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """One to three limits, which may be those of a relu, have nothing in common, or be the wrong way around."""
    if not x.type.kind.is_float:
        return None
    for _ in range(net.rng.randint(1, 3)):
        low = net.rng.choice((-2.0, 0.0, 0.0, 1.0, 2.0))
        high = low + net.rng.choice((-1.0, 0.5, 1.0, 3.0, math.inf))
        x = net.f.create_clip("clip", x, low, high).result
        if net.rng.random() < 0.3:
            x = net.f.create_relu("relu", x).result
    return x


def _select(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.kind is ElemKind.BOOL:
        return None
    other = net.companion(x)
    return net.f.create_select("select", net.f.create_lt("lt", x, other), x, other).result


def _compare(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    other = net.companion(x)
    if x.type.kind is ElemKind.BOOL or not (net.is_exact(x) and net.is_exact(other)):
        return None
    return net.rng.choice((net.f.create_lt, net.f.create_eq))("compare", x, other).result


def _convert(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """By way of other kinds, which hold its values or do not, to one that the other steps know."""
    last = net.rng.choice((x.type.kind, x.type.kind, ElemKind.F32, ElemKind.I32))
    wide = ElemKind.F64 if x.type.kind.is_float else ElemKind.I64
    for _ in range(net.rng.randint(1, 2)):
        between = net.rng.choice((wide, net.rng.choice(_CONVERTIBLE))) if net.is_exact(x) else wide
        x = net.f.create_convert("there", x.type.with_kind(between), x).result
    if not net.is_exact(x) and last is not ElemKind.F32:
        last = ElemKind.F32
    return net.f.create_convert("back", x.type.with_kind(last), x).result


def _transpose(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    shuffle = list(range(x.type.rank))
    net.rng.shuffle(shuffle)
    return net.f.create_transpose("transpose", x, tuple(shuffle)).result


def _reshape(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    sizes = [size for size in x.type.shape if size != 1]
    if len(sizes) > 1 and net.rng.random() < 0.5:
        at = net.rng.randrange(len(sizes) - 1)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    if sizes and net.rng.random() < 0.5:
        at = net.rng.randrange(len(sizes))
        if sizes[at] % 2 == 0 and len(sizes) < 6:
            sizes[at : at + 1] = [2, sizes[at] // 2]
    if len(sizes) < 6:
        sizes.insert(net.rng.randint(0, len(sizes)), 1)
    return net.f.create_reshape("reshape", x.type.with_shape(sizes), x).result


def _concat(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """Of values that differ in one dimension, at most; sometimes of a concat."""
    if not x.type.rank:
        return None
    axis = net.rng.randrange(x.type.rank)
    alike = [v for v in net.values if _but(v.type, axis) == _but(x.type, axis)]
    parts = [x, *net.rng.choices(alike, k=net.rng.randint(0, 2))]
    net.rng.shuffle(parts)
    joined = net.f.create_concat("concat", parts, axis).result
    if net.rng.random() < 0.3:
        parts = [joined, net.rng.choice(parts)]
        net.rng.shuffle(parts)
        return net.f.create_concat("concat", parts, axis).result
    return joined


def _but(type: Type, axis: int) -> tuple[ElemKind, int, Shape]:
    """What values that are joined along `axis` have in common."""
    return type.kind, type.rank, (*type.shape[:axis], *type.shape[axis + 1 :])


def _slice(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    starts, steps, sizes = [], [], []
    for size in x.type.extents:
        step = net.rng.choice((1, 1, 1, 1, 2, -1, -2))
        most = -(-size // abs(step))
        count = net.rng.choice((most, net.rng.randint(min(most, 1), most)))
        first = net.rng.randint(0, size - (count - 1) * abs(step) - 1) if count else 0
        starts.append(first if step > 0 else first + (count - 1) * -step if count else 0)
        steps.append(step)
        sizes.append(count)
    type = x.type.with_shape(sizes)
    return net.f.create_slice("slice", type, x, tuple(starts), tuple(steps)).result


def _pad(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.kind is ElemKind.BOOL or not x.type.count:
        return None
    pads = tuple(net.rng.choice((0, 0, 1)) for _ in range(2 * x.type.rank))
    return net.f.create_pad("pad", x, pads, float(net.rng.choice((0, 0, 3)))).result


def _reduce(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if not x.type.rank or x.type.kind not in (ElemKind.F32, ElemKind.I32) or not x.type.count:
        return None
    return net.f.create_reduce_add("reduce", x, (net.rng.randrange(x.type.rank),)).result


def _softmax(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if not x.type.rank or x.type.kind is not ElemKind.F32 or not x.type.count:
        return None
    return net.f.create_softmax("softmax", x, net.rng.randrange(x.type.rank)).result


def _normalize(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if not x.type.rank or x.type.kind is not ElemKind.F32:
        return None
    axis = net.rng.choice((x.type.rank - 1, net.rng.randrange(x.type.rank)))
    vector = Type(ElemKind.F32, (x.type.shape[axis],))
    scale, bias, mean, variance = (net.constant(vector) for _ in range(4))
    args = (scale, bias, mean, variance, axis, 0.5)
    return net.f.create_batch_normalization("norm", x, *args).result


def _affine(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """A layer, and after it what is affine in each channel, or only looks so."""
    x = net.image(x)
    layer = net.rng.choice((_normalize, _convolution, _fully_connected))(net, x)
    for _ in range(net.rng.randint(0, 2)):
        if layer is None:
            return None
        if net.rng.random() < 0.2:
            net.values.append(layer)
        last = layer.type.shape[-1:]
        shapes = (last, (1,), (), (1,) * (layer.type.rank - 1) + last, layer.type.shape[1:])
        other = net.constant(Type(ElemKind.F32, net.rng.choice(shapes)))
        creates = (net.f.create_add, net.f.create_sub, net.f.create_mul, net.f.create_max)
        layer = net.rng.choice(creates)("affine", layer, other).result
    return layer


def _fully_connected(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.rank != 2 or x.type.kind is not ElemKind.F32:
        return None
    outputs = net.rng.randint(1, 3)
    weights = net.constant(Type(ElemKind.F32, (x.type.shape[1], outputs)))
    bias = net.constant(Type(ElemKind.F32, (outputs,)))
    return net.f.create_fully_connected("fc", x, weights, bias).result


def _convolution(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.rank != 4 or x.type.kind is not ElemKind.F32 or not x.type.count:
        return None
    outputs = net.rng.randint(1, 3)
    filter = net.constant(Type(ElemKind.F32, (outputs, 1, 1, x.type.shape[3])))
    bias = net.constant(Type(ElemKind.F32, (outputs,)))
    pads = tuple(net.rng.choice((0, 1)) for _ in range(4))
    args = ((1, 1), (1, 1), pads, (1, 1), 1)
    return net.f.create_convolution("conv", x, filter, bias, *args).result


def _window(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """A window operator, often on what was padded for it."""
    x = net.image(x)
    if x.type.rank != 4 or x.type.kind is not ElemKind.F32 or not x.type.count:
        return None
    if net.rng.random() < 0.7:
        pads = [0, *net.rng.choices((0, 1, 2), k=2), 0, 0, *net.rng.choices((0, 1, 2), k=2), 0]
        if net.rng.random() < 0.2:
            pads[net.rng.choice((0, 3, 4, 7))] = 1
        x = net.f.create_pad("pad", x, tuple(pads), float(net.rng.choice((0, 0, 0, 1)))).result
    sizes = tuple(net.rng.randint(1, min(size, 2)) for size in x.type.extents[1:3])
    own = tuple(net.rng.randint(0, size - 1) for size in sizes) * 2
    args = (sizes, net.rng.choice(((1, 1), (2, 1))), own, (1, 1))
    ceil, counts = net.rng.random() < 0.2, net.rng.random() < 0.5
    match net.rng.randrange(4):
        case 0:
            return _convolution(net, x)
        case 2 if net.is_exact(x):
            pool = net.f.create_max_pool_with_argmax("pool", x, *args, ceil)
            if net.rng.random() < 0.5:
                kind = pool.argmax.type.with_kind(ElemKind.I32)
                net.values.append(net.f.create_convert("place", kind, pool.argmax).result)
            return pool.result
        case 1 | 2:
            return net.f.create_max_pool("pool", x, *args, ceil).result
        case _:
            return net.f.create_avg_pool("pool", x, *args, ceil, counts).result


_ROUNDING = (
    *(TanhNode, SoftmaxNode, BatchNormalizationNode, ConvolutionNode),
    *(FullyConnectedNode, AvgPoolNode, ReduceAddNode),
)
"""What rounds as it is computed: passes may have it computed in another order."""

_STEPS = (
    *(_binary, _binary, _binary, _unary, _unary, _clip, _select, _compare, _convert),
    *(_transpose, _transpose, _reshape, _reshape, _concat, _concat, _slice, _slice, _pad),
    *(_reduce, _softmax, _normalize, _affine, _affine, _window, _window),
)


def arrays_for(
    placeholders: list[Placeholder], seed: int, extents: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Small integers in the kind of each placeholder, so that floating-point sums are exact."""
    numbers = np.random.default_rng(seed)

    def array(type: Type) -> Array:
        low = -3 if type.kind.is_signed else 0
        return numbers.integers(low, 4, type.extents).astype(type.kind.dtype)

    return {p.name: array(type_at(p.type, extents or {})) for p in placeholders}


def unoptimized(module: Module) -> Program:
    """Lowered and translated, no pass run on either level. The module is not changed."""
    work = module.clone().main
    backend, ctx = InterpreterBackend(), PassContext(evaluate, verify_each=True)
    LowerPass(backend.keeps).run(work, ctx)
    return build_program(work, generate(work, schedule(work)), backend, ctx)


def optimized(module: Module) -> Program:
    """By the whole recipe, verified after every pass. The module is not changed."""
    work = module.clone().main
    backend, ctx = InterpreterBackend(), PassContext(evaluate, verify_each=True)
    graph_recipe(backend).run(work, ctx)
    return build_program(work, generate_ir(work, backend, ctx), backend, ctx)


def execute(program: Program, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs on the interpreter; inputs the program does not read are left out."""
    compiled = InterpreterBackend().function(program)
    return compiled({name: inputs[name] for name in compiled.inputs})


def check_on_cpu(module: Module, inputs: dict[str, Array]) -> None:
    """Optimized machine code computes what the interpreter does from the module as it stands."""
    expected = execute(unoptimized(module), inputs)
    compiled = glowpy.compile(module, "cpu", CompileOptions(verify_each=True, cache=False))
    outputs = compiled({name: inputs[name] for name in compiled.inputs})
    same_numbers(outputs, expected)


def same_numbers(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Integers are equal; floats but for rounding.

    Intermediate values may cancel, so that errors are relative to the largest number about.
    """
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(actual[name], array, err_msg=name)
            continue
        scale = max(1.0, float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array))))
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-5 * scale, err_msg=name)
