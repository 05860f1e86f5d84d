"""A conversion is dropped exactly where its kind holds every value and the next one gives the same without it."""

import itertools

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, converted
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.opt.graph.fold_convert import FoldConvertPass
from glowpy.passes import PassContext


def probes(kind: ElemKind) -> Array:
    """All finite values of kinds of one or two bytes; of others some with many digits or extreme magnitudes."""
    if kind is ElemKind.BOOL:
        return np.array([False, True])
    if kind.size <= 2:
        values = np.arange(1 << 8 * kind.size).astype(f"u{kind.size}").view(kind.dtype)
        with np.errstate(invalid="ignore"):
            return values[np.isfinite(values)]
    if kind.is_integer:
        low = -(1 << 8 * kind.size - 1) if kind.is_signed else 0
        high = low + (1 << 8 * kind.size) - 1
        return np.array([low, low + 1, 0, high - 1, high], kind.dtype)
    digits, limit = (24, 2.0**127) if kind is ElemKind.F32 else (53, 2.0**1023)
    return np.array([limit, 1 + 2.0 ** (1 - digits), 1 / limit], kind.dtype)


def holds(wide: ElemKind, narrow: ElemKind) -> bool:
    """Whether numpy converts every probe to the same number: Python compares ints and floats exactly."""
    values = probes(narrow)
    with np.errstate(all="ignore"):
        results = values.astype(wide.dtype)
    if not np.isfinite(results).all():
        return False
    there, here = (float if kind.is_float else int for kind in (wide, narrow))
    return all(there(c) == here(v) for c, v in zip(results, values, strict=True))


def differs(first: ElemKind, wide: ElemKind, last: ElemKind) -> bool:
    """Whether the detour by `wide` matters to a number: floats saturate, integers wrap."""
    values = probes(first)
    with np.errstate(over="ignore"):
        straight, around = converted(values, last), converted(converted(values, wide), last)
    return straight.tobytes() != around.tobytes()


KINDS = [kind for kind in ElemKind if not kind.is_code]


@pytest.mark.parametrize("narrow", KINDS)
def test_a_conversion_goes_iff_it_loses_and_changes_nothing(narrow: ElemKind) -> None:
    for wide, last in itertools.product(KINDS, KINDS):
        module = Module()
        f = module.create_function("main")
        x = module.create_placeholder("x", Type(narrow, (2,))).value
        there = f.create_convert("there", Type(wide, (2,)), x)
        back = f.create_convert("back", Type(last, (2,)), there)
        f.create_save("s", back, module.create_placeholder("out", back.type))
        FoldConvertPass().run(f, PassContext(evaluate))
        saved = f.saves[0].input
        reads = saved.node.inputs if saved.node is not None else ()
        assert saved.type.kind is last
        if wide is narrow is last:
            assert saved is x, "neither conversion does anything"
        elif wide is last:
            assert saved is there.result, "the second conversion does nothing"
        elif not holds(wide, narrow) or differs(narrow, wide, last):
            assert reads == (there.result,), (narrow, wide, last)
        elif last is narrow:
            assert saved is x, (narrow, wide, last)
        else:
            assert reads == (x,), (narrow, wide, last)
