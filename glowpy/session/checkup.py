"""Requirements of a model, and everything that keeps it from running: `check` inspects it and runs nothing of it.

Unlike `load` and `compile`, which end where a later stage could not go on, this goes on without the part that is wrong,
so that all that is wrong is known at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from glowpy.backend import Backend, Program
from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.engine import backend_of, compilation
from glowpy.graph.function import Function
from glowpy.graph.work import endless_loops, multiply_adds
from glowpy.importer import open_whole, survey_model
from glowpy.importer.model import Model
from glowpy.importer.open_dimensions import Unsaid
from glowpy.importer.survey import Survey
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.limits import within_limits
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Checkup", "check", "check_function", "check_survey"]


@dataclass(frozen=True)
class Checkup:
    """Findings of `check`.

    Attributes:
        backend: The backend's name.
        problems: Everything that is wrong or not supported: where, and what to do about it.
        assumed: Symbolic dimensions that nobody gave a size, and what they are taken to be.
        parameters: How many elements the weights have.
        weight_bytes: How many bytes they take in the file.
        macs: Multiply-adds of all products at the largest extents; None where there are problems. Of two branches the
            one that has more counts, and a loop as often as it runs at most.
        counted_once: The loops of which `macs` has one round, as nothing says how many there are.
        peak_bytes: Memory for activations at once; None where there are problems.
        constant_bytes: Memory for constants, in the form that the backend keeps them in; None where there are problems.
    """

    backend: str
    problems: tuple[Diagnostic, ...]
    assumed: Mapping[str, Dim]
    parameters: int
    weight_bytes: int
    macs: int | None
    peak_bytes: int | None
    constant_bytes: int | None
    counted_once: tuple[str, ...] = ()


@within_limits
def check(
    model: str | Path | bytes | ModelProto,
    *,
    backend: str | Backend = "cpu",
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, Dim] | None = None,
    values: Mapping[str, Array] | None = None,
) -> Checkup:
    """Looks at a model: what it needs, and everything that glowpy or the backend cannot do.

    The arguments are those of `load` and `compile`. Symbolic dimensions that have no size are taken to be 1. Of other
    formats than ONNX the first problem of reading is the only one.

    Raises LoadError for a file that is no model.
    """
    survey = survey_model(model)
    given = shapes or {}, dims or {}, values or {}
    if survey is None:
        return _check_whole(open_whole(model), backend, *given)
    return check_survey(survey, backend, *given)


def _check_whole(
    model: Model,
    backend: str | Backend,
    shapes: Mapping[str, Shape],
    dims: Mapping[str, Dim],
    values: Mapping[str, Array],
) -> Checkup:
    """The same for a model whose reader ends with the first error."""
    shapes = {name: array.shape for name, array in values.items()} | dict(shapes)
    unsaid = Unsaid([] if model.is_dump else model.inputs, shapes, dims)
    said, sizes = unsaid.said()
    try:
        module = model.resized(said).build(shapes=said, dims=sizes, values=values)
    except UserError as error:
        name = backend if isinstance(backend, str) else backend.name
        return Checkup(name, tuple(error.diagnostics), unsaid.summary, 0, 0, None, None, None)
    return replace(check_function(module.main, backend), assumed=unsaid.summary)


def check_survey(
    survey: Survey,
    backend: str | Backend,
    shapes: Mapping[str, Shape],
    dims: Mapping[str, Dim],
    values: Mapping[str, Array],
) -> Checkup:
    """The same for a model that is read."""
    shapes = {name: array.shape for name, array in values.items()} | dict(shapes)
    module, noted = survey.build(shapes, dims, values)
    figures = check_function(module.main, backend) if module is not None else None
    compiler = backend_of(backend) if isinstance(backend, str) else backend
    problems = (*noted, *(figures.problems if figures else ()))
    cost = figures if figures is not None and not problems else None
    return Checkup(
        compiler.name,
        problems,
        survey.assumed(shapes, dims),
        survey.num_parameters,
        survey.weight_bytes,
        cost.macs if cost else None,
        cost.peak_bytes if cost else None,
        cost.constant_bytes if cost else None,
        cost.counted_once if cost else (),
    )


def check_function(f: Function, backend: str | Backend = "cpu") -> Checkup:
    """The same for a function; its weights are its constants."""
    compiler = backend_of(backend) if isinstance(backend, str) else backend
    program, problems = _program(f, compiler)
    constants = f.all_constants
    return Checkup(
        compiler.name,
        problems,
        {},
        sum(math.prod(constant.type.extents) for constant in constants),
        sum(constant.type.room for constant in constants),
        multiply_adds(f) if program else None,
        program.plan.peak if program else None,
        program.plan.constant.size if program else None,
        tuple(loop.loc.node or loop.name for loop in endless_loops(f)) if program else (),
    )


def _program(f: Function, backend: Backend) -> tuple[Program | None, tuple[Diagnostic, ...]]:
    """Returns the program from which the backend would generate code, or the reasons why it cannot."""
    stages = compilation(f, backend)
    try:
        return stages.program, ()
    except UserError as error:
        remedy = (
            "" if backend.name == "interpreter" else "the interpreter may: --backend interpreter"
        )
        return None, tuple(replace(d, note=d.note or remedy) for d in error.diagnostics)
    finally:
        stages.close()
