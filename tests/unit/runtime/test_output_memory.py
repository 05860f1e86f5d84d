"""Memory of large outputs, which the next run takes where nobody has it any more."""

from __future__ import annotations

import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import glowpy
from glowpy import CompiledFunction, Module
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, address_of
from glowpy.core.type import Type
from glowpy.support.symbolic import symbol

ROWS = symbol("rows", 1, 400)


@pytest.fixture(scope="module", params=["cpu", "interpreter"])
def network(request: pytest.FixtureRequest) -> CompiledFunction:
    """Twice and minus the input, of which each has up to 400 KB."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (ROWS, 256)))
    f = module.create_function("main")
    for name, value in (("twice", f.create_add("sum", x, x)), ("minus", f.create_neg("neg", x))):
        f.create_save(f"save_{name}", value, module.create_placeholder(name, value.result.type))
    return glowpy.compile(module, backend=request.param)


def rows(count: int, value: float = 1) -> dict[str, Array]:
    return {"x": np.full((count, 256), value, np.float32)}


def block(array: Array) -> Array:
    """The memory that an output is in."""
    lease = array.base
    assert lease is not None
    assert lease.base is not None
    return lease.base


def test_memory_that_nobody_has_is_taken_again(network: CompiledFunction) -> None:
    outputs = network(rows(300))
    addresses = {address_of(array) for array in outputs.values()}
    del outputs
    for count in (300, 299, 300):  # a row less has room in the same
        outputs = network(rows(count, count))
        assert {address_of(array) for array in outputs.values()} == addresses
        assert all(array.shape == (count, 256) for array in outputs.values())
        np.testing.assert_array_equal(outputs["twice"], 2 * rows(count, count)["x"])
        np.testing.assert_array_equal(outputs["minus"], -rows(count, count)["x"])
        del outputs


def test_memory_that_a_view_has_is_not(network: CompiledFunction) -> None:
    view = network(rows(300, 5))["twice"][10:, ::2].T
    stay = network(rows(300, 6))["minus"].data
    for value in range(4):
        network(rows(300, value))
    assert (view == 10).all()
    assert (np.asarray(stay) == -6).all()


def test_outputs_are_plain_arrays(network: CompiledFunction) -> None:
    array = network(rows(300))["twice"]
    assert type(array) is np.ndarray
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not address_of(array) % 64


def test_threads_do_not_share_memory(network: CompiledFunction) -> None:
    def run(value: int) -> bool:
        outputs = [network(rows(300, value + turn)) for turn in range(3)]
        return all((o["twice"] == 2 * (value + turn)).all() for turn, o in enumerate(outputs))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(40)))


def test_memory_comes_back_without_a_step_of_python(network: CompiledFunction) -> None:
    """In which Ctrl-C would be heard, and lost: what is raised while something is dropped is."""
    outputs = network(rows(300))
    addresses = {address_of(array) for array in outputs.values()}
    steps: list[str] = []
    profile = sys.getprofile()
    sys.setprofile(lambda frame, event, _: steps.append(f"{event} {frame.f_code.co_qualname}"))
    try:
        outputs.clear()
    finally:
        sys.setprofile(profile)
    assert [step for step in steps if step.startswith("call ")] == []
    assert {address_of(array) for array in network(rows(300)).values()} == addresses


def test_no_more_is_kept_than_one_run_needs(network: CompiledFunction) -> None:
    held = [network(rows(300, value)) for value in range(5)]
    blocks = [weakref.ref(block(array)) for run in held for array in run.values()]
    held.clear()
    assert sum(kept() is not None for kept in blocks) == 2
