"""Passes keep the meaning of networks, tell the truth about changes, and are all in the pipelines."""

import importlib
import pkgutil
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glowpy.opt.graph
import glowpy.opt.ir
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.engine import evaluate
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.printer import print_irfunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.irgen import generate
from glowpy.memory import check, plan
from glowpy.opt.pipelines import GRAPH_DEFAULT, GRAPH_PASSES, IR_DEFAULT, IR_PASSES
from glowpy.passes import GraphPass, IRPass, PassContext, Pipeline
from glowpy.recipe import build_program, reference_recipe
from glowpy.schedule import schedule
from tests.unit.networks import RandomNetwork, arrays_for, execute, optimized, unoptimized

randoms = st.randoms(use_true_random=False)
relaxed = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@relaxed
@given(randoms)
def test_the_recipe_keeps_the_meaning(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 1)
    _same(execute(optimized(module), inputs), execute(unoptimized(module), inputs))


@pytest.mark.parametrize("name", GRAPH_PASSES)
@settings(relaxed, max_examples=15)
@given(rng=randoms)
def test_graph_pass_keeps_the_meaning_and_tells_the_truth(name: str, rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 2)
    expected = execute(unoptimized(module), inputs)
    before = print_module(module)
    changed = GRAPH_PASSES[name].run(module.main, PassContext(evaluate))
    verify_module(module)
    assert changed == (print_module(module) != before)
    _same(execute(unoptimized(module), inputs), expected)


@pytest.mark.parametrize("name", IR_PASSES)
@settings(relaxed, max_examples=15)
@given(rng=randoms)
def test_ir_pass_keeps_the_meaning_and_tells_the_truth(name: str, rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 3)
    expected = execute(unoptimized(module), inputs)
    backend, ctx = InterpreterBackend(), PassContext(evaluate)
    reference_recipe(backend).run(module.main, ctx)
    ir = generate(module.main, schedule(module.main))
    before = print_irfunction(ir)
    changed = IR_PASSES[name].run(ir, ctx)
    verify_irfunction(ir)
    check(ir, plan(ir))
    assert changed == (print_irfunction(ir) != before)
    _same(execute(build_program(module.main, ir, backend, ctx), inputs), expected)


@relaxed
@given(randoms)
def test_the_graph_pipeline_reaches_a_fixpoint(rng: random.Random) -> None:
    f = RandomNetwork(rng).module.main
    ctx = PassContext(evaluate)
    Pipeline("optimize", GRAPH_DEFAULT, fixpoint=True, limit=20).run(f, ctx)
    assert not Pipeline("optimize", GRAPH_DEFAULT).run(f, ctx)


def _modules(package: object) -> list[str]:
    path, name = package.__path__, package.__name__  # type: ignore[attr-defined]
    return [f"{name}.{found.name}" for found in pkgutil.iter_modules(path)]


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
    assert {name: type(each) for name, each in passes.items()} == spelled


def test_the_ir_pipeline_holds_every_pass() -> None:
    assert {each.name for each in IR_DEFAULT} == set(IR_PASSES)
