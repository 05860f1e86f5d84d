"""Gradients of recurrent cells against forward mode."""

from __future__ import annotations

import math

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.node import NodeValue, Operand
from tests.forward import check_adjoint

STEPS, BATCH, UNITS = 4, 3, 2


def _loss(f: glowpy.Function, results: tuple[NodeValue, ...]) -> None:
    """Saves the weighted sum of all elements of a cell's results."""
    rng = np.random.default_rng(2)
    parts: list[Operand] = []
    for result in results:
        weights = f.module.create_constant("weights", rng.uniform(0.5, 1.5, result.type.extents))
        flat = result.type.with_shape((result.type.count, 1))
        parts.append(f.create_reshape("flat", flat, f.create_mul("weighted", result, weights)))
    loss = f.create_reduce_add("loss", f.create_concat("all", parts, 0), (0,))
    f.create_save("loss", loss, f.module.create_placeholder("loss", loss.type))


def _check(
    kind: str, gates: int, functions: tuple[int, ...], lengths: list[int], **attrs: bool | float
) -> None:
    rng = np.random.default_rng(1)
    coefficients = np.tile([0.3, 0.2], (len(functions), 1))
    arrays: dict[str, Array] = {
        "gates": rng.normal(size=(STEPS, BATCH, gates * UNITS)),
        "recurrence": rng.normal(size=(gates, UNITS, UNITS)),
        "lengths": np.array(lengths, np.int32),
        "initial_h": rng.normal(size=(BATCH, UNITS)),
        "coefficients": coefficients,
    }
    f = glowpy.Module().create_function("main")
    limit = attrs.pop("limit", math.inf)
    extra: dict[str, Array] = {}
    if kind == "lstm":
        extra["peepholes"] = rng.normal(size=(3, UNITS) if attrs.pop("peep", False) else (3, 0))
        extra["initial_c"] = rng.normal(size=(BATCH, UNITS))
    elif kind == "gru":
        extra["bias"] = rng.normal(size=(UNITS if attrs["reset_after"] else 0,))
    arrays |= extra
    given = {n: f.module.create_placeholder(n, Tensor.of(a).type) for n, a in arrays.items()}
    order = {
        "lstm": ("gates", "recurrence", "peepholes", "lengths", "initial_h", "initial_c"),
        "gru": ("gates", "recurrence", "bias", "lengths", "initial_h"),
        "rnn": ("gates", "recurrence", "lengths", "initial_h"),
    }[kind]
    operands = [given[name] for name in (*order, "coefficients")]
    create = getattr(f, f"create_{kind}")
    node = create("cell", *operands, functions, limit, **attrs)
    _loss(f, node.results)
    read = {name: array for name, array in arrays.items() if array.size}
    check_adjoint(f, {n: a for n, a in arrays.items() if n in read or a.size == 0})


@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
@pytest.mark.parametrize("lengths", [[], [4, 2, 0]], ids=["whole", "lengths"])
@pytest.mark.parametrize(
    ("kind", "gates", "functions", "attrs"),
    [
        ("lstm", 4, (2, 1, 1), {"coupled": False, "peep": True}),
        ("lstm", 4, (2, 1, 1), {"coupled": True}),
        ("gru", 3, (2, 1), {"reset_after": False}),
        ("gru", 3, (2, 1), {"reset_after": True}),
        ("rnn", 1, (1,), {}),
    ],
    ids=["peepholes", "coupled", "gru", "reset after", "rnn"],
)
def test_cells(
    kind: str,
    gates: int,
    functions: tuple[int, ...],
    attrs: dict[str, bool],
    lengths: list[int],
    reverse: bool,
) -> None:
    _check(kind, gates, functions, lengths, reverse=reverse, **attrs)


@pytest.mark.parametrize("function", range(11))
def test_activations(function: int) -> None:
    _check("rnn", 1, (function,), [])


def test_what_gates_compute_is_limited() -> None:
    _check("rnn", 1, (1,), [], limit=0.7)
