"""Functions that compute a loss together with its gradients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from glowpy.autodiff.gradients import gradients
from glowpy.graph.clone import Values, clone_function
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Storage
from glowpy.support.errors import UserError

__all__ = ["differentiate"]


def differentiate(
    function: Function,
    loss: str | NodeValue,
    *,
    wrt: Sequence[str] | None = None,
    name: str | None = None,
) -> Function:
    """Adds a function to the module that computes what `function` does, and the gradients of a loss.

    It reads the same inputs and variables, saves the same outputs, and saves the gradient of each storage of
    `wrt` into an output called `NAME_grad`, of the storage's type. A storage that the loss does not depend on has the
    gradient 0.

    Gradients are taken of the network as it was built or imported, before it is optimized. Optimize, quantize and
    compile afterwards.

    Args:
        function: A function of any module, with static or open shapes.
        loss: The name of an output, or a value of `function`: one floating-point number, such as `f32[1x1]`.
        wrt: Names of inputs, variables and constants, as in the user's model. All variables of a floating-point kind,
            if left out.
        name: Of the new function; `NAME_gradients` if left out.

    Raises UserError for a loss that is no output or value of the function or not one number, and for names of `wrt`
    that it does not read or that are no floating-point numbers. Raises UnsupportedError, which names the first node on
    the way from the loss that has no derivative, and why.

    Reverse mode (Linnainmaa 1970), as in section 3.2 of the Glow paper.
    """
    module = function.module
    sources = _sources(function, wrt)
    target = _loss(function, loss)
    values: Values = {}
    title = name or module.unused_function_name(f"{function.name}_gradients")
    copy = clone_function(function, module, title, values)
    by = [values.get(source.value, source.value) for source in sources]
    try:
        derivatives = gradients(copy, values.get(target, target), by)
    except UserError:
        module.erase_function(copy)
        raise
    for source, gradient in zip(sources, derivatives, strict=True):
        title = _unused(f"{source.original}_grad", copy)
        output = module.create_placeholder(f"{source.name}_grad", gradient.type, original=title)
        copy.create_save(output.name, gradient, output)
    copy.erase_dead()  # rules give the gradients of all operands
    return copy


def _sources(f: Function, wrt: Sequence[str] | None) -> list[Storage]:
    """The storages to differentiate by. Raises UserError for names of none, and if there are none."""
    if wrt is None:
        if sources := [v for v in f.variables if v.type.kind.is_float]:
            return list(sources)
        raise UserError(
            f"function '{f.name}': expected variables to differentiate by, got none",
            note="name inputs or constants in `wrt`, or make them variables",
        )
    known: dict[str, Storage] = {}
    for storage in (*f.constants, *f.inputs, *f.variables):
        known |= {storage.name: storage, storage.original: storage}
    for name in wrt:
        if name not in known:
            raise UserError(
                f"wrt: expected a variable, an input or a constant of '{f.name}', got '{name}'"
            )
        if not known[name].type.kind.is_float:
            raise UserError(
                f"wrt: expected floating-point numbers, got {known[name].type} '{name}'"
            )
    return [known[name] for name in wrt]


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
