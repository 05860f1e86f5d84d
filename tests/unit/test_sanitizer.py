"""The sanitizer finds what was put in wrong, in both backends and in bundles, and nothing in what is right."""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy import BundleOptions, CompileOptions, CpuBackend
from glowpy.backend import Program
from glowpy.backends.cpu import codegen
from glowpy.backends.cpu.strategy import walk, work
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.bundling.sanitize import extents_to_try, load_sanitized, run_sanitized
from glowpy.bundling.verify import verify_bundle
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, address_of
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.ir.insts_gen import AddInst, CopyInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability
from glowpy.memory import plan
from glowpy.runtime.ports import Ports
from glowpy.sanitizer import Area, NumberedRuns, Watch, sanitized
from glowpy.support.errors import AccessError, InternalError, UserError, VerifyError
from glowpy.support.symbolic import symbol
from tools.sanitize import kind_of, run_chunk, subject_of, try_network

SANITIZED = CompileOptions(sanitize=True, cache=False)
LINKED = pytest.mark.skipif(sys.platform != "linux", reason="shared bundles are linked for Linux")


def product() -> Module:
    """A product of an open batch, of which rows are one long matrix."""
    module = Module()
    batch = symbol("N", 1, 5)
    x = module.create_placeholder("x", Type(ElemKind.F32, (batch, 3, 24)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (batch, 3, 16)))
    weights = np.linspace(-1, 1, 24 * 16, dtype=np.float32).reshape(24, 16)
    f = module.create_function("main")
    w = module.create_constant("w", weights)
    f.create_save("save", f.create_relu("r", f.create_mat_mul("p", x.value, w.value)).result, y)
    return module


def image(batch: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(0).standard_normal((batch, 3, 24)).astype(np.float32)}


WRONG = [
    (work, r"p.* \(cpu_matmul\): wrote .* bytes outside its operands, .* after %y"),
    (codegen, r"p.* \(cpu_matmul\): results depend on memory that nobody wrote"),
]
"""Who takes a batch for several matrices while the other takes it for one: more units than there are, and fewer."""


@pytest.mark.parametrize(("who", "what"), WRONG)
def test_wrong_units_are_found(who: object, what: str) -> None:
    with patch.object(who, "boxes_of", walk._own_boxes):
        compiled = glowpy.compile(product(), "cpu", SANITIZED)
    compiled(image(1))
    with pytest.raises(InternalError, match=what):
        compiled(image(2))


def test_the_interpreter_tells_of_the_runs_of_a_program_for_another_backend() -> None:
    program = compilation(product(), CpuBackend()).program
    (run,) = program.ir.groups
    assert len(run.members) == 2
    compiled = InterpreterBackend().function(program, SANITIZED)
    expected = glowpy.compile(product(), "interpreter")(image(3))["y"]
    seen: list[int] = []

    def before(watch: Watch, index: int, *told: object) -> None:
        seen.append(len(watch.runs.steps[index].run.members))
        original(watch, index, *told)

    original: Callable[..., None] = Watch.before
    with patch.object(Watch, "before", before):
        np.testing.assert_allclose(compiled(image(3))["y"], expected, rtol=1e-5, atol=1e-5)
    assert set(seen) == {2}


@LINKED
@pytest.mark.parametrize(("who", "what"), WRONG)
def test_wrong_units_are_found_in_bundles(who: object, what: str, tmp_path: Path) -> None:
    what = what.replace("p.*", "%y").replace("after %y", "in the mutable area")
    with patch.object(who, "boxes_of", walk._own_boxes):
        glowpy.bundle(product(), tmp_path, BundleOptions("net", emit="shared", sanitize=True))
    with pytest.raises(InternalError, match=what):
        run_sanitized(tmp_path)


@LINKED
def test_a_sanitized_bundle_is_verified_and_runs(tmp_path: Path) -> None:
    glowpy.bundle(product(), tmp_path, BundleOptions("net", emit="shared", sanitize=True))
    verification = verify_bundle(tmp_path)
    assert verification.passed
    assert verification.sanitized >= 3
    expected = glowpy.compile(product(), "interpreter")(image(3))["y"]
    (network,) = load_sanitized(tmp_path).values()
    for run in (network, glowpy.load_bundle(tmp_path)):
        np.testing.assert_allclose(run(image(3))["y"], expected, rtol=1e-5, atol=1e-5)


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a shared library"):
        BundleOptions("net", sanitize=True)
    with pytest.raises(UserError, match="none of --guard"):
        BundleOptions("net", emit="shared", sanitize=True, guard=True)
    with pytest.raises(UserError, match="either callbacks around instructions or a sanitizer"):
        CompileOptions(sanitize=True, instrument=True)
    glowpy.bundle(product(), tmp_path, BundleOptions("net"))
    with pytest.raises(UserError, match="calls nobody"):
        load_sanitized(tmp_path)


class Small:
    """A program of two runs, told to a watch step by step: `b = copy a`, then `c = b + b`."""

    def __init__(self) -> None:
        f = IRFunction("main")
        type = Type(ElemKind.F32, (4,))
        a, c = (f.create_weight(name, type, Mutability.MUTABLE) for name in "ac")
        b = f.create_alloc("b", type).value
        f.create_copy(b, a)
        f.create_add(c, b, b)
        f.create_dealloc(b)
        program = Program(f, plan(f), {}, Ports())
        self.runs = NumberedRuns(program)
        self.arena, self.a, self.c = Area("the arena", 64), Area("%a", 16), Area("%c", 16)
        self.a.known[:] = True
        places = {"a": (self.a, 0), "c": (self.c, 0)}
        self.watch = Watch(self.runs, [self.arena, self.a, self.c], 0xFF, places)
        self.instructions = self.runs.instructions({})

    def step(self, number: int, operands: list[Area], writes: Callable[[], None]) -> None:
        addresses = [address_of(area.elements) for area in operands]
        self.watch.before(number, addresses, self.instructions)
        writes()
        self.watch.after(number, addresses, self.instructions)


@pytest.fixture
def small() -> Small:
    return Small()


def test_what_a_run_may_write(small: Small) -> None:
    assert isinstance(small.instructions[1], CopyInst)
    assert isinstance(small.instructions[2], AddInst)
    small.step(1, [small.arena, small.a], lambda: small.arena.elements[:16].fill(1))
    small.step(2, [small.c, small.arena, small.arena], lambda: small.c.elements.fill(2))
    assert small.c.known.all()


def test_a_write_beside_the_elements_of_a_buffer(small: Small) -> None:
    with pytest.raises(InternalError, match=r"%b \(copy\): wrote 4 bytes .* byte 16, in the arena"):
        small.step(1, [small.arena, small.a], lambda: small.arena.elements[:20].fill(1))


def test_a_write_to_what_is_only_read(small: Small) -> None:
    with pytest.raises(InternalError, match=r"%b \(copy\): wrote 1 bytes .* byte 3, in %a"):
        small.step(1, [small.arena, small.a], lambda: small.a.elements[3:4].fill(7))


def test_a_write_before_an_area(small: Small) -> None:
    bytes = (ctypes.c_uint8 * 4).from_address(address_of(small.a.elements) - 4)
    before = np.ctypeslib.as_array(bytes)
    with pytest.raises(InternalError, match=r"wrote 4 bytes .* byte -4, before %a"):
        small.step(1, [small.arena, small.a], lambda: before.fill(7))


def test_a_read_of_what_nothing_wrote(small: Small) -> None:
    small.step(1, [small.arena, small.a], lambda: small.arena.elements[:16].fill(1))
    small.arena.forget(12, 16)
    with pytest.raises(InternalError, match="add reads elements of %b that nothing wrote"):
        small.step(2, [small.c, small.arena, small.arena], lambda: None)


@pytest.mark.parametrize(
    ("right", "what"),
    [(4, "it reads outside its operands"), (3, "it leaves elements unwritten that are its own")],
)
def test_what_results_depend_on(right: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum reads beyond `b`, or writes three elements of four."""
    small = Small()

    def areas() -> tuple[list[Area], dict[str, tuple[Area, int]]]:
        new = Small()
        small.arena, small.a, small.c = new.arena, new.a, new.c
        return [new.arena, new.a, new.c], {"a": (new.a, 0), "c": (new.c, 0)}

    def add() -> None:
        beyond = small.arena.elements[16:32] if right == 4 else small.arena.elements[:16]
        small.c.elements[: 4 * right] = beyond[: 4 * right]

    def execute(made: Sequence[Area], watch: Watch) -> dict[str, int]:
        small.watch = watch
        small.step(1, [small.arena, small.a], lambda: small.arena.elements[:16].fill(1))
        small.step(2, [small.c, small.arena, small.arena], add)
        return {}

    with pytest.raises(
        AccessError, match=rf"^%c \(add\): results .* nobody wrote: {what}.*\n.*bug"
    ):
        sanitized(small.runs, areas, execute)
    monkeypatch.setattr(AddInst, "__module__", "series.insts_gen")
    with pytest.raises(AccessError, match=r"^%c \(add of the package series\): .*$") as caught:
        sanitized(small.runs, areas, execute)
    assert (caught.value.package, "bug" in str(caught.value)) == ("series", False)


CALLS = """<ir_version: 9, opset_import: ["": 17]>
net (float[N, 4] x, bool c, int64 trips) => (float[N, 4] y, float[K, N, 4] s) <float[4] b = {1, 2, 3, 4}> {
  z = If (c) <
    then_branch = t () => (float[N, 4] u) { u0 = Add(x, b) u1 = Softmax(u0) u = Mul(u1, x) },
    else_branch = e () => (float[N, 4] v) { v0 = Sub(x, b) v = Relu(v0) }
  >
  y, s = Loop (trips, , z) <body = l (int64 i, bool k, float[N, 4] a) => (bool ko, float[N, 4] an, float[N, 4] scan) {
    ko = Identity(k) a1 = Add(a, b) a2 = Softmax(a1) an = Mul(a2, a1) scan = Neg(an)
  }>
}"""


@LINKED
def test_branches_and_loops_work_in_frames_of_their_own(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(CALLS)

    def module() -> Module:
        known = {"trips": np.array(3)}
        return glowpy.load(model, dims={"N": symbol("N", 1, 4)}, values=known)

    backends = "interpreter", "cpu"
    functions = [glowpy.compile(module(), backend, SANITIZED) for backend in backends]
    glowpy.bundle(module(), tmp_path, BundleOptions("net", emit="shared", sanitize=True))
    (bundled,) = load_sanitized(tmp_path).values()
    for batch, taken in ((1, True), (4, False), (1, False), (3, True)):
        x = np.linspace(-1, 1, 4 * batch, dtype=np.float32).reshape(batch, 4)
        inputs = {"x": x, "c": np.array(taken), "trips": np.array(3)}
        expected, *others = (function(inputs) for function in (*functions, bundled))
        for outputs in others:
            for name, array in expected.items():
                np.testing.assert_allclose(outputs[name], array, 1e-4, 1e-4)


def test_a_session_is_watched() -> None:
    text = """<ir_version: 9, opset_import: ["": 17]>
    net (float[N, 3, 24] x) => (float[N, 24, 3] y) { v = Transpose<perm=[0, 2, 1]>(x) y = Relu(v) }"""
    session = glowpy.InferenceSession(onnx.parser.parse_model(text), options=SANITIZED)
    for batch in (1, 2, 1):
        x = image(batch)
        np.testing.assert_array_equal(
            session.run(None, x)[0], x["x"].transpose(0, 2, 1).clip(min=0)
        )


@pytest.mark.parametrize("seed", [*range(0, 20, 2), 1, 11, 21])
def test_random_networks_touch_their_operands_only(seed: int) -> None:
    counts: Counter[str] = Counter()
    try:
        try_network(seed, counts, bundled=False)
    except UserError:
        pytest.skip(f"{subject_of(seed).name} is refused")
    assert counts["runs"] or counts["networks without open extents, left out"]


def test_a_network_that_breaks_a_rule_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """A user's mistake is refused, and is none."""
    for error, key in ((VerifyError("broken"), "found"), (UserError("mistaken"), "refused")):
        with patch("tools.sanitize.try_network", side_effect=error):
            run_chunk(range(1), frozenset(), ())
        _, said = map(json.loads, capsys.readouterr().out.splitlines())
        assert {name for name in ("found", "refused") if said[name]} == {key}
        assert str(error) in said[key]


def test_refusals_of_one_kind() -> None:
    said = [
        f"g: node 'v{n}_0' (#{n}): mul: expected equal extents, got {a} and {b}"
        for n, a, b in ((1, "7", "d1"), (20, "d2", "3*d0-1"))
    ]
    assert kind_of(said[0]) == kind_of(said[1])
    assert kind_of(said[0]) != kind_of(said[0].replace("mul", "add"))


def test_extents_to_try() -> None:
    symbols = {"n": glowpy.compile(product(), "interpreter").symbols["N"]}
    extents = [one["n"] for one in extents_to_try(symbols, random.Random(0))]
    assert {1, 2, 5} <= set(extents) <= set(range(1, 6))
    assert len(extents) == len(set(extents))
