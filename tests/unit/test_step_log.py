"""Steps: a compilation may stop after any number of them, without passes, and says what it did."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glowpy
from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import backend_of, compilation
from glowpy.graph.function import Module
from glowpy.recall import compile_or_recall
from glowpy.recipe import Compilation, passes_of
from glowpy.step_log import Step
from glowpy.support.errors import UserError
from tests.unit.networks import RandomNetwork, arrays_for, execute, same_numbers, unoptimized

BACKENDS = ("interpreter", "cpu")


def network() -> Module:
    """A product with a batch normalization, an activation, a branch that is joined, and something for each stage."""
    rng = np.random.default_rng(0)
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 4, 6, 6)))
    nhwc = f.create_transpose("nhwc", x, (0, 2, 3, 1))
    weights = module.create_constant("weights", rng.standard_normal((8, 3, 3, 4), np.float32))
    bias = module.create_constant("bias", np.zeros(8, np.float32))
    window = ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    conv = f.create_convolution("conv", nhwc, weights, bias, *window)
    scale, offset, mean, variance = (
        module.create_constant(name, rng.random(8, np.float32) + 0.5)
        for name in ("scale", "offset", "mean", "variance")
    )
    norm = f.create_batch_normalization("norm", conv, scale, offset, mean, variance, 3, 1e-5)
    relu = f.create_relu("relu", norm)
    other = f.create_sigmoid("other", f.create_exp("unread", f.create_relu("again", norm)))
    both = f.create_concat("both", [relu, other], 3)
    nchw = f.create_transpose("nchw", both, (0, 3, 1, 2))
    f.create_save("save", nchw, module.create_placeholder("y", nchw.type))
    return module


FEEDS = {"x": np.random.default_rng(1).standard_normal((1, 4, 6, 6)).astype(np.float32)}


@pytest.fixture(scope="module")
def expected() -> Array:
    """What it computes before anything is rewritten, on the reference."""
    program = unoptimized(network())
    return execute(program, FEEDS)["y"]


def recorded(backend: str, **options: object) -> tuple[Compilation, list[Step]]:
    stages = compilation(network(), backend, CompileOptions(recorded=True, **options))  # type: ignore[arg-type]
    stages.program  # noqa: B018 - computed for the steps
    return stages, stages.ctx.steps.log


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_are_right_after_every_step(backend: str, expected: Array) -> None:
    count = recorded(backend)[0].ctx.steps.count
    assert count > 8
    for last in range(0, count + 1, 1 if backend == "interpreter" else 3):
        options = CompileOptions(stop_after=last, verify_each=True)
        result = glowpy.compile(network(), backend, options)(FEEDS)["y"]
        np.testing.assert_allclose(result, expected, 1e-4, 1e-5, err_msg=f"after {last}")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_random_networks_stop_anywhere(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 1)
    stages = compilation(module, "interpreter", CompileOptions(recorded=True))
    whole = execute(stages.program, inputs)
    last = rng.randrange(stages.ctx.steps.count + 1)
    part = compilation(module, "interpreter", CompileOptions(stop_after=last, verify_each=True))
    same_numbers(execute(part.program, inputs), whole)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_steps_are_those_of_the_whole(backend: str) -> None:
    """Their numbers are the same, however many may happen; what always happens has none."""
    _, steps = recorded(backend)
    passes = passes_of(backend_of(backend))
    required = {"irgen", *(name for name, step in passes.items() if step.is_required)}
    assert {step.name for step in steps if step.number is None} == required & {
        s.name for s in steps
    }
    whole = [step for step in steps if step.number is not None]
    assert [step.number for step in whole] == list(range(1, len(whole) + 1))
    for last in (0, 1, len(whole) // 2, len(whole)):
        _, part = recorded(backend, stop_after=last)
        numbered = [step for step in part if step.number is not None]
        assert [(step.number, step.title, step.node) for step in numbered] == [
            (step.number, step.title, step.node) for step in whole[:last]
        ]
        assert {step.name for step in part if step.number is None} <= required


def test_a_rewrite_says_what_it_replaced() -> None:
    _, steps = recorded("interpreter")
    step = next(step for step in steps if step.name == "fold-batch-norm")
    assert step.node == "norm"
    assert {change.name: change.operator for change in step.changes}[
        "norm"
    ] == "batch_normalization"
    assert step.title.startswith("fold-batch-norm.")


def test_a_disabled_pass_does_nothing(expected: Array) -> None:
    names = ("fold-batch-norm", "share-buffers", "cse")
    _, steps = recorded("interpreter", disabled=names)
    assert {step.name for step in steps}.isdisjoint(names)
    assert {step.name for step in recorded("interpreter")[1]} >= {*names}
    options = CompileOptions(disabled=names)
    np.testing.assert_allclose(
        glowpy.compile(network(), "cpu", options)(FEEDS)["y"], expected, 1e-4, 1e-5
    )


def test_without_the_group_no_rewrite_is_applied() -> None:
    _, steps = recorded("interpreter", disabled=("rewrite",))
    assert not any(step.rule for step in steps)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_pass_that_is_not_required_can_be_disabled(backend: str, expected: Array) -> None:
    passes = passes_of(backend_of(backend))
    optional = tuple(name for name, step in passes.items() if not step.is_required)
    options = CompileOptions(disabled=optional, verify_each=True)
    result = glowpy.compile(network(), backend, options)(FEEDS)["y"]
    np.testing.assert_allclose(result, expected, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("backend", "name", "message"),
    [
        ("cpu", "lower", "the pass lower cannot be disabled"),
        ("cpu", "pack-products", "the pass pack-products cannot be disabled"),
        ("interpreter", "pack-products", "expected a pass of the interpreter backend"),
        ("cpu", "fold-transposes", "did you mean fold-transpose?"),
    ],
)
def test_what_cannot_be_disabled_is_refused(backend: str, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compilation(network(), backend, CompileOptions(disabled=(name,)))


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(UserError, match="expected at least 0 steps, got -1"):
        CompileOptions(stop_after=-1)


def test_the_cache_tells_apart_what_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path))
    built: list[str] = []

    def opened(**options: object) -> None:
        def build() -> Module:
            built.append(str(options))
            return network()

        chosen = CompileOptions(**options)  # type: ignore[arg-type]
        compile_or_recall("a network", build, backend_of("cpu"), chosen)

    for _ in range(2):
        opened()
        opened(stop_after=0)
        opened(disabled=("cse",))
    assert len(built) == 3


def test_the_steps_to_the_optimized_graph_are_counted_by_themselves() -> None:
    stages, steps = recorded("cpu")
    before = list(steps)
    stages.optimized  # noqa: B018 - computed for the steps
    assert stages.ctx.steps.log == before


def test_an_empty_tensor_is_put_nowhere() -> None:
    """Nothing folds it away where rewrites are left out."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 2)))
    none = module.create_placeholder("none", Type(ElemKind.F32, (2, 0)))
    joined = f.create_concat("joined", [none, x, none], 1)
    f.create_save("save", joined, module.create_placeholder("y", joined.type))
    feeds = {
        "x": np.arange(4, dtype=np.float32).reshape(2, 2),
        "none": np.zeros((2, 0), np.float32),
    }
    compiled = glowpy.compile(module, "cpu", CompileOptions(stop_after=0, sanitize=True))
    np.testing.assert_array_equal(compiled(feeds)["y"], feeds["x"])
