"""What users of the Python API rely on: binding without copies, predicates, modules with several functions."""

from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import Module, UserError, parse_type
from glowpy.core.tensor import Array
from glowpy.graph.printer import print_module

BACKENDS = ["cpu", "interpreter"]


def doubling() -> Module:
    m = Module()
    x = m.create_placeholder("in put", parse_type("f32[8]"))
    y = m.create_placeholder("out/0", parse_type("f32[8]"))
    f = m.create_function("main")
    f.create_save("save", f.create_add("twice", x, x), y)
    return m


@pytest.mark.parametrize("backend", BACKENDS)
def test_bound_arrays_are_used_and_not_copied(backend: str) -> None:
    instance = glowpy.compile(doubling(), backend).instance()
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    instance.bind("in put", x)
    instance.bind("out/0", y)
    assert instance["in put"] is x
    assert instance["out/0"] is y
    instance.run()
    assert np.array_equal(y, 2 * x)
    x[0] = 21  # seen by the next run, for nothing was copied
    instance.run()
    assert y[0] == 42


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_of_a_call_belong_to_the_caller(backend: str) -> None:
    compiled = glowpy.compile(doubling(), backend)
    first = compiled({"in put": np.ones(8, np.float32)})["out/0"]
    second = compiled({"in put": np.zeros(8, np.float32)})["out/0"]
    assert not np.shares_memory(first, second)
    assert first.tolist() == [2.0] * 8


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(8, np.float64), "expected an array of type f32[8], got float64[8]"),
        (np.zeros(7, np.float32), "expected an array of type f32[8], got float32[7]"),
        (np.zeros(16, np.float32)[::2], "C-contiguous"),
        (np.broadcast_to(np.float32(0), 8), "C-contiguous"),
    ],
)
def test_binding_what_does_not_fit(array: Array, message: str) -> None:
    instance = glowpy.compile(doubling(), "interpreter").instance()
    with pytest.raises(UserError) as error:
        instance.bind("out/0", array)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing input 'in put' (f32[8])"),
        ({"x": np.zeros(8, np.float32)}, "got 'x'"),
        ({"in put": np.zeros(8, np.int32)}, "expected an array of type f32[8], got int32[8]"),
        (np.zeros(8, np.float32), "expected a dict of inputs, got ndarray"),
        (None, "expected a dict of inputs, got NoneType"),
    ],
)
def test_calling_with_what_does_not_fit(inputs: Any, message: str) -> None:
    compiled = glowpy.compile(doubling(), "interpreter")
    with pytest.raises(UserError) as error:
        compiled(inputs)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("net.onnx",),
            "model: expected a Module or Function, as glowpy.load gives, got 'net.onnx'",
        ),
        ((doubling(), 5), "backend: expected a Backend or its name, got int"),
        ((doubling(), "cpu", 3), "options: expected CompileOptions, got int"),
    ],
)
def test_compiling_what_does_not_fit(arguments: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        glowpy.compile(*arguments)
    assert str(error.value) == message


def test_saving_what_is_no_network() -> None:
    with pytest.raises(UserError, match="model: expected a Module or Function"):
        glowpy.save("net.onnx", "out.onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_predicate(backend: str) -> None:
    """Where the predicate holds the result is right; elsewhere it may be anything."""
    m = Module()
    x = m.create_placeholder("x", parse_type("f32[6]"))
    mask = m.create_placeholder("mask", parse_type("bool[6]"))
    y = m.create_placeholder("y", parse_type("f32[6]"))
    f = m.create_function("main")
    product = f.predicated(f.create_mul("square", x, x), mask)
    f.create_save("save", product, y)
    chosen = np.array([True, False, True, True, False, True])
    values = np.arange(6, dtype=np.float32)
    got = glowpy.compile(m, backend)({"x": values, "mask": chosen})["y"]
    assert np.array_equal(got[chosen], (values * values)[chosen])


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_functions_on_one_weight(backend: str) -> None:
    m = Module()
    x = m.create_placeholder("x", parse_type("f32[4]"))
    y = m.create_placeholder("y", parse_type("f32[4]"))
    w = m.create_constant("w", np.array([1, 2, 3, 4], np.float32))
    forward, backward = m.create_function("forward"), m.create_function("backward")
    forward.create_save("save", forward.create_mul("m", x, w), y)
    backward.create_save("save", backward.create_div("d", x, w), y)
    with pytest.raises(UserError, match="expected a module with one function, got 2"):
        glowpy.compile(m, backend)
    values = np.array([5, 6, 7, 8], np.float32)
    there = glowpy.compile(m.function("forward"), backend)({"x": values})["y"]
    back = glowpy.compile(m.function("backward"), backend)({"x": there})["y"]
    assert np.array_equal(back, values)


def test_compiling_leaves_the_module_alone() -> None:
    m = doubling()
    before = print_module(m)
    glowpy.compile(m)
    assert print_module(m) == before
