"""Import of what is about categories: each is found among those that the model lists."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.ml.scores import DOMAIN, constant
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


def _places(n: OnnxNode, x: Value, keys: Array) -> tuple[NodeValue, Array]:
    """Where elements are among keys in ascending order, and the place of each of these in the list.

    The last of equal keys counts. What is none of them has the place after all others.
    """
    kind = x.type.kind if x.type.kind.is_float else ElemKind.I64
    categories = keys.astype(kind.dtype)
    # NaNs are one key: numpy's unique takes them together.
    ascending, last = np.unique(categories[::-1], return_index=True)
    operand = n.operand(convert(n, x, kind), n.proto.input[0])
    node = n.f.create_find(n.name, operand, constant(n, ascending, kind, "keys"))
    return node.result, len(categories) - 1 - last


@from_onnx("OneHotEncoder", domain=DOMAIN)
def _one_hot_encoder(n: OnnxNode) -> Value:
    """A row for each element, with a one at its category; zeros for what is none, whatever the attribute `zeros` says.

    Floats are truncated to integers.
    """
    categories = n.integers("cats_int64s")
    if not categories:
        raise n.unsupported("cats_strings" if n.texts("cats_strings") else "an empty list")
    x = convert(n, n.value(0), ElemKind.I64)
    places, order = _places(n, x, np.array(categories, np.int64))
    # What is none has a column after all others.
    table = constant(n, np.append(order, len(categories)), ElemKind.I64, "columns")
    column = n.f.create_gather(n.name, table, places, 0).result
    wide = n.operand(reshape(n, column, (*x.type.shape, 1)))
    columns = constant(n, np.arange(len(categories)), ElemKind.I64, "columns")
    return convert(n, n.f.create_eq(n.name, wide, columns).result, ElemKind.F32)


_LISTS = ("floats", "int64s", "strings", "tensor")
"""Suffixes of the attributes with keys, values and the default."""


def _listed(n: OnnxNode, what: str) -> Array:
    """The attribute with the keys, or that with the values. Raises UserError unless there is exactly one."""
    names = [f"{what}_{suffix}" for suffix in _LISTS if n.has_attribute(f"{what}_{suffix}")]
    if len(names) != 1:
        raise UserError(f"expected one attribute of {what}, got {', '.join(names) or 'none'}")
    (name,) = names
    if name.endswith("strings"):
        raise n.unsupported(name)
    if name.endswith("tensor"):
        tensor = n.tensor(name)
        assert tensor is not None
        return tensor.array.reshape(-1)
    if name.endswith("floats"):
        return np.array(n.reals(name), np.float32)
    return np.array(n.integers(name), np.int64)


def _default(n: OnnxNode, values: Array) -> Array:
    """The value for an element that is no key, of the kind of the values."""
    tensor = n.tensor("default_tensor") if n.has_attribute("values_tensor") else None
    if tensor is not None:
        if tensor.type.count != 1:
            raise UserError(f"attribute 'default_tensor': expected one element, got {tensor.type}")
        return tensor.array.reshape(1).astype(values.dtype)
    if values.dtype.kind == "f":
        return np.array([n.real("default_float", -0.0)], values.dtype)
    return np.array([n.integer("default_int64", -1)]).astype(values.dtype)


@from_onnx("LabelEncoder", domain=DOMAIN)
def _label_encoder_1(n: OnnxNode) -> Value:
    raise n.unsupported("a table of strings")


@from_onnx("LabelEncoder", domain=DOMAIN, since=2)
def _label_encoder(n: OnnxNode) -> Value:
    """The value of each key. A NaN is a key like others; the last of equal keys counts."""
    x, keys, values = n.value(0), _listed(n, "keys"), _listed(n, "values")
    if len(keys) != len(values):
        raise UserError(f"expected as many values as keys, got {len(keys)} and {len(values)}")
    if ElemKind.of(keys.dtype) is not x.type.kind:
        raise UserError(f"expected keys of kind {x.type.kind.value}, got {keys.dtype}")
    places, order = _places(n, x, keys)
    table = Tensor.of(np.concatenate([values[order], _default(n, values)]))
    operand = n.operand(table, f"{n.name}_values")
    elements = n.f.create_gather(n.name, operand, places, 0).result
    return reshape(n, elements, x.type.shape)
