"""Parts of graphs: made functions, put back, and cut out as networks of their own."""

from __future__ import annotations

import random

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.graph.alone import alone
from glowpy.graph.calls import inline
from glowpy.graph.extract import excerpt, hull, outline
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import CallNode, IfNode, LoopNode, SaveNode
from glowpy.graph.order import in_order
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.support.errors import InternalError, UserError
from tests.bundles.networks import light
from tests.ops.test_control import TEXT as CALLING
from tests.unit.networks import RandomNetwork, SearchingNetwork, SymbolicNetwork, arrays_for

TEXT = """
module {
  placeholder %x : f32[2x3]
  placeholder %mask : bool[2x3]
  placeholder %y : f32[2x3]
  placeholder %top : i64[2x2]
  variable %state : f32[2x3]
  constant %two : f32[3] = [2.0, 3.0, 4.0]
  function @main {
    %a = mul(%x, %two) : f32[2x3]
    %b = add(%a, %state) if %mask : f32[2x3]
    %values, %values.indices = top_k(%b) {axis=1, k=2, largest=true} : f32[2x2], i64[2x2]
    %c = neg(%b) : f32[2x3]
    %d = mul(%c, %two) : f32[2x3]
    save(%d, %y)
    save(%values.indices, %top)
    save(%b, %state)
  }
}
"""

OUTLINED = """
module {
  placeholder %x : f32[2x3]
  placeholder %mask : bool[2x3]
  placeholder %y : f32[2x3]
  placeholder %top : i64[2x2]
  placeholder %a_1 : f32[2x3]
  placeholder %state_1 : f32[2x3]
  placeholder %mask_1 : bool[2x3]
  placeholder %b_1 : f32[2x3]
  placeholder %values_indices : i64[2x2]
  placeholder %c_1 : f32[2x3]
  variable %state : f32[2x3]
  constant %two : f32[3] = [2.0, 3.0, 4.0]
  function @main {
    %a = mul(%x, %two) : f32[2x3]
    %part, %part.1, %part.2 = call(%a, %state, %mask) {function="part"} : f32[2x3], i64[2x2], f32[2x3]
    %d = mul(%part.2, %two) : f32[2x3]
    save(%d, %y)
    save(%part.1, %top)
    save(%part, %state)
  }
  function @part(%a_1, %state_1, %mask_1) -> (%b_1, %values_indices, %c_1) {
    %b = add(%a_1, %state_1) if %mask_1 : f32[2x3]
    %values, %values.indices = top_k(%b) {axis=1, k=2, largest=true} : f32[2x2], i64[2x2]
    %c = neg(%b) : f32[2x3]
    save(%b, %b_1)
    save(%values.indices, %values_indices)
    save(%c, %c_1)
  }
}
"""


def named(f: Function, *names: str) -> list[Node]:
    return [node for node in f.nodes if node.name in names]


def test_predicates_state_and_several_results_cross_the_seam() -> None:
    module = parse_module(TEXT)
    f = module.main
    saves = [node for node in f.nodes if isinstance(node, SaveNode)]
    nodes = [*named(f, "c", "b", "values"), saves[2]]
    call = outline(f, nodes, "part")
    verify_module(module)
    assert print_module(module) == OUTLINED.lstrip()
    assert all(node in module.function("part") for node in nodes[:3])
    assert saves[2] in f  # the state is the caller's
    assert inline(f, [call])
    verify_module(module)
    assert print_module(module) == TEXT.lstrip()


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_what_is_outlined_computes_the_same(backend: str) -> None:
    feeds = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3) - 2,
        "mask": np.ones((2, 3), bool),
    }
    outputs = []
    for text in (TEXT, OUTLINED):
        compiled = glowpy.compile(parse_module(text), backend)
        state = compiled.state()
        outputs.append([compiled(feeds, state=state) for _ in range(3)])
    for whole, parts in zip(*outputs, strict=True):
        for name in ("y", "top"):
            np.testing.assert_array_equal(whole[name], parts[name])
    assert not np.array_equal(outputs[0][0]["y"], outputs[0][1]["y"])


def test_a_set_that_is_not_convex_is_refused() -> None:
    module = parse_module(TEXT)
    f, text = module.main, print_module(module)
    with pytest.raises(UserError, match=r"%a -> %b -> %c -> %d leaves and enters again") as caught:
        outline(f, named(f, "a", "d"), "part")
    assert "hull" in caught.value.diagnostics[0].note
    assert print_module(module) == text
    assert [node.name for node in hull(f, named(f, "a", "d"))] == ["a", "b", "c", "d"]
    for _ in range(20):
        last = f.create_neg(
            "more", f.nodes[-1].result if f.nodes[-1].results else module.placeholders[0]
        )
    chain = named(f, "more", "more_9", last.name)
    with pytest.raises(UserError, match=r"%more_9 -> %more_10 -> %more_11 -> \.\.\. -> "):
        outline(f, chain[1:], "part")


def test_other_sets_are_refused() -> None:
    module = parse_module(CALLING)
    f, other = module.main, module.function("halve")
    text = print_module(module)
    for nodes, message in (
        (other.nodes, "expected nodes of @main, got %m"),
        ([], "expected nodes of @main whose results others read"),
        (f.saves, "expected nodes of @main whose results others read"),
    ):
        with pytest.raises(UserError, match=message):
            outline(f, nodes, "part")
    with pytest.raises(UserError, match="function @halve exists already"):
        outline(f, named(f, "first"), "halve")
    assert print_module(module) == text


def test_extents_are_found_on_one_side() -> None:
    module = SearchingNetwork(random.Random(5), 40).module
    f = module.main
    definitions = list(dict.fromkeys(f.definitions.values()))
    assert definitions
    for definition in definitions:
        search = definition.input.node
        assert search is not None
        with pytest.raises(UserError, match="is found among the nodes, but others depend on it"):
            outline(f, [search, definition], "part")


def test_parts_of_bodies_and_nodes_with_bodies() -> None:
    module = parse_module(CALLING)
    text = print_module(module)
    f, body = module.main, module.function("add")
    outline(body, named(body, "next", "part"), "sums")
    outline(f, named(f, "loop", "first", "number", "positive", "if"), "all")
    verify_module(module)
    assert [g.name for g in f.called] == ["sums", "add", "halve", "grow", "all"]
    feeds = {"n": np.array(5), "x": np.array([1, 2, 30], np.float32)}
    expected = glowpy.compile(parse_module(text), "interpreter")(feeds)
    for name, output in glowpy.compile(module, "interpreter")(feeds).items():
        rows = slice(3) if name == "sums" else ...  # the others are not written
        np.testing.assert_array_equal(output[rows], expected[name][rows])
    assert inline(body)
    assert inline(f)
    verify_module(module)
    assert print_module(module) == text


def canonical(module: Module) -> str:
    """The text of a module, in an order that follows from what computes what, not from who was there first."""
    f = module.main
    saves = sorted(f.saves, key=lambda save: save.name)
    rest = sorted((node for node in f.nodes if node not in saves), key=lambda node: node.name)
    before = f.nodes
    f.arrange(in_order(reversed(in_order([*saves, *rest], f.needs)), f.needs))
    text = print_module(module)
    f.arrange(before)
    return text


def random_part(rng: random.Random, f: Function) -> list[Node]:
    """Neighbours in the order of the nodes, or what lies between some that are not."""
    order = f.topological()
    if rng.random() < 0.5:
        first, last = sorted(rng.sample(range(len(order) + 1), 2))
        return order[first:last]
    return hull(f, rng.sample(order, min(len(order), rng.randint(1, 4))))


def put_back(seed: int) -> bool:
    """Whether a random part of a random network could be outlined, after which `inline` was the inverse."""
    rng = random.Random(seed)
    cls = (RandomNetwork, SymbolicNetwork, SearchingNetwork)[seed % 3]
    module = cls(rng, 30).module
    f = module.main
    text, order, part = print_module(module), f.topological(), random_part(rng, f)
    adjacent = not part or order[order.index(part[0]) :][: len(part)] == part
    before = canonical(module)
    try:
        outline(f, part, "part")
    except UserError:
        assert print_module(module) == text
        return False
    verify_module(module)
    assert inline(f)
    verify_module(module)
    assert canonical(module) == before
    assert not adjacent or print_module(module) == text
    return True


def test_inline_is_the_inverse_of_outline() -> None:
    assert sum(put_back(seed) for seed in range(45)) > 25


def test_random_parts_compute_the_same() -> None:
    counts = [0, 0]
    for seed in range(24):
        rng = random.Random(seed)
        module = RandomNetwork(rng, 20).module
        feeds = arrays_for(module.main.parameters, seed)
        expected = glowpy.compile(module, "interpreter")(feeds)
        try:
            outline(module.main, random_part(rng, module.main), "part")
        except UserError:  # nothing of it is read
            counts[0] += 1
            continue
        counts[1] += 1
        for name, output in glowpy.compile(module, "interpreter")(feeds).items():
            np.testing.assert_array_equal(output, expected[name])
    assert counts[1] > counts[0]


def test_an_excerpt_is_a_network() -> None:
    module = parse_module(CALLING)
    text = print_module(module)
    f = module.main
    part = excerpt(f, named(f, "loop", "first", "number"), "front")
    verify_module(part)
    assert print_module(module) == text
    assert [g.name for g in part.functions] == ["add", "front"]
    feeds = {"n": np.array(5), "x": np.array([1, 2, 30], np.float32)}
    outputs: dict[str, Array] = glowpy.compile(part, "interpreter")(feeds)
    whole = glowpy.compile(module, "interpreter")(feeds)
    np.testing.assert_array_equal(outputs["loop.1"][:3], whole["sums"][:3])
    assert outputs["number"] == outputs["loop"][0]
    with pytest.raises(UserError, match="expected nodes of @main that compute something"):
        excerpt(f, f.saves)


def test_excerpts_feed_each_other() -> None:
    """The first half of a network by itself gives what the second half takes, several results of a node as well."""
    module = parse_module(TEXT)
    f = module.main
    order = [node for node in f.topological() if not isinstance(node, SaveNode)]
    known: dict[str, Array] = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "mask": np.ones((2, 3), bool),
        "state": np.ones((2, 3), np.float32),
    }
    for part in (order[:3], order[3:]):
        half = glowpy.compile(excerpt(f, part), "interpreter")
        known |= half({name: known[name] for name in half.inputs})
    np.testing.assert_array_equal(known["b"], known["x"] * [2, 3, 4] + 1)
    np.testing.assert_array_equal(known["d"], -known["b"] * [2, 3, 4])
    assert known["values.indices"].tolist() == [[2, 1], [2, 1]]


def test_one_node_alone_keeps_its_predicate_but_has_no_functions() -> None:
    f = parse_module(TEXT).main
    (b,) = named(f, "b")
    module = alone(b)
    verify_module(module)
    assert [p.name for p in module.placeholders] == ["input0", "input1", "predicate", "output0"]
    (twin,) = (node for node in module.main.nodes if node.results)
    assert twin.predicate is module.placeholders[2].value
    (branch,) = (n for n in parse_module(CALLING).main.nodes if isinstance(n, IfNode))
    with pytest.raises(InternalError, match="calls functions"):
        alone(branch)


def test_a_copied_function_has_its_own_signature() -> None:
    module = parse_module(CALLING)
    f = module.function("add").clone("added")
    verify_module(module)
    assert f.is_called
    assert [s.name for s in f.takes] == ["round_1", "sum_1", "step_1"]
    (loop,) = (n for n in module.main.nodes if isinstance(n, LoopNode))
    twin = module.main.create_loop("twin", loop.inputs, f.name, loop.carried, loop.room)
    assert [v.type for v in twin.results] == [v.type for v in loop.results]


def test_calls_are_gone_before_anything_is_optimized() -> None:
    whole, parts = (compilation(parse_module(t), "cpu").text("ir") for t in (TEXT, OUTLINED))
    assert whole == parts
    assert not any(
        isinstance(n, CallNode) for n in compilation(parse_module(OUTLINED)).lowered.nodes
    )


def test_parts_of_a_real_network_become_the_same_program() -> None:
    """To the letter, where the part is of neighbours: names and order stay what they were."""
    module = light("squeezenet")
    whole = compilation(module).text("ir")
    for seed in range(4):
        rng, cut = random.Random(seed), module.clone()
        order = cut.main.topological()
        first, last = sorted(rng.sample(range(len(order)), 2))
        outline(cut.main, order[first:last], "part")
        verify_module(cut)
        assert compilation(cut).text("ir") == whole
