"""Recognises scaled dot-product attention in what exporters write, and makes one node of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.nodes_gen import create_cpu_attention
from glowpy.backends.cpu.strategy.attention import FEW_QUERIES, choose_attention
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    AddNode,
    BroadcastNode,
    ConvertNode,
    DivNode,
    IsNanNode,
    MatMulNode,
    MulNode,
    ReshapeNode,
    SelectNode,
    SoftmaxNode,
    TanhNode,
    TransposeNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.graph.rounding import wide_type
from glowpy.opt.known import is_all, known
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Dim, Expr, likely_extent, product, static

__all__ = ["FuseAttentionPass"]

_KINDS = (ElemKind.F32, ElemKind.F16, ElemKind.BF16)
_STEPS = 8
"""The most nodes between the scores and softmax."""

_MASKS = 2
_SWAPPED = (0, 1, 3, 2)
_HIDDEN = -1e30
"""Scores that are as low, or made lower by as much, have no weight beside others."""


@dataclass(frozen=True)
class FuseAttentionPass(RewritePass):
    """Turns softmax(query @ key * scale + mask) @ value into `cpu_attention`, which never has all scores in memory.

    Scores may be capped: tanh(scores / c) * c. Two masks may be added to them then, or choose between them and a
    number; they are stored with keys as rows. Weights may be made 0 where they are NaN, or for some queries. Heads that
    share keys and values read them once, where these were repeated for each. Tiles are for the target, here AVX2. A
    mask that hides what comes after a query, and is known, is a number. Scores of halves are never rounded; where they
    have to be, these are left as they are.

    Before:
        %q, %out : f32[1x2x5x4]
        %k, %v : f32[1x2x7x4]
        %m : f32[5x7]
        %c : f32[1] = splat 0.5
        %kt = transpose(%k) {shuffle=[0,1,3,2]} : f32[1x2x4x7]
        %s = mat_mul(%q, %kt) : f32[1x2x5x7]
        %scaled = mul(%s, %c) : f32[1x2x5x7]
        %masked = add(%scaled, %m) : f32[1x2x5x7]
        %p = softmax(%masked) {axis=3} : f32[1x2x5x7]
        %o = mat_mul(%p, %v) : f32[1x2x5x4]
        save(%o, %out)
    After:
        %q, %out : f32[1x2x5x4]
        %k, %v : f32[1x2x7x4]
        %m : f32[5x7]
        %c : f32[1] = splat 0.5
        %o_none : f32[0] = []
        %kt = transpose(%k) {shuffle=[0,1,3,2]} : f32[1x2x4x7]
        %o_1 = reshape(%m) : f32[1x1x5x7]
        %o_2 = transpose(%o_1) {shuffle=[0,1,3,2]} : f32[1x1x7x5]
        %o = cpu_attention(%q, %kt, %v, %o_2, %o_none) {scale=0.5, softcap=0.0, bias_chooses=false,
            mask_chooses=false, causal=false, diagonal=0, clears_nan=false, in_bf16=false, units=2, rows=8, block=7,
            tile_keys=7, tile_rows=8, group=8} : f32[1x2x5x4]
        save(%o, %out)
    """

    variant: Variant
    small: bool = False
    rounds_halves: bool = False
    bf16: bool = False
    name: ClassVar[str] = "fuse-attention"
    concerns: ClassVar[tuple[type[Node], ...]] = (SoftmaxNode,)

    @rule
    def fuse(self, f: Function, n: MatMulNode, why: Why) -> Replacement:
        """The product of weights and values, with all before it."""
        weights = _weights_of(_unshaped(n.lhs))
        if self.small or weights is None:
            return None
        softmax = weights.softmax
        if softmax.axis != softmax.type.rank - 1 or n.type.kind not in _KINDS:
            return why.no("only softmax over keys, of f32 or of halves, is fused")
        scores = _scores_of(softmax.input)
        if scores is None:
            return why.no("softmax is of no product, or of one with more than scales and masks")
        readers = 2 if weights.clears_nan else 1
        between = (n.lhs, *weights.between, *scores.between)
        if softmax.result.num_users != readers or any(value.num_users != 1 for value in between):
            return why.no("scores or weights are used elsewhere")
        kinds = {n.type.kind, softmax.type.kind, *(value.type.kind for value in between)}
        if self.rounds_halves and kinds != {ElemKind.F32}:
            return why.no("scores or weights are to be rounded to halves")
        heads = _heads_of(scores, n)
        if heads is None:
            return why.no("expected batches of heads, which share keys and values evenly if at all")
        return self._fused(f, n, scores, weights, heads)

    def _fused(
        self, f: Function, n: MatMulNode, scores: _Scores, weights: _Weights, heads: _Heads
    ) -> NodeValue:
        batch, count, queries, _ = heads.query.shape
        in_bf16 = self.bf16 and likely_extent(queries) > FEW_QUERIES
        decision = choose_attention(
            likely_extent(product((batch, count))),
            likely_extent(queries),
            likely_extent(heads.key.shape[3]),
            likely_extent(heads.key.shape[2]),
            likely_extent(heads.value.shape[3]),
            self.variant.machine_for(ElemKind.BF16 if in_bf16 else ElemKind.F32),
        )
        none = f.module.create_constant(f"{n.name}_none", np.zeros(0, np.float32), loc=n.loc)
        causal, diagonal = _triangle(scores.masks, queries, heads.key.shape[3])
        kept = [mask for index, mask in enumerate(scores.masks) if index != causal]
        masks: list[Operand] = [_mask(f, n, mask) for mask in kept]
        masks += [none] * (_MASKS - len(masks))
        chooses = [*(mask.fill is not None for mask in kept), False, False]
        result = create_cpu_attention(
            f, n.name, wide_type(n.type).with_shape((*heads.query.shape[:3], heads.value.shape[3])),
            heads.query.build(f, n), heads.key.build(f, n), heads.value.build(f, n), *masks,
            scale=scores.scale * heads.query.factor * heads.key.factor, softcap=scores.softcap,
            bias_chooses=chooses[0], mask_chooses=chooses[1],
            causal=causal is not None, diagonal=diagonal, clears_nan=weights.clears_nan,
            in_bf16=in_bf16, units=decision.units, rows=decision.rows, block=decision.block,
            tile_keys=decision.tile_keys, tile_rows=decision.tile_rows, group=decision.group,
        )  # fmt: skip
        reshaped = _shaped(f, n, result.result, n.type.shape)
        if n.type.kind.is_half:
            reshaped = f.create_convert(n.name, n.type, reshaped).result
        if weights.cleared is None:
            return reshaped
        zero = f.create_splat(n.name, n.type.with_shape(()), 0.0)
        cleared = _shaped(f, n, weights.cleared, weights.cleared.type.shape[-n.type.rank :])
        return f.create_select(n.name, cleared, zero, reshaped).result


@dataclass(frozen=True)
class _Weights:
    """Weights by which the values are multiplied.

    Attributes:
        softmax: It, or what it is made of.
        clears_nan: Whether weights that are NaN are 0.
        cleared: Where all weights of a query are 0, or None.
        between: All values after softmax.
    """

    softmax: SoftmaxNode
    clears_nan: bool = False
    cleared: NodeValue | None = None
    between: tuple[NodeValue, ...] = ()


def _weights_of(value: NodeValue) -> _Weights | None:
    """Softmax, or a selection between zeros and it: by whether it is NaN, or for each query."""
    node = value.node
    if isinstance(node, ConvertNode) and _is_between_floats(node):
        inner = _weights_of(node.input)
        return inner and replace(inner, between=(*inner.between, value))
    if isinstance(node, SoftmaxNode):
        return _Weights(node)
    if not isinstance(node, SelectNode) or not is_all(node.lhs, 0.0):
        return None
    softmax, test = node.rhs.node, node.condition
    if not isinstance(softmax, SoftmaxNode) or softmax.type != node.type:
        return None
    if isinstance(test.node, IsNanNode) and test.node.input is softmax.result:
        return _Weights(softmax, clears_nan=True, between=(test, value))
    if test.type.rank and test.type.shape[-1] == 1:
        return _Weights(softmax, cleared=test, between=(value,))
    return None


@dataclass(frozen=True)
class _Mask:
    """A mask: a summand of scores, or a condition that chooses between them and a number.

    Attributes:
        value: It, with dimensions that may be 1 or missing.
        fill: The number; None for what is added.
        keeps: Whether the condition holds where scores are kept.
    """

    value: NodeValue
    fill: float | None = None
    keeps: bool = False


@dataclass(frozen=True)
class _Scores:
    """Scores that are the input of softmax.

    Attributes:
        product: Queries times keys.
        scale: The factor of the product.
        softcap: The cap that is applied then, or 0.
        masks: The masks that follow, in order.
        between: All values from the product on.
    """

    product: MatMulNode
    scale: float
    softcap: float
    masks: tuple[_Mask, ...]
    between: tuple[NodeValue, ...]


def _scores_of(value: NodeValue) -> _Scores | None:
    """The scores that `value` is, looked at from the last of what was done with them."""
    scale, softcap, masks, between = 1.0, 0.0, list[_Mask](), list[NodeValue]()
    for _ in range(_STEPS):
        between.append(value)
        node = value.node
        if isinstance(node, MatMulNode):
            fits = len(masks) <= _MASKS
            return (
                _Scores(node, scale, softcap, tuple(masks[::-1]), tuple(between)) if fits else None
            )
        factor = _scaled(node)
        if factor is not None:
            value, scale = factor[0], scale * factor[1]
            continue
        if isinstance(node, TanhNode) and not softcap and scale:
            value, softcap = node.input, scale  # tanh(x) * c is tanh(x * c / c) * c
            continue
        # What is masked first would be scaled, or capped, as well.
        mask = _masked(node) if scale == 1 and not softcap else None
        if mask is not None:
            value = mask[0]
            masks.append(mask[1])
        elif (isinstance(node, ConvertNode) and _is_between_floats(node)) or (
            isinstance(node, ReshapeNode) and _core(node.type.shape) == _core(node.input.type.shape)
        ):
            value = node.input
        else:
            return None
    return None


def _is_between_floats(node: ConvertNode) -> bool:
    """Whether attention, in f32, may leave a conversion away."""
    return node.type.kind in _KINDS and node.input.type.kind in _KINDS


def _scaled(node: Node | None) -> tuple[NodeValue, float] | None:
    """Returns the value that a node multiplies by a number, and the number; None for other nodes."""
    if isinstance(node, MulNode):
        for value, factor in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
            number = _number(factor)
            if number is not None and value.type == node.type:
                return value, number
    if isinstance(node, DivNode) and node.lhs.type == node.type:
        number = _number(node.rhs)
        if number:
            return node.lhs, 1 / number
    return None


def _number(value: NodeValue) -> float | None:
    """The only element of a value, if it is known."""
    if value.type.count != 1:
        return None
    array = known(value)
    return None if array is None else float(array.reshape(-1)[0])


def _masked(node: Node | None) -> tuple[NodeValue, _Mask] | None:
    """Returns the value that a node masks, and the mask; None for other nodes."""
    if isinstance(node, AddNode):
        for value, mask in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
            if value.type == node.type and _is_of_product(value):
                return value, _Mask(mask)
    if isinstance(node, SelectNode):
        for value, other in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
            fill = _number(other)
            if fill and value.type == node.type and _is_of_product(value):
                return value, _Mask(node.condition, fill, keeps=value is node.lhs)
    return None


def _is_of_product(value: NodeValue) -> bool:
    """Whether a product is what all operands of one node after the other are made of but for one."""
    for _ in range(_STEPS):
        node = value.node
        if isinstance(node, MatMulNode):
            return True
        if isinstance(node, AddNode | MulNode):
            operands = [operand for operand in (node.lhs, node.rhs) if operand.type == node.type]
            value = next((operand for operand in operands if operand.node is not None), value)
        elif isinstance(node, SelectNode):
            value = node.rhs if node.rhs.type == node.type and node.rhs.node else node.lhs
        elif isinstance(node, DivNode):
            value = node.lhs
        elif isinstance(node, ConvertNode | ReshapeNode | TanhNode):
            value = node.input
        else:
            return False
    return False


def _core(shape: Shape) -> Shape:
    """A shape without the ones that it begins with."""
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def _of_rank_4(shape: Shape) -> Shape | None:
    """A shape with as many ones before it as make it one of four dimensions; None if there are more."""
    core = _core(shape)
    return (1,) * (4 - len(core)) + core if len(core) <= 4 else None


def _unshaped(value: NodeValue) -> NodeValue:
    """A value before its leading ones were added or taken away."""
    node = value.node
    if isinstance(node, ReshapeNode) and _core(node.type.shape) == _core(node.input.type.shape):
        return node.input
    return value


@dataclass(frozen=True)
class _Part:
    """Queries, keys or values, as they are to be read.

    Attributes:
        source: The value that they are made of.
        plain: Four dimensions, before they are swapped.
        swapped: Whether the last two dimensions are swapped.
        factor: The factor that they were multiplied by.
        shuffle: How the source is transposed first; None if it is not.
    """

    source: NodeValue
    plain: Shape
    swapped: bool = False
    factor: float = 1.0
    shuffle: tuple[int, ...] | None = None

    @property
    def shape(self) -> Shape:
        """The dimensions of what is built."""
        *batch, rows, columns = self.plain
        return (*batch, columns, rows) if self.swapped else self.plain

    def build(self, f: Function, n: MatMulNode) -> Operand:
        """The operand itself."""
        source = _wide(f, n, self.source)
        if self.shuffle is not None:
            source = f.create_transpose(n.name, source, self.shuffle).result
        reshaped = _shaped(f, n, source, self.plain)
        return f.create_transpose(n.name, reshaped, _SWAPPED) if self.swapped else reshaped


@dataclass(frozen=True)
class _Heads:
    """Operands of attention, of four dimensions each."""

    query: _Part
    key: _Part
    value: _Part


def _heads_of(scores: _Scores, n: MatMulNode) -> _Heads | None:
    """Queries, keys and values; None if their batches are no heads."""
    shape = _of_rank_4(n.type.shape)
    query = _unrepeated(scores.product.lhs, repeated=False)
    if shape is None or query is None or query.shape[:3] != shape[:3]:
        return None
    for repeated in (True, False):
        key, value = (
            _unrepeated(operand, repeated=repeated) for operand in (scores.product.rhs, n.rhs)
        )
        if key is None or value is None or value.factor != 1:
            continue
        sizes = (*query.shape[1::2], key.shape[1], value.shape[3])
        if any(isinstance(size, Expr) or size == 0 for size in sizes):
            return None
        batch, heads, _, depth = query.shape
        shared, keys = key.shape[1], key.shape[3]
        fits = key.shape[:3] == (batch, shared, depth) and value.shape[:3] == (batch, shared, keys)
        if fits and heads % shared == 0 and not n.type.is_empty and keys != 0:
            return _Heads(query, key, value)
    return None


def _unrepeated(value: NodeValue, *, repeated: bool) -> _Part | None:
    """An operand of rank 4, before it was scaled, and, if `repeated`, before its heads were repeated."""
    shape = _of_rank_4(value.type.shape)
    if shape is None:
        return None
    source, swapped, factor = value, False, 1.0
    while shape == source.type.shape:
        node, scaled = source.node, _scaled(source.node)
        if scaled is not None:
            source, factor = scaled[0], factor * scaled[1]
        elif isinstance(node, TransposeNode) and node.shuffle == _SWAPPED:
            source, swapped, shape = node.input, not swapped, node.input.type.shape
        else:
            break
    inner = source.node.input.node if isinstance(source.node, ReshapeNode) else None
    if repeated and isinstance(inner, BroadcastNode) and len(inner.input.type.shape) == 5:
        batch, heads, one, rows, columns = inner.input.type.shape
        many = inner.type.shape[2]
        repeats = one == 1 and inner.type.shape == (batch, heads, many, rows, columns)
        if repeats and shape == (batch, heads * many, rows, columns):
            return _Part(inner.input, (batch, heads, rows, columns), swapped, factor)
    if isinstance(source.node, TransposeNode) and (scaled := _scaled(source.node.input.node)):
        return _Part(scaled[0], shape, swapped, factor * scaled[1], source.node.shuffle)
    if factor == 1:
        return _Part(value, _of_rank_4(value.type.shape) or shape)
    return _Part(source, shape, swapped, factor)


def _triangle(masks: Sequence[_Mask], queries: Dim, keys: Dim) -> tuple[int | None, int]:
    """Finds a mask that hides later keys, and the number of keys after its own that a query sees; else None and 0.

    Nothing that it hides may come back by a mask that chooses after it, or be a NaN that one before it has chosen.
    """
    for index, mask in enumerate(masks):
        if mask.fill is not None and np.isnan(mask.fill):
            break
        diagonal = _diagonal(mask, queries, keys, alone=len(masks) == 1)
        if diagonal is not None and all(later.fill is None for later in masks[index + 1 :]):
            return index, diagonal
    return None, 0


def _diagonal(mask: _Mask, queries: Dim, keys: Dim, *, alone: bool) -> int | None:
    """How many keys after its own number a query sees at most, where a mask says no more and each sees one; else None.

    What it hides becomes so low that its weight is 0, whatever the score was: of a mask that is not alone -infinity,
    since another one may hide all the rest.
    """
    value = mask.value
    if _core(value.type.shape) != _core((queries, keys)):
        return None
    array = known(value)
    lowest = _HIDDEN if alone else -np.inf
    if array is None or not (mask.fill is None or mask.fill <= lowest):
        return None
    array = array.reshape(static((queries, keys)))
    hidden = array.astype(np.float32) <= lowest if mask.fill is None else array != mask.keeps
    diagonal = int(np.count_nonzero(~hidden[0])) - 1
    rows, columns = (np.arange(size) for size in array.shape)
    seen = columns <= rows[:, np.newaxis] + diagonal
    shows = mask.fill is not None or not array[~hidden].any()
    return diagonal if diagonal >= 0 and shows and (hidden != seen).all() else None


def _mask(f: Function, n: MatMulNode, mask: _Mask) -> NodeValue:
    """A mask with keys as rows: what is added, or what scores are where it is not 0."""
    value = mask.value
    if mask.fill is not None:
        type = Type(ElemKind.F32, value.type.shape)
        fill, nothing = (f.create_splat(n.name, type, number) for number in (mask.fill, 0.0))
        operands = (nothing, fill) if mask.keeps else (fill, nothing)
        value = f.create_select(n.name, value, *operands).result
    value = _wide(f, n, value)
    shape = _of_rank_4(value.type.shape)
    assert shape is not None  # it fits scores of four dimensions
    *batch, queries, keys = shape
    if 1 in (queries, keys):
        return _shaped(f, n, value, (*batch, keys, queries))
    return f.create_transpose(n.name, _shaped(f, n, value, shape), _SWAPPED).result


def _wide(f: Function, n: MatMulNode, value: NodeValue) -> NodeValue:
    """A value in f32."""
    if not value.type.kind.is_half:
        return value
    return f.create_convert(n.name, wide_type(value.type), value).result


def _shaped(f: Function, n: MatMulNode, value: NodeValue, shape: Shape) -> NodeValue:
    """A value in another shape."""
    if value.type.shape == shape:
        return value
    return f.create_reshape(n.name, value.type.with_shape(shape), value).result
