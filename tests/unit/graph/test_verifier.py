"""Rules of the graph level that text cannot break: each broken once. The others are in filetests/verify/graph.glow."""

from collections.abc import Callable

import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.nodes_gen import AddNode, ExpNode
from glowpy.graph.verifier import verify_function, verify_module
from glowpy.support.errors import VerifyError

F32 = Type(ElemKind.F32, (4,))


def _function() -> Function:
    module = Module()
    x, out = module.create_placeholder("x", F32), module.create_placeholder("out", F32)
    f = module.create_function("main")
    f.create_save("s", f.create_exp("e", x), out)
    return f


def _wrong_inputs(f: Function) -> None:
    x = f.module.placeholders[0].value
    f.add(AddNode("a", [x], {}, [F32]))


def _lost_use(f: Function) -> None:
    f.module.placeholders[0].value._uses.clear()


def _other_function(f: Function) -> None:
    other = f.module.create_function("other")
    other.create_neg("n", f.nodes[0])


def _other_module(f: Function) -> None:
    stranger = Module().create_placeholder("x", F32)
    f.create_neg("n", stranger)


def _same_name(f: Function) -> None:
    f.add(ExpNode("e", [f.module.placeholders[0].value], {}, [F32]))


def _name_of_a_storage(f: Function) -> None:
    f.nodes[0].name = "x"


def _attribute(f: Function) -> None:
    f.create_splat("c", F32, 0.0).attrs["value"] = 1


def _result(f: Function) -> None:
    f.nodes[0].result.type = Type(ElemKind.F32, (5,))


def _inputs_of_one_name(f: Function) -> None:
    f.create_neg("n", f.module.create_placeholder("x", F32))


def _unread_input_of_one_name(f: Function) -> None:
    f.module.create_placeholder("x", F32)


def _outputs_of_one_name(f: Function) -> None:
    f.create_save("s", f.module.placeholders[0], f.module.create_placeholder("out", F32))


def _cycle(f: Function) -> None:
    node = f.nodes[0]
    node.set_input(0, node.result)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_wrong_inputs, "add: expected 2 inputs, got 1"),
        (_lost_use, "exp: %x does not list this node as a user"),
        (_other_function, "is used by a node of another function"),
        (_other_module, "neg: operand %x belongs to another module"),
        (_same_name, "exp: the name %e is used twice"),
        (_name_of_a_storage, "exp: the name %x is used twice"),
        (_attribute, "splat: attribute value must be of kind 'float'"),
        (_result, "result %e has type f32[5], expected f32[4]"),
        (_inputs_of_one_name, "expected inputs with different names, got 2 called 'x'"),
        (_unread_input_of_one_name, "expected inputs with different names, got 2 called 'x'"),
        (_outputs_of_one_name, "expected outputs with different names, got 2 called 'out'"),
        (_cycle, "cycle through %e"),
    ],
)
def test_a_broken_rule_is_reported(damage: Callable[[Function], None], message: str) -> None:
    f = _function()
    verify_function(f)
    damage(f)
    with pytest.raises(VerifyError) as caught:
        verify_function(f)
    assert any(message in d.message for d in caught.value.diagnostics), str(caught.value)


def test_an_input_may_have_the_name_of_an_output() -> None:
    """A model may give back what it takes."""
    f = _function()
    f.create_save("s", f.nodes[0], f.module.create_placeholder("x", F32))
    verify_function(f)


def test_an_operand_of_another_function_is_reported_there() -> None:
    f = _function()
    _other_function(f)
    with pytest.raises(VerifyError, match="operand %e belongs to another function"):
        verify_function(f.module.function("other"))


def test_everything_that_is_broken_is_reported_at_once() -> None:
    f = _function()
    _wrong_inputs(f)
    _same_name(f)
    with pytest.raises(VerifyError) as caught:
        verify_module(f.module)
    assert len(caught.value.diagnostics) == 2
    assert caught.value.diagnostics[1].context.endswith("^^")
