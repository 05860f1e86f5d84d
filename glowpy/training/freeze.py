"""Networks whose variables have become constants: what has been trained, to infer with."""

from __future__ import annotations

from glowpy.core.tensor import Tensor
from glowpy.graph.clone import Values, clone_function, clone_storage
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Variable
from glowpy.runtime.state import State
from glowpy.support.errors import UserError, expect_type

__all__ = ["freeze"]


def freeze(function: Function, state: State) -> Module:
    """A module with a copy of a function in which variables are constants, with the elements that a state has.

    The function is what infers, not what trains: variables that it saves itself stay variables and begin with the
    state's elements. The state may have more variables, such as an optimizer's. Constants are folded, packed and
    quantized as those of any other network, and `glowpy.save` writes it as ONNX.

    Raises UserError for a function that others call, and for variables that the state does not have.
    """
    expect_type("function", function, Function, "a function of a module, such as module.main")
    expect_type("state", state, State, "a state, as network.state() makes one")
    if function.is_called:
        raise UserError(f"expected a network, got @{function.name}, which others call")
    module, values = Module(), Values()
    saved = {save.output.storage for save in function.saves}
    for variable in function.variables:
        name = variable.original
        if name not in state.shapes:
            known = ", ".join(map(repr, state.shapes)) or "(it has none)"
            raise UserError(f"expected a state with the variable '{name}', got {known}")
        shape = state.shapes[name]
        if shape != variable.type.extents:
            raise UserError(f"expected '{name}' of {variable.type}, got {list(shape)}")
        tensor = Tensor(variable.type, state[name].copy())
        if variable in saved:
            twin = clone_storage(variable, module, values)
            assert isinstance(twin, Variable)
            module.begin(twin, tensor)
        else:
            constant = module.create_constant(variable.name, tensor, loc=variable.loc)
            values[variable.value] = constant.value
    for callee in function.called:
        clone_function(callee, module, callee.name, values)
    clone_function(function, module, function.name, values)
    return module
