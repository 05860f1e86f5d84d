"""Optimizers as nodes: what each makes of a weight, its gradient and what it has kept of earlier steps.

Formulas and defaults are those of `torch.optim`; those of Lion (Chen et al. 2023) and LAMB (You et al. 2020), which are
not there, are of the papers. Numbers that are the same for all elements of a weight, such as the corrections of Adam's
means, are computed in f64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import prod, sqrt

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape
from glowpy.graph.function import Function
from glowpy.graph.node import Variable
from glowpy.ops.term import Term
from glowpy.support.errors import UserError, expect_type
from glowpy.support.symbolic import static

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "Adamax",
    "Lamb",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Step",
]


_EPSILONS = {
    ElemKind.F64: 2.0**-52, ElemKind.F32: 2.0**-23, ElemKind.F16: 2.0**-10, ElemKind.BF16: 2.0**-7,
}  # fmt: skip
"""The distance of 1 to the next larger number."""


@dataclass(frozen=True)
class Step:
    """One step of an optimizer for one weight: what it reads, and what it keeps for the next.

    Attributes:
        f: The function that trains.
        variable: The weight.
        weight: Its elements before the step.
        gradient: The gradient of the loss by it, of the same type.
        number: The number of the step, from 1 on, as f64[].
        rate: The learning rate, as f64[].
    """

    f: Function
    variable: Variable
    weight: Term
    gradient: Term
    number: Term
    rate: Term
    _slots: dict[str, Variable] = field(default_factory=dict)

    def slot(self, name: str, shape: Shape | None = None, *, first: float = 0.0) -> Term:
        """The value that the step before kept under a name: like the weight, or of a shape; at first `first`."""
        type = self.variable.type
        if shape is not None:
            type = type.with_shape(shape)
        title = f"{self.variable.original}.{name}"
        if any(variable.original == title for variable in self.f.variables):
            raise UserError(
                f"expected no variable '{title}': the optimizer keeps what it has of '{self.variable.original}' there",
                note="give the variable another name",
            )
        initial = Tensor.splat(type, first) if first else None
        slot = self.f.module.create_variable(title, type, original=title, initial=initial)
        self._slots[name] = slot
        return self.term(slot)

    def keep(self, name: str, value: Term) -> Term:
        """Keeps a value for the next step in the slot of that name; the value."""
        self.f.create_save(self._slots[name].name, value.value, self._slots[name])
        return value

    def term(self, value: Variable) -> Term:
        """A variable in formulas of this step."""
        return Term(self.f, self.weight.name, value)

    def scalar(self, value: Term) -> Term:
        """A number in f64 as one that weights are computed with."""
        return value.to(self.variable.type.kind)

    def average(self, name: str, value: Term, share: float | Term) -> Term:
        """The running average, of which `share` is the value: moved as `torch.lerp` does for shares below a half."""
        before = self.slot(name)
        return self.keep(name, before + (value - before) * share)

    def mean_square(self, name: str, value: Term, decay: float) -> Term:
        """The running average of squares."""
        before = self.slot(name)
        return self.keep(name, before * decay + value * (1.0 - decay) * value)


@dataclass(frozen=True)
class Optimizer(ABC):
    """A rule for steps. `learning_rate` is what the variable `learning_rate` of a training function begins with."""

    learning_rate: float

    def __post_init__(self) -> None:
        expect_type("learning_rate", self.learning_rate, int | float, "a number")
        if not self.learning_rate >= 0:
            raise UserError(f"expected a learning rate of at least 0, got {self.learning_rate}")
        for name in ("betas", "alpha", "rho", "momentum"):
            shares = getattr(self, name, 0.0)
            for share in shares if isinstance(shares, tuple) else (shares,):
                if not 0 <= share < 1:
                    raise UserError(f"{name}: expected shares from 0 to below 1, got {share}")

    def after(self, step: Step) -> Term:
        """The weight after a step, in its own type. Raises UserError for a weight that the rule is not for."""
        return self._after(step)

    @abstractmethod
    def _after(self, step: Step) -> Term: ...


def _decayed(step: Step, decay: float) -> Term:
    """The gradient of a loss with half the square of the weight, times `decay`, added."""
    return step.gradient + step.weight * decay if decay else step.gradient


def _shrunk(step: Step, decay: float) -> Term:
    """The weight without the part that decays by itself (Loshchilov and Hutter 2019)."""
    return step.weight * step.scalar(1.0 - step.rate * decay) if decay else step.weight


def _decayed_pair(step: Step, decay: float, *, decoupled: bool) -> tuple[Term, Term]:
    """The weight and the gradient, of which one has the decay."""
    if decoupled:
        return _shrunk(step, decay), step.gradient
    return step.weight, _decayed(step, decay)


def _moments(step: Step, gradient: Term, betas: tuple[float, float]) -> tuple[Term, Term]:
    """The running averages of gradients and of their squares, as Adam has them."""
    mean = step.average("mean", gradient, 1.0 - betas[0])
    return mean, step.mean_square("square", gradient, betas[1])


def _missing(step: Step, beta: float) -> Term:
    """1 - beta ** t: the weights that a running average gives to what there has been."""
    base = step.number * 0.0 + beta
    return 1.0 - base.power(step.number)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (1983).

    The first step is not dampened.
    """

    learning_rate: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    l1_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and (self.momentum <= 0 or self.dampening):
            raise UserError("expected a momentum and no dampening for nesterov")

    def _after(self, step: Step) -> Term:
        gradient = _decayed(step, self.weight_decay)
        if self.l1_decay:
            gradient = gradient + step.weight.sign() * self.l1_decay
        if self.momentum:
            moved = step.slot("momentum") * self.momentum + gradient * (1.0 - self.dampening)
            if self.dampening:
                moved = moved.where(step.number > 1.0, gradient)
            step.keep("momentum", moved)
            gradient = gradient + moved * self.momentum if self.nesterov else moved
        return step.weight - gradient * step.scalar(step.rate)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015); AdamW (Loshchilov and Hutter 2019) if `decoupled`; AMSGrad (Reddi et al. 2018)."""

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    amsgrad: bool = False

    def _after(self, step: Step) -> Term:
        weight, gradient = _decayed_pair(step, self.weight_decay, decoupled=self.decoupled)
        mean, square = _moments(step, gradient, self.betas)
        if self.amsgrad:
            square = step.keep("largest", step.slot("largest").max(square))
        size = step.scalar(step.rate / _missing(step, self.betas[0]))
        root = square.sqrt() / step.scalar(_missing(step, self.betas[1]).sqrt())
        return weight - mean * size / (root + self.epsilon)


@dataclass(frozen=True)
class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    learning_rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled: bool = False

    def _momentum(self, number: Term) -> Term:
        base = number * 0.0 + 0.96
        return (1.0 - base.power(number * self.momentum_decay) * 0.5) * self.betas[0]

    def _after(self, step: Step) -> Term:
        weight, gradient = _decayed_pair(step, self.weight_decay, decoupled=self.decoupled)
        now, following = self._momentum(step.number), self._momentum(step.number + 1.0)
        product = step.keep("product", step.slot("product", (), first=1.0) * step.scalar(now))
        wide = product.to(ElemKind.F64)
        mean, square = _moments(step, gradient, self.betas)
        root = (square / step.scalar(_missing(step, self.betas[1]))).sqrt() + self.epsilon
        direct = step.scalar(step.rate * (1.0 - now) / (1.0 - wide))
        onwards = step.scalar(step.rate * following / (1.0 - wide * following))
        return weight - gradient * direct / root - mean * onwards / root


@dataclass(frozen=True)
class RAdam(Optimizer):
    """Adam whose rate is rectified for the variance of the first steps (Liu et al. 2020)."""

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def _after(self, step: Step) -> Term:
        weight, gradient = _decayed_pair(step, self.weight_decay, decoupled=self.decoupled)
        mean, square = _moments(step, gradient, self.betas)
        move = mean / step.scalar(_missing(step, self.betas[0])) * step.scalar(step.rate)
        missing = _missing(step, self.betas[1])
        last = 2.0 / (1.0 - self.betas[1]) - 1.0
        length = last - step.number * 2.0 * (1.0 - missing) / missing
        ratio = (length - 4.0) * (length - 2.0) * last / (length * ((last - 4.0) * (last - 2.0)))
        adapted = step.scalar(missing.sqrt()) / (square.sqrt() + self.epsilon)
        rectified = move * adapted * step.scalar(ratio.max(0.0).sqrt())
        return weight - rectified.where(length > 5.0, move)


@dataclass(frozen=True)
class Adamax(Optimizer):
    """Adam with the largest gradient in place of the mean square (Kingma and Ba 2015)."""

    learning_rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def _after(self, step: Step) -> Term:
        gradient = _decayed(step, self.weight_decay)
        mean = step.average("mean", gradient, 1.0 - self.betas[0])
        before = step.slot("largest") * self.betas[1]
        largest = step.keep("largest", before.max(abs(gradient) + self.epsilon))
        return step.weight - mean * step.scalar(step.rate / _missing(step, self.betas[0])) / largest


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Gradients over the root of their mean square (Hinton 2012), or of their variance if `centered` (Graves 2013)."""

    learning_rate: float = 1e-2
    alpha: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False

    def _after(self, step: Step) -> Term:
        gradient = _decayed(step, self.weight_decay)
        square = step.mean_square("square", gradient, self.alpha)
        if self.centered:
            mean = step.average("mean", gradient, 1.0 - self.alpha)
            square = square - mean * mean
        root = square.sqrt() + self.epsilon
        if self.momentum:
            before = step.slot("momentum") * self.momentum
            moved = step.keep("momentum", before + gradient / root)
            return step.weight - moved * step.scalar(step.rate)
        return step.weight - gradient * step.scalar(step.rate) / root


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Gradients over the root of the sum of all their squares (Duchi, Hazan and Singer 2011)."""

    learning_rate: float = 1e-2
    rate_decay: float = 0.0
    weight_decay: float = 0.0
    initial: float = 0.0
    epsilon: float = 1e-10

    def _after(self, step: Step) -> Term:
        gradient = _decayed(step, self.weight_decay)
        total = step.slot("squares", first=self.initial) + gradient * gradient
        step.keep("squares", total)
        rate = step.rate / ((step.number - 1.0) * self.rate_decay + 1.0)
        return step.weight - gradient * step.scalar(rate) / (total.sqrt() + self.epsilon)


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """Gradients in the unit of the weight, from the mean squares of both (Zeiler 2012)."""

    learning_rate: float = 1.0
    rho: float = 0.9
    epsilon: float = 1e-6
    weight_decay: float = 0.0

    def _after(self, step: Step) -> Term:
        gradient = _decayed(step, self.weight_decay)
        square = step.mean_square("square", gradient, self.rho)
        before = step.slot("moves")
        move = (before + self.epsilon).sqrt() / (square + self.epsilon).sqrt() * gradient
        step.keep("moves", before * self.rho + move * (1.0 - self.rho) * move)
        return step.weight - move * step.scalar(step.rate)


@dataclass(frozen=True)
class Lion(Optimizer):
    """The sign of an interpolation between a running average and the gradient (Chen et al. 2023)."""

    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0

    def _after(self, step: Step) -> Term:
        weight = _shrunk(step, self.weight_decay)
        before, gradient = step.slot("mean"), step.gradient
        move = (before * self.betas[0] + gradient * (1.0 - self.betas[0])).sign()
        step.keep("mean", before * self.betas[1] + gradient * (1.0 - self.betas[1]))
        return weight - move * step.scalar(step.rate)


def _norm(value: Term) -> Term:
    """The root of the sum of all squares, as a scalar."""
    f, type = value.f, value.type
    total = f.create_reduce_add(value.name, (value * value).value, tuple(range(type.rank)))
    return Term(f, value.name, f.create_reshape(value.name, type.with_shape(()), total)).sqrt()


@dataclass(frozen=True)
class Lamb(Optimizer):
    """Adam's direction in the length of the weight (You et al. 2020); as it is where one of both lengths is 0."""

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.0

    def _after(self, step: Step) -> Term:
        mean, square = _moments(step, step.gradient, self.betas)
        root = square.sqrt() / step.scalar(_missing(step, self.betas[1]).sqrt())
        move = mean / step.scalar(_missing(step, self.betas[0])) / (root + self.epsilon)
        move = move + step.weight * self.weight_decay if self.weight_decay else move
        long, length = _norm(step.weight), _norm(move)
        ratio = (long / length.where(length > 0.0, 1.0)).where(length > 0.0, 1.0)
        trust = ratio.where(long > 0.0, 1.0)
        return step.weight - move * (trust * step.scalar(step.rate))


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Mean squares of matrices by their rows and columns (Shazeer and Stern 2018)."""

    learning_rate: float = 1e-2
    beta2_decay: float = -0.8
    epsilon: tuple[float | None, float] = (None, 1e-3)
    threshold: float = 1.0
    weight_decay: float = 0.0

    def _after(self, step: Step) -> Term:
        type, gradient = step.variable.type, step.gradient
        least = self.epsilon[0]
        if least is None:
            least = _EPSILONS[type.kind]
        share = step.scalar(step.number.power(self.beta2_decay))
        count = sqrt(prod(static(type.shape)))
        size = (_norm(step.weight).to(ElemKind.F64) * (1.0 / count)).max(self.epsilon[1])
        alpha = size * step.rate.min(step.number.power(-0.5))
        square = gradient * gradient
        if type.rank > 1:
            rows = _moved(step, "rows", _mean(square, type.rank - 1), share)
            columns = _moved(step, "columns", _mean(square, type.rank - 2), share)
            estimate = rows * columns / _mean(rows, type.rank - 2).max(least)
        else:
            estimate = _moved(step, "square", square, share)
        move = gradient / estimate.max(least * least).sqrt()
        over = (_norm(move).to(ElemKind.F64) * (1.0 / (count * self.threshold))).max(1.0)
        return _shrunk(step, self.weight_decay) - move * step.scalar(alpha / over)


def _mean(value: Term, axis: int) -> Term:
    return Term(value.f, value.name, value.f.create_reduce_mean(value.name, value.value, (axis,)))


def _moved(step: Step, name: str, value: Term, share: Term) -> Term:
    """A running average of a value's own shape."""
    before = step.slot(name, value.type.shape)
    return step.keep(name, before + (value - before) * share)


@dataclass(frozen=True)
class Muon(Optimizer):
    """Momentum whose matrix is made orthogonal by Newton and Schulz's iteration (Jordan et al. 2024).

    For weights of rank 2 only. It is computed in the kind of the weight, where PyTorch rounds to bf16.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    epsilon: float = 1e-7
    rounds: int = 5

    def _after(self, step: Step) -> Term:
        type, name = step.variable.type, step.variable.original
        if type.rank != 2:
            raise UserError(f"Muon: expected weights of rank 2, got {type} '{name}'")
        rows, columns = static(type.shape)
        moved = step.average("momentum", step.gradient, 1.0 - self.momentum)
        if self.nesterov:  # a share above a half is taken from the other end
            moved = moved - (moved - step.gradient) * (1.0 - self.momentum)
        rate = step.rate * sqrt(max(1.0, rows / columns))
        weight = _shrunk(step, self.weight_decay)
        return weight - self._orthogonal(moved, rows > columns) * step.scalar(rate)

    def _orthogonal(self, matrix: Term, is_high: bool) -> Term:
        f, name = matrix.f, matrix.name

        def turned(value: Term) -> Term:
            return Term(f, name, f.create_transpose(name, value.value, (1, 0)))

        def product(left: Term, right: Term) -> Term:
            return Term(f, name, f.create_mat_mul(name, left.value, right.value))

        value = turned(matrix) if is_high else matrix
        value = value / _norm(value).max(self.epsilon)
        a, b, c = self.coefficients
        for _ in range(self.rounds):
            gram = product(value, turned(value))
            value = value * a + product(gram * b + product(gram, gram) * c, value)
        return turned(value) if is_high else value
