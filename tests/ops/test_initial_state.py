"""Variables that begin with something else than zeros, wherever networks are kept."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest

import glowpy
from glowpy import UserError, VerifyError
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.jit import JitFunction
from glowpy.cli.files import read_constants, write_constants
from glowpy.core.elemkind import ElemKind
from glowpy.core.initial import Normal, Uniform
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.engine import BACKENDS
from glowpy.exporter import dump_onnx
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.quantization import halve
from glowpy.runtime.host_call import HostCall

TEXT = """
module {
  symbol n 0..3
  placeholder %x : f32[3]
  placeholder %zero_now : f32[3]
  placeholder %few_now : f32[3]
  placeholder %same_now : f32[3]
  placeholder %room_now : f32[3]
  placeholder %low_now : f32[3]
  placeholder %bell_now : f32[3]
  placeholder %many_now : f32[3]
  variable %zero : f32[3]
  variable %few : f32[3] = [1.0, 2.0, 3.0]
  variable %same : f32[3] = splat 0.5
  variable %room : f32[3] in f32[5] = [4.0, 5.0, 6.0]
  variable %low : f32[3] = uniform {high=1.0, low=-1.0, seed=7}
  variable %bell : f32[3] = normal {deviation=0.5, mean=10.0, seed=4611686018427387903}
  variable %many : f32[20x3] = BLOB
  variable %log : f32[n x 3] in f32[4x3]
  function @main {
    %a = add(%zero, %x) : f32[3]
    %b = add(%few, %x) : f32[3]
    %c = add(%same, %x) : f32[3]
    %d = add(%room, %x) : f32[3]
    %e = add(%low, %x) : f32[3]
    %f = add(%bell, %x) : f32[3]
    %g = add(%many, %x) : f32[20x3]
    %sum = reduce_add(%g) {axes=[0]} : f32[1x3]
    %total = reshape(%sum) : f32[3]
    save(%a, %zero)
    save(%b, %few)
    save(%c, %same)
    save(%d, %room)
    save(%e, %low)
    save(%f, %bell)
    save(%g, %many)
    save(%a, %zero_now)
    save(%b, %few_now)
    save(%c, %same_now)
    save(%d, %room_now)
    save(%e, %low_now)
    save(%f, %bell_now)
    save(%total, %many_now)
  }
}
"""

MANY = np.arange(60, dtype=np.float32).reshape(20, 3)
X = np.array([1, -1, 0.5], np.float32)


def module() -> Module:
    """Variables of all kinds, each of which grows by the input in each run; `log` is not used."""
    module = parse_module(TEXT.replace("BLOB", "splat 0.0"))
    (many,) = (variable for variable in module.variables if variable.name == "many")
    module.begin(many, MANY)
    return module


def begun() -> dict[str, Array]:
    """What the variables hold before the first run."""
    type = parse_type("f32[3]")
    return {
        "zero": np.zeros(3, np.float32),
        "few": np.array([1, 2, 3], np.float32),
        "same": np.full(3, 0.5, np.float32),
        "room": np.array([4, 5, 6], np.float32),
        "low": Uniform(7).tensor(type).array,
        "bell": Normal((1 << 62) - 1, 10, 0.5).tensor(type).array,
        "many": MANY,
    }


def check_runs(network: HostCall) -> None:
    """Two runs from the beginning, and two more after a reset."""
    state = network.state()
    for _ in range(2):
        expected = begun()
        for name, array in expected.items():
            np.testing.assert_array_equal(state[name], array)
        for _ in range(2):
            outputs = network({"x": X}, state=state)
            expected = {name: array + X for name, array in expected.items()}
            for name, array in expected.items():
                now = array.sum(0) if name == "many" else array
                np.testing.assert_allclose(outputs[f"{name}_now"], now, 1e-6)
                np.testing.assert_array_equal(state[name], array)
        state.reset()


def test_text_copies_and_pickles_have_initial_values(tmp_path: Path) -> None:
    whole = module()
    verify_module(whole)
    text, path = print_module(whole), str(tmp_path / "c.npz")
    assert text.count("blob") == 1
    for twin in (whole.clone(), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):
        assert print_module(twin) == text
    write_constants(path, whole.stored)
    again = parse_module(text, blobs=read_constants(path))
    assert print_module(again) == text
    check_runs(glowpy.compile(again, "interpreter"))
    with pytest.raises(UserError, match="holds only the digest of its elements"):
        glowpy.compile(parse_module(text), "interpreter")


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_go_on_from_initial_values(backend: str) -> None:
    check_runs(glowpy.compile(module(), backend))


def test_images_keep_them() -> None:
    compiled = glowpy.compile(module())
    assert isinstance(compiled, JitFunction)
    image = CpuBackend().device.parse(compiled.image.payload())
    assert image == compiled.image
    for port, other in zip(image.ports.state, compiled.state_ports, strict=True):
        assert port.contents.equals(other.contents)
    assert [
        type(port.initial).__name__ for port in image.ports.state if port.name in ("low", "zero")
    ] == [
        "NoneType",
        "Uniform",
    ]


def test_onnx_files_keep_them(tmp_path: Path) -> None:
    whole, saved, dumped = module(), tmp_path / "saved.onnx", tmp_path / "dumped.onnx"
    (log,) = (variable for variable in whole.variables if variable.name == "log")
    whole.erase(log)
    dump_onnx(whole.main, dumped)
    assert print_module(glowpy.load(dumped)) == print_module(whole)
    glowpy.save(whole, saved)
    onnx.checker.check_model(onnx.load(saved), full_check=True)
    names = [name for name in begun() if name != "room"]
    state = {name: f"{name}_next" for name in (*names, "room")}
    check_runs(glowpy.compile(glowpy.load(saved, state=state), "interpreter"))
    check_runs(
        glowpy.compile(glowpy.load(dumped, state={n: f"{n}_next" for n in state}), "interpreter")
    )
    session = glowpy.InferenceSession(saved, state="auto", backend="interpreter")
    for _ in range(2):
        expected = begun()
        for _ in range(3):
            expected = {name: array + X for name, array in expected.items()}
            (few, low) = session.run(["few_now", "low_now"], {"x": X})
            np.testing.assert_array_equal(few, expected["few"])
            np.testing.assert_array_equal(low, expected["low"])
        session.reset_state()
    plain = glowpy.InferenceSession(saved, backend="interpreter")
    assert {info.name for info in plain.get_inputs()} == {"x", *state}


def test_values_that_do_not_fit_are_refused() -> None:
    whole = Module()
    three, open_type = parse_type("f32[3]"), whole.create_variable("v", parse_type("f32[3]"))
    for initial, message in (
        (np.zeros(4, np.float32), r"expected an initial value of type f32\[3\], got f32\[4\]"),
        (np.zeros(3, np.int32), r"expected an initial value of type f32\[3\], got i32\[3\]"),
        ("zeros", "expected a numpy array, got str"),
    ):
        with pytest.raises(UserError, match=message):
            whole.create_variable("w", three, initial=initial)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected floats to be random"):
        whole.create_variable("w", parse_type("i32[3]"), initial=Uniform(1))
    log = parse_module(TEXT.replace("BLOB", "splat 0.0")).variables[-1]
    with pytest.raises(UserError, match="expected a variable of one shape"):
        whole.create_variable("w", log.type, log.memory, initial=np.zeros((2, 3), np.float32))
    assert whole.variables == [open_type]
    for text, message in (
        ("gamma {seed=1}", "expected elements, uniform or normal, got 'gamma'"),
        ("uniform {seed=1}", "uniform: expected the attributes high, low, seed, got seed"),
        ("[1.0]", "expected 3 elements, got 1"),
    ):
        with pytest.raises(UserError, match=message):
            parse_module(f"module {{\n  variable %v : f32[3] = {text}\n}}\n")


def test_a_constant_becomes_a_variable_that_begins_with_it() -> None:
    """As weights do that are trained."""
    whole = Module()
    f, type = whole.create_function("main"), parse_type("f32[3]")
    x, y = (whole.create_placeholder(name, type) for name in "xy")
    weight = whole.create_constant("w", np.array([1, 2, 3], np.float32))
    grown = f.create_add("grown", weight, x)
    f.create_save("save", grown, y)
    variable = whole.make_variable(weight)
    f.create_save("keep", grown, variable)
    verify_module(whole)
    assert not whole.constants
    assert "variable %w : f32[3] = [1.0, 2.0, 3.0]" in print_module(whole)
    compiled = glowpy.compile(whole, "interpreter")
    state = compiled.state()
    for runs in (1, 2):
        np.testing.assert_array_equal(compiled({"x": X}, state=state)["y"], [1, 2, 3] + runs * X)


def test_halves_begin_with_halves() -> None:
    whole = halve(module(), ElemKind.F16, ports=True).module
    verify_module(whole)
    assert "variable %few : f16[3] = [1.0, 2.0, 3.0]" in print_module(whole)
    assert "variable %low : f16[3] = uniform {high=1.0, low=-1.0, seed=7}" in print_module(whole)
    compiled = glowpy.compile(whole, "interpreter")
    state = compiled.state()
    compiled({"x": X.astype(np.float16)}, state=state)
    np.testing.assert_array_equal(state["few"], [2, 1, 3.5])
    np.testing.assert_allclose(state["low"], begun()["low"] + X, atol=2e-3)
    wrong = module()
    wrong.variables[1].value.type = parse_type("f16[3]")
    with pytest.raises(
        VerifyError, match=r"expected an initial value of type f16\[3\], got f32\[3\]"
    ):
        verify_module(wrong)


def test_what_a_function_takes_begins_with_what_is_passed() -> None:
    whole = Module()
    type = parse_type("f32[2]")
    carried = whole.create_variable("carried", type, initial=np.ones(2, np.float32))
    f = whole.create_function("f", [carried], [carried])
    f.create_save("save", f.create_neg("neg", carried), carried)
    with pytest.raises(VerifyError, match="%carried begins with what is passed"):
        verify_module(whole)


def test_elements_are_no_memory() -> None:
    three = parse_type("f32[3]")
    for memory in (X, X.tolist(), "f32[3]"):
        with pytest.raises(
            UserError, match="a variable's memory as its third argument, got"
        ) as error:
            Module().create_variable("v", three, memory)  # type: ignore[arg-type]
        assert (
            error.value.diagnostics[0].note
            == "initial=... gives the elements that the first run reads"
        )
