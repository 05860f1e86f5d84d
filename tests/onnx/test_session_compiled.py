"""What a session compiles: one code for many shapes, who waits for it, what is kept, and what is compiled anew."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy import engine
from glowpy.importer.needs import ValueNeededError
from glowpy.runtime.artifact import Artifact
from glowpy.session import programs
from glowpy.support.errors import ResourceError
from tests.onnx.comparison import graph_model, info
from tests.onnx.session_models import F32, X, expanding, make, programs_of, symbolic


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shapes of the first input of everything that is compiled, and of its first output."""
    shapes: list[str] = []

    def counting(module: glowpy.Module, *args: Any, **kwargs: Any) -> Artifact:
        ends = module.placeholders[0].type.shape, module.main.outputs[0].type.shape
        shapes.append(" to ".join("x".join(map(str, shape)) for shape in ends))
        return real(module, *args, **kwargs)

    real = engine.compile_artifact
    monkeypatch.setattr(engine, "compile_artifact", counting)
    return shapes


def test_a_range_of_shapes_is_compiled_once(compiled: list[str]) -> None:
    session = make(symbolic())
    assert compiled == []
    for rows in (1, 4, 1, 64, 7, 65):
        x = np.ones((rows, 3), F32)
        assert session.run(["y"], {"x": x})[0].shape == (rows, 3)
    assert compiled == ["1x3 to 1x3", "nx3 to nx3", "nx3 to nx3"]
    assert session.assumptions == {"n": "1..256"}
    assert len(programs_of(session).specialisations.functions) == 2  # for 1, and 1 to 256


def test_words_that_follow_a_prompt_have_code_of_their_own(compiled: list[str]) -> None:
    """Two networks serve any prompts and 100 words after each."""
    dims: list[str | int | None] = ["past", 3]
    inputs = [info("past", X, dims), info("x", X, ["seq", 3])]
    nodes = [helper.make_node("Concat", ["past", "x"], ["y"], axis=0)]
    session = make(graph_model(nodes, inputs, [info("y", X, ["all", 3])], 13))
    for length in (37, 5, 60):
        y = np.zeros((0, 3), F32)
        for rows in (length, *[1] * 100):
            (y,) = session.run(None, {"past": y, "x": np.full((rows, 3), len(y), F32)})
        assert y.shape == (length + 100, 3)
    assert compiled == ["0x3 to seqx3", "pastx3 to past+1x3"]


def test_rows_that_are_repeated(compiled: list[str]) -> None:
    """Where two inputs had as many rows at first, which was no rule."""
    inputs = [info("x", X, ["n", 3]), info("y", X, ["m", 3])]
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    session = make(graph_model(nodes, inputs, [info("z", X, [None, 3])], 13))
    for rows in ((2, 2), (5, 5), (5, 1), (1, 4), (9, 1), (1, 1)):
        x, y = (np.full((count, 3), count, F32) for count in rows)
        (z,) = session.run(None, {"x": x, "y": y})
        np.testing.assert_array_equal(z, x + y)
    for _ in range(2):
        with pytest.raises(glowpy.UserError, match=r"broadcast, got \[2, 3\] and \[4, 3\]"):
            session.run(None, {"x": X, "y": np.zeros((4, 3), F32)})
    session.run(None, {"x": X, "y": X})
    assert compiled == ["nx3 to nx3", "nx3 to nx3", "1x3 to mx3"]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_inputs_that_contradict_each_other(backend: str) -> None:
    inputs = [info("x", X, ["n", 3]), info("y", X, ["n", 3])]
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    model = graph_model(nodes, inputs, [info("z", X, ["n", 3])], 13)
    session = glowpy.InferenceSession(model, backend=backend)
    message = "input 'y': symbolic dimension 'n' is 2 elsewhere, got 4"
    for _ in range(2):  # before there is any code, and after
        with pytest.raises(glowpy.UserError, match=message):
            session.run(None, {"x": X, "y": np.zeros((4, 3), F32)})
        session.run(None, {"x": X, "y": X})
    for rows in (0, 1, 7):
        ones = np.ones((rows, 3), F32)
        np.testing.assert_array_equal(session.run(None, {"x": ones, "y": ones})[0], ones + ones)


def test_the_only_code_there_is_serves_what_it_was_made_for(compiled: list[str]) -> None:
    """It is found without looking at others, and not where another kind of shape needs code of its own."""
    inputs = [info("x", X, ["batch", "n"]), info("y", X, ["batch", "n"])]
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    session = make(graph_model(nodes, inputs, [info("z", X, ["batch", "n"])], 13))
    for batch, width in ((2, 5), (3, 7), (1, 5), (2, 4), (1, 6), (2, 500), (3, 9)):
        x = np.ones((batch, width), F32)
        assert (session.run(None, {"x": x, "y": x})[0] == np.full((batch, width), 2, F32)).all()
        with pytest.raises(glowpy.UserError):
            session.run(None, {"x": x, "y": np.ones((batch, width + 1), F32)})
    assert len(compiled) <= 4


def test_nothing_is_learned_from_a_call_that_fails(compiled: list[str]) -> None:
    """An image smaller than a window made its height constant, and each later one was compiled for by itself."""
    dims: list[str | int | None] = [1, 1, "h", 3]
    inputs = [info("x", X, dims), info("w", np.zeros((1, 1, 5, 1), F32))]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    session = make(graph_model(nodes, inputs, [info("y", X, [1, 1, None, 3])], 13))
    for height in (20, 3, 1, 6, 100, 5):
        feeds = {"x": np.ones((1, 1, height, 3), F32), "w": np.ones((1, 1, 5, 1), F32)}
        if height >= 5:
            assert (session.run(None, feeds)[0] == np.full((1, 1, height - 4, 3), 5)).all()
        else:
            with pytest.raises(glowpy.UserError, match=f"larger than the padded input of {height}"):
                session.run(None, feeds)
        assert session.assumptions == {"h": "5..512"}
    assert len(compiled) == 1


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_quantized_products_are_compiled_for_a_range(compiled: list[str], backend: str) -> None:
    weights = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, ["n", 4])
    model = graph_model(nodes, [info("x", X, ["n", 3])], [output], 13, {"w": weights})
    options = glowpy.CompileOptions(cache=False)
    session = glowpy.InferenceSession(model, backend=backend, options=options)
    reference = ReferenceEvaluator(model)
    for rows in (2, 5, 17, 32):
        x = np.linspace(-1, 2, 3 * rows, dtype=F32).reshape(rows, 3)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.asarray(expected))
    assert compiled == ["nx3 to nx4"]


def test_static_model_is_compiled_at_once(compiled: list[str]) -> None:
    model = symbolic()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    make(model)
    assert compiled == ["2x3 to 2x3"]


def expanded(session: glowpy.InferenceSession, *rows: int) -> None:
    """Runs what is compiled for each number of rows by itself."""
    for count in rows:
        session.run(None, {"x": X[:1, :], "shape": np.array([count, 3])})


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_least_recently_used_is_dropped(compiled: list[str]) -> None:
    expanded(make(expanding(), limit=2), 1, 2, 1, 3, 1, 2)
    assert compiled == ["1x3 to 1x3", "1x3 to 2x3", "1x3 to 3x3", "1x3 to 2x3"]


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_one_shape_is_the_least_that_is_kept(compiled: list[str]) -> None:
    expanded(make(expanding(), limit=1), 1, 1, 2, 1)
    assert compiled == ["1x3 to 1x3", "1x3 to 2x3", "1x3 to 1x3"]
    with pytest.raises(glowpy.UserError, match="a limit of at least 1, got 0"):
        make(symbolic(), limit=0)


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_what_is_dropped_serves_no_call(compiled: list[str]) -> None:
    """Neither the same call as before, nor one that another thread makes meanwhile."""
    session = make(expanding())
    expanded(session, 1, 1)
    session.close()
    expanded(session, 1)
    assert len(compiled) == 2
    build = programs_of(session)._compiled

    def closing(*arguments: Any) -> glowpy.CompiledFunction:
        function = build(*arguments)
        session.close()
        return function

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs_of(session), "_compiled", closing)
        expanded(session, 2)
    assert programs_of(session).specialisations.functions == []
    expanded(session, 2)
    assert len(compiled) == 4


def test_threads_that_want_the_same_compile_it_once(compiled: list[str]) -> None:
    session, barrier = make(symbolic()), threading.Barrier(8)

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).standard_normal((5, 3)).astype(F32)
        barrier.wait()
        for _ in range(20):
            y, z = session.run(None, {"x": x})
            if not (np.array_equal(y, np.maximum(x, 0)) and np.array_equal(z, x + x)):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert compiled == ["nx3 to nx3"]


def test_failure_to_compile_is_not_kept(compiled: list[str]) -> None:
    session = make(symbolic())
    for _ in range(2):
        with pytest.raises(glowpy.UserError, match="expected the shape"):
            session.run(None, {"x": np.ones((1, 4), F32)})
    assert session.run(None, {"x": X})[0].shape == (2, 3)
    assert compiled == ["nx3 to nx3"]


class Watched(OrderedDict[Any, Any]):
    """A session's cache, which tells when a thread sees the entry of another."""

    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self._tell = tell

    def get(self, key: object, default: object = None) -> Any:
        entry = super().get(key, default)
        if entry is not None:
            self._tell()
        return entry


def test_threads_that_wait_for_what_fails_get_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them compiles it again; who asks later does."""
    session, asked = make(symbolic()), threading.Semaphore(0)
    attempts = []

    def fail(*_: object, **_options: object) -> Artifact:
        attempts.append(threading.get_ident())
        for _waiter in range(3 * (len(attempts) == 1)):
            assert asked.acquire(timeout=60)
        raise glowpy.UserError(f"failure {len(attempts)}")

    monkeypatch.setattr(engine, "compile_artifact", fail)
    programs_of(session).specialisations._entries = Watched(asked.release)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(session.run, None, {"x": X}) for _ in range(4)]
        errors = [str(run.exception(60)) for run in runs]
    assert errors == ["failure 1"] * 4
    assert len(attempts) == 1
    with pytest.raises(glowpy.UserError, match="failure 2"):
        session.run(None, {"x": X})


def test_threads_that_need_the_same_values_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would hear from the other that the values were known, with which neither had tried."""
    model = expanding()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session, asked = make(model), threading.Event()
    build, shape = programs_of(session)._model.build, np.array([2, 3], np.int64)

    def late(**arguments: Any) -> glowpy.Module:
        assert asked.wait(60)
        return build(**arguments)

    monkeypatch.setattr(programs_of(session)._model, "build", late)
    programs_of(session).specialisations._entries = Watched(asked.set)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(session.run, None, {"x": X[:1, :], "shape": shape}) for _ in range(2)]
        assert [run.result(60)[0].shape for run in runs] == [(2, 3)] * 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [(MemoryError, ResourceError), (KeyboardInterrupt, KeyboardInterrupt)],
)
def test_failure_that_does_not_happen_again_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException], expected: type[BaseException]
) -> None:
    """The machine may have been short of memory, or the user impatient."""
    session = make(symbolic())

    def fail(*_: object, **_options: object) -> Artifact:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(engine, "compile_artifact", fail)
        with pytest.raises(expected):
            session.run(None, {"x": X})
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], np.maximum(X, 0))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), glowpy.UserError("stop")])
def test_callback_that_stops_one_thread_stops_no_other(error: BaseException) -> None:
    session, begun, asked = make(symbolic()), threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        begun.set()
        assert asked.wait(60)
        raise error

    def first() -> None:
        with glowpy.reporting(stop):
            session.run(None, {"x": X})

    programs_of(session).specialisations._entries = Watched(asked.set)
    with ThreadPoolExecutor(2) as pool:
        stopped = pool.submit(first)
        assert begun.wait(60)
        other = pool.submit(session.run, ["y"], {"x": X})
        assert stopped.exception(60) is error
        np.testing.assert_array_equal(other.result(60)[0], np.maximum(X, 0))


def test_callback_that_runs_the_session_is_an_error() -> None:
    """It would wait for itself."""
    session = make(symbolic())

    def run(*_: object) -> None:
        session.run(None, {"x": X})

    with (
        glowpy.reporting(run),
        pytest.raises(glowpy.UserError, match="callback that does not run the session"),
    ):
        session.run(None, {"x": X})
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], np.maximum(X, 0))


# Values.


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_values_that_shapes_depend_on(compiled: list[str]) -> None:
    session, x = make(expanding()), X[:1, :]
    for rows in (2, 5, 2):
        (y,) = session.run(None, {"x": x, "shape": np.array([rows, 3], np.int64)})
        np.testing.assert_array_equal(y, np.broadcast_to(x, (rows, 3)))
    assert len(compiled) == 2


def test_load_names_the_inputs_whose_values_it_needs() -> None:
    with pytest.raises(ValueNeededError, match="'shape' must be known while compiling") as caught:
        glowpy.load(expanding())
    assert caught.value.inputs == ("shape",)
    module = glowpy.load(expanding(), values={"shape": np.array([4, 3], np.int64)})
    assert module.main.outputs[0].type.shape == (4, 3)
    assert [p.original for p in module.placeholders] == ["x", "shape", "y"]


def test_value_of_another_element_type_is_refused() -> None:
    with pytest.raises(glowpy.UserError, match="value of 'shape': expected i64"):
        glowpy.load(expanding(), values={"shape": np.array([4, 3], np.int32)})


def test_large_values_are_refused() -> None:
    """An input that is data cannot be compiled for each of its values."""
    size = programs.MAX_VALUE + 1
    data = np.zeros(size, np.int64)
    nodes = [
        helper.make_node("ReduceMax", ["d"], ["m"], keepdims=1),
        helper.make_node("Unsqueeze", ["d", "m"], ["y"]),
    ]
    for dims in ([size], ["n"]):
        model = graph_model(nodes, [info("d", data, dims)], [info("y", data, [None, None])], 13)
        with pytest.raises(ValueNeededError):
            make(model).run(None, {"d": data})


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_caller_may_change_a_value_afterwards() -> None:
    session, shape = make(expanding()), np.array([2, 3], np.int64)
    session.run(None, {"x": X[:1, :], "shape": shape})
    shape[0] = 4
    assert session.run(None, {"x": X[:1, :], "shape": shape})[0].shape == (4, 3)
