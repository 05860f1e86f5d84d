"""Other runtimes that `glowpy bench --vs` times beside glowpy: how each loads a model, runs it, and is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from glowpy.benchmark.ncnn import Ncnn, ncnn_files
from glowpy.core.tensor import Array
from glowpy.support.cores import usable_cores
from glowpy.support.errors import UserError

__all__ = ["PEERS", "Contestant", "Inputs", "loaded", "nothing", "own_precision"]

Inputs = Mapping[str, Array]


def nothing() -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Contestant:
    """One model loaded by one runtime.

    Attributes:
        name: The name of the runtime.
        run: Runs it once, which is timed.
        outputs: Returns the outputs, in the model's order.
        before: Called before every run, and not timed.
        after: The same after it.
    """

    name: str
    run: Callable[[], object]
    outputs: Callable[[], list[Array]]
    before: Callable[[], None] = nothing
    after: Callable[[], None] = nothing


@dataclass(frozen=True)
class _Manner:
    """How a model is to be run: see `loaded`."""

    threads: int
    ncnn_models: Path | None
    own_precision: bool


def loaded(
    name: str,
    path: Path,
    inputs: Inputs,
    threads: int,
    ncnn_models: Path | None,
    *,
    own_precision: bool = False,
) -> Contestant:
    """An ONNX model in the runtime called `name`, which has run once.

    Args:
        name: One of PEERS.
        path: The file.
        inputs: The inputs it is fed.
        threads: How many threads compute; 0 for as many as the runtime takes by itself.
        ncnn_models: A folder with what pnnx made of models: NAME.param and NAME.bin. It makes what is not there.
        own_precision: Whether the runtime chooses the precision of a model in f32; else it computes in f32.

    Raises UserError where the runtime is not installed or does not run the model.
    """
    try:
        module = import_module(name)
    except ImportError:
        raise UserError(f"{name} is not installed", note=f"pip install {name}") from None
    try:
        manner = _Manner(threads, ncnn_models, own_precision)
        contestant = PEERS[name](module, path, inputs, manner)
        contestant.run()
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - another project's runtime may raise anything
        lines = str(error).splitlines() or [type(error).__name__]
        raise UserError(f"{name} does not run the model: {lines[0]}") from None
    return contestant


def _with_onnxruntime(module: Any, path: Path, inputs: Inputs, manner: _Manner) -> Contestant:
    """Runs the model by onnxruntime, with inputs and outputs bound, which spares it copies."""
    options = module.SessionOptions()
    options.log_severity_level = 4  # what is wrong is in the exception
    options.intra_op_num_threads = manner.threads
    options.inter_op_num_threads = 1
    session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return Contestant(
        "onnxruntime", lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu
    )


def _with_openvino(module: Any, path: Path, inputs: Inputs, manner: _Manner) -> Contestant:
    """Runs the model by OpenVINO's CPU plugin, tuned for latency."""
    settings: dict[str, object] = {"NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    if manner.threads:
        settings["INFERENCE_NUM_THREADS"] = manner.threads
    if not manner.own_precision:
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    core = module.Core()
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, module.Tensor(array, shared_memory=True))
    return Contestant(
        "openvino",
        request.infer,
        lambda: [tensor.data.copy() for tensor in request.output_tensors],
    )


def _with_ncnn(module: Any, path: Path, inputs: Inputs, manner: _Manner) -> Contestant:
    """Runs ncnn on the files that pnnx made of the model, or makes of it now."""
    with ncnn_files(path, inputs, manner.ncnn_models) as files:
        net = Ncnn(module, files, list(inputs.values()), manner.threads or usable_cores())
    return Contestant("ncnn", net.run, net.outputs)


def own_precision(name: str) -> str:
    """The precision in which a runtime computes a model in f32 on this machine if nobody asks for another one."""
    if name != "openvino":
        return "f32"
    core = import_module(name).Core()
    return str(core.get_property("CPU", "INFERENCE_PRECISION_HINT").to_string())


PEERS: Mapping[str, Callable[[Any, Path, Inputs, _Manner], Contestant]] = {
    "onnxruntime": _with_onnxruntime,
    "openvino": _with_openvino,
    "ncnn": _with_ncnn,
}
"""Runtimes that --vs accepts, by the name of the package."""
