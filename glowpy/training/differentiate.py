"""Functions that compute a loss together with its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from glowpy.autodiff.gradients import gradients
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.clone import Values, clone_function
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Storage, Variable
from glowpy.ops.term import Term
from glowpy.support.errors import UserError, expect_type
from glowpy.training.optimizers import Optimizer, Step

__all__ = ["differentiate"]

_RATE, _STEPS = "learning_rate", "step"
"""The variables of every optimizer: the learning rate, and the number of the steps taken."""


def differentiate(
    function: Function,
    loss: str | NodeValue,
    *,
    wrt: str | Sequence[str] | None = None,
    optimizer: Optimizer | None = None,
    name: str | None = None,
) -> Function:
    """Adds a function to the module that computes what `function` does, and the gradients of a loss.

    It reads the same inputs and variables and saves the same outputs. Without an optimizer it saves the gradient of
    each storage of `wrt` into an output called `NAME_grad`, of the storage's type. With one it is a training step: it
    changes the variables. What the optimizer keeps of a variable is in variables called `NAME.slot`; `learning_rate`,
    as f64[], and the number of steps taken, `step` as i64[], are variables as well, which a state can set.

    A storage that the loss does not depend on has the gradient 0.

    Gradients are taken of the network as it was built or imported, before it is optimized. Optimize, quantize and
    compile afterwards.

    Args:
        function: A function of any module, with static or open shapes.
        loss: The name of an output, or a value of `function`: one floating-point number, such as `f32[1x1]`.
        wrt: Names of inputs and variables, as in the user's model, and of constants, as in dumps. All variables of a
            floating-point kind that the function does not save itself, if left out.
        optimizer: The rule by which variables change, such as `glowpy.training.optimizers.Adam()`.
        name: Of the new function; `NAME_gradients`, or `NAME_training` with an optimizer, if left out.

    Raises UserError for a loss that is no output or value of the function or not one number, and for names of `wrt`
    that it does not read, that are no floating-point numbers or, with an optimizer, no variables or saved by the
    function itself. Raises UnsupportedError, which names the first node on
    the way from the loss that has no derivative, and why.

    Reverse mode (Linnainmaa 1970), as in section 3.2 of the Glow paper.
    """
    expect_type("function", function, Function, "a function of a module, such as module.main")
    if optimizer is not None:
        expect_type("optimizer", optimizer, Optimizer, "an Optimizer, such as Adam()")
    module = function.module
    sources = _sources(function, wrt)
    if optimizer is not None:
        _check_trainable(function, sources)
    target = _loss(function, loss)
    values: Values = {}
    suffix = "gradients" if optimizer is None else "training"
    title = name or module.unused_function_name(f"{function.name}_{suffix}")
    copy = clone_function(function, module, title, values)
    by = [values.get(source.value, source.value) for source in sources]
    with _taken_back(copy):
        derivatives = gradients(copy, values.get(target, target), by)
        if optimizer is None:
            _save(copy, sources, derivatives)
        else:
            _train(copy, sources, derivatives, optimizer)
    copy.erase_dead()  # rules give the gradients of all operands
    return copy


@contextmanager
def _taken_back(f: Function) -> Iterator[None]:
    """Erases a function, and all functions and variables that were added for it, if the `with` raises UserError."""
    module = f.module
    before = {*module.functions, *module.variables} - {f}
    try:
        yield
    except UserError:
        for function in reversed(module.functions):
            if function not in before:
                module.erase_function(function)
        for variable in module.variables:
            if variable not in before:
                module.erase(variable)
        raise


def _save(f: Function, sources: Sequence[Storage], gradients: Sequence[NodeValue]) -> None:
    """Saves gradients in outputs."""
    for source, gradient in zip(sources, gradients, strict=True):
        title = _unused(f"{source.original}_grad", f)
        output = f.module.create_placeholder(f"{source.name}_grad", gradient.type, original=title)
        f.create_save(output.name, gradient, output)


def _check_trainable(f: Function, sources: Sequence[Storage]) -> None:
    """Raises UserError for storage that an optimizer cannot change, and for variables called as its own are."""
    for variable in f.variables:
        if variable.original in (_RATE, _STEPS):
            raise UserError(
                f"expected no variable '{variable.original}' in '{f.name}': an optimizer has one of that name",
                note="give the variable another name",
            )
    saved, seen = {save.output for save in f.saves}, set[Storage]()
    for source in sources:
        if source in seen:
            raise UserError(f"wrt: expected each variable once, got '{source.original}' twice")
        seen.add(source)
        if not isinstance(source, Variable):
            raise UserError(
                f"wrt: expected variables for an optimizer, got '{source.original}'",
                note="Module.make_variable makes one of a constant",
            )
        if source.value in saved:
            raise UserError(
                f"wrt: '{source.original}' is a variable that the function itself saves"
            )


def _train(
    f: Function, sources: Sequence[Storage], gradients: Sequence[NodeValue], optimizer: Optimizer
) -> None:
    """Saves what an optimizer makes of each variable, and counts the step."""
    module = f.module
    rate = np.array(optimizer.learning_rate)
    rate_slot = module.create_variable(_RATE, Type(ElemKind.F64, ()), initial=rate)
    steps = module.create_variable(_STEPS, Type(ElemKind.I64, ()))
    number = Term(f, "step", steps) + 1
    for variable, gradient in zip(sources, gradients, strict=True):
        assert isinstance(variable, Variable)
        name = variable.name
        step = Step(
            *(f, variable, Term(f, name, variable), Term(f, name, gradient)),
            *(number.to(ElemKind.F64), Term(f, "rate", rate_slot)),
        )
        f.create_save(name, optimizer.after(step).value, variable)
    f.create_save("step", number.value, steps)


def _sources(f: Function, wrt: str | Sequence[str] | None) -> list[Storage]:
    """The storages to differentiate by. Raises UserError for names of none, and if there are none."""
    names = [wrt] if isinstance(wrt, str) else wrt
    if names is None:
        saved = {save.output.storage for save in f.saves}
        if sources := [v for v in f.variables if v.type.kind.is_float and v not in saved]:
            return list(sources)
        raise UserError(
            f"function '{f.name}': expected variables to differentiate by, got none",
            note="name inputs or constants in `wrt`, or make them variables",
        )
    known: dict[str, Storage] = {}
    for storage in (*f.constants, *f.inputs, *f.variables):
        known |= {storage.name: storage, storage.original: storage}
    if not names:
        raise UserError("wrt: expected at least one name, got none")
    for name in names:
        if name not in known:
            raise UserError(
                f"wrt: expected a variable, an input or a constant of '{f.name}', got '{name}'",
                note="glowpy.load(..., trainable=...) makes variables of a model's weights",
            )
        if not known[name].type.kind.is_float:
            raise UserError(
                f"wrt: expected floating-point numbers, got {known[name].type} '{name}'"
            )
    return [known[name] for name in names]


def _loss(f: Function, loss: str | NodeValue) -> NodeValue:
    """The value to differentiate. Raises UserError if it is not one floating-point number of the function."""
    if isinstance(loss, str):
        saved: dict[str, NodeValue] = {}
        for save in f.saves:
            output = save.output.storage
            saved |= {output.name: save.input, output.original: save.input}
        if loss not in saved:
            raise UserError(f"loss: expected an output of '{f.name}', got '{loss}'")
        loss = saved[loss]
    elif loss.node is None or loss.node not in f:
        raise UserError(f"loss: expected a value of '{f.name}', got %{loss.name}")
    if not loss.type.kind.is_float or loss.type.count != 1:
        raise UserError(
            f"loss: expected one floating-point number, got {loss.type}",
            note="sum it or take its mean first",
        )
    return loss


def _unused(name: str, f: Function) -> str:
    """A name, or one like it, that no output of the function has."""
    taken = {output.original for output in f.outputs}
    names = (f"{name}_{number}" if number else name for number in itertools.count())
    return next(title for title in names if title not in taken)
