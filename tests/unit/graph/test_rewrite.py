"""The rewrite engine: which rules are tried on what, in which order, how often, and what they must not do."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import AbsNode, ConcatNode, ExpNode, MulNode, NegNode
from glowpy.graph.rewrite import Replacement, Rewriter, Why, rule, rule_where
from glowpy.opt.graph.fold_concat import FoldConcatPass
from glowpy.passes import PassContext, RewritePass, Rewrites
from glowpy.support.errors import InternalError, VerifyError
from glowpy.support.loc import Loc

F32 = Type(ElemKind.F32, (4,))


@pytest.fixture
def f() -> Function:
    module = Module()
    for name in ("x", "p", "y"):
        kind = ElemKind.BOOL if name == "p" else ElemKind.F32
        module.create_placeholder(name, F32.with_kind(kind))
    return module.create_function("main")


def saved(f: Function, node: Node) -> None:
    f.create_save("s", node, f.module.create_placeholder("out", node.type))


def chain(f: Function, length: int) -> Node:
    """exp(exp(...(x)))"""
    node: Node = f.create_exp("e", f.module.placeholders[0])
    for _ in range(length - 1):
        node = f.create_exp("e", node)
    return node


@dataclass(frozen=True)
class NegatePass(RewritePass):
    """Makes exponentials and absolute values negations."""

    name: ClassVar[str] = "negate"

    @rule
    def negate(self, f: Function, n: ExpNode | AbsNode, why: Why) -> Replacement:
        return f.create_neg(n.name, n.input)


@dataclass(frozen=True)
class SwapPass(RewritePass):
    """Swaps the operands of every commutative node whose second is computed, in place."""

    name: ClassVar[str] = "swap"

    @rule_where(lambda schema: Trait.COMMUTATIVE in schema.traits)
    def swap(self, f: Function, n: Node, why: Why) -> Replacement:
        lhs, rhs = n.inputs
        if rhs.node is None:
            return why.no("its right side is not computed")
        n.set_input(0, rhs)
        n.set_input(1, lhs)
        return n


@dataclass(frozen=True)
class DropNegPass(RewritePass):
    """Drops pairs of negations."""

    name: ClassVar[str] = "drop-neg"

    @rule
    def drop(self, f: Function, n: NegNode, why: Why) -> Replacement:
        return n.input.node.input if isinstance(n.input.node, NegNode) else None


def test_a_rule_is_tried_on_the_classes_in_its_annotation(f: Function) -> None:
    x = f.module.placeholders[0]
    saved(f, f.create_add("sum", f.create_abs("a", x), f.create_tanh("t", chain(f, 2))))
    ctx = PassContext(evaluate)
    assert NegatePass().run(f, ctx)
    assert (ctx.tried["negate"], ctx.applied["negate"]) == (3, 3)
    assert [node.SCHEMA.mnemonic for node in f.topological()].count("neg") == 3
    assert not NegatePass().run(f, ctx)
    assert ctx.tried["negate"] == 3


def test_a_rule_may_be_for_a_trait_and_change_a_node_in_place(f: Function) -> None:
    x = f.module.placeholders[0]
    node = f.create_add("sum", x, f.create_exp("e", x))
    saved(f, f.create_sub("d", x, node))
    assert SwapPass().run(f, PassContext(evaluate))
    assert [value.name for value in node.inputs] == ["e", "x"]
    assert node in f


def test_what_a_rule_creates_stands_for_the_node(f: Function) -> None:
    x, p, _ = f.module.placeholders
    with f.at(Loc("m.onnx", node="Exp_1")):
        node = f.predicated(f.create_exp("e", x), p)
    saved(f, node)
    assert NegatePass().run(f, PassContext(evaluate))
    created = f.saves[0].input.node
    assert created is not None
    assert (created.name, created.loc, created.predicate) == ("e", node.loc, p.value)
    assert f.create_exp("after", x).predicate is None


def test_passes_run_as_one_until_no_rule_fits(f: Function) -> None:
    saved(f, chain(f, 101))
    ctx = PassContext(evaluate)
    assert Rewrites((DropNegPass(), NegatePass())).run(f, ctx)
    assert [node.SCHEMA.mnemonic for node in f.topological()] == ["neg", "save"]
    assert ctx.applied == {"negate": 101, "drop-neg": 50}
    assert ctx.tried["drop-neg"] <= 4 * 101
    assert list(ctx.times) == ["drop-neg", "negate"]
    assert ctx.runs == {"rewrite": 1}


def test_only_the_neighbours_of_a_rewrite_are_visited_again(f: Function) -> None:
    node = f.create_abs("a", chain(f, 1000))
    for _ in range(1000):
        node = f.create_abs("a", node)
    saved(f, node)

    @dataclass(frozen=True)
    class OncePass(RewritePass):
        name: ClassVar[str] = "once"

        @rule
        def look(self, f: Function, n: ExpNode | AbsNode, why: Why) -> Replacement:
            between = isinstance(n, AbsNode) and isinstance(n.input.node, ExpNode)
            return f.create_neg(n.name, n.input) if between else None

    ctx = PassContext(evaluate)
    assert OncePass().run(f, ctx)
    assert ctx.applied["once"] == 1
    assert ctx.tried["once"] <= 2001 + 4


def test_a_user_that_becomes_the_only_one_is_visited_again(f: Function) -> None:
    x, _, y = f.module.placeholders
    inner = f.create_concat("inner", [x, y], 0)
    saved(f, f.create_concat("outer", [inner, x], 0))
    saved(f, f.create_exp("e", f.create_concat("only", [inner], 0)))

    @dataclass(frozen=True)
    class ForgetPass(RewritePass):
        name: ClassVar[str] = "forget"

        @rule
        def forget(self, f: Function, n: ExpNode, why: Why) -> Replacement:
            return f.create_splat(n.name, n.type, 0.0)

    reasons: list[str] = []
    ctx = PassContext(evaluate, explain=reasons.append)
    assert Rewrites((FoldConcatPass(), ForgetPass())).run(f, ctx)
    assert reasons == []
    (outer,) = (node for node in f.nodes if isinstance(node, ConcatNode))
    assert [value.name for value in outer.inputs] == ["x", "y", "x"]
    assert inner not in f


def test_reasons_are_those_of_the_last_visit(f: Function) -> None:
    x = f.module.placeholders[0]
    saved(f, f.create_add("a", f.create_mul("m", x, x), x))
    reasons: list[str] = []
    assert not SwapPass().run(f, PassContext(evaluate, explain=reasons.append))
    expected = [f"%{name}: its right side is not computed (swap)" for name in "ma"]
    assert reasons == expected
    assert isinstance(f.nodes[0], MulNode)


@dataclass(frozen=True)
class ForeverPass(RewritePass):
    """Never leaves an exponential alone."""

    name: ClassVar[str] = "forever"

    @rule
    def again(self, f: Function, n: ExpNode, why: Why) -> Replacement:
        return f.create_exp(n.name, n.input)


def test_rules_that_never_end_are_a_bug(f: Function) -> None:
    saved(f, chain(f, 2))
    with pytest.raises(InternalError, match="rewriting does not end at %e"):
        ForeverPass().run(f, PassContext(evaluate))


@dataclass(frozen=True)
class HalfPass(RewritePass):
    """Refuses after it has created something."""

    constant: bool
    name: ClassVar[str] = "half"

    @rule
    def half(self, f: Function, n: ExpNode, why: Why) -> Replacement:
        if self.constant:
            f.module.create_constant("c", np.zeros(4, np.float32))
        else:
            f.create_neg("n", n)
        return why.no("never mind")


@pytest.mark.parametrize("constant", [False, True])
def test_a_rule_that_refuses_must_have_changed_nothing(f: Function, constant: bool) -> None:
    saved(f, chain(f, 1))
    with pytest.raises(
        InternalError, match=r"%e: a rule of HalfPass changed the graph and refused"
    ):
        HalfPass(constant).run(f, PassContext(evaluate))


def test_a_rewrite_is_verified_at_once(f: Function) -> None:
    saved(f, chain(f, 1))

    @dataclass(frozen=True)
    class BreakPass(RewritePass):
        name: ClassVar[str] = "break"

        @rule
        def wrong(self, f: Function, n: ExpNode, why: Why) -> Replacement:
            created = f.create_neg(n.name, n.input)
            created.attrs["extra"] = 1
            return created

    with pytest.raises(VerifyError, match="neg"):
        BreakPass().run(f, PassContext(evaluate, verify_each=True))


def test_a_rule_with_other_parameters_is_refused() -> None:
    expected = r"expected the parameters \(self, f, n: NODECLASS, why\), got "
    with pytest.raises(TypeError, match=rf"no_why: {expected}\(self, f, n\)"):

        @rule
        def no_why(self: RewritePass, f: Function, n: NegNode) -> Replacement:
            return None

    def no_class(self, f, n, why):  # type: ignore[no-untyped-def]
        return None

    with pytest.raises(TypeError, match=rf"no_class: {expected}\(self, f, n, why\)"):
        rule(no_class)


def test_a_pass_needs_a_name() -> None:
    with pytest.raises(TypeError, match="NamelessPass: expected a name"):

        class NamelessPass(RewritePass):
            """Says nothing."""


def test_a_replacement_of_another_type_is_blamed_on_its_rule(f: Function) -> None:
    saved(f, chain(f, 1))

    @dataclass(frozen=True)
    class WidenPass(RewritePass):
        name: ClassVar[str] = "widen"

        @rule
        def widen(self, f: Function, n: ExpNode, why: Why) -> Replacement:
            return f.create_reshape(n.name, Type(n.type.kind, (1, *n.type.shape)), n.input)

    with pytest.raises(
        InternalError, match=r"^pass widen, rule widen: cannot replace .*\nmend the rule in tests"
    ):
        WidenPass().run(f, PassContext(evaluate))


def test_a_value_replaces_every_use(f: Function) -> None:
    x = f.module.placeholders[0]
    node = f.create_neg("b", f.create_neg("a", x))
    saved(f, f.create_add("sum", node, node))

    rewriter = Rewriter(f, [DropNegPass()])
    assert rewriter.run()
    assert rewriter.applied == [1]
    assert f.num_nodes == 2
    assert f.nodes[0].inputs == (x.value, x.value)
