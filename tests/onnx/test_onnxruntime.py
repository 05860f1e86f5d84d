"""`glowpy.onnxruntime` in the place of onnxruntime: the same script, and what is glowpy's own."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import glowpy
import glowpy.onnxruntime as ort
from glowpy.onnxruntime import global_threads, logs
from glowpy.onnxruntime.capi import onnxruntime_pybind11_state as state
from tests.onnx.onnxruntime_script import FEATURES, SCALED, SUM, C, Script, X
from tests.onnx.session_models import programs_of

ROOT = Path(__file__).resolve().parents[2]
MODEL = SUM.SerializeToString()
FEED = {"x": X, "c": C}


def same(first: object, second: object) -> None:
    """Compares what a feature gives, arrays with their dtypes."""
    assert isinstance(first, np.ndarray) == isinstance(second, np.ndarray)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif isinstance(first, dict) and isinstance(second, dict):
        assert list(first) == list(second)
        same(list(first.values()), list(second.values()))
    else:
        assert first == second


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> list[Script]:
    folder = tmp_path_factory.mktemp("script")
    return [Script(m, folder, m.InferenceSession(MODEL)) for m in (onnxruntime, ort)]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log of a process in which nothing was said before."""
    before, logs._said = logs._said, set()
    level = logging.getLogger("glowpy.onnxruntime").level
    yield caplog
    logs._said = before
    global_threads._asked.clear()
    logging.getLogger("glowpy.onnxruntime").setLevel(level)


@pytest.mark.parametrize("name", FEATURES)
def test_script(name: str, scripts: list[Script]) -> None:
    theirs, ours = (FEATURES[name](script) for script in scripts)
    same(theirs, ours)


def test_script_uses_thirty_features() -> None:
    assert len(FEATURES) >= 30


def names_of(owner: object) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize(
    "name",
    [
        "ExecutionMode",
        "GraphOptimizationLevel",
        "IOBinding",
        "InferenceSession",
        "ModelMetadata",
        "NodeArg",
        "OrtDevice",
        "OrtValue",
        "RunOptions",
        "SessionOptions",
    ],
)
def test_classes_have_the_attributes_of_onnxruntimes(name: str) -> None:
    """Those that another version of onnxruntime adds or drops are in the list as well."""
    fields = getattr(getattr(ort, name), "__dataclass_fields__", {})
    missing = names_of(getattr(onnxruntime, name)) - names_of(getattr(ort, name)) - set(fields)
    if name in ("ExecutionMode", "GraphOptimizationLevel"):
        missing -= {"name", "value"}  # attributes of the members
    assert not missing


def test_a_library_that_imports_onnxruntime_gets_glowpy() -> None:
    """A process of its own, since this one has onnxruntime itself."""
    program = """if True:
        import sys
        import glowpy.onnxruntime
        assert "onnxruntime" not in sys.modules
        sys.modules["onnxruntime"] = glowpy.onnxruntime
        import onnxruntime
        from onnxruntime import InferenceSession, SessionOptions
        from onnxruntime.capi.onnxruntime_pybind11_state import NoSuchFile
        try:
            InferenceSession("none.onnx", SessionOptions())
        except NoSuchFile as error:
            print(error)
        """
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("cannot read 'none.onnx': there is no such file\n", "")


def test_session_is_freed_without_a_collection() -> None:
    session = ort.InferenceSession(MODEL)
    session.run(None, FEED)
    session.io_binding().bind_cpu_input("x", X)
    functions = programs_of(session._session).specialisations.functions
    dead: list[weakref.ref[Any]] = [weakref.ref(session), weakref.ref(functions[0])]
    gc.disable()
    try:
        del session, functions
        assert [ref() for ref in dead] == [None, None]
    finally:
        gc.enable()


# Options.


def ignoring(**values: Any) -> ort.SessionOptions:
    options = ort.SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("graph_optimization_level", ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
        ("execution_mode", ort.ExecutionMode.ORT_PARALLEL),
        ("enable_mem_pattern", False),
        ("inter_op_num_threads", 2),
    ],
)
def test_what_has_no_effect_is_said_once(
    name: str, value: object, said: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        ort.InferenceSession(MODEL, ignoring(**{name: value}))
    (record,) = said.records
    assert record.getMessage().startswith(f"SessionOptions.{name} = {value} has no effect: ")


def test_entries_without_effect_are_said(said: pytest.LogCaptureFixture) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = ort.InferenceSession(MODEL, options)
    run_options = ort.RunOptions()
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session.run(None, FEED, run_options)
    assert said.messages == [
        "the session config entry 'session.set_denormal_as_zero' has no effect",
        "the run config entry 'memory.enable_memory_arena_shrinkage' has no effect",
    ]


def test_severity_silences(said: pytest.LogCaptureFixture) -> None:
    options = {"enable_mem_pattern": False}
    ort.InferenceSession(MODEL, ignoring(log_severity_level=3, **options))
    ort.set_default_logger_severity(3)
    ort.InferenceSession(MODEL, ignoring(**options))
    ort.set_seed(3)
    assert said.messages == []
    ort.set_default_logger_severity(2)
    ort.InferenceSession(MODEL, ignoring(**options))
    ort.set_global_thread_pool_sizes(2, 2)
    assert len(said.messages) == 2


def test_threads_are_those_of_the_options() -> None:
    for count in (0, 1, 2):
        session = ort.InferenceSession(MODEL, ignoring(intra_op_num_threads=count))
        backend = session._session._compiling.backend
        assert isinstance(backend, glowpy.CpuBackend)
        assert backend.options.threads == count
    for count, text in ((-3, "-3"), (5000, "5,000")):
        with pytest.raises(
            state.InvalidArgument, match=f"intra_op_num_threads of 0 to 1,024, got {text}"
        ):
            ort.InferenceSession(MODEL, ignoring(intra_op_num_threads=count))


def test_options_of_onnxruntime_are_none_of_glowpys() -> None:
    with pytest.raises(TypeError, match="expected SessionOptions, got SessionOptions"):
        ort.InferenceSession(MODEL, onnxruntime.SessionOptions())


def test_sessions_and_options_say_what_they_are() -> None:
    session = ort.InferenceSession(MODEL)
    ports = "x f32[N x 3], c f32[3] -> y f32[N x 3], z f32[N x 3]"
    assert repr(session) == f"<InferenceSession of model on cpu: {ports}>"
    assert "<td>x</td>" in session._repr_html_()
    assert repr(ort.SessionOptions()) == "<SessionOptions>"
    options = ignoring(intra_op_num_threads=2, logid="a")
    options.add_session_config_entry("key", "value")
    assert repr(options) == "<SessionOptions intra_op_num_threads=2, logid='a', 'key': 'value'>"
    run = ort.RunOptions()
    run.terminate = True
    assert repr(run) == "<RunOptions terminate=True>"


def test_what_glowpy_does_not_have() -> None:
    options = ort.SessionOptions()
    with pytest.raises(state.NotImplemented, match=r"operators from 'ops\.so'"):
        options.register_custom_ops_library("ops.so")
    with pytest.raises(state.NotImplemented, match="no other devices"):
        options.add_provider_for_devices([], {})
    with pytest.raises(state.NotImplemented, match="model packages are not supported"):
        ort.ModelPackage.open("a.package")
    options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(state.NotImplemented, match="ORT format"):
        ort.InferenceSession(MODEL, options)


def test_canceled_load() -> None:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(state.ModelLoadCanceled):
        ort.InferenceSession(MODEL, options)


def test_dimensions_by_denotation() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(SUM)
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 4)
    session = ort.InferenceSession(model.SerializeToString(), options)
    assert session.get_inputs()[0].shape == [4, 3]


def test_initializers_of_the_caller_have_names_and_types() -> None:
    options = ort.SessionOptions()
    options.add_external_initializers(["q"], [ort.OrtValue.ortvalue_from_numpy(C)])
    with pytest.raises(state.InvalidArgument, match="no initializer 'q'"):
        ort.InferenceSession(SCALED.SerializeToString(), options)
    with pytest.raises(RuntimeError, match="as many names as values"):
        options.add_external_initializers(["a", "b"], [])
    with pytest.raises(TypeError, match="expected an OrtValue"):
        options.add_initializer("d", C)  # type: ignore[arg-type]


# Providers.


def test_unknown_provider() -> None:
    with pytest.warns(
        UserWarning, match="Provider Type: Abacus; .*glowpy runs on CPUExecutionProvider"
    ):
        session = ort.InferenceSession(MODEL, providers=["Abacus"])
    with pytest.raises(RuntimeError, match="Unknown Provider Type: Abacus"):
        ort.InferenceSession(MODEL, providers=["Abacus"], enable_fallback=0)
    with pytest.raises(RuntimeError, match="Unknown Provider Type: Abacus"):
        session.set_providers(["Abacus"])


def test_warning_is_about_the_callers_line() -> None:
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not available") as caught:
        ort.InferenceSession(MODEL, providers=[("CUDAExecutionProvider", {"device_id": 0})])
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="a sequence of providers") as caught:
        ort.InferenceSession(MODEL, providers="CPUExecutionProvider")
    assert caught[0].filename == __file__


# Errors.


def test_message_and_cause_are_glowpys() -> None:
    session = ort.InferenceSession(MODEL)
    with pytest.raises(state.InvalidArgument, match="'x': expected float32, got float64") as caught:
        session.run(None, {**FEED, "x": X.astype(np.float64)})
    assert isinstance(caught.value.__cause__, glowpy.UserError)


def broken(**fields: Any) -> bytes:
    model = onnx.ModelProto()
    model.CopyFrom(SUM)
    for name, value in fields.items():
        setattr(model.graph.node[0], name, value)
    return bytes(model.SerializeToString())


def test_models_that_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(state.InvalidGraph, match="No Op registered for Nonesuch"):
        ort.InferenceSession(broken(op_type="Nonesuch"))
    model = onnx.ModelProto()
    model.CopyFrom(SUM)
    model.graph.node[0].input[0] = "q"
    with pytest.raises(state.InvalidGraph, match="'q' is computed by no node"):
        ort.InferenceSession(model.SerializeToString())
    with pytest.raises(state.InvalidProtobuf, match="it is no file"):
        ort.InferenceSession(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise glowpy.InternalError("bug")

    monkeypatch.setattr("glowpy.engine.compile_artifact", fail)
    with pytest.raises(state.RuntimeException, match="bug"):
        ort.InferenceSession(broken()).run(None, {**FEED, "x": np.ones((97, 3), np.float32)})


# Initializers, values, bindings.


def test_each_choice_of_overridden_initializers_is_compiled_once() -> None:
    session = ort.InferenceSession(SCALED.SerializeToString())
    for _ in range(3):
        (y,) = session.run(None, {"x": X, "c": C.tolist()})
        np.testing.assert_array_equal(y, X * C + 1)
    assert len(session._sessions) == 2


def test_bfloat16_values_are_arrays() -> None:
    value = ort.OrtValue.ortvalue_from_shape_and_type([2], onnx.TensorProto.BFLOAT16)
    assert value.numpy().dtype == ml_dtypes.bfloat16


def test_copied_values() -> None:
    source, target = (ort.OrtValue.ortvalue_from_numpy(a) for a in (X, np.zeros_like(X)))
    ort.copy_tensors([source], [target])
    np.testing.assert_array_equal(target.numpy(), X)
    with pytest.raises(RuntimeError, match="as many sources as targets"):
        ort.copy_tensors([source], [])


def test_vectors_of_values() -> None:
    session = ort.InferenceSession(MODEL)
    fetches = state.OrtValueVector()
    fetches.reserve(2)
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in FEED.values()]
    session.run_with_ortvaluevector(None, list(FEED), values, ["z", "y"], fetches, [])
    np.testing.assert_array_equal(fetches[1].numpy(), X + C)
    fetches.push_back(ort.OrtValue.ortvalue_from_numpy(X > 0))
    assert [fetches.element_type_at(i) for i in range(3)] == [1, 1, 9]
    assert fetches.bool_tensor_indices() == [2]


def test_output_may_be_bound_to_an_inputs_memory() -> None:
    session, memory = ort.InferenceSession(MODEL), X.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("x", memory)
    binding.bind_cpu_input("c", C)
    binding.bind_output("y", "cpu", 0, np.float32, X.shape, memory.ctypes.data)
    session.run_with_iobinding(binding)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory, X + C + C)
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []


# Profiles and time.


def profiling(folder: Path) -> ort.SessionOptions:
    return ignoring(enable_profiling=True, profile_file_prefix=str(folder / "trace"))


def test_profile_has_the_times_of_instructions(tmp_path: Path) -> None:
    session = ort.InferenceSession(MODEL, profiling(tmp_path))
    x = np.ones((20_000, 3), np.float32)
    session.run(["z"], {**FEED, "x": x})
    start = time.perf_counter()
    session.run(["z"], {**FEED, "x": x})
    elapsed = (time.perf_counter() - start) * 1e6
    assert 0 < session.get_profiling_start_time_ns() < time.monotonic_ns()
    events = json.loads(Path(session.end_profiling()).read_text())
    runs = [event for event in events if event["name"] == "model_run"]
    nodes = [event for event in events if event["cat"] == "Node" and event["ts"] >= runs[1]["ts"]]
    assert 0 < sum(event["dur"] for event in nodes) <= runs[1]["dur"] <= elapsed
    for event in nodes:
        assert event["ts"] + event["dur"] <= runs[1]["ts"] + runs[1]["dur"] + 2
        assert event["args"]["output_size"] == str(x.nbytes)


def test_profile_of_a_session_that_is_dropped(tmp_path: Path) -> None:
    session = ort.InferenceSession(MODEL, profiling(tmp_path))
    session.run(None, FEED)
    del session
    gc.collect()
    (path,) = tmp_path.glob("trace_*.json")
    assert "model_run" in path.read_text()


def test_profile_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(state.Fail, match="there is no such folder"):
        ort.InferenceSession(MODEL, profiling(tmp_path / "none"))


def test_call_costs_at_most_15_microseconds() -> None:
    """The best of many short batches, since the machine may have other things to do; it is about 6."""
    session, best = ort.InferenceSession(MODEL), np.inf
    session.run(None, FEED)
    deadline = time.monotonic() + 20
    while best > 15e-6 and time.monotonic() < deadline:
        start = time.perf_counter()
        for _ in range(100):
            session.run(None, FEED)
        best = min(best, (time.perf_counter() - start) / 100)
    assert best <= 15e-6
