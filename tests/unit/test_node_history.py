"""Histories: every node of a model is followed to what computes it, or to the step that removed it."""

import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import glowpy
from glowpy.backend import CompileOptions
from glowpy.cli.main import run
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.node_history import History, histories
from glowpy.recipe import Compilation
from glowpy.support.errors import UserError
from tests.unit.test_step_log import network

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 8, 8] x) => (float[1, 10] y)
{
  [stem] c = Conv<pads = [1, 1, 1, 1]>(x, filter)
  [norm] b = BatchNormalization(c, s, o, m, v)
  [act] r = Relu(b)
  [same] i = Identity(r)
  [dead] d = Exp(i)
  [flat] f = Flatten(i)
  [fc] z = MatMul(f, weights)
  [out] y = Softmax(z)
}
"""

CALLS = """
module {
  placeholder %x : f32[4]
  placeholder %y : f32[4]
  placeholder %a : f32[4]
  placeholder %grown : f32[4]
  placeholder %b : f32[4]
  placeholder %same : f32[4]
  constant %true : bool[] = splat 1
  function @main {
    %if = if(%true, %x) {otherwise="keep", then="grow"} : f32[4]
    save(%if, %y)
  }
  function @grow(%a) -> (%grown) {
    %e = exp(%a) : f32[4]
    save(%e, %grown)
  }
  function @keep(%b) -> (%same) {
    %n = neg(%b) : f32[4]
    save(%n, %same)
  }
}
"""


def recorded(module: Module, backend: str) -> Compilation:
    return compilation(module, backend, CompileOptions(recorded=True))


def only(stages: Compilation, name: str) -> History:
    (part,) = (part for part in histories(stages, name) if part.name == name)
    return part


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.onnx"
    proto = parser.parse_model(MODEL)
    rng, shapes = np.random.default_rng(0), dict.fromkeys("somv", (16,))
    for name, shape in (shapes | {"filter": (16, 4, 3, 3), "weights": (1024, 10)}).items():
        values = rng.random(shape, np.float32) + np.float32(0.5)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(proto, path)
    return str(path)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_every_node_has_a_step_and_an_end(backend: str) -> None:
    stages = recorded(network(), backend)
    for node in stages.function.nodes:
        part = only(stages, node.name)
        assert part.events, node.name
        ends = (part.runs, part.views, part.constants, part.removed_by)
        assert any(ends), node.name
        numbers = [event.step.number for event in part.events if event.step.number]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_what_is_folded_goes_to_what_computes_it(backend: str) -> None:
    stages = recorded(network(), backend)
    assert any(event.step.name == "fold-batch-norm" for event in only(stages, "norm").events)
    conv = only(stages, "conv").runs
    assert conv
    assert only(stages, "norm").runs[0].number == conv[0].number
    cpu = backend == "cpu"  # which computes the activation in the loop of the product
    assert (only(stages, "relu").runs[0].number == conv[0].number) == cpu


def test_equal_nodes_have_one_successor() -> None:
    stages = recorded(network(), "interpreter")
    assert any(event.step.name == "cse" for event in only(stages, "again").events)
    assert only(stages, "again").names == only(stages, "relu").names


def test_what_nobody_reads_is_removed_by_a_step() -> None:
    module = Module()
    f, type = module.create_function("main"), Type(ElemKind.F32, (4,))
    x = module.create_placeholder("x", type)
    f.create_neg("dead", f.create_exp("dying", x))
    f.create_save("save", x, module.create_placeholder("y", type))
    stages = recorded(module, "interpreter")
    for name in ("dead", "dying"):
        removed = only(stages, name).removed_by
        assert removed is not None
        assert removed.step.name == "dce"


def test_what_is_put_in_the_place_of_a_call_is_followed() -> None:
    stages = recorded(parse_module(CALLS), "interpreter")
    part = only(stages, "e")
    assert part.function == "grow"
    assert part.events[0].step.name == "fold-calls"
    assert part.runs[0].function == "main"
    removed = only(stages, "n").removed_by
    assert removed is not None
    assert removed.step.name == "fold-calls"


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(UserError, match="expected a node of the model, got 'conw'") as caught:
        histories(recorded(network(), "interpreter"), "conw")
    assert "did you mean conv?" in str(caught.value)


def test_every_name_that_is_printed_is_found(model: str) -> None:
    _, text = told(model, "stem")
    _, steps = told(model, "--json")
    names = set(re.findall(r"%[\w.]+", text))
    names |= {change["name"] for step in json.loads(steps) for change in step["changes"]}
    stages = recorded(parse_module(CALLS), "interpreter")
    assert histories(stages, "%e") == histories(stages, "e")
    stages = compilation(glowpy.load(model), "cpu", CompileOptions(recorded=True))
    own = {node.name for node in stages.function.nodes}
    assert {name.removeprefix("%") for name in names} - own
    for name in names:
        assert any(
            name.removeprefix("%") in (part.name, part.origin, *part.names)
            or any(
                name.removeprefix("%") in (change.name, *change.successors)
                for event in part.events
                for change in event.changes
            )
            for part in histories(stages, name)
        )


def told(*argv: str) -> tuple[int, str]:
    out = io.StringIO()
    return run(["history", *argv], io.StringIO(), out), out.getvalue()


def test_the_verb_says_what_became_of_a_node_of_the_model(model: str) -> None:
    status, text = told(model, "norm")
    assert status == 0
    assert "of the model's 'norm'" in text
    assert "fold-batch-norm." in text
    assert "computed in run" in text
    status, text = told(model, "stem", "--json")
    parts = json.loads(text)["parts"]
    assert {part["origin"] for part in parts} == {"stem"}
    (product,) = (part for part in parts if part["operator"] == "convolution")
    assert [step["pass"] for step in product["steps"]][-1] == "irgen"
    assert product["runs"][0]["instructions"]
    assert product["removed_by"] is None


def test_the_verb_lists_all_steps(model: str) -> None:
    status, text = told(model, "--json")
    assert status == 0
    steps = json.loads(text)
    numbers = [step["number"] for step in steps if step["number"]]
    assert numbers == list(range(1, len(numbers) + 1))
    _, text = told(model, "--stop-after", "0")
    assert "fold-batch-norm" not in text
    (packed,) = [line for line in text.splitlines() if "pack-products.convolution" in line]
    assert packed.split()[0] == "always"


def test_steps_have_the_same_numbers_when_fewer_happen(model: str) -> None:
    def numbered(*options: str) -> list[tuple[int, str]]:
        _, text = told(model, "--json", *options)
        return [(step["number"], step["pass"]) for step in json.loads(text) if step["number"]]

    assert numbered("--stop-after", "4") == numbered()[:4]
