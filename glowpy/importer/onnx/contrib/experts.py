"""Import of mixtures of experts: a router chooses some of many feed-forward networks for each token.

Each expert is computed for the tokens that chose it alone: how many these are is found when the network runs. What it
gives is added to these tokens' rows of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, filled, reshape, slice_axis, transpose
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.narrow import unpacked
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.quant import dequantized
from glowpy.importer.onnx.standard import OPSET, results_as, standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, ceil_div, product

__all__: list[str] = []

F32 = ElemKind.F32


@dataclass(frozen=True)
class _Layer:
    """A layer of all experts: `weights` gives the matrix of one, a column for each output, and there may be biases."""

    count: int
    inputs: Dim
    outputs: Dim
    weights: Callable[[int], Value]
    bias: Value | None

    def of(self, n: OnnxNode, expert: int, rows: Value) -> NodeValue:
        """The products of rows with the weights of an expert, and its bias."""
        result = n.operand(standard(n, "MatMul", [rows, self.weights(expert)]))
        if self.bias is None:
            return result
        bias = convert(n, slice_axis(n, self.bias, 0, expert, 1, 1), F32)
        return n.f.create_add(n.name, result, n.operand(bias)).result


def _bias(n: OnnxNode, index: int, count: int, outputs: Dim) -> Value | None:
    if not n.has(index):
        return None
    if n.type(index).shape != (count, outputs):
        raise UserError(
            f"expected a bias [{count}, {outputs}] as input {index}, got {n.type(index)}"
        )
    return n.value(index)


@from_onnx("MoE", domain=CONTRIB)
def _moe(n: OnnxNode) -> Value:
    """Weights are floats, a row for each output."""
    for index in (6, 7):
        if n.has(index):
            raise n.unsupported(f"input {index} ('{n.proto.input[index]}', a third layer)")
    layers = [_plain_layer(n, weights, weights + 1) for weights in (2, 4)]
    chances = n.f.create_softmax(n.name, n.operand(_router(n, 1)), 1).result
    shares, experts = _best(n, chances, chances)
    if n.integer("normalize_routing_weights", 0) == 1:
        shares = _normalized(n, shares)
    return _mixed(n, layers, shares, experts)


def _plain_layer(n: OnnxNode, weights: int, bias: int) -> _Layer:
    type = n.type(weights)
    if type.rank != 3:
        raise UserError(
            f"expected weights [experts, outputs, inputs] as input {weights}, got {type}"
        )
    count, outputs, inputs = type.extents

    def columns(expert: int) -> Value:
        rows = slice_axis(n, n.value(weights), 0, expert, 1, 1)
        return transpose(n, convert(n, reshape(n, rows, (outputs, inputs)), F32), (1, 0))

    return _Layer(count, inputs, outputs, columns, _bias(n, bias, count, outputs))


@from_onnx("QMoE", domain=CONTRIB)
def _qmoe(n: OnnxNode) -> Value:
    """Weights are packed integers with a scale for each row, or for each block of one."""
    if n.text("quant_type", "int") != "int":
        raise n.unsupported(f"quant_type '{n.text('quant_type', 'int')}', which is for GPUs")
    if n.integer("weights_prepacked", -1) == 1:
        raise n.unsupported("weights_prepacked 1, which is for GPUs")
    for index in (8, 9, 10, 13, *range(15, 21)):
        if n.has(index):
            raise n.unsupported(f"input {index} ('{n.proto.input[index]}')")
    layers = [
        _packed_layer(n, f"fc{number}_expert_weight_bits", *places)
        for number, places in ((1, (2, 3, 4, 11)), (2, (5, 6, 7, 12)))
    ]
    logits = _router(n, 1)
    given = n.has(14)
    shares, experts = _best(n, n.operand(logits), n.operand(_router(n, 14)) if given else None)
    if not given:  # only what was chosen counts
        shares = n.f.create_softmax(n.name, shares, 1).result
    elif n.integer("normalize_routing_weights", 0) == 1:
        shares = _normalized(n, shares)
    return _mixed(n, layers, shares, experts)


def _packed_layer(
    n: OnnxNode, own_bits: str, weights: int, scales: int, bias: int, zeros: int
) -> _Layer:
    """A layer whose integers may be of `own_bits`, an attribute."""
    bits = n.integer(own_bits, n.integer("expert_weight_bits", 4))
    block = n.integer("block_size", 0)
    if bits not in (2, 4, 8) or block < 0 or (block and (block < 16 or block & (block - 1))):
        raise n.unsupported(f"{bits} bits in blocks of {block}")
    packed = n.known(weights)
    if packed.type.rank != 3 or packed.type.kind is not ElemKind.U8:
        raise UserError(
            f"expected bytes [experts, outputs, size] as input {weights}, got {packed.type}"
        )
    count, outputs, size = packed.type.extents
    inputs = size * 8 // bits
    blocks = ceil_div(inputs, block) if block else 1
    shape = (count, outputs, blocks)
    if not n.has(scales) or n.type(scales).extents not in (shape, shape[: 3 if block else 2]):
        got = n.type(scales) if n.has(scales) else "none"
        raise UserError(f"expected scales {list(shape)} as input {scales}, got {got}")
    middle = Tensor.splat(Type(ElemKind.U8, shape), 1 << (bits - 1))
    offsets = _unpacked(n.known(zeros), bits, shape) if n.has(zeros) else middle
    numbers = _unpacked(packed, bits, (count, outputs, inputs))
    steps = reshape(n, convert(n, n.value(scales), F32), shape)

    def columns(expert: int) -> Value:
        codes, scale, offset = (
            reshape(n, slice_axis(n, value, 0, expert, 1, 1), (outputs, value.type.shape[2]))
            for value in (numbers, steps, offsets)
        )
        if bits == 2:
            return transpose(n, dequantized(n, codes, scale, offset, 1, block or inputs), (1, 0))
        return n.f.create_dequantize_blocks(
            f"{n.name}_weights",
            n.operand(transpose(n, codes, (1, 0)), f"{n.name}_weights"),
            n.operand(transpose(n, scale, (1, 0)), f"{n.name}_scale"),
            n.operand(transpose(n, offset, (1, 0)), f"{n.name}_zero"),
            axis=0,
            block=block or inputs,
            bits=bits,
        ).result

    return _Layer(count, inputs, outputs, columns, _bias(n, bias, count, outputs))


def _unpacked(tensor: Tensor, bits: int, shape: tuple[int, int, int]) -> Tensor:
    """Integers of so many bits, from the lowest bits on; each row of bytes begins with one."""
    if tensor.type.kind is not ElemKind.U8 or tensor.type.count * 8 // bits < product(shape):
        raise UserError(f"expected {list(shape)} integers of {bits} bits, got {tensor.type}")
    rows = tensor.type.extents[:-1]

    def unpack(array: Array) -> Array:
        numbers = unpacked(array.reshape(-1, array.shape[-1]), bits)
        needed = int(np.prod(shape)) // int(np.prod(rows))
        return np.ascontiguousarray(numbers[:, :needed]).reshape(shape)

    return Tensor.derived(Type(ElemKind.U8, shape), f"unpack {bits} bits", [tensor], unpack)


# Routing.


def _router(n: OnnxNode, index: int) -> Value:
    if n.type(index).rank != 2:
        raise UserError(f"expected [tokens, experts] as input {index}, got {n.type(index)}")
    return convert(n, n.value(index), F32)


def _best(n: OnnxNode, by: NodeValue, of: NodeValue | None) -> tuple[NodeValue, NodeValue]:
    """The k experts of each token that are best by some numbers, and their shares of others.

    Of equal ones the last come first, as in onnxruntime: ONNX's TopK takes the first, so it sees them in reverse.
    """
    tokens, count = by.type.shape
    k = n.integer("k", 1)
    if not isinstance(count, int) or not 1 <= k <= count:
        raise UserError(f"expected k from 1 to {count}, got {k}")
    if n.integer("use_sparse_mixer", 0) == 1:
        raise n.unsupported("use_sparse_mixer 1, which is for GPUs")
    order = Tensor.of(np.arange(count)[::-1].copy())
    turned = standard(n, "Gather", [by, order], axis=1)
    values = [turned, Tensor.of(np.array([k]))]
    top, places = results_as(n, "", "TopK", OPSET, values, {"axis": -1, "largest": 1})
    assert isinstance(top, NodeValue)
    assert isinstance(places, NodeValue)
    last = n.f.create_splat(f"{n.name}_last", Type(ElemKind.I64, ()), float(count - 1))
    experts = n.f.create_sub(n.name, last, places).result
    if of is None or of is by:
        return top, experts
    if of.type.shape != (tokens, count):
        raise UserError(f"expected weights like {by.type}, got {of.type}")
    return n.operand(standard(n, "GatherElements", [of, experts], axis=1)), experts


def _normalized(n: OnnxNode, shares: NodeValue) -> NodeValue:
    """Shares whose sum is 1 for each token; all are 0 if their sum is."""
    total = n.f.create_reduce_add(n.name, shares, (1,)).result
    zero = n.f.create_splat(f"{n.name}_zero", Type(F32, ()), 0.0).result
    one = n.f.create_splat(f"{n.name}_one", Type(F32, ()), 1.0).result
    nothing = n.f.create_eq(n.name, total, zero)
    divisor = n.f.create_select(n.name, nothing, one, total)
    return n.f.create_div(n.name, shares, divisor).result


# Experts.


def _mixed(n: OnnxNode, layers: list[_Layer], shares: NodeValue, experts: NodeValue) -> Value:
    """Computes the experts of each token, and sums their results weighted by their shares."""
    type, f = n.type(0), n.f
    width = type.shape[-1]
    tokens = product(type.shape[:-1])
    first, second = layers
    fused = 2 if n.text("activation_type", "relu") == "swiglu" else 1
    sizes = (first.count, first.inputs, second.outputs, second.inputs * fused)
    if type.rank not in (2, 3) or sizes != (second.count, width, width, first.outputs):
        raise UserError(f"expected weights of two layers for rows of {type}, got {sizes}")
    if experts.type.shape[0] != tokens:
        raise UserError(f"expected a row of the router for each of {tokens} tokens")
    x = reshape(n, convert(n, n.value(0), F32), (tokens, width))
    total: Value = filled(n, Type(F32, (tokens, width)), 0.0)
    for expert in range(first.count):
        expert_number = f.create_splat(f"{n.name}_expert", Type(ElemKind.I64, ()), float(expert))
        hits = f.create_eq(n.name, experts, expert_number).result
        places = _places(n, hits, tokens)
        rows = standard(n, "Gather", [x, places], axis=0)
        result = second.of(n, expert, _activated(n, first.of(n, expert, rows)))
        share = standard(n, "Gather", [_share(n, hits, shares), places], axis=0)
        weighed = f.create_mul(n.name, result, n.operand(share)).result
        indices = reshape(n, places, (*places.type.shape, 1))
        total = standard(n, "ScatterND", [total, indices, weighed], reduction="add")
    return convert(n, reshape(n, total, type.shape), type.kind)


def _places(n: OnnxNode, hits: NodeValue, tokens: Dim) -> Value:
    """The tokens that chose an expert."""
    counts = n.operand(convert(n, hits, ElemKind.I32))
    maximum = n.f.create_reduce_max(n.name, counts, (1,)).result
    places = standard(n, "NonZero", [reshape(n, convert(n, maximum, ElemKind.BOOL), (tokens,))])
    return reshape(n, places, places.type.shape[1:])


def _share(n: OnnxNode, hits: NodeValue, shares: NodeValue) -> NodeValue:
    """The share that an expert has of each token, as a column."""
    zero = n.f.create_splat(f"{n.name}_zero", Type(F32, ()), 0.0).result
    share = n.f.create_select(n.name, hits, shares, zero).result
    return n.f.create_reduce_add(n.name, share, (1,)).result


def _activated(n: OnnxNode, x: NodeValue) -> NodeValue:
    """Rows after the activation: those of a gated one are half as wide, the gate being every first of two elements."""
    match n.text("activation_type", "relu"):
        case "relu":
            return n.f.create_relu(n.name, x).result
        case "gelu":
            return n.f.create_gelu(n.name, x, approximate=True).result
        case "silu":
            return n.f.create_swish(n.name, x, 1.0).result
        case "identity":
            return x
        case "swiglu":
            return _gated(n, x)
        case other:
            raise n.unsupported(f"activation_type '{other}'")


def _gated(n: OnnxNode, x: NodeValue) -> NodeValue:
    if n.integer("swiglu_fusion", 0) != 1:  # as onnxruntime's kernels for the CPU
        raise n.unsupported(f"swiglu_fusion {n.integer('swiglu_fusion', 0)}")
    if n.integer("swiglu_limit_after_activation", 0) == 1:
        raise n.unsupported("swiglu_limit_after_activation 1, which is for GPUs")
    rows, width = x.type.shape
    pairs = reshape(n, x, (rows, width // 2, 2))
    gate, linear = (
        n.operand(reshape(n, slice_axis(n, pairs, 2, side, 1, 1), (rows, width // 2)))
        for side in (0, 1)
    )
    if n.has_attribute("swiglu_limit"):
        limit = n.real("swiglu_limit", np.inf)
        gate = n.f.create_clip(n.name, gate, -np.inf, limit).result
        linear = n.f.create_clip(n.name, linear, -limit, limit).result
    swish = n.f.create_swish(n.name, gate, n.real("activation_alpha", 1.0))
    shift = n.f.create_splat(f"{n.name}_beta", Type(F32, ()), n.real("activation_beta", 0.0))
    return n.f.create_mul(n.name, swish, n.f.create_add(n.name, linear, shift)).result
