"""Sessions: shapes that come with the inputs, values that shapes depend on, threads, and who owns what."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy import engine
from glowpy import session as session_module
from glowpy.core.tensor import Array
from glowpy.importer import ValueNeededError
from tests.onnx.comparison import graph_model, info

F32 = np.float32
X = np.arange(6, dtype=F32).reshape(2, 3) - 2


def symbolic() -> onnx.ModelProto:
    """y = relu(x), z = x + x, of n x 3."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Add", ["x", "x"], ["z"]),
    ]
    dims: list[str | int | None] = ["n", 3]
    outputs = [info("y", X, dims), info("z", X, dims)]
    return graph_model(nodes, [info("x", X, dims)], outputs, 13)


def expanding() -> onnx.ModelProto:
    """y = expand(x, shape): an output whose shape is an input."""
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    inputs = [info("x", X[:1, :]), info("shape", np.zeros(2, np.int64))]
    return graph_model(nodes, inputs, [info("y", X, [None, None])], 13)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shapes of the first input of everything that is compiled, and of its first output."""
    shapes: list[str] = []

    def counting(module: glowpy.Module, *args: Any, **kwargs: Any) -> glowpy.CompiledFunction:
        ends = module.placeholders[0].type.shape, module.main.outputs[0].type.shape
        shapes.append(" to ".join("x".join(map(str, shape)) for shape in ends))
        return real(module, *args, **kwargs)

    real = engine.compile
    monkeypatch.setattr(engine, "compile", counting)
    return shapes


def make(model: onnx.ModelProto, **options: Any) -> glowpy.InferenceSession:
    return glowpy.InferenceSession(model, backend="interpreter", **options)


def test_inputs_and_outputs_are_described() -> None:
    session = make(symbolic())
    (argument,) = session.get_inputs()
    assert (argument.name, argument.type, argument.shape) == ("x", "tensor(float)", ["n", 3])
    assert [output.name for output in session.get_outputs()] == ["y", "z"]


def test_run_gives_the_outputs_asked_for() -> None:
    session = make(symbolic())
    y, z = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    np.testing.assert_array_equal(z, X + X)
    results = session.run(["z", "y", "z"], {"x": X})
    assert [np.array_equal(a, b) for a, b in zip(results, [z, y, z], strict=True)] == [True] * 3


def test_run_stores_outputs_where_the_caller_wants_them() -> None:
    memory = np.empty_like(X)
    (z,) = make(symbolic()).run(["z"], {"x": X}, out={"z": memory})
    assert z is memory
    np.testing.assert_array_equal(memory, X + X)


def test_what_is_no_list_of_outputs_and_no_dict_of_inputs() -> None:
    session = make(symbolic())
    with pytest.raises(glowpy.UserError, match="expected a list of outputs, got the text 'y'"):
        session.run("y", {"x": X})
    for feed in (None, [X], X):
        with pytest.raises(glowpy.UserError, match="expected a dict of inputs, got "):
            session.run(None, feed)  # type: ignore[arg-type]


def test_a_range_of_shapes_is_compiled_once(compiled: list[str]) -> None:
    session = make(symbolic())
    assert compiled == []
    for rows in (1, 4, 1, 64, 7, 65):
        x = np.ones((rows, 3), F32)
        assert session.run(["y"], {"x": x})[0].shape == (rows, 3)
    assert compiled == ["1x3 to 1x3", "nx3 to nx3", "nx3 to nx3"]
    assert session.assumptions == {"n": "1..256"}
    assert len(session._specialisations.functions) == 2  # for 1, and 1 to 256


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


def test_least_recently_used_is_dropped(compiled: list[str]) -> None:
    expanded(make(expanding(), limit=2), 1, 2, 1, 3, 1, 2)
    assert compiled == ["1x3 to 1x3", "1x3 to 2x3", "1x3 to 3x3", "1x3 to 2x3"]


def test_one_shape_is_the_least_that_is_kept(compiled: list[str]) -> None:
    expanded(make(expanding(), limit=1), 1, 1, 2, 1)
    assert compiled == ["1x3 to 1x3", "1x3 to 2x3", "1x3 to 1x3"]
    with pytest.raises(glowpy.UserError, match="a limit of at least 1, got 0"):
        make(symbolic(), limit=0)


def test_what_is_dropped_serves_no_call(compiled: list[str]) -> None:
    """Neither the same call as before, nor one that another thread makes meanwhile."""
    session = make(expanding())
    expanded(session, 1, 1)
    session.close()
    expanded(session, 1)
    assert len(compiled) == 2
    build = session._compiled

    def closing(*arguments: Any) -> glowpy.CompiledFunction:
        function = build(*arguments)
        session.close()
        return function

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_compiled", closing)
        expanded(session, 2)
    assert session._specialisations.functions == []
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

    def fail(*_: object) -> glowpy.CompiledFunction:
        attempts.append(threading.get_ident())
        for _waiter in range(3 * (len(attempts) == 1)):
            assert asked.acquire(timeout=60)
        raise glowpy.UserError(f"failure {len(attempts)}")

    monkeypatch.setattr(engine, "compile", fail)
    session._specialisations._entries = Watched(asked.release)
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
    build, shape = session._model.build, np.array([2, 3], np.int64)

    def late(**arguments: Any) -> glowpy.Module:
        assert asked.wait(60)
        return build(**arguments)

    monkeypatch.setattr(session._model, "build", late)
    session._specialisations._entries = Watched(asked.set)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(session.run, None, {"x": X[:1, :], "shape": shape}) for _ in range(2)]
        assert [run.result(60)[0].shape for run in runs] == [(2, 3)] * 2


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_failure_that_does_not_happen_again_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The machine may have been short of memory, or the user impatient."""
    session = make(symbolic())

    def fail(*_: object) -> glowpy.CompiledFunction:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(engine, "compile", fail)
        with pytest.raises(error):
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

    session._specialisations._entries = Watched(asked.set)
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


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_outputs_belong_to_the_caller(backend: str) -> None:
    session = glowpy.InferenceSession(symbolic(), backend=backend)
    y, z = session.run(None, {"x": X})
    kept = [y.copy(), z.copy()]
    again = session.run(None, {"x": X * 7})
    np.testing.assert_array_equal(y, kept[0])
    np.testing.assert_array_equal(z, kept[1])
    assert not any(np.shares_memory(a, b) for a in (y, z) for b in (*again, X))
    y[...] = 99
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], kept[0])


def test_constant_outputs_belong_to_the_caller() -> None:
    weights = np.ones(3, F32)
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    session = make(graph_model(nodes, [], [info("y", weights)], 13, {"w": weights}))
    session.run(None, {})[0][...] = 5
    assert (session.run(None, {})[0] == 1).all()


def test_input_is_an_output() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    session = make(graph_model(nodes, [info("x", X)], [info("x", X), info("y", X)], 13))
    x, y = session.run(None, {"x": X})
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_initializer_that_is_an_input_is_none() -> None:
    """Below IR version 4 initializers were listed as inputs."""
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    weights = np.ones(3, F32)
    inputs = [info("w", weights), info("x", X)]
    session = make(graph_model(nodes, inputs, [info("y", X)], 13, {"w": weights}))
    assert [argument.name for argument in session.get_inputs()] == ["x"]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)


def test_sparse_initializer_and_constant() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [7.0, 8.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Sub", ["x", "c"], ["d"]),
        helper.make_node("Mul", ["d", "w"], ["y"]),
    ]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 13)
    model.graph.sparse_initializer.append(sparse)
    dense = np.array([[0, 7, 0], [0, 0, 8]], F32)
    np.testing.assert_array_equal(make(model).run(None, {"x": X})[0], (X - dense) * dense)


@pytest.mark.parametrize("split", [None, 1, 2, 3, [1, 2], [0, 3]], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_parts_of_a_sequence(split: int | list[int] | None, keepdims: int) -> None:
    """The last of equal parts may be smaller; `keepdims` is about a split into slices, where none is given."""
    stored = {} if split is None else {"split": np.array(split, np.int64)}
    split_node = helper.make_node(
        "SplitToSequence", ["x", *stored], ["parts"], axis=1, keepdims=keepdims
    )
    last = np.array(-1, np.int64)
    nodes = [split_node, helper.make_node("SequenceAt", ["parts", "last"], ["y"])]
    model = graph_model(nodes, [info("x", X)], [info("y", X, None)], 13, {**stored, "last": last})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    (result,) = make(model).run(None, {"x": X})
    np.testing.assert_array_equal(result, np.asarray(expected))


def test_unused_input_is_accepted() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    session = make(graph_model(nodes, [info("u", X), info("x", X)], [info("y", X)], 13))
    assert session.run(None, {"x": X, "u": X})[0].shape == X.shape


# Values.


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
    size = session_module.MAX_VALUE + 1
    data = np.zeros(size, np.int64)
    nodes = [
        helper.make_node("ReduceMax", ["d"], ["m"], keepdims=1),
        helper.make_node("ConstantOfShape", ["m"], ["y"]),
    ]
    for dims in ([size], ["n"]):
        model = graph_model(nodes, [info("d", data, dims)], [info("y", X, [None])], 13)
        with pytest.raises(ValueNeededError):
            make(model).run(None, {"d": data})


def test_caller_may_change_a_value_afterwards() -> None:
    session, shape = make(expanding()), np.array([2, 3], np.int64)
    session.run(None, {"x": X[:1, :], "shape": shape})
    shape[0] = 4
    assert session.run(None, {"x": X[:1, :], "shape": shape})[0].shape == (4, 3)


# Misuse.

MISUSE: list[tuple[dict[str, Array], list[str] | None, str]] = [
    ({}, None, r"missing input 'x' \(tensor\(float\)\)"),
    ({"x": X, "q": X}, None, "expected the inputs 'x', got 'q'"),
    ({"x": X.astype(np.float64)}, None, "'x': expected float32, got float64"),
    ({"x": X[0]}, None, r"expected the shape \[n x 3\], got \[3\]$"),
    ({"x": X}, ["q"], "expected one of the outputs 'y', 'z', got 'q'"),
]


@pytest.mark.parametrize(("feeds", "names", "message"), MISUSE)
def test_misuse(feeds: dict[str, Array], names: list[str] | None, message: str) -> None:
    with pytest.raises(glowpy.UserError, match=message):
        make(symbolic()).run(names, feeds)


def test_unknown_backend() -> None:
    with pytest.raises(glowpy.UserError, match="expected one of the backends"):
        glowpy.InferenceSession(symbolic(), backend="abacus")


def test_backend_may_have_options(tmp_path: Path) -> None:
    backend = glowpy.CpuBackend(glowpy.CpuOptions(debug=str(tmp_path)))
    session = glowpy.InferenceSession(symbolic(), backend=backend)
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], X + X)
    assert list(tmp_path.glob("*.ir"))


# What exporters leave out of outputs.


def untyped(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> g {text}')


def test_type_of_an_output_is_inferred() -> None:
    """Also where it is an input, and where no shape can be inferred."""
    text = "(float[n,3] x, int64[k] s) => (y, z, i, x) <int64[2] w = {2, -1}>"
    model = untyped(text + "{ y = Relu(x) t = Reshape(x, s) i = Cast<to=7>(t) z = Reshape(i, w) }")
    session = make(model)
    types = [(info.type, info.shape) for info in session.get_outputs()]
    assert types[0] == ("tensor(float)", ["n", 3])
    assert [kind for kind, _ in types[1:3]] == ["tensor(int64)"] * 2
    y, z, i, x = session.run(None, {"x": X, "s": np.array([3, 2])})
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    np.testing.assert_array_equal(z, X.astype(np.int64))
    np.testing.assert_array_equal(i, X.astype(np.int64).reshape(3, 2))
    np.testing.assert_array_equal(x, X)


def test_type_of_an_output_is_that_of_an_input() -> None:
    """ONNX infers nothing for GroupNormalization, nor for what comes after it."""
    text = "(float[1,4,2] x) => (y, n) <float[4] s = {1, 1, 1, 1}>"
    body = "{ y = GroupNormalization<num_groups=2>(x, s, s) z = Relu(y) n = Shape(z) }"
    model = untyped(text + body)
    model.opset_import[0].version = 21
    assert [info.type for info in make(model).get_outputs()] == ["tensor(float)", "tensor(int64)"]


def test_types_are_inferred_in_an_order_that_fits() -> None:
    """Which need not be the file's; ONNX infers nothing for operators of onnxruntime's."""
    model = untyped("(float[2,3] x) => (y) { y = Relu(t) t = com.microsoft.Gelu(x) }")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert [info.type for info in make(model).get_outputs()] == ["tensor(float)"]


def test_output_without_an_element_type_or_a_shape() -> None:
    model = untyped("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert make(model).get_outputs()[0].shape is None
    model.graph.output[0].type.tensor_type.elem_type = 0
    (y,) = make(model).run(None, {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_output_of_an_unknown_type_is_refused() -> None:
    """An operator of no known domain says what is missing; the type is not mentioned beside it."""
    text = '<ir_version: 10, opset_import: ["": 17, "c": 1]> g (float[2] x) => (y) { y = c.Foo(x) }'
    with pytest.raises(glowpy.UnsupportedError) as caught:
        make(onnx.parser.parse_model(text))
    assert len(caught.value.diagnostics) == 1
    with pytest.raises(glowpy.UserError, match="g: output 'y' is computed by no node"):
        make(untyped("(float[2] x) => (y) { z = Relu(x) }"))
    text = "(float[2] x) => (y) <int64 i = {0}>"
    body = "{ g = com.microsoft.Gelu(x) s = SequenceConstruct(g) y = SequenceAt(s, i) }"
    model = untyped(text + body)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(glowpy.UserError, match="g: output 'y' has no type, and ONNX infers none"):
        make(model)


def test_output_listed_twice() -> None:
    model = untyped("(float[2,3] x) => (float[2,3] y, float[2,3] x, float[2,3] y) { y = Relu(x) }")
    session = make(model)
    assert [info.name for info in session.get_outputs()] == ["y", "x", "y"]
    for y, x, again in (session.run(None, {"x": X}), session.run(["y", "x", "y"], {"x": X})):
        np.testing.assert_array_equal(y, np.maximum(X, 0))
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(again, y)


def test_input_listed_twice() -> None:
    model = untyped("(float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(glowpy.UserError, match="g: 'x' is declared twice"):
        make(model)
