"""Makes transposed convolutions with fewer phases and more channels, where that fills vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConcatNode, TransposedConvolutionNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.graph.rounding import wide_type
from glowpy.opt.known import known_tensor
from glowpy.passes import RewritePass
from glowpy.support.symbolic import ceil_div

__all__ = ["MergePhasesPass"]


@dataclass(frozen=True)
class MergePhasesPass(RewritePass):
    """Makes channels of the phases of a transposed convolution along a dimension, which then has stride 1.

    Lowering makes a convolution of each phase, with the taps that it has. Together they have each tap once, but
    vectors that are not full where there are few channels, and each reads the input anew. Merged, they are one
    product with `stride` times the channels, and with a window that holds the taps of all, zeros where one has none.
    Along the last dimension channels of one element lie together in the result as well; for another dimension they
    are moved. The model of the processor decides, for one dimension after the other, from the last one on.

    A zero tap meets elements of the input that another phase needs: where these are infinite, the result is NaN.

    Before:
        %x : f32[1x4x4x1]
        %out : f32[1x4x8x1]
        %w : f32[1x1x2x1] = [1.0, 2.0]
        %b : f32[1] = [0.5]
        %t = transposed_convolution(%x, %w, %b)
            {begins=[0,0], dilation=[1,1], group=1, kernels=[1,2], strides=[1,2]} : f32[1x4x8x1]
        save(%t, %out)
    After:
        %x : f32[1x4x4x1]
        %out : f32[1x4x8x1]
        %w : f32[1x1x2x1] = [1.0, 2.0]
        %b : f32[1] = [0.5]
        %t_phases : f32[2x1x1x1] = [1.0, 2.0]
        %t_1 = concat(%b, %b) {axis=0} : f32[2]
        %t = transposed_convolution(%x, %t_phases, %t_1)
            {begins=[0,0], dilation=[1,1], group=1, kernels=[1,1], strides=[1,1]} : f32[1x4x4x2]
        %t_3 = reshape(%t) : f32[1x4x4x2x1]
        %t_4 = reshape(%t_3) : f32[1x4x8x1]
        %t_5 = slice(%t_4) {starts=[0,0,0,0], steps=[1,1,1,1]} : f32[1x4x8x1]
        save(%t_5, %out)
    """

    variant: Variant
    name: ClassVar[str] = "merge-phases"
    concerns = (TransposedConvolutionNode,)

    @rule
    def merge(self, f: Function, n: TransposedConvolutionNode, why: Why) -> Replacement:
        """The phases along the last dimension where that is faster."""
        kind = wide_type(n.type).kind
        if kind not in (ElemKind.F32, ElemKind.F64) or n.type.quant is not None:
            return None
        filter = known_tensor(n.filter)
        if filter is None:
            return why.no("the filter is computed")
        if n.group > 1:
            return why.no("the channels of a group lie together")
        machine = self.variant.machine_for(kind)
        for axis in reversed(range(len(n.strides))):
            if n.strides[axis] > 1:
                windows = [_window(n, axis, skipped) for skipped in range(n.strides[axis])]
                best = max(windows, key=lambda w: _saved_cycles(n, axis, w, machine))
                if _saved_cycles(n, axis, best, machine) >= 0:
                    return _with_stride_1(f, n, axis, best, filter)
        return why.no("the phases fill vectors, or have few taps in common")


@dataclass(frozen=True)
class _Window:
    """The window of all phases along one dimension.

    Phases are counted from some elements before the result on, which are left out at the end: where a kernel of 4 has
    stride 2 and begins at 1, its phases so have 2 taps in common, not 3.

    Attributes:
        skipped: How many elements these are.
        begin: As of the node, for stride 1.
        size: How many taps there are.
        taps: (phase, tap of the kernel, tap of the window) for each tap of the kernel.
    """

    skipped: int
    begin: int
    size: int
    taps: tuple[tuple[int, int, int], ...]


def _window(n: TransposedConvolutionNode, axis: int, skipped: int) -> _Window:
    """Phase r of element j sums input[j + shift] * filter[k], where stride * shift is r + begin - dilation * k."""
    kernel, stride, dilation = n.kernels[axis], n.strides[axis], n.dilation[axis]
    begin = n.begins[axis] - skipped
    shifts = {
        (phase, tap): (phase + begin - dilation * tap) // stride
        for phase in range(stride)
        for tap in range(kernel)
        if (phase + begin - dilation * tap) % stride == 0
    }
    last = max(shifts.values())
    taps = tuple((phase, tap, last - shift) for (phase, tap), shift in shifts.items())
    return _Window(skipped, last, last - min(shifts.values()) + 1, taps)


def _saved_cycles(
    n: TransposedConvolutionNode, axis: int, window: _Window, machine: Machine
) -> float:
    """Cycles that are saved for each element of the input without its channels; what has to be moved costs some."""
    stride, outputs, depth = n.strides[axis], n.filter.type.extents[0], n.filter.type.extents[-1]
    others = prod(kernel for other, kernel in enumerate(n.kernels) if other != axis)
    steps = others * depth / machine.multiplies
    before = n.kernels[axis] * ceil_div(outputs, machine.lanes)
    after = window.size * ceil_div(stride * outputs, machine.lanes)
    in_place = axis == len(n.strides) - 1 and not window.skipped and not _joins_channels(n)
    moved = 0 if in_place else 2 * stride * outputs * machine.element_bytes / machine.third_rate
    return steps * (before - after) - moved


def _joins_channels(n: TransposedConvolutionNode) -> bool:
    """Whether channels of the result become some of a concat: phases write each into its place, neighbours cannot."""
    concats = [user for user in n.result.users if isinstance(user, ConcatNode)]
    return any(concat.axis % n.type.rank == n.type.rank - 1 for concat in concats)


def _with_stride_1(
    f: Function, n: TransposedConvolutionNode, axis: int, window: _Window, filter: Tensor
) -> NodeValue:
    """The node with a stride of 1 along a dimension, its channels interleaved along that."""
    stride, outputs, place = n.strides[axis], n.filter.type.extents[0], axis + 1

    def changed(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
        return (*numbers[:axis], number, *numbers[axis + 1 :])

    kernels = changed(n.kernels, window.size)
    bias = f.create_concat(n.name, [n.bias] * stride, 0)
    shape = list(n.type.shape)
    length = ceil_div(shape[place] + window.skipped, stride)
    shape[place] = length
    product = f.create_transposed_convolution(
        n.name, n.type.with_shape((*shape[:-1], stride * outputs)), n.input,
        _merged_filter(f, n, axis, window, filter), bias,
        kernels, changed(n.strides, 1), changed(n.begins, window.begin),
        changed(n.dilation, 1), 1,
    )  # fmt: skip
    phases = f.create_reshape(
        n.name, n.type.with_shape((*shape[:-1], stride, outputs)), product
    ).result
    if place < len(shape) - 2:
        order = (*range(place + 1), len(shape) - 1, *range(place + 1, len(shape) - 1), len(shape))
        phases = f.create_transpose(n.name, phases, order).result
    shape[place] = length * stride
    interleaved = f.create_reshape(n.name, n.type.with_shape(tuple(shape)), phases)
    starts = [0] * len(shape)
    starts[place] = window.skipped
    return f.create_slice(n.name, n.type, interleaved, tuple(starts), (1,) * len(shape)).result


def _merged_filter(
    f: Function, n: TransposedConvolutionNode, axis: int, window: _Window, filter: Tensor
) -> NodeValue:
    """The filters of the phases one after the other, as channels; zero where a phase has no tap."""
    stride, place = n.strides[axis], axis + 1
    outputs, *rest = filter.type.extents
    shape = [stride * outputs, *rest]
    shape[place] = window.size
    type = Type(filter.type.kind, tuple(shape))

    def compute(array: Array) -> Array:
        windows = np.zeros((stride, outputs, *shape[1:]), array.dtype)
        source, target = np.moveaxis(array, place, 0), np.moveaxis(windows, place + 1, 0)
        for phase, tap, at in window.taps:
            target[at, phase] = source[tap]
        return windows.reshape(shape)

    operation = f"merge phases {stride} along {place}: {window.taps}"
    tensor = Tensor.derived(type, operation, [filter], compute)
    return f.module.create_constant(f"{n.name}_phases", tensor, loc=n.loc).value
