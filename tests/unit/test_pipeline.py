"""Pipelines: verification after every pass, reports, times, fixpoints, and reasons."""

import gc
import itertools
from dataclasses import dataclass
from typing import ClassVar

import pytest

from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import compilation, evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ExpNode, NegNode
from glowpy.graph.parser import parse_module
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.ir.insts_gen import DeallocInst
from glowpy.ir.irfunction import IRFunction
from glowpy.irgen import generate
from glowpy.opt.graph.fold_clip import FoldClipPass
from glowpy.passes import GraphPass, IRPass, PassContext, Pipeline, RewritePass, Rewrites
from glowpy.schedule import schedule
from glowpy.support.errors import UserError, VerifyError

F32 = Type(ElemKind.F32, (4,))


@pytest.fixture
def f() -> Function:
    module = Module()
    x, out = module.create_placeholder("x", F32), module.create_placeholder("out", F32)
    function = module.create_function("main")
    node: Node = function.create_exp("e", x)
    for _ in range(3):
        node = function.create_exp("e", node)
    function.create_save("s", node, out)
    return function


@dataclass(frozen=True)
class BreakPass(GraphPass):
    """Leaves a wrong type in the graph."""

    name: ClassVar[str] = "break"

    def run(self, f: Function, ctx: PassContext) -> bool:
        f.nodes[0].result.type = F32.with_shape((5,))
        return True


@dataclass(frozen=True)
class LeakPass(IRPass):
    """Forgets all deallocs."""

    name: ClassVar[str] = "leak"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        f.replace_instructions(i for i in f.instructions if not isinstance(i, DeallocInst))
        return True


@dataclass(frozen=True)
class OneExpPass(GraphPass):
    """Negates instead of the first exponential it finds."""

    name: ClassVar[str] = "one-exp"

    def run(self, f: Function, ctx: PassContext) -> bool:
        exp = next((node for node in f.nodes if isinstance(node, ExpNode)), None)
        if exp is None:
            return False
        f.replace(exp, (f.create_neg("n", exp.input),))
        return True


@dataclass(frozen=True)
class AllExpPass(RewritePass):
    """Negates instead of every exponential but that of a placeholder."""

    name: ClassVar[str] = "all-exp"

    @rule
    def negate(self, f: Function, n: ExpNode, why: Why) -> Replacement:
        if n.input.node is None:
            return why.no("its input is a placeholder")
        return f.create_neg(n.name, n.input)


def test_verification_blames_the_pass_that_broke_the_graph(f: Function) -> None:
    broken = Pipeline("p", (BreakPass(), OneExpPass()))
    ctx = PassContext(evaluate, verify_each=True)
    with pytest.raises(VerifyError, match="expected f32"):
        broken.run(f, ctx)
    assert list(ctx.times) == ["break"]


def test_verification_covers_the_ir(f: Function) -> None:
    ir = generate(f, schedule(f))
    with pytest.raises(VerifyError, match="never deallocated"):
        Pipeline("p", (LeakPass(),)).run(ir, PassContext(evaluate, verify_each=True))


def test_without_it_nothing_is_verified(f: Function) -> None:
    assert Pipeline("p", (BreakPass(),)).run(f, PassContext(evaluate))


def test_a_fixpoint_ends_when_nothing_changes(f: Function) -> None:
    said: list[tuple[str, bool]] = []
    ctx = PassContext(evaluate, after_pass=lambda name, _, changed: said.append((name, changed)))
    assert Pipeline("p", (OneExpPass(),), fixpoint=True).run(f, ctx)
    assert said == [("one-exp", True)] * 4 + [("one-exp", False)]
    assert not any(isinstance(node, ExpNode) for node in f.nodes)
    assert not Pipeline("p", (OneExpPass(),), fixpoint=True).run(f, ctx)


def test_a_fixpoint_that_is_not_reached_is_reported(f: Function) -> None:
    with pytest.warns(RuntimeWarning, match="p: @main still changes after 2 rounds of passes"):
        assert Pipeline("p", (OneExpPass(),), fixpoint=True, limit=2).run(f, PassContext(evaluate))
    assert sum(isinstance(node, ExpNode) for node in f.nodes) == 2


def test_pipelines_nest(f: Function) -> None:
    inner = Pipeline[Function]("inner", (OneExpPass(),))
    ctx = PassContext(evaluate, clock=itertools.count().__next__)
    assert Pipeline[Function]("outer", (inner, inner)).run(f, ctx)
    assert sum(isinstance(node, NegNode) for node in f.nodes) == 2
    assert ctx.times == {"one-exp": 2}
    assert ctx.runs == {"one-exp": 2}


def test_rewrites_explain_themselves(f: Function) -> None:
    reasons: list[str] = []
    ctx = PassContext(evaluate, explain=reasons.append)
    assert AllExpPass().run(f, ctx)
    assert reasons == ["%e: its input is a placeholder (all-exp)"]
    classes = [type(node) for node in f.topological()]
    assert classes[:4] == [ExpNode, NegNode, NegNode, NegNode]


def test_rewrite_passes_that_run_as_one_report_by_name(f: Function) -> None:
    said: list[tuple[str, bool]] = []
    ctx = PassContext(evaluate, after_pass=lambda name, _, changed: said.append((name, changed)))
    rewrites = Rewrites((AllExpPass(), FoldClipPass()))
    assert [inner.name for inner in Pipeline("p", (rewrites,)).flattened()] == [
        "all-exp",
        "fold-clip",
    ]
    assert Pipeline("p", (rewrites,)).run(f, ctx)
    assert said == [("rewrite", True)]
    assert (ctx.applied["all-exp"], ctx.applied["fold-clip"]) == (3, 0)
    assert list(ctx.times) == ["all-exp", "fold-clip"]
    assert not Pipeline("p", (rewrites,), fixpoint=True).run(f, ctx)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            "lower",
            "expected one of the stages graph, optimized, lowered, scheduled, ir, memory, strategy, llvm, asm, "
            "got 'lower'",
        ),
        ("asm", "the interpreter backend makes no machine code in the form 'asm'"),
    ],
)
def test_a_stage_that_a_compilation_does_not_have_is_refused(
    f: Function, stage: str, message: str
) -> None:
    stages = compilation(f, "interpreter")
    assert "exp(" in stages.text("lowered")
    with pytest.raises(UserError) as caught:
        stages.text(stage)
    assert caught.value.diagnostics[0].message == message


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_while_stages_are_computed(enabled: bool) -> None:
    seen: set[bool] = set()
    ctx = PassContext(evaluate, after_pass=lambda *_: seen.add(gc.isenabled()))
    module = parse_module(
        "module { placeholder %x : f32[2] placeholder %y : f32[2]"
        " function @main { %r = relu(%x) : f32[2] save(%r, %y) } }"
    )
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        assert compilation(module, "interpreter", ctx=ctx).program.ports.inputs
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if before else gc.disable()
    assert seen == {False}


@pytest.mark.parametrize(
    ("backend", "instrument", "members"),
    [("cpu", False, [4]), ("cpu", True, [1] * 4), ("interpreter", False, [1] * 4)],
)
def test_runs_are_formed_for_backends_that_stack_unless_observed(
    f: Function, backend: str, instrument: bool, members: list[int]
) -> None:
    program = compilation(f, backend, CompileOptions(instrument=instrument)).program
    assert [len(run.members) for run in program.ir.runs] == members
    assert bool(program.ir.groups) == (len(members) == 1)
