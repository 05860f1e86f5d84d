"""Import of what prepares features: scaling, replacing, choosing, putting together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import concat, convert, filled, reshape, slice_axis
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.ml.scores import DOMAIN, constant
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__: list[str] = []


def _wide(n: OnnxNode) -> NodeValue:
    """The input in the floats it is computed in: f64 where f32 does not hold all of its numbers."""
    kind = n.kind(0)
    wide = kind if kind in (ElemKind.F32, ElemKind.F64) else ElemKind.F64
    return n.operand(convert(n, n.value(0), wide), n.proto.input[0])


def _expect_features(name: str, numbers: int, type: Type) -> None:
    """Raises UserError unless there is one number for all, or one for each feature."""
    if numbers != 1 and static(type.shape[-1:]) != (numbers,):
        raise UserError(
            f"attribute '{name}': expected 1 number or one for each feature of {type}, got {numbers}"
        )


@from_onnx("Scaler", domain=DOMAIN)
def _scaler(n: OnnxNode) -> Value:
    x = _wide(n)
    offset, scale = n.reals("offset") or (0.0,), n.reals("scale") or (1.0,)
    for name, numbers in (("offset", offset), ("scale", scale)):
        _expect_features(name, len(numbers), x.type)
    moved = n.f.create_sub(n.name, x, constant(n, offset, x.type.kind, "offset"))
    scaled = n.f.create_mul(n.name, moved, constant(n, scale, x.type.kind, "scale"))
    return convert(n, scaled.result, ElemKind.F32)


@from_onnx("Normalizer", domain=DOMAIN)
def _normalizer(n: OnnxNode) -> Value:
    """Rows over their largest element, their sum of absolutes, or their length; over nothing where that is 0."""
    f, x, norm = n.f, _wide(n), n.text("norm", "MAX")
    if x.type.rank not in (1, 2):
        raise UserError(f"expected a vector or a matrix, got {x.type}")
    axes = (x.type.rank - 1,)
    if norm == "MAX":
        size = f.create_reduce_max(n.name, x, axes).result
    elif norm == "L1":
        size = f.create_reduce_add(n.name, f.create_abs(n.name, x), axes).result
    elif norm == "L2":
        total = f.create_reduce_add(n.name, f.create_mul(n.name, x, x), axes)
        size = f.create_sqrt(n.name, total).result
    else:
        raise UserError(f"attribute 'norm': expected one of MAX, L1, L2, got '{norm}'")
    zero, one = (f.create_splat(n.name, Type(x.type.kind, ()), number) for number in (0.0, 1.0))
    divisor = f.create_select(n.name, f.create_eq(n.name, size, zero), one, size)
    return convert(n, f.create_div(n.name, x, divisor).result, ElemKind.F32)


@from_onnx("Imputer", domain=DOMAIN)
def _imputer(n: OnnxNode) -> NodeValue:
    """Elements that are equal to a number, or NaN if that is, become another: one for all, or one for each feature."""
    f, x = n.f, n.input(0)
    if x.type.kind.is_float:
        name, numbers = "imputed_value_floats", n.reals("imputed_value_floats")
        replaced: float = n.real("replaced_value_float", 0.0)
    else:
        name, numbers = "imputed_value_int64s", n.integers("imputed_value_int64s")
        replaced = n.integer("replaced_value_int64", 0)
    if numbers is None:
        raise UserError(f"attribute '{name}' is required for {x.type}")
    _expect_features(name, len(numbers), x.type)
    if math.isnan(replaced):
        missing = f.create_is_nan(n.name, x).result
    else:
        missing = f.create_eq(n.name, x, _like(n, x, [replaced], "replaced")).result
    return f.create_select(n.name, missing, _like(n, x, numbers, "imputed"), x).result


def _like(n: OnnxNode, x: NodeValue, numbers: Sequence[float], suffix: str) -> NodeValue:
    """Numbers of the kind of the input. Raises UserError for integers that it does not hold."""
    array = np.array(numbers)
    if x.type.kind.is_integer and (wrong := array[array.astype(x.type.kind.dtype) != array]).size:
        raise UserError(f"expected numbers that {x.type} holds, got {wrong[0]}")
    return constant(n, array, x.type.kind, suffix)


@from_onnx("Binarizer", domain=DOMAIN)
def _binarizer(n: OnnxNode) -> Value:
    """1 above the threshold, else 0. Integers are compared in f64."""
    x = _wide(n)
    threshold = n.f.create_splat(n.name, Type(x.type.kind, ()), n.real("threshold", 0.0))
    return convert(n, n.f.create_lt(n.name, threshold, x).result, n.kind(0))


@from_onnx("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(n: OnnxNode) -> Value:
    """Inputs side by side, a vector as one row: so many columns of each, with zeros for those that it has not."""
    sizes = n.integers("inputdimensions")
    if sizes is not None and len(sizes) != n.num_inputs:
        raise UserError(
            f"attribute 'inputdimensions': expected {n.num_inputs} numbers, got {len(sizes)}"
        )
    parts: list[Value] = []
    for index in range(n.num_inputs):
        part = n.value(index)
        if part.type.rank == 1:
            part = reshape(n, part, (1, *part.type.shape))
        if part.type.rank != 2:
            raise UserError(f"expected vectors or matrices, got {part.type}")
        (columns,) = static(part.type.shape[1:])
        size = columns if sizes is None else sizes[index]
        part = convert(n, part, ElemKind.F32)
        parts.append(slice_axis(n, part, 1, 0, min(columns, size), 1))
        if size > columns:
            rest = part.type.with_shape((part.type.shape[0], size - columns))
            parts.append(filled(n, rest, 0.0))
    return concat(n, parts, 1)


@from_onnx("ArrayFeatureExtractor", domain=DOMAIN)
def _array_feature_extractor(n: OnnxNode) -> NodeValue:
    """Elements of the last dimension; a vector gives one row. Others than known indices are clamped, or checked."""
    data, indices = n.value(0), n.value(1)
    if data.type.rank == 0:
        raise UserError(f"expected data of rank 1 or more, got {data.type}")
    if data.type.rank == 1:
        data = reshape(n, data, (1, *data.type.shape))
    check_places(n, indices, 0, data.type.shape[-1] - 1)
    flat = n.operand(reshape(n, indices, (indices.type.count,)), n.proto.input[1])
    operand = n.operand(data, n.proto.input[0])
    return n.f.create_gather(n.name, operand, flat, data.type.rank - 1).result
