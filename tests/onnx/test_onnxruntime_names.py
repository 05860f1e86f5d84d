"""Names of onnxruntime beside its sessions: devices, sparse tensors, adapters, quantizers, and its Python parts."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import _pybind_state as theirs

import glowpy.onnxruntime as ort
from glowpy.core.tensor import Array
from glowpy.onnxruntime import global_threads
from glowpy.onnxruntime.capi import _pybind_state as ours

ROOT = Path(__file__).resolve().parents[2]
FLOAT = TensorProto.FLOAT
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def names_of(owner: object) -> set[str]:
    """The names of an object, but for modules in a module: parts are there once somebody has imported them."""
    own: dict[str, object] = getattr(owner, "__dict__", {})
    modules = {name for name, value in own.items() if isinstance(value, ModuleType)}
    return {name for name in set(dir(owner)) - modules if not name.startswith("_")}


def scaled(**fields: Any) -> onnx.ModelProto:
    """y = x * w, where w may be overridden, and another product of constants."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"], name="scale")],
        "g",
        [
            helper.make_tensor_value_info("x", FLOAT, ["N", 3]),
            helper.make_tensor_value_info("w", FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **fields
    )


UNUSED = {
    "contextlib",
    "import_capi_exception",
    "onnxruntime_validation",
    "os",
    "platform",
    "warnings",
}
"""What only onnxruntime's own files have a use for."""
WITHIN = {
    *("DeviceReset", "SessionObjectInitializer", "get_registered_ep_kernel_defs", "get_session_initializer"),
    *("kNextPowerOfTwo", "kSameAsRequested", "opkernel", "schemadef", "pack_fp4_weights_for_cuda_moe_gemm"),
}  # fmt: skip


def test_names_are_those_of_onnxruntime() -> None:
    assert names_of(onnxruntime) - names_of(ort) <= UNUSED
    assert names_of(theirs) - names_of(ours) <= UNUSED | WITHIN


@pytest.mark.parametrize(
    "name",
    [
        *("LoraAdapter", "OrtAllocatorType", "OrtArenaCfg", "OrtCompileApiFlags", "OrtDeviceMemoryType"),
        *("OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpDevice", "OrtExecutionProviderDevicePolicy"),
        *("OrtExternalInitializerInfo", "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtMemType"),
        *("OrtMemoryInfo", "OrtMemoryInfoDeviceType", "OrtSparseFormat", "OrtSyncStream", "SessionIOBinding"),
        *("SparseTensor", "AdapterFormat", "ModelCompiler", "OrtDeviceVendorId"),
    ],
)  # fmt: skip
def test_members_are_those_of_onnxruntime(name: str) -> None:
    own, other = getattr(ort, name), getattr(onnxruntime, name)
    fields = {*getattr(own, "__dataclass_fields__", {}), *getattr(own, "__annotations__", {})}
    known = names_of(own) | fields | {*getattr(own, "__members__", {}), "name", "value"}
    assert names_of(other) <= known
    numbers = getattr(other, "__members__", {})
    assert {key: int(getattr(v, "value", v)) for key, v in numbers.items()} == {
        key: int(getattr(own, key)) for key in numbers
    }


def test_devices_are_described() -> None:
    for name in ("cpu", "cuda", "dml", "cann", "webgpu", "gpu", "npu"):
        for vendor in (-1, 0x8086):
            pair = [m.OrtDevice.make(name, 2, vendor) for m in (onnxruntime, ort)]
            rows = [
                (d.device_type(), d.device_id(), d.device_vendor_id(), d.device_mem_type())
                for d in pair
            ]
            assert rows[0] == rows[1]
    with pytest.raises(RuntimeError, match="memory of the device 'cpu', got 'gpu'"):
        ort.OrtValue.ortvalue_from_numpy(X, ort.OrtDevice.make("cuda", 0))
    (device,) = ort.get_ep_devices()
    assert (device.ep_name, device.device.type.name) == ("CPUExecutionProvider", "CPU")
    assert device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is not None
    with pytest.raises(ours.InvalidArgument, match="has no streams"):
        device.create_sync_stream()
    with pytest.raises(ours.Fail, match="there is no such file"):
        ort.register_execution_provider_library("mine", "none.so")
    with pytest.raises(ours.Fail, match="was not registered"):
        ort.unregister_execution_provider_library("mine")


def test_arenas_and_memory() -> None:
    for arguments in ((8, 0, 4, 2), ({"max_mem": 16, "initial_growth_chunk_size_bytes": 2},)):
        pair = [m.OrtArenaCfg(*arguments) for m in (onnxruntime, ort)]
        names = names_of(pair[0])
        assert [getattr(pair[0], n) for n in names] == [getattr(pair[1], n) for n in names]
    with pytest.raises(RuntimeError, match="Invalid OrtArenaCfg option: q"):
        ort.OrtArenaCfg({"q": 1})
    info = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(info, None)
    with pytest.raises(RuntimeError, match="expected CPUExecutionProvider"):
        ort.create_and_register_allocator_v2("CUDAExecutionProvider", info, {}, None)
    with pytest.raises(RuntimeError, match="No shared allocator"):
        ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=info)


def test_sparse_tensors() -> None:
    cpu = ort.OrtDevice.make("cpu", 0)
    values, places = np.array([1.0, 2.0], np.float32), np.array([3, 5])
    tensor = ort.SparseTensor.sparse_coo_from_numpy([3, 3], values, places, cpu)
    assert (tensor.format(), tensor.dense_shape()) == (ort.OrtSparseFormat.ORT_SPARSE_COO, [3, 3])
    assert (tensor.data_type(), tensor.device_name()) == ("sparse_tensor(float)", "cpu")
    assert not tensor.values().flags.writeable
    np.testing.assert_array_equal(tensor.as_coo_view().indices(), places)
    value = ort.OrtValue.ort_value_from_sparse_tensor(tensor)
    assert (value.is_sparse_tensor(), value.is_tensor(), value.shape()) == (True, False, [3, 3])
    assert value.as_sparse_tensor().values().tolist() == [1, 2]
    rows = ort.SparseTensor.sparse_csr_from_numpy(
        [2, 3], values, np.array([0, 2]), np.array([0, 1, 2]), cpu
    )
    assert rows.as_csrc_view().outer().tolist() == [0, 1, 2]
    texts = ort.SparseTensor.sparse_coo_from_numpy([9], np.array(["a", "b"]), places, cpu)
    assert texts.data_type() == "sparse_tensor(string)"
    for wrong in (tensor.as_csrc_view, rows.as_coo_view, value.numpy, lambda: tensor.to_cuda(cpu)):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(ValueError, match="needs to be of type"):
        ort.SparseTensor(3)
    with pytest.raises(RuntimeError, match="got a dense one"):
        ort.OrtValue.ortvalue_from_numpy(X).as_sparse_tensor()


def test_adapters_are_files_of_onnxruntime(tmp_path: Path) -> None:
    """Each reads what the other has written; a run takes the tensors for initializers that may be overridden."""
    arrays: dict[str, Array] = {
        "w": np.array([5, 6, 7], np.float32),
        "other": np.arange(4).reshape(2, 1, 2),
    }
    for writer, reader in ((onnxruntime, ort), (ort, onnxruntime), (ort, ort)):
        path = str(tmp_path / "adapter")
        adapter = writer.AdapterFormat()
        adapter.set_adapter_version(3)
        adapter.set_model_version(4)
        adapter.set_parameters(
            {name: writer.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
        )
        adapter.export_adapter(path)
        read = reader.AdapterFormat.read_adapter(path)
        versions = read.get_format_version(), read.get_adapter_version(), read.get_model_version()
        assert versions == (1, 3, 4)
        values = read.get_parameters()
        assert values.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(values[name].numpy(), array)
    content = Path(path).read_bytes()
    for end in range(0, len(content), 7):
        (tmp_path / "damaged").write_bytes(content[:end])
        with pytest.raises(RuntimeError, match="cannot read the adapter"):
            ort.AdapterFormat.read_adapter(tmp_path / "damaged")
    adapter.set_parameters({"w": ort.OrtValue.ortvalue_from_numpy(arrays["w"])})
    adapter.export_adapter(path)
    lora, options = ort.LoraAdapter(), ort.RunOptions()
    lora.Load(path)
    options.add_active_adapter(lora)
    (y,) = ort.InferenceSession(scaled().SerializeToString()).run(None, {"x": X}, options)
    np.testing.assert_array_equal(y, X * arrays["w"])
    with pytest.raises(TypeError, match="expected a LoraAdapter"):
        options.add_active_adapter(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_of_few_bits(bits: int, symmetric: bool, dtype: Any) -> None:
    rng = np.random.default_rng(bits)
    weights = rng.standard_normal((40, 3)).astype(dtype)
    weights[:, 1] = 0
    results = []
    for module in (theirs, ours):
        packed = np.zeros((3, 3, 2 * bits), np.uint8)
        scales = np.zeros((3, 3), dtype)
        zeros = np.zeros((3, -(-3 * bits // 8)), np.uint8)
        quantize = getattr(module, f"quantize_matmul_{bits}bits")
        quantize(packed, weights, scales, zeros, 16, 3, 40, symmetric)
        results.append((packed, scales, zeros))
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("symmetric", [False, True])
def test_weights_of_four_bits_for_dequantize_linear(symmetric: bool) -> None:
    weights = np.random.default_rng(3).standard_normal((37, 3)).astype(np.float32)
    results: list[tuple[Array, ...]] = []
    for module in (theirs, ours):
        packed, zeros = np.zeros(56, np.uint8), np.zeros(5, np.uint8)
        scales = np.zeros((3, 3), np.float32)
        signed = module.quantize_qdq_matmul_4bits(
            packed, weights, scales, zeros, 16, 3, 37, symmetric
        )
        results.append((packed, zeros, scales, np.array(signed)))
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("form", [0, 1])
def test_weights_of_bitsandbytes(form: int) -> None:
    """Some numbers lie between the middle of two levels and what both round it to."""
    weights = np.random.default_rng(form).standard_normal((199, 5)).astype(np.float32)
    weights[0] = 0
    weights[1] = [0.5833331, 1, 0.5833332, -0.5833331, 0.41666669]
    results = []
    for module in (theirs, ours):
        packed, largest = np.zeros(498, np.uint8), np.zeros(63, np.float32)
        module.quantize_matmul_bnb4(packed, weights, largest, 16, form, 5, 199)
        results.append((packed, largest))
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_raw_sessions_take_arguments_in_another_order() -> None:
    session = ort.InferenceSession(scaled().SerializeToString())
    value = ort.OrtValue.ortvalue_from_numpy(X)._get_c_value()
    results = session._sess.run_with_ort_values({"x": value}, ["y"], ort.RunOptions())
    assert isinstance(results, ours.OrtValueVector)
    np.testing.assert_array_equal(results[0].numpy(), X * [1, 2, 3])
    raw = ours.InferenceSession(ort.SessionOptions(), scaled().SerializeToString(), False, False)
    raw.initialize_session([], [], set())
    assert [info.name for info in raw.inputs_meta] == ["x"]
    binding, out = ours.SessionIOBinding(raw), np.empty_like(X)
    cpu = ours.OrtDevice(ours.OrtDevice.cpu(), ours.OrtDevice.default_memory(), 0)
    binding.bind_input("x", cpu, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("y", cpu, np.float32, X.shape, out.ctypes.data)
    raw.run_with_iobinding(binding, None)
    np.testing.assert_array_equal(out, X * [1, 2, 3])
    with pytest.raises(RuntimeError, match="Only binding non-string Tensors"):
        binding.bind_input("x", cpu, TensorProto.STRING, [1], X.ctypes.data)


def test_sessions_say_where_they_compute() -> None:
    session = ort.InferenceSession(scaled().SerializeToString())
    assert [info.name for info in session.get_input_memory_infos()] == ["Cpu"]
    assert [info.name for info in session.get_output_memory_infos()] == ["Cpu"]
    assert [device.ep_name for device in session.get_input_epdevices()] == session.get_providers()
    with pytest.raises(ours.Fail, match='must be set to "1"'):
        session.get_provider_graph_assignment_info()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(scaled().SerializeToString(), options)
    (part,) = session.get_provider_graph_assignment_info()
    assert [(n.name, n.op_type, n.domain) for n in part.get_nodes()] == [("scale", "Mul", "")]
    assert session.get_tuning_results() == []
    session.set_tuning_results([])
    session.set_ep_dynamic_options({"a": "b"})
    session.release_captured_graph()


def test_operators_are_listed() -> None:
    schemas = {(schema.domain, schema.name) for schema in ort_state().get_all_operator_schema()}
    assert {("", "Conv"), ("com.microsoft", "MatMulBnb4")} <= schemas
    kernels = {(k.domain, k.op_name): k for k in ort_state().get_all_opkernel_def()}
    assert kernels["", "Conv"].provider == "CPUExecutionProvider"


def ort_state() -> Any:
    return importlib.import_module("glowpy.onnxruntime.capi.onnxruntime_pybind11_state")


def test_messages_go_to_a_function() -> None:
    heard: list[tuple[int, str]] = []
    level = logging.getLogger("glowpy.onnxruntime").level
    ort.set_default_logger_callback(lambda severity, *rest: heard.append((severity, rest[-1])))
    logging.getLogger("glowpy.onnxruntime").warning("something")
    ort.set_default_logger_callback(None)
    logging.getLogger("glowpy.onnxruntime").warning("something else")
    logging.getLogger("glowpy.onnxruntime").setLevel(level)
    assert heard == [(2, "something")]
    with pytest.raises(RuntimeError, match="expected a function or None"):
        ort.set_default_logger_callback(3)  # type: ignore[arg-type]


def test_threads_of_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_threads, "_asked", [])
    ort.set_global_thread_pool_sizes(1, 1)
    with pytest.raises(RuntimeError, match="use_per_session_threads = False"):
        ort.InferenceSession(scaled().SerializeToString())
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    ort.InferenceSession(scaled().SerializeToString(), options)


# The parts of an installed onnxruntime that are Python only.

PARTS = """if True:
    import sys, glowpy.onnxruntime
    sys.modules["onnxruntime"] = glowpy.onnxruntime
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime import datasets
    from onnxruntime.backend import prepare
    import onnxruntime.tools, onnxruntime.transformers
    path = datasets.get_example("sigmoid.onnx")
    print(type(prepare(path)._session).__module__, onnxruntime.datasets is datasets)
    real = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
    print(real is None or "glowpy" in real.__file__)
    """

WITHOUT = """if True:
    import sys
    sys.path[:] = [p for p in sys.path if "site-packages" not in p] + [{packages!r}]
    import glowpy.onnxruntime
    sys.modules["onnxruntime"] = glowpy.onnxruntime
    import glowpy.onnxruntime.parts as parts
    parts.PathFinder = type("None_", (), {{"find_spec": staticmethod(lambda *a: None)}})
    try:
        import onnxruntime.quantization
    except ModuleNotFoundError as error:
        print(error)
    try:
        glowpy.onnxruntime.nonesuch
    except AttributeError as error:
        print(error)
    """


def output_of(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_parts_of_an_installed_onnxruntime_use_glowpy() -> None:
    assert output_of(PARTS) == "glowpy.onnxruntime.session True\nTrue\n"


def test_parts_of_no_onnxruntime_are_an_error() -> None:
    packages = str(Path(np.__file__).resolve().parents[1])
    first, second = output_of(WITHOUT.format(packages=packages)).splitlines()
    assert "install onnxruntime beside glowpy" in first
    assert second.endswith("has no attribute 'nonesuch'")
