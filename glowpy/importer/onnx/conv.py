"""Import of convolutions, and of what all windows share: kernels, strides, dilations and pads from ONNX attributes."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import sum_type
from glowpy.core.shape import is_same, is_same_shape
from glowpy.core.type import Shape, Type
from glowpy.graph.infer import infer_types
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.importer.kit.moves import (
    channels_first,
    channels_last,
    full,
    reshape,
    transpose,
)
from glowpy.importer.kit.values import Value
from glowpy.importer.kit.windows import Window, same_pads
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, highest, lowest, product, static
from glowpy.support.text import Attr

__all__ = ["window"]


def window(n: OnnxNode, spatial: Sequence[Dim], kernels: Sequence[int]) -> Window:
    """The window of a convolution or pool over dimensions `spatial`, with `auto_pad` worked out.

    Raises UserError if an attribute has the wrong length or `auto_pad` contradicts `pads`.
    """
    rank = len(spatial)
    strides = n.integers("strides") or (1,) * rank
    dilation = n.integers("dilations") or (1,) * rank
    for name, values in (("kernel_shape", kernels), ("strides", strides), ("dilations", dilation)):
        if len(values) != rank or min(values, default=1) < 1:
            raise UserError(
                f"attribute '{name}': expected {rank} sizes of at least 1, got {list(values)}"
            )
    auto = n.text("auto_pad", "NOTSET")
    attribute = n.integers("pads")
    pads: Shape
    if auto == "NOTSET":
        pads = attribute or (0,) * (2 * rank)
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = same_pads(spatial, kernels, strides, dilation, upper=auto == "SAME_UPPER")
    else:
        raise UserError(f"attribute 'auto_pad': expected NOTSET, VALID or SAME, got '{auto}'")
    if len(pads) != 2 * rank or any(lowest(pad) < 0 for pad in pads):
        raise UserError(
            f"attribute 'pads': expected {2 * rank} sizes of at least 0, got {list(pads)}"
        )
    return Window(tuple(kernels), strides, dilation, tuple(pads))


@from_onnx("Conv")
def _conv(n: OnnxNode) -> Value:
    """Activations become N, spatial..., C around the convolution, filters O, spatial..., I for good.

    Of quantized operands the result are the exact sums, in i32.
    """
    x, w = n.type(0), n.type(1)
    if x.rank != w.rank or not 3 <= x.rank <= 5:
        raise UserError(f"expected an input and a filter of one rank from 3 to 5, got {x} and {w}")
    kernels, group = n.integers("kernel_shape") or w.extents[2:], n.integer("group", 1)
    if not is_same_shape(kernels, w.shape[2:]):
        raise UserError(f"attribute 'kernel_shape': expected that of {w}, got {list(kernels)}")
    if group < 1 or not is_same(w.shape[1] * group, x.shape[1]) or w.shape[0] % group:
        raise UserError(
            f"expected a filter of [O, {x.shape[1]} / group, ...] with O a multiple of group {group}, got {w}"
        )
    win = window(n, x.shape[2:], kernels)
    data = n.operand(channels_last(n, n.value(0)), n.proto.input[0])
    filter = n.operand(channels_last(n, n.value(1)), n.proto.input[1])
    attrs: dict[str, Attr] = {**vars(win), "group": group}
    outputs, sums = Type(ElemKind.F32, (w.shape[0],)), None
    if x.quant is None:
        outputs = x.with_shape(outputs.shape)
    else:
        floats = [type.with_kind(ElemKind.F32) for type in (data.type, filter.type)]
        (whole,) = infer_types(ConvolutionNode, [*floats, outputs], attrs)
        sums = sum_type(data.type, filter.type, 0, whole.shape)
        outputs = sum_type(data.type, filter.type, 0, outputs.shape)
    bias = n.input(2) if n.has(2) else n.operand(full(outputs, 0), f"{n.name}_bias")
    result = n.f.create(ConvolutionNode, n.name, [data, filter, bias], attrs, sums)
    return channels_first(n, result.result)


@from_onnx("ConvTranspose")
def _conv_transpose(n: OnnxNode) -> Value:
    """Activations become N, spatial..., C, filters [I, O / group, spatial...] become O, spatial..., I / group."""
    x, w, group = n.type(0), n.type(1), n.integer("group", 1)
    if x.rank != w.rank or not 3 <= x.rank <= 5:
        raise UserError(f"expected an input and a filter of one rank from 3 to 5, got {x} and {w}")
    if group < 1 or not is_same(w.shape[0], x.shape[1]) or x.shape[1] % group:
        raise UserError(f"expected a filter of [{x.shape[1]}, O / group, ...] for {x}, got {w}")
    spatial = x.shape[2:]
    kernels = n.integers("kernel_shape") or w.extents[2:]
    if not is_same_shape(kernels, w.shape[2:]):
        raise UserError(f"attribute 'kernel_shape': expected that of {w}, got {list(kernels)}")
    rank = len(spatial)
    strides = n.integers("strides") or (1,) * rank
    dilation = n.integers("dilations") or (1,) * rank
    extra = n.integers("output_padding") or (0,) * rank
    for name, values in (("strides", strides), ("dilations", dilation), ("output_padding", extra)):
        if len(values) != rank or min(values) < (0 if name == "output_padding" else 1):
            raise UserError(f"attribute '{name}': expected {rank} sizes, got {list(values)}")
    reach = [(k - 1) * d + 1 for k, d in zip(kernels, dilation, strict=True)]
    full_sizes = [
        s * (size - 1) + e + r for s, size, e, r in zip(strides, spatial, extra, reach, strict=True)
    ]
    pads = _transposed_pads(
        n, [s * size for s, size in zip(strides, spatial, strict=True)], full_sizes
    )
    sizes = [have - pads[i] - pads[rank + i] for i, have in enumerate(full_sizes)]
    for axis, size in enumerate(sizes):
        if highest(size) < 0 or (size == 0 and spatial[axis] != 0):
            raise UserError(
                f"expected pads that leave some of the {full_sizes[axis]} elements of spatial dimension {axis}, "
                f"got {pads[axis]} and {pads[rank + axis]}"
            )
    outputs = w.extents[1] * group
    type = x.with_shape((x.shape[0], *sizes, outputs))
    bias = n.input(2) if n.has(2) else n.operand(full(x.with_shape((outputs,)), 0))
    result = n.f.create_transposed_convolution(
        n.name, type, n.operand(channels_last(n, n.value(0)), n.proto.input[0]),
        n.operand(_filter(n, group), n.proto.input[1]), bias,
        kernels, strides, static(pads[:rank]), dilation, group,
    )  # fmt: skip
    return channels_first(n, result.result)


def _transposed_pads(n: OnnxNode, same: Sequence[Dim], whole: Sequence[Dim]) -> Sequence[Dim]:
    """Computes the margins to cut off the whole output, by `pads`, `auto_pad` or `output_shape`."""
    rank = len(whole)
    auto = n.text("auto_pad", "NOTSET")
    sizes: Sequence[Dim] | None = n.integers("output_shape")
    if sizes is not None:
        sizes = sizes[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = tuple(same)
    if sizes is None:
        pads = (n.integers("pads") if auto == "NOTSET" else None) or (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads) < 0:
            raise UserError(f"attribute 'pads': expected {2 * rank} sizes, got {list(pads)}")
        return pads
    if len(sizes) != rank:
        raise UserError(f"attribute 'output_shape': expected {rank} sizes, got {list(sizes)}")
    totals = [have - want for have, want in zip(whole, sizes, strict=True)]
    halves = [total // 2 for total in totals]
    rests = [total - half for total, half in zip(totals, halves, strict=True)]
    return (*halves, *rests) if auto == "SAME_UPPER" else (*rests, *halves)


def _filter(n: OnnxNode, group: int) -> Value:
    """The filter [I, O / group, spatial...] as [O, spatial..., I / group]."""
    inputs, outputs, *kernels = n.type(1).extents
    split = reshape(n, n.value(1), (group, inputs // group, outputs, product(kernels)))
    return reshape(
        n, transpose(n, split, (0, 2, 3, 1)), (group * outputs, *kernels, inputs // group)
    )
