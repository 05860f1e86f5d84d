"""Import of Einsum: sums, transposes, products element by element, and matrix products where something is summed over.

A label stands for a dimension. `...` stands for labels of its own, counted from the last dimension, as broadcasting has
it. A dimension of 1 where others have more is dropped: what is left is the same at every place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from string import ascii_letters

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape, transpose
from glowpy.importer.kit.numbers import counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, highest, product

__all__: list[str] = []

_ELLIPSIS = "..."


@dataclass(frozen=True)
class _Term:
    """A tensor, with a label for each dimension; the labels are distinct."""

    value: Value
    labels: tuple[str, ...]

    def size(self, label: str) -> Dim:
        """The extent of the dimension that a label stands for."""
        return self.value.type.shape[self.labels.index(label)]


@from_onnx("Einsum", since=12)
def _einsum(n: OnnxNode) -> Value:
    """One pair of operands after the other, in the order that numpy finds cheap. Halves are rounded at the end."""
    kind = n.type(0).kind
    inputs, output = _equation(n)
    sizes = _sizes(n, inputs)
    terms = []
    for index, labels in enumerate(inputs):
        value = convert(n, n.value(index), _computed_in(kind))
        terms.append(_squeezed(n, _diagonal(n, value, labels), sizes))
    for group in _path(terms, output, sizes):
        operands = [terms[index] for index in group]
        terms = [term for index, term in enumerate(terms) if index not in group]
        needed = {*output, *(label for term in terms for label in term.labels)}
        total = operands[0]
        for index, term in enumerate(operands[1:], 2):
            later = {label for other in operands[index:] for label in other.labels}
            total = _multiplied(n, total, term, needed | later)
        terms.append(_summed(n, total, needed))
    (result,) = terms
    moved = transpose(n, result.value, [result.labels.index(label) for label in output])
    return convert(n, moved, kind)


def _computed_in(kind: ElemKind) -> ElemKind:
    """Matrix products are of at least 32 bits; integers wrap alike in all."""
    if kind.is_half:
        return ElemKind.F32
    if kind.is_float or kind.size > 2:
        return kind
    return ElemKind.I32 if kind.is_signed else ElemKind.U32


def _equation(n: OnnxNode) -> tuple[list[list[str]], list[str]]:
    """The labels of each input, and of the result. Raises UserError for an equation that does not fit the inputs."""
    equation = n.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != n.num_inputs:
        raise UserError(
            f"attribute 'equation': expected a term for each of {n.num_inputs} inputs, got '{equation}'"
        )
    inputs = [_labels(text, n.type(index).rank) for index, text in enumerate(texts)]
    counts = Counter(label for labels in inputs for label in labels)
    broadcast = max(
        ([label for label in labels if label.isdigit()] for labels in inputs), key=len, default=[]
    )
    if not arrow:
        once = sorted(label for label, count in counts.items() if count == 1 and label.isalpha())
        return inputs, [*broadcast, *once]
    output = _labels(right, len(broadcast) + len(right.replace(_ELLIPSIS, "")))
    unknown = set(output) - set(counts)
    if unknown or len(set(output)) < len(output):
        raise UserError(
            f"attribute 'equation': expected different labels of inputs after '->', got '{equation}'"
        )
    return inputs, output


def _labels(text: str, rank: int) -> list[str]:
    """A letter or, for each dimension that an ellipsis stands for, how many of these follow."""
    before, ellipsis, after = text.partition(_ELLIPSIS)
    letters = before + after
    hidden = rank - len(letters)
    fits = hidden >= 0 if ellipsis else hidden == 0
    if not fits or not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise UserError(
            f"attribute 'equation': expected a term for {rank} dimensions, got '{text}'"
        )
    return [*before, *(str(place) for place in reversed(range(hidden))), *after]


def _sizes(n: OnnxNode, inputs: Sequence[Sequence[str]]) -> dict[str, Dim]:
    """The extent of each label; 1 gives way to any other."""
    sizes: dict[str, Dim] = {}
    for index, labels in enumerate(inputs):
        for label, size in zip(labels, n.type(index).shape, strict=True):
            first_size = sizes.setdefault(label, size)
            if first_size == 1:
                sizes[label] = size
            elif size != 1 and not is_same(first_size, size):
                name = _ELLIPSIS if label.isdigit() else label
                raise UserError(
                    f"attribute 'equation': '{name}' is {first_size} in one input and {size} in input {index}"
                )
    return sizes


def _diagonal(n: OnnxNode, value: Value, labels: Sequence[str]) -> _Term:
    """Elements at which all dimensions with the same label have the same index."""
    labels = list(labels)
    for label, count in Counter(labels).items():
        for _ in range(count - 1):
            first, second = [at for at, other in enumerate(labels) if other == label][:2]
            rest = [at for at in range(len(labels)) if at not in (first, second)]
            moved = transpose(n, value, (first, second, *rest))
            rows, columns, *extents = moved.type.shape
            if 1 in (rows, columns):
                value = reshape(n, moved, (rows * columns, *extents))
            else:
                flat = n.operand(reshape(n, moved, (rows * columns, *extents)))
                places = (counted(n, rows) * (columns + 1)).operand
                value = n.f.create_gather(n.name, flat, places, 0).result
            labels = [label, *(labels[at] for at in rest)]
    return _Term(value, tuple(labels))


def _squeezed(n: OnnxNode, term: _Term, sizes: dict[str, Dim]) -> _Term:
    """Without the dimensions of 1 that others repeat."""
    labels = tuple(label for label in term.labels if term.size(label) != 1 or sizes[label] == 1)
    return _Term(reshape(n, term.value, [term.size(label) for label in labels]), labels)


def _path(
    terms: Sequence[_Term], output: Sequence[str], sizes: dict[str, Dim]
) -> list[tuple[int, ...]]:
    """Which terms are multiplied in each step; the product becomes the last of those that are left."""
    if len(terms) < 3 or len(sizes) > len(ascii_letters):
        return [tuple(range(len(terms)))]
    letters = dict(zip(sizes, ascii_letters, strict=False))
    texts = ["".join(letters[label] for label in term.labels) for term in terms]
    equation = f"{','.join(texts)}->{''.join(letters[label] for label in output)}"
    shapes = [[highest(sizes[label]) for label in term.labels] for term in terms]
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    path = np.einsum_path(equation, *arrays, optimize="greedy")[0]
    return [tuple(group) for group in path[1:]]


def _summed(n: OnnxNode, term: _Term, needed: Collection[str]) -> _Term:
    """Summed over all labels but those that are needed."""
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    total = n.f.create_reduce_add(n.name, n.operand(term.value), axes).result
    labels = tuple(label for label in term.labels if label in needed)
    return _Term(reshape(n, total, [term.size(label) for label in labels]), labels)


def _multiplied(n: OnnxNode, lhs: _Term, rhs: _Term, needed: Collection[str]) -> _Term:
    """The product of two terms, summed over all labels that both have and nobody needs."""
    lhs = _summed(n, lhs, {*needed, *rhs.labels})
    rhs = _summed(n, rhs, {*needed, *lhs.labels})
    shared = [label for label in lhs.labels if label in rhs.labels]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in lhs.labels if label not in shared]
    columns = [label for label in rhs.labels if label not in shared]
    batches, heights, depths, widths = (
        [(lhs if label in lhs.labels else rhs).size(label) for label in labels]
        for labels in (batch, rows, inner, columns)
    )
    height, depth, width = product(heights), product(depths), product(widths)
    left = _arranged(n, lhs, [*batch, *rows, *inner], (*batches, height, depth))
    right = _arranged(n, rhs, [*batch, *inner, *columns], (*batches, depth, width))
    create = n.f.create_mat_mul if inner else n.f.create_mul
    result = create(n.name, left, right).result
    return _Term(reshape(n, result, (*batches, *heights, *widths)), (*batch, *rows, *columns))


def _arranged(n: OnnxNode, term: _Term, labels: Sequence[str], shape: Sequence[Dim]) -> NodeValue:
    moved = transpose(n, term.value, [term.labels.index(label) for label in labels])
    return n.operand(reshape(n, moved, shape))
