"""Random networks for property tests: every choice comes from one `random.Random`, which hypothesis can shrink."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import glowpy
from glowpy.backend import CompileOptions, Program
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.irgen import generate
from glowpy.passes import PassContext
from glowpy.recipe import build_program, generate_ir, graph_recipe, reference_recipe
from glowpy.schedule import schedule

__all__ = ["RandomNetwork", "arrays_for", "execute", "optimized", "unoptimized"]

_SHAPES = ((2, 3), (1, 2, 3, 4), (2, 3, 4), (6,), (1, 3, 3, 2), (4, 1, 2), (0, 3), ())
_KINDS = (ElemKind.F32, ElemKind.F32, ElemKind.F32, ElemKind.I32, ElemKind.U8)


class RandomNetwork:
    """Builds a module with one function of up to `size` nodes and up to three outputs."""

    def __init__(self, rng: random.Random, size: int = 14) -> None:
        self.rng = rng
        self.module = Module()
        self.f: Function = self.module.create_function("main")
        self.values: list[NodeValue] = [self._placeholder(i) for i in range(rng.randint(1, 3))]
        made = rng.randint(1, size)
        while self.f.num_nodes < made:
            result = rng.choice(_STEPS)(self, rng.choice(self.values[-6:]))
            if result is not None and result.type.count <= 4096:
                self.values.append(result)
        for value in {id(v): v for v in rng.choices(self.values[-4:], k=3)}.values():
            output = self.module.create_placeholder(f"out_{value.name}", value.type)
            self.f.create_save("save", value, output)

    def _placeholder(self, number: int) -> NodeValue:
        type = Type(self.rng.choice(_KINDS), self.rng.choice(_SHAPES))
        return self.module.create_placeholder(f"in_{number}", type).value

    def constant(self, type: Type) -> NodeValue:
        """A constant, often of the numbers that passes look for."""
        if self.rng.random() < 0.3:
            return self.f.create_splat("splat", type, float(self.rng.choice((0, 1, 2)))).result
        array = np.zeros(type.shape, np.int64)
        for index in np.ndindex(*type.shape):
            array[index] = self.rng.choice((0, 1, 2, 3, 5))
        if self.rng.random() < 0.3:
            array[...] = self.rng.choice((0, 1))
        return self.module.create_constant("c", array.astype(type.kind.dtype)).value

    def companion(self, value: NodeValue) -> NodeValue:
        """Something that broadcasts with `value`: another value of its type, or a constant."""
        alike = [v for v in self.values if v.type == value.type]
        if self.rng.random() < 0.5:
            return self.rng.choice(alike)
        shape = tuple(self.rng.choice((1, size)) for size in value.type.shape)
        if self.rng.random() < 0.4:
            shape = shape[self.rng.randint(0, len(shape)) :]
        return self.constant(Type(value.type.kind, shape))


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
    if not x.type.kind.is_float:
        return None
    return net.f.create_clip("clip", x, float(net.rng.randint(-2, 1)), 2.0).result


def _select(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.kind is ElemKind.BOOL:
        return None
    other = net.companion(x)
    return net.f.create_select("select", net.f.create_lt("lt", x, other), x, other).result


def _convert(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.kind is ElemKind.BOOL:
        return net.f.create_convert("convert", x.type.with_kind(ElemKind.I32), x).result
    wide = x.type.with_kind(ElemKind.F64 if x.type.kind.is_float else ElemKind.I64)
    there = net.f.create_convert("there", wide, x)
    return net.f.create_convert("back", x.type, there).result


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
    if not x.type.rank:
        return None
    alike = [v for v in net.values if v.type == x.type]
    parts = [x, *net.rng.choices(alike, k=net.rng.randint(0, 2))]
    return net.f.create_concat("concat", parts, net.rng.randrange(x.type.rank)).result


def _slice(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    starts, steps, sizes = [], [], []
    for size in x.type.shape:
        count = net.rng.randint(min(size, 1), size)
        step = -1 if net.rng.random() < 0.2 else 1
        first = net.rng.randint(0, size - count)
        starts.append(first if step > 0 else first + max(count - 1, 0))
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
    axis = net.rng.randrange(x.type.rank)
    vector = Type(ElemKind.F32, (x.type.shape[axis],))
    scale, bias, mean, variance = (net.constant(vector) for _ in range(4))
    args = (scale, bias, mean, variance, axis, 0.5)
    return net.f.create_batch_normalization("norm", x, *args).result


def _convolution(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if x.type.rank != 4 or x.type.kind is not ElemKind.F32 or not x.type.count:
        return None
    outputs = net.rng.randint(1, 3)
    filter = net.constant(Type(ElemKind.F32, (outputs, 1, 1, x.type.shape[3])))
    bias = net.constant(Type(ElemKind.F32, (outputs,)))
    pads = tuple(net.rng.choice((0, 1)) for _ in range(4))
    args = ((1, 1), (1, 1), pads, (1, 1), 1)
    return net.f.create_convolution("conv", x, filter, bias, *args).result


_STEPS = (
    *(_binary, _binary, _binary, _unary, _unary, _clip, _select, _convert),
    *(_transpose, _transpose, _reshape, _reshape, _concat, _slice, _pad),
    *(_reduce, _softmax, _normalize, _normalize, _convolution, _convolution),
)


def arrays_for(placeholders: list[Placeholder], seed: int) -> dict[str, Array]:
    """Small integers in the kind of each placeholder, so that floating-point sums are exact."""
    numbers = np.random.default_rng(seed)
    return {
        p.name: numbers.integers(0, 4, p.type.shape).astype(p.type.kind.dtype) for p in placeholders
    }


def unoptimized(module: Module) -> Program:
    """Lowered and translated, no pass run on either level. The module is not changed."""
    work = module.clone().main
    backend, ctx = InterpreterBackend(), PassContext(evaluate, verify_each=True)
    reference_recipe(backend).run(work, ctx)
    return build_program(work, generate(work, schedule(work)), backend, ctx)


def optimized(module: Module) -> Program:
    """By the whole recipe, verified after every pass. The module is not changed."""
    work = module.clone().main
    backend, ctx = InterpreterBackend(), PassContext(evaluate, verify_each=True)
    graph_recipe(backend).run(work, ctx)
    return build_program(work, generate_ir(work, backend, ctx), backend, ctx)


def execute(program: Program, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs on the interpreter; inputs the program does not read are left out."""
    compiled = InterpreterBackend().compile(program, CompileOptions())
    return compiled({name: inputs[name] for name in compiled.inputs})


def check_on_cpu(module: Module, inputs: dict[str, Array]) -> None:
    """Optimized machine code computes what the interpreter does from the module as it stands."""
    expected = execute(unoptimized(module), inputs)
    compiled = glowpy.compile(module, "cpu", CompileOptions(verify_each=True, cache=False))
    found = compiled({name: inputs[name] for name in compiled.inputs})
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], array, err_msg=name)
            continue
        # Intermediate values may cancel, so that errors are relative to the largest number about.
        scale = max(1.0, float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array))))
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5 * scale, err_msg=name)
