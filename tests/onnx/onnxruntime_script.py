"""A script written for onnxruntime: each feature is a function of the module, `ort`, which gives plain values."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser

F32 = np.float32
X = np.arange(6, dtype=F32).reshape(2, 3) - 2
C = np.array([1, -1, 0.5], F32)

SUM = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17], producer_name: "script", domain: "test", model_version: 3, doc_string: "a sum">
sum_and_relu (float[N, 3] x, float[3] c) => (float[N, 3] y, float[N, 3] z) { y = Add(x, c)  z = Relu(y) }
""")
entry = SUM.metadata_props.add()
entry.key, entry.value = "author", "nobody"

SCALED = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]>
scaled (float[N, 3] x, float[3] c = {1, 2, 3}) => (float[N, 3] y) <float[3] d = {1, 1, 1}>
{ s = Mul(x, c)  y = Add(s, d) }
""")

KINDS = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]>
kinds (float16[2] h, bool[2] b, int64 i) => (float16[2] r, bool[2] n, int64 j)
{ r = Relu(h)  n = Not(b)  j = Add(i, i) }
""")


@dataclass(frozen=True)
class Script:
    """What the features use."""

    ort: Any
    folder: Path
    session: Any

    @property
    def feed(self) -> dict[str, Any]:
        return {"x": X.copy(), "c": C.copy()}

    def value(self, array: Any) -> Any:
        return self.ort.OrtValue.ortvalue_from_numpy(array)


Feature = Callable[[Script], object]
FEATURES: dict[str, Feature] = {}


def feature(function: Feature) -> Feature:
    FEATURES[function.__name__] = function
    return function


def raised(function: Callable[..., object], *args: object) -> str:
    """The name of what a call raises."""
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 -- which one is the question
        return type(error).__name__
    return "nothing"


# What a session knows.


@feature
def inputs_and_outputs(s: Script) -> object:
    return [(a.name, a.type, a.shape) for a in (*s.session.get_inputs(), *s.session.get_outputs())]


@feature
def model_metadata(s: Script) -> object:
    meta = s.session.get_modelmeta()
    names = ("producer_name", "graph_name", "domain", "description", "graph_description", "version")
    return [getattr(meta, name) for name in names], meta.custom_metadata_map


@feature
def providers(s: Script) -> object:
    pairs = [("CPUExecutionProvider", {"use_arena": "1"})]
    session = s.ort.InferenceSession(SUM.SerializeToString(), providers=pairs)
    options = s.ort.InferenceSession(
        SUM.SerializeToString(), providers=["CPUExecutionProvider"], provider_options=[{}]
    ).get_provider_options()
    return (
        session.get_providers(),
        options,
        "CPUExecutionProvider" in s.ort.get_available_providers(),
    )


@feature
def provider_that_is_not_there(s: Script) -> object:
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = s.ort.InferenceSession(SUM.SerializeToString(), providers=names)
    return [item.category.__name__ for item in caught], session.get_providers(), s.ort.get_device()


@feature
def providers_that_change(s: Script) -> object:
    session = s.ort.InferenceSession(SUM.SerializeToString())
    session.set_providers(["CPUExecutionProvider"])
    session.disable_fallback()
    session.enable_fallback()
    return session.get_providers(), session.run(None, s.feed)


# Runs.


@feature
def all_outputs(s: Script) -> object:
    return s.session.run(None, s.feed), s.session.run([], s.feed)


@feature
def chosen_outputs(s: Script) -> object:
    return s.session.run(["z"], s.feed), s.session.run(("z", "y"), s.feed)


@feature
def any_batch(s: Script) -> object:
    sizes = [1, 4, 0, 1]
    return [s.session.run(["z"], {"x": np.ones((n, 3), F32), "c": C}) for n in sizes]


@feature
def lists(s: Script) -> object:
    return s.session.run(None, {"x": [[1, 2, 3.5]], "c": C.tolist()})


@feature
def strided_arrays(s: Script) -> object:
    return s.session.run(None, {"x": np.asfortranarray(X), "c": np.repeat(C, 2)[::2]})


@feature
def element_kinds(s: Script) -> object:
    session = s.ort.InferenceSession(KINDS.SerializeToString())
    feed = {"h": np.array([-1, 2], np.float16), "b": np.array([True, False]), "i": np.array(3)}
    return session.run(None, feed), [a.type for a in session.get_inputs()]


@feature
def whose_memory(s: Script) -> object:
    feed = s.feed
    (first,) = s.session.run(["y"], feed)
    (second,) = s.session.run(["y"], {**feed, "x": X * 2})
    first[...] = 7
    return np.shares_memory(first, second), feed, s.session.run(["y"], feed)


@feature
def run_options(s: Script) -> object:
    options = s.ort.RunOptions()
    options.logid = "here"
    options.log_severity_level = 4
    options.add_run_config_entry("key", "value")
    missing = raised(lambda: options.get_run_config_entry("other"))
    return s.session.run(None, s.feed, options), options.get_run_config_entry("key"), missing


@feature
def terminated_run(s: Script) -> object:
    options = s.ort.RunOptions()
    options.terminate = True
    return raised(lambda: s.session.run(None, s.feed, run_options=options))


@feature
def threads(s: Script) -> object:
    feeds = [{"x": X * n, "c": C} for n in range(16)]
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda feed: s.session.run(None, feed), feeds))


@feature
def run_async(s: Script) -> object:
    calls, done = [], threading.Event()

    def callback(results: Any, user_data: Any, error: str) -> None:
        calls.append((results, user_data, bool(error)))
        done.set()

    for feed in (s.feed, {**s.feed, "x": X[0]}):
        done.clear()
        s.session.run_async(["z"], feed, callback, "mine")
        assert done.wait(30)
    return calls


# What is wrong.


@feature
def wrong_feeds(s: Script) -> object:
    feeds = {
        "missing": {"x": X},
        "unknown": {**s.feed, "q": X},
        "kind": {**s.feed, "x": X.astype(np.float64)},
        "rank": {**s.feed, "x": X[0]},
        "size": {**s.feed, "c": C[:2]},
        "ragged": {**s.feed, "x": [[1, 2], [3]]},
        "tuple": {**s.feed, "c": (1, 2, 3)},
        "number": {**s.feed, "c": 1.0},
        "no feed": [X, C],
        "none": None,
    }
    return {name: raised(s.session.run, None, feed) for name, feed in feeds.items()}


@feature
def wrong_outputs(s: Script) -> object:
    return raised(lambda: s.session.run(["q"], s.feed)), raised(lambda: s.session.run("z", s.feed))


@feature
def wrong_models(s: Script) -> object:
    (s.folder / "bad.onnx").write_bytes(b"no model at all" * 9)
    models = [str(s.folder / "none.onnx"), str(s.folder / "bad.onnx"), b"abc", 3, SUM]
    return [raised(s.ort.InferenceSession, model) for model in models]


@feature
def exceptions_of_the_extension_module(s: Script) -> object:
    state = import_module(f"{s.ort.__name__}.capi.onnxruntime_pybind11_state")
    names = ["EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf"]
    names += ["ModelLoaded", "NoModel", "NoSuchFile", "NotImplemented", "RuntimeException"]
    try:
        s.session.run(["q"], s.feed)
    except state.InvalidArgument:
        return [getattr(state, name).__mro__[1] for name in names]
    return None


# How models are loaded.


@feature
def paths(s: Script) -> object:
    path = s.folder / "sum.onnx"
    path.write_bytes(SUM.SerializeToString())
    return [s.ort.InferenceSession(p).run(None, s.feed) for p in (path, str(path))]


@feature
def options_by_default(s: Script) -> object:
    options = s.ort.SessionOptions()
    names = [name for name in dir(options) if not name.startswith("_")]
    values = {name: getattr(options, name) for name in names}
    plain = {
        name: v for name, v in values.items() if isinstance(v, int | str) or hasattr(v, "name")
    }
    return {name: str(value) for name, value in plain.items()}


@feature
def options_of_a_wrong_type(s: Script) -> object:
    options = s.ort.SessionOptions()
    pairs = [
        ("intra_op_num_threads", "a"),
        ("graph_optimization_level", 99),
        ("logid", 3),
        ("foo", 1),
    ]
    return [raised(setattr, options, *pair) for pair in pairs]


@feature
def options_are_copied(s: Script) -> object:
    options = s.ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = s.ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = s.ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    session = s.ort.InferenceSession(SUM.SerializeToString(), options)
    options.intra_op_num_threads = 7
    return session.get_session_options().intra_op_num_threads, session.run(None, s.feed)


@feature
def config_entries(s: Script) -> object:
    options = s.ort.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ONNX")
    session = s.ort.InferenceSession(SUM.SerializeToString(), sess_options=options)
    wrong = [
        raised(lambda: options.get_session_config_entry("other")),
        raised(lambda: options.add_session_config_entry("other", 1)),
    ]
    stored = session.get_session_options().get_session_config_entry("session.load_model_format")
    return wrong, stored


@feature
def enumerations(s: Script) -> object:
    kinds = (s.ort.GraphOptimizationLevel, s.ort.ExecutionMode, s.ort.ExecutionOrder)
    members = [(str(m), m.name, int(m)) for kind in kinds for m in kind.__members__.values()]
    return members, s.ort.GraphOptimizationLevel(99) == s.ort.GraphOptimizationLevel.ORT_ENABLE_ALL


@feature
def sizes_for_symbolic_dimensions(s: Script) -> object:
    options = s.ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    session = s.ort.InferenceSession(SUM.SerializeToString(), options)
    shapes = [a.shape for a in (*session.get_inputs(), *session.get_outputs())]
    wrong = raised(lambda: session.run(None, {**s.feed, "x": X[:1]}))
    return shapes, session.run(None, s.feed), wrong


@feature
def overridable_initializers(s: Script) -> object:
    session = s.ort.InferenceSession(SCALED.SerializeToString())
    infos = [(a.name, a.type, a.shape) for a in session.get_overridable_initializers()]
    feeds = [{"x": X}, {"x": X, "c": C}, {"x": X}]
    names = [a.name for a in session.get_inputs()]
    wrong = raised(lambda: session.run(None, {"x": X, "d": C}))
    return infos, names, [session.run(None, feed) for feed in feeds], wrong


@feature
def initializers_of_the_caller(s: Script) -> object:
    options = s.ort.SessionOptions()
    value = s.value(C * 10)
    options.add_initializer("d", value)
    session = s.ort.InferenceSession(SCALED.SerializeToString(), options)
    return session.run(None, {"x": X}), session.run(None, {"x": X, "c": C})


@feature
def default_severity(s: Script) -> object:
    s.ort.set_default_logger_severity(3)
    s.ort.set_default_logger_verbosity(0)
    s.ort.set_default_logger_severity(2)
    return raised(lambda: s.ort.set_default_logger_severity(9))


@feature
def profile(s: Script) -> object:
    options = s.ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(s.folder / "trace")
    session = s.ort.InferenceSession(SUM.SerializeToString(), options)
    for _ in range(2):
        session.run(None, s.feed)
    path = Path(session.end_profiling())
    events = json.loads(path.read_text())
    nodes = [event for event in events if event["cat"] == "Node"]
    return (
        (path.parent, path.name.startswith("trace_"), path.suffix),
        sorted({event["name"] for event in events if event["cat"] == "Session"} & {"model_run"}),
        len(nodes),
        sorted({key for event in events for key in event}),
        {event["ph"] for event in events},
        [event["args"]["output_type_shape"] for event in nodes],
        all(event["dur"] >= 0 and event["ts"] > 0 for event in events),
        session.end_profiling(),
        s.session.end_profiling(),
    )


# Values.


@feature
def values_of_arrays(s: Script) -> object:
    value = s.value(X)
    facts = [value.shape(), value.data_type(), value.element_type(), value.device_name()]
    facts += [value.is_tensor(), value.is_sparse_tensor(), value.is_tensor_sequence()]
    facts += [value.has_value(), value.tensor_size_in_bytes(), value.data_ptr() == X.ctypes.data]
    return facts, value.numpy(), s.value(X.T).numpy()


@feature
def values_that_change(s: Script) -> object:
    memory = X.copy()
    value = s.value(memory)
    value.update_inplace(X * 3)
    others = [s.value(X.astype(np.float64)), s.value(X.astype(np.int32)), s.value(X[:1])]
    wrong = [raised(value.update_inplace, a) for a in (X[:1], [1, 2], *others)]
    before = value.numpy().copy()
    value.update_inplace(X.reshape(-1) * 5)
    value.update_inplace(s.value(X.reshape(-1) + 1))
    return memory, before, value.numpy(), wrong


@feature
def values_of_a_shape(s: Script) -> object:
    make = s.ort.OrtValue.ortvalue_from_shape_and_type
    values = [make([2, 3], np.float32), make((4,), onnx.TensorProto.INT64), make([], np.bool_)]
    values.append(make([3], onnx.TensorProto.BFLOAT16, "cpu", 0))
    return [(value.shape(), value.data_type(), value.element_type()) for value in values]


@feature
def values_of_another_type(s: Script) -> object:
    words = np.arange(3, dtype=np.uint16)
    make = s.ort.OrtValue.ortvalue_from_numpy_with_onnx_type
    value = make(words, onnx.TensorProto.BFLOAT16)
    return value.data_type(), value.shape(), value.data_ptr() == words.ctypes.data


@feature
def values_of_nothing(s: Script) -> object:
    return [raised(s.value, a) for a in ([1.0], np.array(["a"]), 3)]


@feature
def values_elsewhere(s: Script) -> object:
    return raised(lambda: s.ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0))


@feature
def values_of_other_libraries(s: Script) -> object:
    value = s.ort.OrtValue.from_dlpack(X.copy())
    return np.asarray(value), np.from_dlpack(value), value.__dlpack_device__()


@feature
def run_with_values(s: Script) -> object:
    feed = {name: s.value(array) for name, array in s.feed.items()}
    results = s.session.run_with_ort_values(None, feed)
    wrong = raised(lambda: s.session.run_with_ort_values(None, s.feed))
    return [(type(r).__name__, r.numpy()) for r in results], wrong, s.session.run(["y"], feed)


# Bindings.


@feature
def bound_arrays(s: Script) -> object:
    binding, x = s.session.io_binding(), X.copy()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("c", C)
    binding.bind_output("z")
    binding.bind_output("y", "cpu")
    results = []
    for _ in range(2):
        binding.synchronize_inputs()
        s.session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        results.append(binding.copy_outputs_to_cpu())
        x += 5
    return results, [value.numpy() for value in binding.get_outputs()]


@feature
def bound_addresses(s: Script) -> object:
    binding, y = s.session.io_binding(), np.zeros((2, 3), F32)
    binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_input("c", "cpu", 0, F32, [3], C.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    s.session.run_with_iobinding(binding)
    return y, binding.get_outputs()[0].data_ptr() == y.ctypes.data


@feature
def bound_values(s: Script) -> object:
    binding = s.session.io_binding()
    z = s.ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_input("x", s.value(X))
    binding.bind_ortvalue_input("c", s.value(C))
    binding.bind_ortvalue_output("z", z)
    s.session.run_with_iobinding(binding, s.ort.RunOptions())
    return z.numpy(), binding.get_outputs()[0].data_ptr() == z.data_ptr()


@feature
def wrong_bindings(s: Script) -> object:
    def binding(**inputs: Any) -> Any:
        fresh = s.session.io_binding()
        for name, array in {**s.feed, **inputs}.items():
            if array is not None:
                fresh.bind_cpu_input(name, array)
        return fresh

    def run(bound: Any, *outputs: Any) -> str:
        for args in outputs:
            bound.bind_output(*args)
        return raised(lambda: s.session.run_with_iobinding(bound))

    small = np.zeros((2, 2), F32)
    cleared = binding()
    cleared.bind_output("z")
    cleared.clear_binding_inputs()
    other = s.ort.InferenceSession(SUM.SerializeToString())
    return [
        raised(lambda: binding(q=X)),
        raised(lambda: binding(x=[[1, 2, 3]])),
        run(binding()),
        run(binding(x=X[0]), ["z"]),
        run(binding(x=None), ["z"]),
        run(binding(), ["q"]),
        run(binding(), ["z", "cpu", 0, np.float32, (2, 2), small.ctypes.data]),
        raised(lambda: binding().bind_output("z", "cpu", 0, None, None, small.ctypes.data)),
        run(cleared),
        raised(lambda: other.run_with_iobinding(binding())),
    ]
