"""Import of normalisations of sums: those after a residual connection, of embeddings, and by groups of channels."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcast_shapes, is_same_shape
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import (
    channels_first,
    channels_last,
    convert,
    full,
    reshape,
)
from glowpy.importer.kit.numbers import counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.heads import check_type
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__: list[str] = []


@from_onnx("SkipLayerNormalization", domain=CONTRIB)
def _skip_layer_normalization(n: OnnxNode) -> tuple[Result, ...]:
    return _skipped(n, "LayerNormalization", [2, 3], 4)


@from_onnx("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def _skip_simplified(n: OnnxNode) -> tuple[Result, ...]:
    return _skipped(n, "RMSNormalization", [2], 3)


def _skipped(n: OnnxNode, op_type: str, factors: list[int], bias: int) -> tuple[Result, ...]:
    """The normal form of input 0 plus input 1 plus a bias, then what only training reads, and that sum."""
    if n.wants(1) or n.wants(2):
        raise n.unsupported("a second or third output (mean, inv_std_var)", note="leave them out")
    x, skip = n.type(0), n.type(1)
    if broadcast_shapes(x.shape, skip.shape) != x.shape:
        raise UserError(f"expected a skip input that broadcasts to {x}, got {skip}")
    for index in (*factors, bias):
        if n.has(index):
            check_type(n, index, x.shape[-1:])
    total = n.f.create_add(n.name, n.input(0), n.input(1)).result
    if n.has(bias):
        total = n.f.create_add(n.name, total, n.input(bias)).result
    return _normal(n, op_type, total, factors), total, total, total


def _normal(n: OnnxNode, op_type: str, total: NodeValue, factors: list[int]) -> Value:
    """The normal form of `total` along its last dimension, with those of the inputs `factors` that are given."""
    values = [n.value(index) if n.has(index) else None for index in factors]
    epsilon = n.real("epsilon", 1e-12)
    return standard(n, op_type, [total, *values], axis=-1, epsilon=epsilon)


@from_onnx("EmbedLayerNormalization", domain=CONTRIB)
def _embed_layer_normalization(n: OnnxNode) -> tuple[Result, ...]:
    """The sum of what words, positions and segments are embedded as, normalised; then how many words are not masked."""
    if n.type(0).rank != 2:
        raise UserError(f"expected words [batch, length], got {n.type(0)}")
    if n.has(1) != n.has(4):
        raise UserError("expected both segment_ids and segment_embedding, or neither")
    batch, length = n.type(0).shape
    positions = counted(n, length).reshaped(1, length).value
    if n.has(8):
        rows = n.type(8).shape[:1]
        if not is_same_shape(n.type(8).shape, (1 if rows == (1,) else batch, length)):
            raise UserError(f"expected positions of {n.type(0)}, got {n.type(8)}")
        positions = n.value(8)
    total = n.f.create_add(n.name, _rows(n, 2, n.value(0)), _rows(n, 3, positions)).result
    if n.has(1):
        check_type(n, 1, (batch, length))
        total = n.f.create_add(n.name, total, _rows(n, 4, n.value(1))).result
    return _normal(n, "LayerNormalization", total, [5, 6]), _count(n, batch), total


def _rows(n: OnnxNode, table: int, indices: Value) -> NodeValue:
    """Rows of input `table`."""
    if n.type(table).rank != 2:
        raise UserError(f"expected a matrix as input {table}, got {n.type(table)}")
    check_places(n, indices, 0, n.type(table).shape[0] - 1)
    return n.f.create_gather(n.name, n.input(table), n.operand(indices), 0).result


def _count(n: OnnxNode, batch: Dim) -> Value:
    """How many elements of the mask are 1, for each batch; 0 without a mask."""
    type = Type(ElemKind.I32, (batch,))
    if not n.has(7):
        return full(type, 0)
    check_type(n, 7, n.type(0).shape)
    one = n.operand(full(Type(ElemKind.I32, ()), 1), f"{n.name}_one")
    is_kept = n.f.create_eq(n.name, n.input(7), one).result
    ones = n.operand(convert(n, is_kept, ElemKind.I32))
    return reshape(n, n.f.create_reduce_add(n.name, ones, (1,)).result, type.shape)


@from_onnx("GroupNorm", domain=CONTRIB)
def _group_norm(n: OnnxNode) -> Value:
    return _grouped(n, n.input(0))


@from_onnx("SkipGroupNorm", domain=CONTRIB)
def _skip_group_norm(n: OnnxNode) -> tuple[Result, ...]:
    """Normalizes the input plus input 3 plus a bias; the sum is a result as well."""
    x, skip = n.type(0), n.value(3)
    last = n.flag("channels_last", True)
    channels = x.extent(-1 if last else 1)
    ones = (1,) * (x.rank - 2)
    batch = x.shape[0]
    if skip.type.rank == 2 and is_same_shape(skip.type.shape, (batch, channels)):
        skip = reshape(n, skip, (batch, *ones, channels) if last else (batch, channels, *ones))
    if broadcast_shapes(skip.type.shape, x.shape) != x.shape:
        raise UserError(f"expected a skip input that broadcasts to {x}, got {n.type(3)}")
    total = n.f.create_add(n.name, n.input(0), n.operand(skip)).result
    if n.has(4):
        check_type(n, 4, (channels,))
        bias = reshape(n, n.value(4), (channels,) if last else (channels, *ones))
        total = n.f.create_add(n.name, total, n.operand(bias)).result
    return _grouped(n, total), total


def _grouped(n: OnnxNode, x: NodeValue) -> Value:
    """Each group of channels by its own mean and variance, then the activation."""
    activation = n.integer("activation", 0)
    if activation not in (0, 1):
        raise n.unsupported(f"activation {activation}")
    last = n.flag("channels_last", True)
    image = channels_first(n, x) if last else x
    normal = n.operand(
        standard(
            n,
            "GroupNormalization",
            [image, n.value(1), n.value(2)],
            num_groups=n.integer("groups", 0),
            epsilon=n.real("epsilon", 1e-5),
        )
    )
    if activation == 1:
        normal = n.f.create_swish(n.name, normal, 1.0).result
    return channels_last(n, normal) if last else normal
