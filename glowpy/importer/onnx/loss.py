"""Import of what trains: gradients, and the steps of optimizers, of the preview training domain."""

from __future__ import annotations

from collections.abc import Callable

from glowpy.autodiff.gradients import gradients
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import full, reshape
from glowpy.importer.kit.numbers import Number, Numbers
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


_TRAINING = "ai.onnx.preview.training"


@from_onnx("Gradient", domain=_TRAINING)
def _gradient(n: OnnxNode) -> tuple[Result, ...]:
    """The derivatives of y by each of xs, at the values the graph itself gives them; other points are not supported."""
    xs, zs, name = n.texts("xs"), n.texts("zs"), n.text("y", "")
    if list(n.proto.input) != [*xs, *zs]:
        raise n.unsupported(
            "a gradient at other values than those of 'xs' and 'zs' in the graph",
            note="give the tensors named in 'xs' and 'zs' as inputs",
        )
    y = n.scope.environment.get(name)
    if not isinstance(y, NodeValue | Tensor):
        raise UserError(f"attribute 'y': expected a tensor of the graph, got '{name}'")
    points: list[Value] = [n.value(index) for index in range(len(xs))]
    if isinstance(y, Tensor):
        return tuple(full(point.type, 0.0) for point in points)
    computed = [point for point in points if isinstance(point, NodeValue)]
    values = iter(gradients(n.f, y, computed))
    return tuple(
        next(values) if isinstance(point, NodeValue) else full(point.type, 0.0) for point in points
    )


# Optimizers: a rate, how many steps there were, tensors, their gradients, and what is kept of these for each tensor.

_Step = Callable[..., tuple[Numbers, ...]]


def _each(n: OnnxNode, kept: int, step: _Step) -> tuple[Value, ...]:
    """Applies `step` to each tensor, its gradient with regularization, and its state: all tensors come first."""
    groups = 2 + kept
    count, rest = divmod(n.num_inputs - 2, groups)
    if rest or count < 1:
        raise UserError(
            f"expected 2 inputs and {groups} for each tensor, got {n.num_inputs} inputs"
        )
    factor = n.real("norm_coefficient", 0.0)
    columns: list[tuple[Numbers, ...]] = []
    for index in range(count):
        x, gradient, *states = (
            Numbers(n, n.value(2 + group * count + index)) for group in range(groups)
        )
        columns.append(step(x, x * factor + gradient, *states))
    return tuple(column[row].value for row in range(1 + kept) for column in columns)


def _scalar(n: OnnxNode, index: int) -> Numbers:
    return Numbers(n, reshape(n, n.value(index), ()))


def _root(n: OnnxNode, x: Numbers) -> Numbers:
    return Numbers(n, n.f.create_sqrt(n.name, x.operand).result)


def _past_first(n: OnnxNode, later: Numbers, first: Number) -> Numbers:
    """A number in all steps but the first, and another in that."""
    return later.where(_scalar(n, 1) > 0, first)


@from_onnx("Momentum", domain=_TRAINING)
def _momentum(n: OnnxNode) -> tuple[Value, ...]:
    """Steps along a running sum of gradients; with Nesterov's correction, as if it were a step further."""
    alpha, beta, mode = n.real("alpha", 0.0), n.real("beta", 0.0), n.text("mode", "")
    if mode not in ("standard", "nesterov"):
        raise UserError(f"attribute 'mode': expected standard or nesterov, got '{mode}'")
    rate = _scalar(n, 0)

    def step(x: Numbers, gradient: Numbers, sum: Numbers) -> tuple[Numbers, ...]:
        share = _past_first(n, Numbers.of(n, 1, x.kind) * beta, 1.0)
        new = sum * alpha + gradient * share
        way = gradient + new * alpha if mode == "nesterov" else new
        return x - way * rate.to(x.kind), new

    return _each(n, 1, step)


@from_onnx("Adagrad", domain=_TRAINING)
def _adagrad(n: OnnxNode) -> tuple[Value, ...]:
    """Steps divided by the root of the sum of all squared gradients (Duchi, Hazan and Singer 2011)."""
    decay, epsilon, steps = n.real("decay_factor", 0.0), n.real("epsilon", 1e-6), _scalar(n, 1)
    rate = _scalar(n, 0)
    rate = rate / (steps.to(rate.kind) * decay + 1.0)

    def step(x: Numbers, gradient: Numbers, squares: Numbers) -> tuple[Numbers, ...]:
        new = squares + gradient * gradient
        return x - gradient * rate.to(x.kind) / (_root(n, new) + epsilon), new

    return _each(n, 1, step)


@from_onnx("Adam", domain=_TRAINING)
def _adam(n: OnnxNode) -> tuple[Value, ...]:
    """Running means of gradients and of their squares, less what they begin with (Kingma and Ba 2015)."""
    alpha, beta, epsilon = n.real("alpha", 0.9), n.real("beta", 0.999), n.real("epsilon", 1e-6)
    after, rate = n.real("norm_coefficient_post", 0.0), _scalar(n, 0)
    steps = _scalar(n, 1).to(rate.kind)

    def missing(factor: float) -> Numbers:
        base = Numbers.of(n, 1, rate.kind) * factor
        return 1.0 - Numbers(n, n.f.create_pow(n.name, base.operand, steps.operand).result)

    rate = _past_first(n, rate * _root(n, missing(beta)) / missing(alpha), rate)

    def step(x: Numbers, gradient: Numbers, mean: Numbers, square: Numbers) -> tuple[Numbers, ...]:
        new_mean = mean * alpha + gradient * (1.0 - alpha)
        new_square = square * beta + gradient * gradient * (1.0 - beta)
        moved = x - new_mean * rate.to(x.kind) / (_root(n, new_square) + epsilon)
        return moved * (1.0 - after), new_mean, new_square

    return _each(n, 2, step)
