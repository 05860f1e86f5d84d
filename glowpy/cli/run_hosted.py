"""`glowpy run` of what only a session runs: strings, sequences and the like, and what elements of inputs decide."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glowpy.cli.host_inputs import read_host_inputs
from glowpy.cli.run_plan import RunPlan
from glowpy.cli.run_report import HALVES, Run
from glowpy.cli.values import parse_values
from glowpy.core.elemkind import ElemKind
from glowpy.debugging.observers import Observers
from glowpy.importer.model import HostedModel
from glowpy.importer.shape_text import parse_shapes
from glowpy.session.session import InferenceSession
from glowpy.support.console import progress

__all__ = ["run_hosted"]


def run_hosted(
    model: HostedModel,
    texts: Sequence[str],
    shapes: Sequence[str],
    values: Sequence[str],
    plan: RunPlan,
) -> Run:
    """Runs a model on what --input, --shape and --value say.

    Raises UserError for inputs that have to be given, or do not fit.
    """
    start = time.perf_counter()
    infos = model.inputs
    elements = parse_values(values, infos)
    feeds = read_host_inputs(texts, infos, *parse_shapes(shapes, infos), plan.seed, elements)
    names = [info.name for info in model.outputs]
    observer = Observers(plan.observers) if plan.observers else None
    seconds = []
    with InferenceSession(
        model, backend=plan.backend, options=plan.options, observer=observer
    ) as session:
        with progress(f"compiling {model.file}") as begun:
            outputs = session.run(names, feeds)
        compile_seconds = time.perf_counter() - start
        for _ in range(plan.repeat if observer is None else 0):  # what is watched runs once
            start = time.perf_counter()
            outputs = session.run(names, feeds)
            seconds.append(time.perf_counter() - start)
    results: dict[str, Any] = dict(zip(names, outputs, strict=True))

    def interpret(feeds: Mapping[str, Any]) -> dict[str, Any]:
        with InferenceSession(model, backend="interpreter") as session:
            return dict(zip(names, session.run(names, feeds), strict=True))

    return Run(
        feeds,
        results,
        {name: _spelled(value) for name, value in results.items()},
        compile_seconds,
        seconds or [compile_seconds],
        recalled="recall" in begun and "compile" not in begun,
        compiled=begun.get("compile", (0, 0)),
        compared=results,
        interpret=interpret,
        kinds=lambda: {*HALVES} & model.plan.kinds,
        in_python=bool(model.plan.host_steps),
    )


_KINDS = {kind.dtype: kind.value for kind in ElemKind}


def _spelled(value: Any) -> str:
    """A type with the shape that came out."""
    if isinstance(value, np.ndarray):
        kind = "string" if value.dtype.kind == "O" else _KINDS.get(value.dtype, value.dtype)
        return f"{kind}[{'x'.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return f"map of {len(value)}"
    return "none" if value is None else f"sequence of {len(value)}"
