"""The nine networks of the onnx package, with random weights: text forms, memory plans, results."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.importer import load
from glowpy.importer.onnx.reference import packaged_networks
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.memory import check
from glowpy.recipe import Compilation
from tests.alone import run_alone
from tools.zoo import NAMES, initialised

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_zoo_has_every_network() -> None:
    assert sorted(NAMES) == packaged_networks()


def assert_print_parse_print(stages: Compilation) -> None:
    for module in (stages.function.module, stages.lowered.module):
        text = print_module(module)
        assert print_module(parse_module(text, extra=stages.backend.nodes)) == text
    text = print_irfunction(stages.ir)
    assert print_irfunction(parse_irfunction(text, extra=stages.backend.instructions)) == text
    text = print_plan(stages.program.plan)
    assert print_plan(parse_plan(text)) == text


def from_onnxruntime(path: Path, inputs: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, inputs)
    return outputs


def check_network(name: str, folder: Path) -> None:
    path = folder / f"{name}.onnx"
    onnx.save(initialised(name), path)
    stages = compilation(load(path).main)
    assert_print_parse_print(stages)
    program = stages.program
    check(program.ir, program.plan)
    assert program.plan.lower_bound <= program.plan.peak <= 1.1 * program.plan.lower_bound
    (port,) = program.inputs
    inputs = {port.name: np.random.default_rng(3).random(port.type.extents, np.float32)}
    got = stages.compiled(inputs)
    del stages, program
    for array, want in zip(got.values(), from_onnxruntime(path, inputs), strict=True):
        np.testing.assert_allclose(array, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))


@pytest.mark.parametrize("name", NAMES)
def test_network(name: str, tmp_path: Path) -> None:
    """Text reads back, the plan is proven right and tight, and the results are onnxruntime's."""
    run_alone(check_network, name, tmp_path)
