"""Backends of other packages: how they are found, what is said of broken ones, and what the verbs make of them."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import glowpy
from glowpy import plugins
from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.insts_gen import CpuMatmulInst
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.interpreter.backend import InterpreterDevice
from glowpy.cli.main import run
from glowpy.core.schema import Access, InstSchema, NodeSchema, OperandSpec
from glowpy.engine import (
    backend_class,
    compilation,
    evaluate,
    known_nodes,
    package_of,
    unsupported,
)
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ReluNode
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import ExpInst
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.variant import KernelVariant
from glowpy.passes import PassContext
from glowpy.runtime.artifact import Artifact
from glowpy.support.errors import UnsupportedError, UserError
from tests.unit.test_pass_docstrings import examples, graph

PACKAGE = Path(__file__).parents[1] / "plugin_backend"

NETWORK = """\
module {
  placeholder %x : f32[5x17]
  placeholder %y : f32[5x17]
  constant %scale : f32[] = [0.125]
  function @main {
    %scaled = mul(%x, %scale) : f32[5x17]
    %p = softmax(%scaled) {axis=1} : f32[5x17]
    %h = hard_swish(%x) : f32[5x17]
    %r = add(%p, %h) : f32[5x17]
    save(%r, %y)
  }
}
"""


class Skeleton(Backend):
    """A backend that can do nothing."""

    name: ClassVar[str] = "skeleton"
    device = InterpreterDevice()

    def unsupported(self, operation: Operation) -> str:
        return f"no {operation.mnemonic}"

    def compile(self, program: Program, options: CompileOptions) -> Artifact:
        raise AssertionError("nothing is supported, so nothing is compiled")


@dataclass(frozen=True)
class TunedOptions:
    level: int = 1
    scale: float = 1.0
    fast: bool = False
    unit: str = "a"
    names: tuple[str, ...] = ()


class Tuned(Skeleton):
    """Says what options it has got."""

    name: ClassVar[str] = "tuned"
    options_type: ClassVar[type | None] = TunedOptions

    def __init__(self, options: TunedOptions | None = None) -> None:
        super().__init__()
        self.options = options or TunedOptions()

    def unsupported(self, operation: Operation) -> str:
        return str(self.options)


class Broken(Skeleton):
    name: ClassVar[str] = "broken"

    def unsupported(self, operation: Operation) -> str:
        raise KeyError(operation.mnemonic)


class Half(Backend):
    name: ClassVar[str] = "half"


class TwinNode(Node):
    SCHEMA = ReluNode.SCHEMA


class TwinInst(Instruction):
    SCHEMA = ExpInst.SCHEMA


class ProductInst(Instruction):
    SCHEMA = CpuMatmulInst.SCHEMA


class Taken(CpuBackend):
    name: ClassVar[str] = "taken"
    nodes = (*CpuBackend.nodes, TwinNode)
    instructions = (*CpuBackend.instructions, TwinInst)


class Apart(Skeleton):
    """It does not derive from the CPU backend, whose mnemonics it may not take all the same."""

    name: ClassVar[str] = "apart"
    instructions = (ProductInst,)


class LonelyNode(Node):
    SCHEMA = NodeSchema("lonely", ("input",), (), ("result",), frozenset())


class LonelyInst(Instruction):
    SCHEMA = InstSchema("alone", (OperandSpec("result", Access.OUT),), (), frozenset())


class Forgetful(Skeleton):
    name: ClassVar[str] = "forgetful"
    nodes = (LonelyNode,)
    instructions = (LonelyInst,)


class ForeignInst(Instruction):
    BACKEND: ClassVar[str] = "unlisted"
    SCHEMA = InstSchema("foreign", (OperandSpec("result", Access.OUT),), (), frozenset())


class ForeignNode(Node):
    BACKEND: ClassVar[str] = "unlisted"
    SCHEMA = NodeSchema("foreign", ("input",), (), ("result",), frozenset())


class Unlisted(CpuBackend):
    """Lists neither, and its `libraries` lack a comma."""

    name: ClassVar[str] = "unlisted"
    libraries = LIBJIT  # type: ignore[assignment]


class Nameless(Backend):
    unsupported = Skeleton.unsupported
    compile = Skeleton.compile


INSTALLED = {
    "skeleton": "Skeleton",
    "broken": "Broken",
    "half": "Half",
    "other": "Skeleton",
    "taken": "Taken",
    "apart": "Apart",
    "forgetful": "Forgetful",
    "unlisted": "Unlisted",
    "nameless": "Nameless",
    "tuned": "Tuned",
    "interpreter": "Skeleton",
    "number": "NETWORK",
    "lost": "Missing",
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if packages were installed with a backend for each entry, and one that works."""
    entries = [
        EntryPoint(name, f"{__name__}:{cls}", plugins.GROUP) for name, cls in INSTALLED.items()
    ]
    entries.append(EntryPoint("fused", "glowpy_fused.backend:FusedBackend", plugins.GROUP))
    entries += [EntryPoint("twice", f"package_{index}:Cls", plugins.GROUP) for index in (1, 2)]
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: entries)
    monkeypatch.syspath_prepend(str(PACKAGE))
    plugins.plugins.cache_clear()
    yield
    plugins.plugins.cache_clear()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nonsense",
            r"expected one of the backends cpu, interpreter, apart, .*fused, .*got 'nonsense'",
        ),
        ("lost", r"the backend 'lost' of the package tests.*: AttributeError: .*'Missing'"),
        ("number", "expected a class that derives from Backend, got 'module"),
        ("half", "Half lacks compile, unsupported"),
        ("other", "Skeleton calls itself 'skeleton'"),
        (
            "taken",
            r"TwinNode: the mnemonic relu is taken by glowpy\.graph\.nodes_gen\.ReluNode; "
            r"TwinInst: the mnemonic exp is taken by glowpy\.ir\.insts_gen\.ExpInst",
        ),
        (
            "apart",
            r"the mnemonic cpu_matmul is taken by glowpy\.backends\.cpu\.insts_gen\.CpuMatmulInst",
        ),
        (
            "forgetful",
            "LonelyNode has no 'infer' rule; "
            "LonelyNode has neither an instruction nor a 'lower' or 'irgen' rule; "
            "LonelyInst has no 'interpret' rule",
        ),
        (
            "unlisted",
            r"Unlisted\.libraries: expected a tuple of KernelLibrary, got KernelLibrary; a comma .*; "
            "Unlisted.nodes does not list ForeignNode; "
            "Unlisted.instructions does not list ForeignInst",
        ),
        ("nameless", "Nameless calls itself ''"),
        ("twice", "package_1 and package_2 both have a backend 'twice'"),
    ],
)
def test_broken_package_is_an_error_for_who_asks_for_it(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        backend_class(name)
    assert backend_class("skeleton") is Skeleton


def test_name_of_a_backend_of_our_own_is_refused() -> None:
    (plugin,) = (plugin for plugin in plugins.plugins() if plugin.name == "interpreter")
    with pytest.raises(UserError, match="'interpreter' is the name of a backend of glowpy's own"):
        plugins.load_plugin(plugin)


def test_nothing_is_looked_for_when_the_backend_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", None)
    assert backend_class("cpu") is CpuBackend
    assert package_of("cpu") == ""


def test_package_of_a_backend() -> None:
    assert package_of("fused") == "glowpy_fused.backend"
    assert package_of("twice") == "package_1 package_2"
    assert package_of("nobody's") == ""


def test_network_runs_on_the_backend_of_another_package() -> None:
    module = parse_module(NETWORK)
    x = np.random.default_rng(1).standard_normal((5, 17), np.float32) * 9
    stages = compilation(module, "fused", CompileOptions(verify_each=True, cache=False))
    compiled = stages.compiled
    mnemonics = {inst.SCHEMA.mnemonic for inst in stages.program.ir.instructions}
    assert {"fused_scaled_softmax", "hard_swish"} <= mnemonics
    expected = glowpy.compile(module, "interpreter")({"x": x})["y"]
    np.testing.assert_allclose(compiled({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)
    again = glowpy.InterpreterBackend().function(stages.program)
    np.testing.assert_allclose(again({"x": x})["y"], expected, rtol=1e-6, atol=1e-7)


def test_node_that_others_lower_is_kept_where_there_is_a_kernel() -> None:
    backend = backend_class("fused")()
    for kind, kept in (("f32", True), ("f64", False)):
        module = parse_module(
            f"""module {{ placeholder %x : {kind}[4]  placeholder %y : {kind}[4]
            function @main {{ %h = hard_swish(%x) : {kind}[4]  save(%h, %y) }} }}"""
        )
        node = module.main.nodes[0]
        assert backend.supports(Operation.of_node(node)) == kept
        assert unsupported(node, backend) == []


def test_pass_does_what_its_docstring_shows() -> None:
    fused = backend_class("fused")
    passed = fused().post_lowering()[0]
    before, after = (graph(text, fused.nodes) for text in examples(passed))
    assert passed.run(before.main, PassContext(evaluate))
    assert print_module(before) == print_module(after)


@pytest.mark.parametrize(
    ("option", "folder"), [("--sanitize", ""), ("--instrument-ir", ""), ("--instrument-debug", "f")]
)
def test_run_refuses_to_watch_what_does_not_tell_of_its_runs(
    option: str, folder: str, tmp_path: Path
) -> None:
    network = tmp_path / "net.glow"
    network.write_text(NETWORK)
    words = [option, *([str(tmp_path / folder)] if folder else [])]
    err = io.StringIO()
    start = ["run", str(network), "--backend"]
    assert run([*start, "skeleton", *words], io.StringIO(), io.StringIO(), err) == 1
    assert f"{option}: the skeleton backend does not tell of its runs" in err.getvalue()
    assert run([*start, "fused", *words], io.StringIO(), io.StringIO(), err) == 0


def test_missing_pieces_of_a_backend_are_named() -> None:
    assert plugins.missing_pieces(backend_class("fused")()) == []
    assert plugins.missing_pieces(CpuBackend()) == []
    assert plugins.missing_pieces(Skeleton()) == []
    assert plugins.missing_pieces(Nameless()) == [
        "Nameless has no device that loads what it compiles"
    ]


def test_libraries_that_are_forgotten_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = backend_class("fused")
    monkeypatch.setattr(fused, "libraries", CpuBackend.libraries)
    softmax, hard_swish = plugins.missing_pieces(fused())
    assert "FusedScaledSoftmaxInst has no kernel: expected fused_scaled_softmax in" in softmax
    assert "HardSwishInst has no kernel" in hard_swish


def test_instruction_that_is_not_listed_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a backend that was never looked up by its name, too."""
    backend = backend_class("fused")()
    monkeypatch.setattr(type(backend), "instructions", CpuBackend.instructions)
    with pytest.raises(UnsupportedError, match="of the fused backend list none for its own fused_"):
        glowpy.compile(parse_module(NETWORK), backend)


def test_mistake_in_a_kernel_is_the_authors(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "swell.c").write_text("KERNEL void swell_f32(float *result) { none; }\n")
    swell = KernelLibrary("swell", tmp_path, None, {})
    with pytest.raises(UserError, match=r"^the kernels of swell do not compile for ") as caught:
        swell.bitcode(CpuBackend().target.variant)
    (diagnostic,) = caught.value.diagnostics
    assert "error: " in diagnostic.context
    assert diagnostic.note == f"mend them in {tmp_path / 'src'}"


class Unwritten(KernelLibrary):
    """Kernels of which the author has forgotten one."""

    def symbols(self, variant: KernelVariant) -> frozenset[str]:
        return super().symbols(variant) - {"fused_hard_swish_f32", "libjit_exp_f32"}


def test_kernel_that_is_declared_and_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that others lower is not lowered without a word."""
    fused = backend_class("fused")
    assert issubclass(fused, CpuBackend)
    libraries = [
        Unwritten(own.name, own.folder, own.packaged, own.specs) for own in fused.libraries
    ]
    monkeypatch.setattr(fused, "libraries", tuple(libraries))
    backend = fused()
    exp, hard_swish = plugins.missing_pieces(backend)
    assert "classgen/specs/elementwise.py declares libjit_exp_f32, which the kernels of" in exp
    assert "specs.py declares fused_hard_swish_f32, which the kernels of fused for" in hard_swish
    with pytest.raises(UnsupportedError) as caught:
        glowpy.compile(parse_module(NETWORK), backend)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.startswith("%h: fused backend: no kernel for hard_swish on f32[5x17]")
    assert diagnostic.message.endswith(hard_swish)
    assert unsupported(parse_module(NETWORK).main.nodes[2], backend)


def glow(*argv: str, text: str = NETWORK) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(argv, io.StringIO(text), out, err), out.getvalue(), err.getvalue()


def test_command_line_knows_the_backend(tmp_path: Path) -> None:
    status, text, err = glow("dump", "-", "--stage", "lowered", "--backend", "fused")
    assert status == 0, err
    assert "fused_scaled_softmax(%x) {scale=0.125}" in text
    assert glow("opt", "-", "--backend", "fused", text=text) == (0, text, "")
    status, printed, _ = glow("opt", "-", "--backend", "fused", "-p", "fuse-scale")
    assert (status, "fused_scaled_softmax" in printed) == (0, True)
    status, _, err = glow("opt", "-", text=text)
    assert (status, "fused_scaled_softmax" in err) == (1, True)
    status, printed, err = glow("run", "-", "--backend", "fused", "--check-with", "interpreter")
    assert status == 0, err
    assert glow("run", "-", "--backend", "skeleton")[0] == 1


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("tuned", "", "TunedOptions(level=1, scale=1.0, fast=False, unit='a', names=())"),
        (
            "tuned",
            "level=3 scale=0.5 fast=true unit=a=b",
            "TunedOptions(level=3, scale=0.5, fast=True, unit='a=b', names=())",
        ),
        ("tuned", "level=x", "--set level: expected a value of type int, got 'x'"),
        ("tuned", "fast=1", "--set fast: expected true or false, got '1'"),
        ("tuned", "level", "--set: expected NAME=VALUE, got 'level'"),
        ("tuned", "names=a", "no option 'names'; it has level, scale, fast, unit"),
        ("tuned", "level=1 level=1", "--set level: the option is given twice"),
        ("skeleton", "level=1", "--set: the skeleton backend has no option 'level'; it has none"),
        ("fused", "target=nonsense", "expected a preset or a triple"),
    ],
)
def test_options_of_any_backend_are_set(backend: str, settings: str, message: str) -> None:
    words = [word for setting in settings.split() for word in ("--set", setting)]
    for verb in (["run", "-"], ["dump", "-", "--stage", "memory"]):
        status, _, err = glow(*verb, "--backend", backend, *words)
        assert (status, message in err) == (1, True), err


def test_option_is_not_given_by_two_names() -> None:
    status, _, err = glow("dump", "-", "--backend", "cpu", "--cpu", "a", "--set", "cpu=b")
    assert (status, "--set cpu: the option is given twice" in err) == (1, True)
    with pytest.raises(UserError, match="the interpreter backend has no options of its own"):
        glowpy.InterpreterBackend(TunedOptions())


def test_refusal_of_a_skeleton_names_every_node() -> None:
    status, _, err = glow("run", "-", "--backend", "skeleton")
    assert status == 1
    for line in (
        "<stdin>:6:5: %scaled: skeleton backend: no mul\n  mul @out",
        "<stdin>:7:5: %p: skeleton backend: no softmax\n  softmax @out",
    ):
        assert line in err


def test_node_of_another_backend_is_one_refusal() -> None:
    fused = backend_class("fused")
    text = NETWORK.replace("softmax(%scaled) {axis=1}", "fused_scaled_softmax(%x) {scale=0.5}")
    f = parse_module(text, extra=known_nodes(fused)).main
    (node,) = (node for node in f.nodes if node.SCHEMA.mnemonic == "fused_scaled_softmax")
    (reason,) = unsupported(node, CpuBackend())
    assert "fused_scaled_softmax" in reason
    assert unsupported(node, fused()) == []


def test_doctor_tests_every_backend_and_fails_without_a_traceback() -> None:
    status, out, err = glow("doctor", "--json")
    report = json.loads(out)
    assert (status, err) == (1, "")
    assert report["self-test cpu"] == report["self-test fused"] == "passed"
    assert report["self-test skeleton"] == "not run: no add"
    assert report["self-test broken"] == "failed: KeyError('add')"
    assert report["self-test lost"].startswith("failed: the backend 'lost' of the package")
    assert report["backend fused"] == "glowpy_fused.backend"
    assert "backend interpreter" not in report
    fault = report[f"self-test interpreter of {__name__}"]
    assert fault == "failed: 'interpreter' is the name of a backend of glowpy's own"


def test_bundle_of_the_backend_is_verified_and_outdated(tmp_path: Path) -> None:
    folder = str(tmp_path / "net")
    status, _, err = glow("bundle", "-", "-o", folder, "--name", "net", "--backend", "fused")
    assert status == 0, err
    assert "fused_scaled_softmax" in (tmp_path / "net" / "net.ir").read_text()
    status, out, err = glow("bundle", "-", "--check", folder, "--backend", "fused")
    assert (status, out) == (0, "net is up to date\n"), err
    other = NETWORK.replace("0.125", "0.25")
    status, out, err = glow("bundle", "-", "--check", folder, "--backend", "fused", text=other)
    assert (status, "the model, its shapes, its state, the kernels or this machine" in out) == (
        1,
        True,
    ), err
    status, _, err = glow("bundle", "-", "-o", folder, "--backend", "interpreter")
    assert (status, "the interpreter backend makes no bundles" in err) == (1, True)
    status, out, err = glow("verify", folder)
    if status == 3:
        pytest.skip(err)
    assert (status, "right" in out, "WRONG" in out) == (0, True, False), err


def test_generated_files_are_up_to_date() -> None:
    """`python -m classgen` writes those of the tree alone; this is the author's command, from the author's folder."""
    command = [sys.executable, "-m", "classgen", "--check", "--package", "glowpy_fused"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parents[1])}
    done = subprocess.run(
        command, cwd=PACKAGE, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _plain(file: Path) -> str:
    """What it says; of Python, whatever the length of lines that its folder's project wants."""
    text = file.read_text()
    return ast.dump(ast.parse(text)) if file.suffix == ".py" else text


def test_the_files_of_the_page_are_the_package(tmp_path: Path) -> None:
    """Who copies them all and runs classgen has it: these files, which are installed by the other tests."""
    page = (PACKAGE.parents[1] / "docs" / "backends.md").read_text()
    found = re.findall(r"^```(?:py|c|toml) (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, text in found:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert not re.search(r"^```(?:py|c|toml)$", page, re.MULTILINE), "each has a name"
    command = [sys.executable, "-m", "classgen", "--package", str(tmp_path / "glowpy_fused")]
    done = subprocess.run(
        command, cwd=PACKAGE.parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    suffixes = (".py", ".c", ".h", ".toml")
    files, copies = (
        {
            str(file.relative_to(folder)): _plain(file)
            for file in folder.rglob("*")
            if file.suffix in suffixes
        }
        for folder in (PACKAGE, tmp_path)
    )
    assert files == copies


@pytest.mark.parametrize("missing", ["jinja2", "ruff"])
def test_classgen_says_what_it_needs(tmp_path: Path, missing: str) -> None:
    if missing == "jinja2":
        (tmp_path / "jinja2.py").write_text("raise ModuleNotFoundError('no jinja2', name='jinja2')")
        program = "import sys; sys.argv = ['classgen', '--check']; import classgen.__main__ as m; sys.exit(m.main())"
    else:
        program = (
            "import shutil, sys; shutil.which = lambda name: '/nowhere/ruff'; sys.argv = ['classgen', '--check'];"
            "import classgen.__main__ as m; sys.exit(m.main())"
        )
    path = os.pathsep.join([str(tmp_path), str(PACKAGE.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: classgen needs {missing}, which is not installed\nnote: pip"
    )


def test_the_last_words_say_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as raised:
        backend_class("forgetful")
    assert raised.value.diagnostics[0].note.endswith(
        ": @infer(LonelyNode) above def rule(input: Type) -> Type"
    )
    insts = backend_class("fused").instructions
    (softmax,) = (inst for inst in insts if inst.SCHEMA.mnemonic == "fused_scaled_softmax")
    monkeypatch.setattr("glowpy.plugins.interpret.missing", lambda _: [softmax])
    note = plugins._what_to_write((), insts)
    assert note.endswith(
        "@interpret(FusedScaledSoftmaxInst) above "
        "def rule(result: Tensor, input: Tensor, *, scale: float) -> None"
    )
