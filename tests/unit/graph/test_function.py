"""Use lists, replacement, order, cloning, and modules whose functions share storage."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import PREDICATE, Node, Placeholder
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_function, print_module
from glowpy.graph.verifier import verify_module
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import Loc, caller
from tests.unit.networks import RandomNetwork

F32 = Type(ElemKind.F32, (4,))
BOOL = Type(ElemKind.BOOL, (4,))


@pytest.fixture
def f() -> Function:
    module = Module()
    for name in ("x", "y", "out"):
        module.create_placeholder(name, F32)
    module.create_placeholder("p", BOOL)
    return module.create_function("main")


def test_use_lists_follow_every_change(f: Function) -> None:
    x, y, p = (f.module.placeholders[i].value for i in (0, 1, 3))
    node = f.create_add("a", x, x)
    assert x.uses == [(node, 0), (node, 1)]
    assert (x.users, x.num_users) == ([node], 2)
    node.set_input(1, y)
    assert x.uses == [(node, 0)]
    assert y.uses == [(node, 1)]
    f.predicated(node, p)
    assert p.uses == [(node, PREDICATE)]
    node.set_input(0, y)
    assert x.uses == []
    f.erase(node)
    assert y.num_users == p.num_users == 0


def test_replacing_all_uses_moves_predicates_too(f: Function) -> None:
    x, p = f.module.placeholders[0].value, f.module.placeholders[3].value
    other = f.create_lt("other", x, x).result
    node = f.predicated(f.create_exp("e", x), p)
    p.replace_all_uses_with(other)
    assert node.predicate is other
    assert p.num_users == 0
    with pytest.raises(InternalError, match="cannot replace"):
        x.replace_all_uses_with(other)


def test_what_is_used_cannot_be_erased(f: Function) -> None:
    node = f.create_exp("e", f.module.placeholders[0])
    f.create_neg("n", node)
    with pytest.raises(InternalError, match="still used"):
        f.erase(node)
    with pytest.raises(InternalError, match="still used"):
        f.module.erase(f.module.placeholders[0])


def test_a_replacement_inherits_name_location_and_predicate(f: Function) -> None:
    x, p = f.module.placeholders[0], f.module.placeholders[3]
    with f.at(Loc("m.onnx", node="Relu_1")):
        node = f.predicated(f.create_relu("r", x), p)
    f.create_save("s", node, f.module.placeholders[2])
    with f.replacing(node):
        replacement = f.create_exp("other", x)
    f.replace(node, (replacement,), f.newest(1))
    assert (replacement.name, replacement.loc, replacement.predicate) == (
        "r",
        Loc("m.onnx", node="Relu_1"),
        p.value,
    )
    assert node not in f
    assert f.saves[0].input is replacement.result


def test_erasing_the_dead_spares_side_effects(f: Function) -> None:
    x = f.module.placeholders[0]
    f.create_neg("dead", f.create_exp("dead_too", x))
    f.create_save("s", f.create_neg("alive", x), f.module.placeholders[2])
    assert f.erase_dead()
    assert [node.name for node in f.nodes] == ["alive", "s"]
    assert not f.erase_dead()


def test_the_order_puts_inputs_first_and_keeps_what_is_in_order(f: Function) -> None:
    x = f.module.placeholders[0]
    first, second = f.create_exp("first", x), f.create_neg("second", x)
    assert f.topological() == [first, second]
    first.set_input(0, second.result)
    assert f.topological() == [second, first]
    second.set_input(0, first.result)
    with pytest.raises(InternalError, match="cycle"):
        f.topological()


def test_long_chains_need_no_recursion(f: Function) -> None:
    node: Node = f.create_exp("n", f.module.placeholders[0])
    for _ in range(5000):
        node = f.create_exp("n", node)
    assert len(f.topological()) == 5001
    assert f.erase_dead()
    assert f.num_nodes == 0


def test_inputs_and_outputs(f: Function) -> None:
    x, y, out, _ = f.module.placeholders
    f.create_save("s", f.create_add("a", y, x), out)
    assert f.inputs == [x, y]
    assert f.outputs == [out]
    state = f.module.create_placeholder("state", F32)
    f.create_save("t", f.create_neg("n", state), state)
    assert f.inputs == [x, y, state]
    assert f.outputs == [out, state]


def test_functions_of_a_module_share_its_storage(f: Function) -> None:
    module, x = f.module, f.module.placeholders[0]
    weights = module.create_constant("w", np.ones(4, np.float32))
    f.create_save("s", f.create_add("a", x, weights), module.placeholders[2])
    twin = f.clone("twin")
    twin.saves[0].set_input(0, twin.create_mul("m", x, weights).result)
    twin.erase_dead()
    verify_module(module)
    assert x.value.num_users == weights.value.num_users == 2
    assert [type(node).__name__ for node in f.nodes] == ["AddNode", "SaveNode"]
    assert print_module(parse_module(print_module(module))) == print_module(module)
    with pytest.raises(UserError, match="exists already"):
        module.create_function("twin")
    with pytest.raises(UserError, match="expected a module with one function, got 2"):
        _ = module.main


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_modules_read_back_and_clone(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    verify_module(module)
    text = print_module(module)
    again = parse_module(text)
    verify_module(again)
    assert print_module(again) == text
    copy = module.clone()
    verify_module(copy)
    assert print_module(copy) == text
    for node in module.main.nodes:
        assert node not in copy.main
    copy.main.create_splat("more", F32, 0.0)
    assert print_module(module) == text


def test_an_inference_error_has_the_location_of_the_node(f: Function) -> None:
    wide = f.module.create_placeholder("wide", Type(ElemKind.F32, (3,)))
    with (
        f.at(Loc("m.onnx", node="Add_0")),
        pytest.raises(UserError, match="add: expected shapes that broadcast") as caught,
    ):
        f.create_add("a", f.module.placeholders[0], wide)
    assert caught.value.diagnostics[0].loc.node == "Add_0"


@pytest.mark.parametrize(
    ("create", "message", "note"),
    [
        (
            lambda f, x: f.create_add("s", x, 1.0),
            "add: expected a node, value, constant or placeholder as rhs, got float",
            "create_constant makes one of an array",
        ),
        (
            lambda f, x: f.create_mat_mul("m", x, np.zeros((4, 4))),
            "mat_mul: expected a node, value, constant or placeholder as rhs, got ndarray",
            "create_constant makes one of an array",
        ),
        (
            lambda f, x: f.create_concat("c", [x, None], 0),
            "concat: expected a node, value, constant or placeholder as inputs, got NoneType",
            "create_constant makes one of an array",
        ),
        (
            lambda f, x: f.create_concat("c", x, 0),
            "concat: expected a list as inputs, got Placeholder",
            "",
        ),
        (
            lambda f, x: f.create_add(x, "s", x),
            "add: expected a node, value, constant or placeholder as lhs, got str",
            "the arguments are name, lhs, rhs, in this order",
        ),
        (
            lambda f, x: f.create_reshape("r", x, F32),
            "reshape: expected a node, value, constant or placeholder as input, got Type",
            "the arguments are name, result_type, input, in this order",
        ),
        (
            lambda f, x: f.create_reshape("r", "f32[4]", x),
            "expected a Type, got 'f32[4]'",
            "parse_type reads one",
        ),
        (lambda f, x: f.create_relu(x, x), "expected a string as the name, got Placeholder", ""),
        (
            lambda f, x: f.module.create_placeholder("z", "f32[2]"),
            "expected a Type, got 'f32[2]'",
            "parse_type reads one",
        ),
        (
            lambda f, x: f.module.create_placeholder(F32, "z"),
            "expected a string as the name, got Type",
            "",
        ),
        (
            lambda f, x: f.module.create_constant("c", [1, 2, 3]),
            "expected a numpy array, got list",
            "numpy.array makes one",
        ),
        (
            lambda f, x: f.module.create_constant("c", np.array(["a"])),
            "expected an array of numbers or booleans, got dtype <U1",
            "",
        ),
    ],
)
def test_arguments_of_another_python_type_are_refused(
    f: Function, create: Callable[[Any, Placeholder], object], message: str, note: str
) -> None:
    with pytest.raises(UserError) as caught:
        create(f, f.module.placeholders[0])
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.message, diagnostic.note) == (message, note)
    assert diagnostic.loc.file == __file__
    assert not f.nodes
    assert f.module.create_constant("s", np.ones(1)).name == "s"


def test_flags_are_off_unless_set(f: Function) -> None:
    gelu = f.create_gelu("g", f.module.placeholders[0])
    assert gelu.approximate is False


def test_modules_and_functions_print_as_their_text(f: Function) -> None:
    f.create_relu("r", f.module.placeholders[0])
    assert str(f.module) == print_module(f.module)
    assert str(f) == print_function(f)


def test_nodes_of_python_code_know_the_line_that_made_them(f: Function) -> None:
    x = f.module.placeholders[0]
    nodes = [f.create_relu("a", x), f.create_relu("b", x)]
    assert [node.loc.file for node in nodes] == [__file__, __file__]
    assert nodes[0].loc.line == nodes[1].loc.line > 0
    with pytest.raises(UserError, match="mat_mul: ") as caught:
        f.create_mat_mul("m", x, x)
    assert caught.value.diagnostics[0].loc == Loc(__file__, nodes[0].loc.line + 4)


def test_constants_know_their_digest_only_if_they_must() -> None:
    text = 'module {\n  constant %c : f32[99] = blob "sha256:ab"\n}\n'
    constant = parse_module(text).constants[0]
    assert not constant.has_elements
    with pytest.raises(UserError, match="only the digest of its elements"):
        _ = constant.tensor
    array = np.arange(99, dtype=np.float32)
    known = parse_module(text, blobs={"ab": array}).constants[0]
    np.testing.assert_array_equal(known.array, array)


def test_constants_of_other_types_share_their_bytes() -> None:
    text = """module {
      constant %f : f32[8] = blob "sha256:ab"
      constant %i : i8[4x8](s=0.5,o=0) = blob "sha256:ab"
      constant %c : f8e4m3fn[32] = blob "sha256:ab"
    }
    """
    array = np.arange(8, dtype=np.float32)
    for shared in (array, array.reshape(2, 4), array.view(np.int8)):
        constants = parse_module(text, blobs={"ab": shared}).constants
        assert [constant.array.shape for constant in constants] == [(8,), (4, 8), (32,)]
        assert [constant.array.tobytes() for constant in constants] == [array.tobytes()] * 3
    with pytest.raises(UserError, match=r"expected 32 bytes for f32\[8\], got 28"):
        parse_module(text, blobs={"ab": array[1:]})


def test_a_package_beside_glowpy_is_not_taken_for_it() -> None:
    path = str(Path(glowpy.__file__).parent.parent / "glowpy_fused" / "build.py")
    scope: dict[str, object] = {"caller": caller}
    exec(compile("loc = caller()", path, "exec"), scope)
    assert scope["loc"] == Loc(path, 1)
