"""Passes keep the meaning of networks, tell the truth about changes, and are all in the pipelines."""

import importlib
import pkgutil
import random
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import glowpy.opt.graph
import glowpy.opt.ir
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.engine import evaluate
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.printer import print_irfunction
from glowpy.irgen import generate
from glowpy.lower import LowerPass
from glowpy.opt.pipelines import GRAPH_DEFAULT, GRAPH_PASSES, IR_DEFAULT, IR_PASSES
from glowpy.passes import GraphPass, IRPass, PassContext, Pipeline
from glowpy.recipe import build_program
from glowpy.schedule import schedule
from tests.unit.frontends.programs import RandomProgram, outcome
from tests.unit.networks import (
    RandomNetwork,
    arrays_for,
    execute,
    optimized,
    same_numbers,
    unoptimized,
)

P = TypeVar("P", GraphPass, IRPass)

randoms = st.randoms(use_true_random=False)
relaxed = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@relaxed
@given(randoms)
def test_the_recipe_keeps_the_meaning(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 1)
    same_numbers(execute(optimized(module), inputs), execute(unoptimized(module), inputs))


def _some(passes: Iterable[P], rng: random.Random) -> list[P]:
    """What may have run before a pass: mostly nothing."""
    return rng.sample(list(passes), rng.choice((0, 0, 1, 3)))


@pytest.mark.parametrize("name", GRAPH_PASSES)
@settings(relaxed, max_examples=25)
@given(rng=randoms)
def test_graph_pass_keeps_the_meaning_and_tells_the_truth(name: str, rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 2)
    expected = execute(unoptimized(module), inputs)
    ctx = PassContext(evaluate)
    Pipeline("before", _some(GRAPH_PASSES.values(), rng)).run(module.main, ctx)
    before = print_module(module)
    changed = GRAPH_PASSES[name].run(module.main, ctx)
    verify_module(module)
    assert changed == (print_module(module) != before)
    same_numbers(execute(unoptimized(module), inputs), expected)


@pytest.mark.parametrize("name", IR_PASSES)
@settings(relaxed, max_examples=15)
@given(rng=randoms)
def test_ir_pass_keeps_the_meaning_and_tells_the_truth(name: str, rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 3)
    expected = execute(unoptimized(module), inputs)
    backend, ctx = InterpreterBackend(), PassContext(evaluate)
    LowerPass(backend.keeps).run(module.main, ctx)
    ir = generate(module.main, schedule(module.main))
    Pipeline("before", _some(IR_PASSES.values(), rng)).run(ir, ctx)
    before = print_irfunction(ir)
    changed = IR_PASSES[name].run(ir, ctx)
    assert changed == (print_irfunction(ir) != before)
    same_numbers(execute(build_program(module.main, ir, backend, ctx), inputs), expected)


@pytest.mark.parametrize("name", IR_PASSES)
@settings(relaxed, max_examples=60)
@given(rng=randoms)
def test_ir_pass_keeps_the_meaning_of_programs_that_no_network_has(
    name: str, rng: random.Random
) -> None:
    ir = RandomProgram(rng).f
    expected = outcome(ir)
    Pipeline("before", _some(IR_PASSES.values(), rng)).run(ir, PassContext(evaluate))
    before = print_irfunction(ir)
    changed = IR_PASSES[name].run(ir, PassContext(evaluate))
    note(f"{before}\n{print_irfunction(ir)}")
    assert changed == (print_irfunction(ir) != before)
    for weight, array in outcome(ir).items():
        np.testing.assert_array_equal(array, expected[weight], err_msg=weight)


@relaxed
@given(randoms)
def test_the_graph_pipeline_reaches_a_fixpoint(rng: random.Random) -> None:
    f = RandomNetwork(rng).module.main
    ctx = PassContext(evaluate)
    Pipeline("optimize", GRAPH_DEFAULT, fixpoint=True, limit=20).run(f, ctx)
    assert not Pipeline("optimize", GRAPH_DEFAULT).run(f, ctx)


def _modules(package: object) -> list[str]:
    path, name = package.__path__, package.__name__  # type: ignore[attr-defined]
    return [f"{name}.{info.name}" for info in pkgutil.iter_modules(path)]


@pytest.mark.parametrize(
    ("package", "passes"),
    [(glowpy.opt.graph, GRAPH_PASSES), (glowpy.opt.ir, IR_PASSES)],
    ids=["graph", "ir"],
)
def test_every_pass_is_in_a_pipeline_under_the_name_of_its_file(
    package: object, passes: dict[str, GraphPass] | dict[str, IRPass]
) -> None:
    spelled = {}
    for name in _modules(package):
        stem = name.rpartition(".")[2]
        cls = "".join(word.title() for word in stem.split("_")) + "Pass"
        spelled[stem.replace("_", "-")] = getattr(importlib.import_module(name), cls)
    assert {name: type(instance) for name, instance in passes.items()} == spelled


def test_the_ir_pipeline_holds_every_pass() -> None:
    assert {ir_pass.name for ir_pass in IR_DEFAULT} == set(IR_PASSES)
