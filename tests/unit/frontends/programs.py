"""Random programs for property tests of IR passes: valid, and without a read of bytes that nothing wrote.

They have what networks seldom lead to, or only after other passes: views of views, strided ones among them, parts
of buffers that are written and read by themselves, chains in place, inserts that overlap, copies to and from
parts, predicates that are computed, buffers that die early.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from glowpy.backend import Program
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.strides import canonical_strides, span_of, strides_of
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    AbsInst,
    AddInst,
    CumSumInst,
    MaxInst,
    MaxPoolWithArgmaxInst,
    MulInst,
    NegInst,
    ReduceAddInst,
    SubInst,
    TransposeInst,
)
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability, Value, WeightVar
from glowpy.recipe import plan_memory
from glowpy.runtime.ports import Port, Ports
from glowpy.support.symbolic import static

__all__ = ["RandomProgram", "outcome"]

_TYPES = tuple(
    Type(kind, shape)
    for kind, shapes in (
        (ElemKind.I32, ((4,), (4,), (2, 4), (8,), (2, 2), (1, 4), (2, 3, 8), (2,), (1,), ())),
        (ElemKind.I8, ((4,), (2, 4), (8,))),
    )
    for shape in shapes
)


class RandomProgram:
    """An IR function of up to `size` steps, some of which take several instructions."""

    def __init__(self, rng: random.Random, size: int = 16) -> None:
        self.rng = rng
        self.f = IRFunction("main")
        self.values: list[Value] = []
        self._defined: dict[Value, Array] = {}
        """For each byte of a weight or buffer, whether it has been written."""
        for number in range(rng.randint(2, 4)):
            self._weight(f"w{number}", Mutability.MUTABLE)
        if rng.random() < 0.3:
            self._weight("c", Mutability.CONSTANT)
        for _ in range(rng.randint(1, size)):
            rng.choice(_STEPS)(self)
        for base in self.buffers():
            self.f.create_dealloc(base)

    def _weight(self, name: str, mutability: Mutability) -> None:
        weight = self.f.create_weight(name, self.rng.choice(_TYPES), mutability)
        self.values.append(weight)
        self._defined[weight] = np.ones(weight.type.room, np.bool_)

    def buffers(self) -> list[Value]:
        """The buffers that are alive."""
        return [base for base in self._defined if not isinstance(base, WeightVar)]

    def alloc(self, type: Type) -> Value:
        """A new buffer."""
        value = self.f.create_alloc("b", type).value
        self.values.append(value)
        self._defined[value] = np.zeros(type.room, np.bool_)
        return value

    def bytes_of(self, value: Value) -> Array:
        """Which bytes of each element of `value` have been written, in an array that writes through."""
        size, shape = value.type.kind.size, value.type.extents
        raw = self._defined[value.base][value.byte_offset : value.byte_offset + value.span]
        steps = [stride * size for stride in static(value.strides)]
        return np.lib.stride_tricks.as_strided(raw, (*shape, size), (*steps, 1))

    def readable(self, *, strided: bool = False) -> list[Value]:
        """The values of which all bytes have been written."""
        values = [value for value in self.values if strided or value.is_contiguous]
        return [value for value in values if self.bytes_of(value).all()]

    def source(self, *kinds: ElemKind, strided: bool = False) -> Value:
        """A readable value of one of `kinds`; of those made last, mostly."""
        candidates = [v for v in self.readable(strided=strided) if v.type.kind in kinds]
        return (
            self.rng.choice(candidates[-4:] if self.rng.random() < 0.7 else candidates)
            if candidates
            else self.new(kinds[0])
        )

    def new(self, kind: ElemKind) -> Value:
        """A buffer full of one number."""
        value = self.alloc(Type(kind, self.rng.choice(((4,), (2, 4)))))
        self.f.create_splat(value, float(self.rng.randint(0, 3)))
        self.bytes_of(value)[...] = True
        return value

    def target(
        self, type: Type, inputs: Sequence[Value], *, in_place: bool, strided: bool = False
    ) -> Value:
        """Something of `type` to write to, which overlaps no input but, with `in_place`, as exactly the same bytes."""
        candidates = [
            value
            for value in self.values
            if value.type == type
            and (strided or value.is_contiguous)
            and not (isinstance(value.base, WeightVar) and value.base.is_constant)
            and all(
                (in_place and value.same_memory(other)) or not value.overlaps(other)
                for other in inputs
            )
        ]
        if candidates and self.rng.random() < 0.6:
            return self.rng.choice(candidates)
        return self.alloc(type)

    def place(self, part: Type, whole: Type) -> tuple[int, ...]:
        """Where a box of one type may begin in a tensor of the other."""
        pairs = zip(part.extents, whole.extents, strict=True)
        return tuple(self.rng.randint(0, b - a) for a, b in pairs)

    def write(self, inst: Instruction) -> None:
        """Appends an instruction, under a predicate now and then; its results are written whole."""
        predicates = [v for v in self.readable() if v.type.kind is ElemKind.BOOL]
        outs = list(inst.writes())
        if predicates and self.rng.random() < 0.3:
            chosen = self.rng.choice(predicates)
            if not any(chosen.overlaps(out) for out in outs):
                inst.predicate = chosen
        self.f.add(inst)
        for out in outs:
            self.bytes_of(out)[...] = True


def _splat(p: RandomProgram) -> None:
    target = p.target(p.rng.choice(_TYPES), (), in_place=False, strided=True)
    p.f.create_splat(target, float(p.rng.randint(0, 3)))
    p.bytes_of(target)[...] = True


def _unary(p: RandomProgram) -> None:
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    cls = p.rng.choice((NegInst, AbsInst))
    p.write(cls([p.target(x.type, [x], in_place=True, strided=True), x], {}))


def _binary(p: RandomProgram) -> None:
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    fits = [
        v
        for v in p.readable(strided=True)
        if v.type.kind is x.type.kind and _fits(v.type.shape, x.type.shape)
    ]
    inputs = [x, p.rng.choice(fits)]
    p.rng.shuffle(inputs)
    cls = p.rng.choice((AddInst, SubInst, MulInst, MaxInst))
    p.write(cls([p.target(x.type, inputs, in_place=True, strided=True), *inputs], {}))


def _fits(own: Shape, whole: Shape) -> bool:
    return len(own) <= len(whole) and all(
        mine in (1, theirs) for mine, theirs in zip(reversed(own), reversed(whole), strict=False)
    )


def _compare(p: RandomProgram) -> None:
    x = p.source(ElemKind.I32, strided=True)
    result = p.target(x.type.with_kind(ElemKind.BOOL), [x], in_place=False)
    p.f.create_lt(result, x, x)
    p.bytes_of(result)[...] = True


def _copy(p: RandomProgram) -> None:
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    result = p.target(x.type, [x], in_place=True, strided=True)
    p.f.create_copy(result, x)
    p.bytes_of(result)[...] = True


def _view(p: RandomProgram) -> None:
    source = p.rng.choice(p.values)
    kinds = {4: (ElemKind.I32, ElemKind.I32, ElemKind.U32), 1: (source.type.kind,)}
    shapes = [t.shape for t in _TYPES if t.count <= source.type.count]
    if source.type.kind.size not in kinds or not shapes:
        return
    type = Type(p.rng.choice(kinds[source.type.kind.size]), p.rng.choice(shapes))
    (room,) = static([source.span // source.type.kind.size])
    strides = _strides(p, type.shape, room)
    (span,) = static([span_of(type.shape, strides)])
    offset = p.rng.randint(0, room - span)
    p.values.append(p.f.create_view("v", type, source, offset, strides).value)


def _strides(p: RandomProgram, shape: Shape, room: int) -> Shape:
    """Those of a box of a row-major tensor of at most `room` elements, or of every second element."""
    frame = [size + p.rng.choice((0, 0, 1, 2, 4)) for size in shape]
    step = p.rng.choice((1, 1, 1, 2))
    strides = canonical_strides(shape, [step * stride for stride in strides_of(frame)])
    return strides if span_of(shape, strides) <= room else ()


def _insert(p: RandomProgram) -> None:
    """One to three inserts of one value, often of a buffer that was made for it."""
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    if p.rng.random() < 0.5:
        buffer = p.alloc(x.type)
        p.write(NegInst([buffer, x], {}))
        x = buffer
    larger = [t for t in _TYPES if _within(x.type, t)]
    if not larger:
        return
    result = p.target(p.rng.choice(larger), [x], in_place=False, strided=True)
    if p.rng.random() < 0.3:
        p.f.create_splat(result, 1.0)
        p.bytes_of(result)[...] = True
    for _ in range(p.rng.choice((1, 1, 2, 3))):
        offsets = p.place(x.type, result.type)
        p.f.create_insert_tensor(result, x, offsets)
        written = p.bytes_of(result).reshape(*result.type.extents, -1)
        box = (slice(o, o + n) for o, n in zip(offsets, x.type.shape, strict=True))
        written[tuple(box)] = True


def _extract(p: RandomProgram) -> None:
    """Elements one after another, in reverse, or every second one."""
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    smaller = [t for t in _TYPES if _within(t, x.type)]
    if not smaller:
        return
    result = p.target(p.rng.choice(smaller), [x], in_place=False, strided=True)
    offsets, steps = list(p.place(result.type, x.type)), [1] * x.type.rank
    for axis, (size, whole) in enumerate(zip(result.type.extents, x.type.extents, strict=True)):
        if p.rng.random() < 0.1:
            offsets[axis], steps[axis] = offsets[axis] + size - 1, -1
        elif p.rng.random() < 0.2 and 2 * size <= whole + 1:
            offsets[axis], steps[axis] = 0, 2
    p.f.create_extract_tensor(result, x, tuple(offsets), tuple(steps))
    p.bytes_of(result)[...] = True


def _within(part: Type, whole: Type) -> bool:
    """Whether a tensor of one type may be a box of one of the other."""
    return (
        part.kind is whole.kind
        and part.rank == whole.rank > 0
        and all(a <= b for a, b in zip(part.shape, whole.shape, strict=True))
    )


def _pool(p: RandomProgram) -> None:
    """A maximum whose place is read, or not."""
    window = {"kernels": (2, 2), "strides": (2, 2), "pads": (0,) * 4, "dilation": (1, 1)}
    x = p.alloc(Type(ElemKind.I8, (1, 2, 2, 2)))
    p.f.create_splat(x, 2.0)
    p.bytes_of(x)[...] = True
    result = p.alloc(Type(ElemKind.I8, (1, 1, 1, 2)))
    where = p.alloc(Type(ElemKind.I64, (1, 1, 1, 2)))
    p.write(MaxPoolWithArgmaxInst([result, where, x], {**window, "ceil": False}))
    if p.rng.random() < 0.5:
        p.f.create_convert(result, where)
    p.values.append(p.f.create_view("v", Type(ElemKind.I8, (2,)), result, 0).value)


def _sum(p: RandomProgram) -> None:
    """What takes no strides."""
    x = p.source(ElemKind.I32, ElemKind.I8)
    if x.type.rank:
        attrs = {"axis": p.rng.randrange(x.type.rank), "exclusive": False, "reverse": False}
        p.write(CumSumInst([p.target(x.type, [x], in_place=True), x], attrs))


def _reduce(p: RandomProgram) -> None:
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    axes = tuple(axis for axis in range(x.type.rank) if p.rng.random() < 0.5)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.type.shape))
    result = p.target(x.type.with_shape(shape), [x], in_place=False, strided=True)
    p.write(ReduceAddInst([result, x], {"axes": axes}))


def _transpose(p: RandomProgram) -> None:
    x = p.source(ElemKind.I32, ElemKind.I8, strided=True)
    shuffle = list(range(x.type.rank))
    if p.rng.random() < 0.7:  # rows stay rows
        shuffle[:-1] = p.rng.sample(shuffle[:-1], len(shuffle[:-1]))
    else:
        p.rng.shuffle(shuffle)
    type = x.type.with_shape(tuple(x.type.shape[axis] for axis in shuffle))
    result = p.target(type, [x], in_place=False, strided=True)
    p.write(TransposeInst([result, x], {"shuffle": tuple(shuffle)}))


def _dealloc(p: RandomProgram) -> None:
    buffers = p.buffers()
    if buffers:
        dead = p.rng.choice(buffers)
        p.f.create_dealloc(dead)
        p.values = [value for value in p.values if value.base is not dead]
        del p._defined[dead]


_STEPS: tuple[Callable[[RandomProgram], None], ...] = (
    *(_splat, _unary, _unary, _unary, _binary, _binary, _binary, _compare, _copy, _copy),
    *(
        _view,
        _view,
        _view,
        _insert,
        _insert,
        _extract,
        _extract,
        _reduce,
        _sum,
        _sum,
        _pool,
        _transpose,
        _transpose,
        _dealloc,
    ),
)


def outcome(ir: IRFunction) -> dict[str, Array]:
    """What all mutable weights hold after the program ran on the interpreter, on numbers that follow from their names.

    Verifies the program and its memory plan.
    """
    tensors = {
        name: Tensor(weight.type, _numbers(number, weight.type))
        for number, (name, weight) in enumerate(ir.weights.items())
    }
    mutable = {name for name, weight in ir.weights.items() if not weight.is_constant}
    ports = tuple(Port(name, name, tensors[name].type) for name in mutable)
    constants = {name: tensor for name, tensor in tensors.items() if name not in mutable}
    program = Program(ir, plan_memory(ir), constants, Ports(ports, ports))
    compiled = InterpreterBackend().function(program)
    return compiled({name: tensors[name].array for name in mutable})


def _numbers(seed: int, type: Type) -> Array:
    return np.random.default_rng(seed).integers(-9, 9, type.extents).astype(type.kind.dtype)
