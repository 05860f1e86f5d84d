"""Random networks whose operators are about symbolic extents: parts, products, sums and places that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.support.symbolic import Dim, ceil_div, lowest
from tests.unit.networks import RandomNetwork, Step, SymbolicNetwork

__all__ = ["OpenNetwork"]

_KINDS = (
    *(ElemKind.F32, ElemKind.F32, ElemKind.F32, ElemKind.F64, ElemKind.I64),
    *(ElemKind.I32, ElemKind.I8, ElemKind.U8, ElemKind.BOOL),
)


class OpenNetwork(SymbolicNetwork):
    """With more kinds, and operators that the other random networks do not have."""

    @property
    def steps(self) -> Sequence[Step]:
        """Those of the others as well."""
        return (*super().steps, *_STEPS, *_STEPS)

    def _placeholder(self, number: int) -> NodeValue:
        value = super()._placeholder(number)
        if number == 0:
            return value
        type = value.type.with_kind(self.rng.choice(_KINDS))
        return self.module.create_placeholder(f"more_{number}", type).value

    def counted(self, count: Dim) -> NodeValue:
        """0, 1, 2 and so on, as a vector of i64."""
        ones = self.f.create_splat("ones", Type(ElemKind.I64, (count,)), 1.0)
        return self.f.create_cum_sum("places", ones, 0, exclusive=True).result

    def noted(self, value: NodeValue) -> NodeValue:
        """The value, of which others are not to take the bits for granted."""
        self._inexact.add(value)
        return value


def _part(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """Halves, all but the first, the last, every second, or all in reverse."""
    starts: list[Dim] = []
    shape: list[Dim] = []
    steps: list[int] = []
    for size in x.type.shape:
        half = size // 2
        choices: list[tuple[Dim, Dim, int]] = [
            (0, size, 1),
            (0, size, 1),
            (0, half, 1),
            (half, size - half, 1),
            (0, ceil_div(size, 2), 2),
        ]
        if lowest(size) > 0:
            choices += [(1, size - 1, 1), (size - 1, 1, 1), (size - 1, size, -1)]
        start, count, step = net.rng.choice(choices)
        starts.append(0 if count == 0 else start)
        shape.append(count)
        steps.append(step)
    type = x.type.with_shape(shape)
    return net.f.create_slice("part", type, x, tuple(starts), tuple(steps)).result


def _product(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """With what was transposed, or with a constant."""
    if x.type.rank < 2 or x.type.kind is not ElemKind.F32:
        return None
    depth = x.type.shape[-1]
    others = [
        v
        for v in net.values
        if v.type.kind is ElemKind.F32 and v.type.rank > 1 and v.type.shape[-1] == depth
    ]
    other = net.rng.choice(others)
    if other.type.rank != 2 and other.type.shape[:-2] != x.type.shape[:-2]:
        other = net.constant(Type(ElemKind.F32, (3, depth)))
    rank = other.type.rank
    shuffle = (*range(rank - 2), rank - 1, rank - 2)
    return net.f.create_mat_mul("product", x, net.f.create_transpose("rhs", other, shuffle)).result


def _total(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """Over some axes, one after the other or at once."""
    if not x.type.rank or x.type.kind not in (ElemKind.F32, ElemKind.I32, ElemKind.I64):
        return None
    axes = tuple(axis for axis in range(x.type.rank) if net.rng.random() < 0.5) or (0,)
    f = net.f
    creates: list[Callable[[str, NodeValue, tuple[int, ...]], Node]] = [f.create_reduce_add]
    if all(lowest(x.type.shape[axis]) > 0 for axis in axes):
        creates += [f.create_reduce_max, f.create_reduce_min, f.create_reduce_mean]
    return net.rng.choice(creates)("total", x, axes).result


def _sums(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if not x.type.rank or x.type.kind not in (ElemKind.F32, ElemKind.I32):
        return None
    axis = net.rng.randrange(x.type.rank)
    return net.f.create_cum_sum(
        "sums", x, axis, net.rng.random() < 0.5, net.rng.random() < 0.5
    ).result


def _repeated(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """Along a dimension of 1, or a new one."""
    assert isinstance(net, OpenNetwork)
    if x.type.rank > 4:
        return None
    count = net.rng.choice((2, *net.SYMBOLS.values(), net.SYMBOLS["m"] + 1))
    axis = net.rng.randrange(x.type.rank + 1)
    shape = x.type.shape
    ones = net.f.create_reshape("one", x.type.with_shape((*shape[:axis], 1, *shape[axis:])), x)
    wide = x.type.with_shape((*shape[:axis], count, *shape[axis:]))
    result = net.f.create_broadcast("repeated", wide, ones).result
    if net.rng.random() < 0.5 or axis == len(shape):
        return result
    merged = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
    return net.f.create_reshape("merged", x.type.with_shape(merged), result).result


def _picked(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """Slices by places that are computed: twice each, in reverse, or where a maximum is."""
    assert isinstance(net, OpenNetwork)
    f = net.f
    if not x.type.rank:
        return None
    axis = net.rng.randrange(x.type.rank)
    size = x.type.shape[axis]
    if lowest(size) < 1:
        return None
    places: Operand
    match net.rng.randrange(3):
        case 0:
            places = f.create_div("half", net.counted(2 * size), f.create_extents("two", (2,)))
        case 1:
            last = f.create_extents("last", (size - 1,))
            places = f.create_sub("reverse", last, net.counted(size))
        case _ if net.is_exact(x) and x.type.kind in (ElemKind.F32, ElemKind.I32):
            most = f.create_arg_max("most", x, axis)
            places = f.create_reshape("flat", most.type.with_shape((most.type.count,)), most)
        case _:
            return None
    return f.create_gather("picked", x, places, axis).result


def _normalized(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    if not x.type.rank or x.type.kind is not ElemKind.F32 or lowest(x.type.shape[-1]) < 1:
        return None
    vector = Type(ElemKind.F32, (x.type.shape[-1],))
    scale, bias = net.constant(vector), net.constant(vector)
    axes = (x.type.rank - 1,)
    return net.f.create_layer_normalization("normal", x, scale, bias, axes, 0.5, True).result


def _widened(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """Pads that depend on extents, and what undoes them."""
    if x.type.kind is ElemKind.BOOL or not x.type.rank:
        return None
    axis = net.rng.randrange(x.type.rank)
    pads: list[Dim] = [0] * (2 * x.type.rank)
    pads[axis] = net.rng.choice((1, x.type.shape[axis] // 2))
    pads[x.type.rank + axis] = net.rng.choice((0, -x.type.shape[axis] % 4))
    wide = net.f.create_pad("wide", x, tuple(pads), 2.0).result
    if net.rng.random() < 0.5:
        return wide
    return net.f.create_pad("narrow", wide, tuple(-pad for pad in pads), 0.0).result


def _windows(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
    """A pool, or a convolution there and back."""
    x = net.image(x)
    if x.type.rank != 4 or x.type.kind is not ElemKind.F32:
        return None
    f, steps = net.f, net.rng.choice(((1, 1), (2, 1), (2, 2)))
    args = ((2, 2), steps, (1, 0, 1, 1), (1, 1))
    match net.rng.randrange(4):
        case 0:
            return f.create_max_pool("pool", x, *args, net.rng.random() < 0.3).result
        case 1:
            return f.create_avg_pool("mean", x, *args, False, net.rng.random() < 0.5).result
        case choice:
            channels = net.rng.choice((1, 3))
            filter = net.constant(Type(ElemKind.F32, (channels, 2, 2, x.type.shape[3])))
            bias = net.constant(Type(ElemKind.F32, (channels,)))
            if choice == 2:
                return f.create_convolution("conv", x, filter, bias, *args, 1).result
            batch, *sizes, _ = x.type.shape
            spatial = [(size - 1) * step + 2 for size, step in zip(sizes, steps, strict=True)]
            type = x.type.with_shape((batch, *spatial, channels))
            zeros, ones = (0, 0), (1, 1)
            return f.create_transposed_convolution(
                "back", type, x, filter, bias, (2, 2), steps, zeros, ones, 1
            ).result


def _rounded(step: Step) -> Step:
    def run(net: RandomNetwork, x: NodeValue) -> NodeValue | None:
        assert isinstance(net, OpenNetwork)
        result = step(net, x)
        return None if result is None else net.noted(result)

    return run


_STEPS: tuple[Step, ...] = (
    *(_part, _part, _repeated, _picked, _widened),
    *map(_rounded, (_product, _product, _total, _sums, _normalized, _windows, _windows)),
)
