"""The nine networks of the onnx package, with random weights: text forms, memory plans, results."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from glowpy.engine import compilation
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.importer import load
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.memory_check import check
from glowpy.onnx_package.networks import packaged_networks
from glowpy.recipe import Compilation
from tests.alone import run_alone
from tests.onnx.test_light import reference, relative_error
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


def check_network(name: str, folder: Path) -> None:
    path = folder / f"{name}.onnx"
    onnx.save(initialised(name), path)
    stages = compilation(load(path).main)
    assert_print_parse_print(stages)
    program = stages.program
    check(program.ir, program.plan)
    assert program.plan.lower_bound <= program.plan.peak <= 1.1 * program.plan.lower_bound
    (port,) = program.ports.inputs
    shape = port.type.extents
    inputs = {port.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    (got,) = stages.compiled(inputs).values()
    del stages, program
    expected = reference(path, inputs)
    assert np.ptp(expected) > 0, "the weights make no difference"
    assert relative_error(got, expected) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_network(name: str, tmp_path: Path) -> None:
    """Text reads back, the plan is proven right and tight, and the results are onnxruntime's.

    In a process of its own: the weights of VGG-19 are 575 MB, and packed once more.
    """
    run_alone(check_network, name, tmp_path)
