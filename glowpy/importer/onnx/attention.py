"""Import of LinearAttention, and of what attention caches: TensorScatter."""

from __future__ import annotations

import math

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape, normalize_axis
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, filled, full, reshape
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import is_at_most, product, static

__all__: list[str] = []

_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Whether each rule has a decay, and whether it has rates."""


@from_onnx("LinearAttention")
def _linear_attention(n: OnnxNode) -> tuple[Value, ...]:
    """Halves are computed in f32, with a state of f32, and rounded when all steps are done."""
    rule = n.text("update_rule", "gated_delta")
    if rule not in _RULES:
        raise UserError(
            f"attribute 'update_rule': expected one of {', '.join(_RULES)}, got '{rule}'"
        )
    heads, shared = n.integer("q_num_heads", 0), n.integer("kv_num_heads", 0)
    if shared < 1 or heads < 1 or heads % shared:
        raise UserError(
            f"expected q_num_heads that is a multiple of kv_num_heads, got {heads} and {shared}"
        )
    kind = n.kind(0)
    wide = ElemKind.F32 if kind.is_half else kind
    query, key, value = (
        _heads(n, i, count, wide) for i, count in enumerate((heads, shared, shared))
    )
    depth, width = query.type.shape[3], value.type.shape[3]
    scale = n.real("scale", 0.0)
    if scale == 0:
        (size,) = static([depth])
        scale = 1 / math.sqrt(max(size, 1))
    factor = n.f.create_splat(f"{n.name}_scale", Type(wide, ()), scale)
    query = n.f.create_mul(n.name, query, factor).result
    state = Type(wide, (query.type.shape[0], shared, depth, width))
    initial = convert(n, n.value(3), wide) if n.has(3) else filled(n, state, 0.0)
    decay, rates = _RULES[rule]
    node = n.f.create_linear_attention(
        n.name, query, key, value, _factors(n, decay, shared, wide), _rates(n, rates, wide),
        n.operand(initial, f"{n.name}_initial"),
    )  # fmt: skip
    result, last = node.results
    lines = (*n.type(0).shape[:2], heads * width)
    past = n.kind(3) if n.has(3) else kind
    return convert(n, reshape(n, result, lines), kind), convert(n, last, past)


def _heads(n: OnnxNode, index: int, heads: int, kind: ElemKind) -> NodeValue:
    """Input `index` with a dimension for its heads."""
    type = n.type(index)
    fits = type.rank == 3
    if fits and type.shape[2] % heads != 0:
        (width,) = static(type.shape[2:])
        fits = width % heads == 0
    if not fits:
        raise UserError(f"expected input {index} of rank 3, with {heads} heads, got {type}")
    shape = (*type.shape[:2], heads, type.shape[2] // heads)
    return n.operand(convert(n, reshape(n, n.value(index), shape), kind))


def _none(n: OnnxNode, kind: ElemKind) -> NodeValue:
    return n.operand(full(Type(kind, (0,)), 0.0), f"{n.name}_none")


def _expect(n: OnnxNode, index: int, name: str, *, given: bool) -> None:
    if n.has(index) != given:
        raise UserError(
            f"update_rule '{n.text('update_rule', 'gated_delta')}': expected {'a' if given else 'no'} {name}"
        )


def _factors(n: OnnxNode, given: bool, heads: int, kind: ElemKind) -> NodeValue:
    """Factors by which the state decays: one for each head, or for each row of its state."""
    _expect(n, 4, "decay", given=given)
    if not given:
        return _none(n, kind)
    return n.f.create_exp(n.name, _heads(n, 4, heads, kind)).result


def _rates(n: OnnxNode, given: bool, kind: ElemKind) -> NodeValue:
    _expect(n, 5, "beta", given=given)
    return n.operand(convert(n, n.value(5), kind)) if given else _none(n, kind)


@from_onnx("TensorScatter", since=24)
def _tensor_scatter(n: OnnxNode) -> Value:
    """Rows of the cache after `axis`, of which each sequence gets new ones from its own place on."""
    cache, update = n.value(0), n.value(1)
    mode = n.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise UserError(f"attribute 'mode': expected linear or circular, got '{mode}'")
    shape = cache.type.shape
    axis = normalize_axis(n.integer("axis", -2), len(shape))
    lines, steps = shape[:axis], update.type.shape[axis : axis + 1]
    fits = is_same_shape(update.type.shape, (*lines, *steps, *shape[axis + 1 :]))
    if axis == 0 or not fits or not is_at_most(steps[0], shape[axis]):
        raise UserError(
            f"expected an update that fits {cache.type} along an axis after 0, got {update.type}"
        )
    size, width = shape[axis], product(shape[axis + 1 :])
    place = counted(n, steps[0])
    if n.has(2):
        if not is_same_shape(n.type(2).shape, shape[:1]):
            raise UserError(f"expected a place for each sequence, {shape[0]}, got {n.type(2)}")
        if mode != "circular":
            check_places(n, n.value(2), 0, size - steps[0])
        first = Numbers(n, convert(n, n.value(2), ElemKind.I64))
        place = first.reshaped(shape[0], *(1,) * axis) + place
    if mode == "circular":
        place = place % size
    block = (counted(n, product(lines)) * size).reshaped(*lines, 1)
    places = (block + place).reshaped(product((*lines, *steps)))
    rows = n.f.create_scatter(
        n.name,
        n.operand(reshape(n, cache, (product((*lines, size)), width))),
        places.operand,
        n.operand(reshape(n, update, (product((*lines, *steps)), width))),
    )
    return reshape(n, rows.result, shape)
