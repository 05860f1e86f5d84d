"""IR that was read from text, as a program: what `recipe` makes of a graph's, without the graph.

The text says what there is, and what instructions do with it says what each weight is for: a mutable one is an input
if it is read before anything is written to it, and an output if something is written. Elements of constants are not in
the text.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from glowpy.backend import Backend, Program
from glowpy.core.extents import check_bounds, check_known
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.printer import print_inst
from glowpy.ir.value import Value
from glowpy.recipe import plan_all, refusals
from glowpy.runtime.ports import Port, Ports
from glowpy.support.errors import Diagnostic, UnsupportedError, UserError

__all__ = ["program_of_text"]


def program_of_text(ir: IRFunction, constants: Mapping[str, Array], backend: Backend) -> Program:
    """The program of an IR function, with the elements of its constants by their names.

    Raises VerifyError for IR that is wrong, UnsupportedError for instructions that the backend does not have, UserError
    for constants that are missing or of another size.
    """
    if refused := refusals(ir, backend):
        raise UnsupportedError.of(
            Diagnostic(f"the {backend.name} backend: {reason}", inst.loc, print_inst(inst))
            for inst, reason in refused
        )
    tensors = {
        weight.name: _tensor(weight.name, weight.type, constants)
        for function in (*ir.callees.values(), ir)
        for weight in function.weights.values()
        if weight.is_constant
    }
    plans = plan_all(ir)
    inputs, outputs = _ports(ir)
    shapes = {port.name: port.type.shape for port in inputs}
    check_bounds(value.type for function in (*ir.callees.values(), ir) for value in function.values)
    check_known({n: extent for n, extent in ir.symbols.items() if n not in ir.found}, shapes)
    callees = tuple(
        Program(callee, plans[callee.name], tensors, Ports()) for callee in ir.callees.values()
    )
    return Program(ir, plans[ir.name], tensors, Ports(inputs, outputs), callees)


def _ports(ir: IRFunction) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Returns the inputs and outputs, in the order of the text. A weight that nothing touches is an input."""
    mutable = [weight for weight in ir.weights.values() if not weight.is_constant]
    read, written = set[Value](), set[Value]()
    for inst in ir.instructions:
        read |= {r.value.base for r in inst.operands if r.access.reads} - written
        written |= {r.value.base for r in inst.operands if r.access.writes}
    ports = [(weight, Port(weight.name, weight.name, weight.type)) for weight in mutable]
    return (
        tuple(port for weight, port in ports if weight in read or weight not in written),
        tuple(port for weight, port in ports if weight in written),
    )


def _tensor(name: str, type: Type, constants: Mapping[str, Array]) -> Tensor:
    array = constants.get(name)
    if array is None:
        raise UserError(
            f"constant %{name}: expected {type.size} bytes for {type}, got none",
            note="--constants FILE.npz has what glowpy dump --stage ir --save-constants FILE.npz wrote",
        )
    if array.nbytes != type.size:
        raise UserError(
            f"constant %{name}: expected {type.size} bytes for {type}, got {array.nbytes}"
        )
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(type, content.view(type.kind.dtype).reshape(type.extents))
