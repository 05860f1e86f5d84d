"""Whole dumps of small networks: what a change of any stage does to them is seen in the difference."""

import difflib
from pathlib import Path

import numpy as np
import pytest

from glowpy import CompileOptions, CpuBackend, CpuOptions, Module
from glowpy.core.random_array import random_array
from glowpy.core.tensor import Array
from glowpy.engine import compilation, compile
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.recipe import Stage
from tests.e2e.models import MODELS

GOLDENS = Path(__file__).parent / "goldens"
TARGET = CpuBackend(CpuOptions("x86_64-unknown-linux-gnu"))
VERIFIED = CompileOptions(verify_each=True)


def dumps(module: Module) -> str:
    stages = compilation(module.main, TARGET, VERIFIED)
    shown = (Stage.GRAPH, Stage.LOWERED, Stage.IR, Stage.MEMORY)
    return "\n".join(f"// ----- {stage}\n{stages.text(stage)}" for stage in shown)


@pytest.mark.parametrize("name", MODELS)
def test_dumps(name: str, request: pytest.FixtureRequest) -> None:
    golden = GOLDENS / f"{name}.glow"
    got = dumps(MODELS[name]())
    if request.config.getoption("--bless", default=False):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(got)
        return
    assert golden.is_file(), "no golden: pytest tests/e2e --bless writes it"
    difference = difflib.unified_diff(
        golden.read_text().splitlines(), got.splitlines(), golden.name, "now", lineterm=""
    )
    lines = list(difference)
    if lines:
        pytest.fail("\n".join([*lines, "pytest tests/e2e --bless writes it"]), pytrace=False)


@pytest.mark.parametrize("name", MODELS)
def test_print_parse_print(name: str) -> None:
    stages = compilation(MODELS[name]().main, TARGET, VERIFIED)
    for module in (stages.function.module, stages.lowered.module):
        text = print_module(module)
        assert print_module(parse_module(text, extra=stages.backend.nodes)) == text
    text = print_irfunction(stages.ir)
    assert print_irfunction(parse_irfunction(text, extra=stages.backend.instructions)) == text
    text = print_plan(stages.program.plan)
    assert print_plan(parse_plan(text)) == text


def random_inputs(module: Module) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {port.original: random_array(port.type, rng) for port in module.main.inputs}


@pytest.mark.parametrize("name", MODELS)
def test_backends_agree(name: str) -> None:
    module = MODELS[name]()
    inputs = random_inputs(module)
    expected = compile(module, "interpreter")(inputs)
    got = compile(module, "cpu")(inputs)
    assert expected.keys() == got.keys()
    for output, array in expected.items():
        np.testing.assert_allclose(got[output], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_every_time(name: str) -> None:
    module = MODELS[name]()
    inputs = random_inputs(module)
    first, second = compile(module)(inputs), compile(module)(inputs)
    assert {n: a.tobytes() for n, a in first.items()} == {n: a.tobytes() for n, a in second.items()}
    assert dumps(module) == dumps(MODELS[name]())
