"""GELU (Hendrycks and Gimpel 2016) as exporters spell it out, in fewer operations."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import AddNode, DivNode, ErfNode, MulNode, PowNode, TanhNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import is_all, known_tensor
from glowpy.passes import RewritePass

__all__ = ["FoldGeluPass"]

_CUBE = 0.044715
_SLOPE = math.sqrt(2 / math.pi)
_ROOT = math.sqrt(0.5)
_CLOSE = 1e-6
"""How far written numbers may be off: f32 has hardly more digits."""

_MOST_FACTORS = 8


@dataclass(frozen=True)
class FoldGeluPass(RewritePass):
    """Computes x * (1 + tanh(z)) / 2, where z is sqrt(2 / pi) * (x + 0.044715 * x ** 3), as x * sigmoid(2 * z).

    Likewise x * (1 + erf(x / sqrt(2))) / 2 without a division. The cube needs no power then, and nothing cancels.
    Numbers may stand anywhere among the factors, with 6 digits; so what is computed in f64 stays as it is.

    Before:
        %x, %out, %exact : f32[4]
        %three : f32[] = splat 3.0
        %small : f32[] = splat 0.044715
        %slope : f32[] = splat 0.7978846
        %one : f32[] = splat 1.0
        %half : f32[] = splat 0.5
        %root : f32[] = splat 1.4142135
        %cube = pow(%x, %three) : f32[4]
        %a = mul(%cube, %small) : f32[4]
        %b = add(%x, %a) : f32[4]
        %z = mul(%b, %slope) : f32[4]
        %t = tanh(%z) : f32[4]
        %gate = add(%t, %one) : f32[4]
        %c = mul(%x, %half) : f32[4]
        %y = mul(%c, %gate) : f32[4]
        save(%y, %out)
        %d = div(%x, %root) : f32[4]
        %e = erf(%d) : f32[4]
        %normal = add(%e, %one) : f32[4]
        %g = mul(%x, %normal) : f32[4]
        %h = mul(%g, %half) : f32[4]
        save(%h, %exact)
    After:
        %x, %out, %exact : f32[4]
        %three : f32[] = splat 3.0
        %small : f32[] = splat 0.044715
        %slope : f32[] = splat 0.7978846
        %one : f32[] = splat 1.0
        %half : f32[] = splat 0.5
        %root : f32[] = splat 1.4142135
        %y_1 = mul(%x, %x) : f32[4]
        %y_number = splat() {value=0.07135481627260025} : f32[]
        %y_2 = mul(%y_1, %y_number) : f32[4]
        %y_number_1 = splat() {value=1.5957691216057308} : f32[]
        %y_3 = add(%y_2, %y_number_1) : f32[4]
        %y_4 = mul(%x, %y_3) : f32[4]
        %y_5 = sigmoid(%y_4) : f32[4]
        %y = mul(%x, %y_5) : f32[4]
        save(%y, %out)
        %h_number = splat() {value=0.7071067811865476} : f32[]
        %h_1 = mul(%x, %h_number) : f32[4]
        %h_2 = erf(%h_1) : f32[4]
        %h_number_1 = splat() {value=0.5} : f32[]
        %h_3 = mul(%h_2, %h_number_1) : f32[4]
        %h_4 = add(%h_3, %h_number_1) : f32[4]
        %h = mul(%x, %h_4) : f32[4]
        save(%h, %exact)
    """

    name: ClassVar[str] = "fold-gelu"
    concerns: ClassVar[tuple[type[Node], ...]] = (ErfNode, TanhNode)

    @rule
    def fold(self, f: Function, n: MulNode, why: Why) -> Replacement:
        """The last product."""
        del why
        if n.type.kind is not ElemKind.F32:
            return None
        parts = _parts(n)
        for gate in parts:
            inner = _inside_gate(gate)
            if inner is None:
                continue
            for x in parts:
                if x.type == n.type and _is_product(n.result, 0.5, x, gate):
                    if isinstance(inner, ErfNode) and _is_product(inner.input, _ROOT, x):
                        return _by_erf(f, n.name, x)
                    if isinstance(inner, TanhNode) and _is_slope(inner.input, x):
                        return _by_sigmoid(f, n.name, x)
        return None


def _by_erf(f: Function, name: str, x: NodeValue) -> Node:
    wave = f.create_erf(name, f.create_mul(name, x, _splat(f, name, x, _ROOT)))
    half = _splat(f, name, x, 0.5)
    return f.create_mul(name, x, f.create_add(name, f.create_mul(name, wave, half), half))


def _by_sigmoid(f: Function, name: str, x: NodeValue) -> Node:
    square = f.create_mul(name, x, x)
    cubic = f.create_mul(name, square, _splat(f, name, x, 2 * _SLOPE * _CUBE))
    slope = f.create_add(name, cubic, _splat(f, name, x, 2 * _SLOPE))
    return f.create_mul(name, x, f.create_sigmoid(name, f.create_mul(name, x, slope)))


def _splat(f: Function, name: str, like: NodeValue, number: float) -> Operand:
    return f.create_splat(f"{name}_number", Type(like.type.kind, ()), number)


def _is_slope(value: NodeValue, x: NodeValue) -> bool:
    """Whether `value` is sqrt(2 / pi) * (x + 0.044715 * x ** 3), or with x before the brackets."""
    _, factors = _factors(value, x)
    for total in factors:
        if not isinstance(total.node, AddNode):
            continue
        pair = total.node.lhs, total.node.rhs
        for first, second in (pair, pair[::-1]):
            if first is x and _is_product(second, _CUBE, x, x, x):
                return _is_product(value, _SLOPE, total)
            if is_all(first, 1.0) and _is_product(second, _CUBE, x, x):
                return _is_product(value, _SLOPE, total, x)
    return False


def _inside_gate(value: NodeValue) -> ErfNode | TanhNode | None:
    """The function that 1 is added to."""
    if isinstance(value.node, AddNode):
        for one, other in ((value.node.lhs, value.node.rhs), (value.node.rhs, value.node.lhs)):
            if isinstance(one.node, ErfNode | TanhNode) and is_all(other, 1.0):
                return one.node
    return None


def _parts(n: MulNode) -> list[NodeValue]:
    """The factors of a product, of these, and so on."""
    parts = list(n.inputs)
    for value in parts:
        if isinstance(value.node, MulNode | DivNode) and len(parts) < _MOST_FACTORS:
            parts += value.node.inputs
    return list(dict.fromkeys(parts))


def _is_product(value: NodeValue, number: float, *expected: NodeValue) -> bool:
    """Whether `value` is the product of a number and of these factors, in any order."""
    constant, factors = _factors(value, *expected)
    return math.isclose(constant, number, rel_tol=_CLOSE) and Counter(factors) == Counter(expected)


def _factors(value: NodeValue, *whole: NodeValue) -> tuple[float, list[NodeValue]]:
    """A value as a product of a number and of factors, of which those in `whole` are not looked into."""
    number, factors, open_ones = 1.0, list[NodeValue](), [value]
    while open_ones and len(factors) < _MOST_FACTORS:
        part = open_ones.pop()
        node, known_number = part.node, _number(part)
        divisor = _number(node.rhs) if isinstance(node, DivNode) else None
        power = _number(node.rhs) if isinstance(node, PowNode) else None
        if part in whole:
            factors.append(part)
        elif known_number is not None:
            number *= known_number
        elif isinstance(node, MulNode):
            open_ones += node.inputs
        elif isinstance(node, DivNode) and divisor:
            number /= divisor
            open_ones.append(node.lhs)
        elif isinstance(node, PowNode) and power in (2.0, 3.0):
            open_ones += [node.lhs] * int(power)
        else:
            factors.append(part)
    return number, factors


def _number(value: NodeValue) -> float | None:
    """The one number that all elements are, if that is known."""
    tensor = known_tensor(value)
    number = None if tensor is None else tensor.splat_value
    return None if number is None else float(number)
