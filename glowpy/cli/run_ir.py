"""`glowpy run` of an IR function as text: what `glowpy dump --stage ir` prints, perhaps changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.cli.files import read_named_constants, read_text
from glowpy.cli.model import read_inputs
from glowpy.cli.run_plan import RunPlan
from glowpy.cli.run_report import Run
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.debugging.observers import Observers
from glowpy.engine import known_instructions
from glowpy.ir.parser import parse_irfunction
from glowpy.support.console import progress
from glowpy.support.errors import UserError
from glowpy.text_program import program_of_text

__all__ = ["run_ir"]


def run_ir(
    path: str,
    constants: str,
    inputs: Sequence[str],
    plan: RunPlan,
    given: Mapping[str, object],
) -> Run:
    """Runs the function in a file on what --constants and --input say; `given` are options for other models.

    Raises UserError as the parser, the verifier and `program_of_text` do.
    """
    for option, value in given.items():
        if value:
            raise UserError(
                f"{option}: an IR function has all of that in its text", note="leave it out"
            )
    start, backend = time.perf_counter(), plan.backend
    ir = parse_irfunction(read_text(path), path, extra=known_instructions(type(backend)))
    program = program_of_text(ir, read_named_constants(constants) if constants else {}, backend)
    feeds = read_inputs(inputs, program.ports.inputs, plan.seed, model=path)
    with progress(f"compiling {path}") as begun:
        function = backend.function(program, plan.options)
    function.observer = Observers(plan.observers)
    compiled, seconds = time.perf_counter() - start, list[float]()
    outputs: dict[str, Array] = {}
    for _ in range(plan.repeat):
        start = time.perf_counter()
        outputs = function(feeds)
        seconds.append(time.perf_counter() - start)

    def interpret(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return InterpreterBackend().function(program)(feeds)

    types = {
        name: str(Type(type.kind, outputs[name].shape, type.quant))
        for name, type in function.outputs.items()
    }
    return Run(
        feeds,
        outputs,
        types,
        compiled,
        seconds,
        recalled=False,
        compiled=begun.get("compile", (0, 0)),
        compared=outputs,
        interpret=interpret,
        kinds=set,
    )
