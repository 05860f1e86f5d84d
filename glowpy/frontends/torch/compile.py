"""`torch.compile(model, backend="glowpy")`: what PyTorch captures of a model, compiled by glowpy.

PyTorch finds `backend` by the entry point `glowpy` of the group `torch_dynamo_backends`. What it hands over is a graph
whose inputs are the model's parameters, tensors, and numbers: extents that are open, and others. `torch.onnx` exports
such a graph when it is first called, with parameters as constants, and a session runs it, which compiles for ranges of
extents. It is exported anew where a parameter, or a number that is no extent of an input, has changed.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from glowpy.backend_choice import backend_class, option_names
from glowpy.core.tensor import Array
from glowpy.frontends.torch.layers import LAYERS
from glowpy.session.session import InferenceSession
from glowpy.support.errors import UserError
from glowpy.support.forks import Lock

__all__ = ["backend"]

_OPTIONS = ("backend", "low_memory", "precision", "threads")


def backend(
    graph: Any,
    example: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that PyTorch has captured; this is what `torch.compile` calls.

    Args:
        graph: A `torch.fx.GraphModule`.
        example: An input of each of its placeholders.
        options: `threads`, else as many as PyTorch uses; `backend`, `cpu` or `interpreter`; and `low_memory` and
            `precision` of InferenceSession.
        mode: Nothing but `default`.

    Returns a function of the graph's inputs. It raises UserError for what glowpy does not support.
    """
    options = dict(options or {})
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise UserError(
            f"torch.compile: unknown option {unknown[0]!r}, expected one of {', '.join(_OPTIONS)}"
        )
    if mode not in (None, "default"):
        raise UserError(
            f"torch.compile: glowpy has no mode {mode!r}", note="leave out mode, or give options"
        )
    return _Compiled(graph, _inputs(graph, example), options)


@dataclass(frozen=True)
class _Input:
    """A placeholder of a captured graph.

    Attributes:
        fixed: Whether it is a parameter or buffer of the model.
        open: The dimensions of a tensor that are open.
        extent: Where a number comes from, if it is an extent: of which input, and of which dimension.
        number: Whether it is a number.
    """

    fixed: bool = False
    open: tuple[int, ...] = ()
    extent: tuple[int, int] | None = None
    number: bool = False


def _inputs(graph: Any, example: Sequence[Any]) -> list[_Input]:
    """Describes the placeholders of a captured graph; `example` has a tensor or number for each."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    places: dict[Any, tuple[int, int]] = {}
    inputs: list[_Input] = []
    for index, (node, value) in enumerate(zip(nodes, example, strict=True)):
        if not isinstance(value, torch.Tensor):
            inputs.append(_Input(number=True))
            continue
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None:
            inputs.append(_Input(fixed=True))
            continue
        shape = node.meta.get("example_value", value).shape
        dims = {axis: dim for axis, dim in enumerate(shape) if isinstance(dim, torch.SymInt)}
        for axis, dim in dims.items():
            places.setdefault(dim.node.expr, (index, axis))
        inputs.append(_Input(open=tuple(dims)))
    for index, value in enumerate(example):
        if isinstance(value, torch.SymInt):
            inputs[index] = _Input(number=True, extent=places.get(value.node.expr))
    return inputs


def _exportable(
    graph: Any, inputs: Sequence[_Input], arguments: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """A captured graph as a function of its tensors that are not parameters, and what kinds of results it has.

    Results are `torch.Tensor`, or `int` for a number that is a tensor in the function, or a number or None for itself.
    """
    copy = torch.fx.Graph()
    values = _bound(graph, copy, inputs, arguments)
    for node in graph.graph.nodes:
        if node.op not in ("placeholder", "output"):
            values[node] = copy.node_copy(node, values.__getitem__)
            values[node].target = LAYERS.get(node.target, node.target)
    results: list[Any] = []
    outputs = []
    (last,) = (node for node in graph.graph.nodes if node.op == "output")
    for result in last.args[0]:
        value = values[result] if isinstance(result, torch.fx.Node) else result
        if not isinstance(value, torch.fx.Node):
            results.append(value)
            continue
        example = result.meta.get("example_value")
        is_tensor = isinstance(example, torch.Tensor)
        if is_tensor and example.is_complex():
            note = "return torch.view_as_real(...) of them"
            raise UserError(
                "torch.compile: expected results of real numbers, got complex", note=note
            )
        if not is_tensor:
            value = copy.call_function(torch.scalar_tensor, (value,), {"dtype": torch.int64})
        results.append(torch.Tensor if is_tensor else int)
        outputs.append(value)
    copy.output(tuple(outputs))
    return torch.fx.GraphModule(graph, copy), results


def _bound(
    graph: Any, copy: Any, inputs: Sequence[_Input], arguments: Sequence[Any]
) -> dict[Any, Any]:
    """Returns the values of the placeholders in the copy: placeholders only for tensors that are not parameters."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    triples = list(zip(nodes, inputs, arguments, strict=True))
    values = {
        node: copy.placeholder(node.name)
        for node, input, _ in triples
        if not (input.fixed or input.number)
    }
    for node, input, argument in triples:
        if input.fixed:
            setattr(graph, node.name, argument.detach())
            values[node] = copy.get_attr(node.name)
        elif input.extent is not None:
            place, axis = input.extent
            size = torch.ops.aten.sym_size.int
            values[node] = copy.call_function(size, (values[nodes[place]], axis))
        elif input.number:
            values[node] = argument
    return values


@dataclass(frozen=True)
class _Network:
    """An exported graph.

    Attributes:
        session: Runs it.
        results: The answer of `_exportable` of the graph's results.
    """

    session: InferenceSession
    results: Sequence[Any]

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        feeds = {f"input_{i}": _array(tensor) for i, tensor in enumerate(tensors)}
        arrays = iter(self.session.run(None, feeds))
        return tuple(map(partial(_result, arrays), self.results))


def _result(arrays: Iterator[Array], kind: Any) -> Any:
    if kind is torch.Tensor:
        return _tensor(next(arrays))
    return int(next(arrays)) if kind is int else kind


class _Compiled:
    """A captured graph, exported for the numbers and parameters that it meets."""

    def __init__(self, graph: Any, inputs: Sequence[_Input], options: Mapping[str, Any]) -> None:
        self._graph, self._inputs, self._options = graph, list(inputs), options
        self._networks: dict[Hashable, _Network] = {}
        self._lock = Lock(is_brief=False)
        self._versions: Hashable = None

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        pairs = list(zip(self._inputs, arguments, strict=True))
        fixed = [argument for input, argument in pairs if input.fixed]
        tensors = [argument for input, argument in pairs if not (input.fixed or input.number)]
        for tensor in (*fixed, *tensors):
            _check(tensor)
        network = self._network(arguments, tuple(map(_version, fixed)))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*fixed, *tensors)):
            return tuple(_Forward.apply(network, tensors, *tensors, *fixed))
        return network(tensors)

    def _network(self, arguments: Sequence[Any], versions: Hashable) -> _Network:
        with self._lock:
            if versions != self._versions:
                self._networks.clear()
                self._versions = versions
            if (network := self._networks.get(self._key(arguments))) is None:
                network = self._exported(arguments)
                self._networks[self._key(arguments)] = network
            return network

    def _key(self, arguments: Sequence[Any]) -> Hashable:
        """Numbers, and extents that are not open."""
        parts: list[Hashable] = []
        for input, argument in zip(self._inputs, arguments, strict=True):
            if not input.number and not input.fixed:
                dims = enumerate(argument.shape)
                parts.append(tuple(None if axis in input.open else dim for axis, dim in dims))
            elif input.number and input.extent is None:
                parts.append(argument)
        return tuple(parts)

    def _exported(self, arguments: Sequence[Any]) -> _Network:
        """The graph with these numbers and parameters. What the exporter makes constant is open no more."""
        pairs = list(zip(self._inputs, arguments, strict=True))
        inputs = [i for i, (input, _) in enumerate(pairs) if not (input.fixed or input.number)]
        model, results = _exportable(self._graph, self._inputs, arguments)
        folder = Path(tempfile.mkdtemp(prefix="glowpy-torch-"))
        weakref.finalize(self, shutil.rmtree, folder)
        path = folder / "graph.onnx"
        dims = tuple(
            dict.fromkeys(self._inputs[index].open, torch.export.Dim.AUTO) for index in inputs
        )
        _export(model, tuple(arguments[index] for index in inputs), dims, path)
        backend = self._options.get("backend", "cpu")
        threads = self._options.get("threads")
        if threads is None and isinstance(backend, str):
            takes_threads = "threads" in option_names(backend_class(backend))
            threads = torch.get_num_threads() if takes_threads else None
        session = InferenceSession(
            path,
            backend=backend,
            threads=threads,
            low_memory=self._options.get("low_memory"),
            precision=self._options.get("precision"),
        )
        for index, info in zip(inputs, session.get_inputs(), strict=True):
            names = [axis for axis, dim in enumerate(info.shape or ()) if not isinstance(dim, int)]
            self._inputs[index] = replace(self._inputs[index], open=tuple(names))
        return _Network(session, results)


def _export(model: Any, tensors: tuple[Any, ...], dims: tuple[Any, ...], path: Path) -> None:
    """Writes the model. Raises UserError for what PyTorch does not export, and what would be lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            program = torch.onnx.export(
                model,
                tensors,
                dynamo=True,
                verbose=False,
                optimize=True,
                dynamic_shapes=dims,
                input_names=[f"input_{index}" for index in range(len(tensors))],
            )
            program.save(path, external_data=True)
        except ImportError as error:
            raise UserError(
                f"torch.compile: {error}", note="pip install 'glowpy[models]'"
            ) from None
        except torch.onnx.errors.OnnxExporterError as error:
            raise UserError(
                f"torch.compile: PyTorch does not export the graph: {_cause(error)}"
            ) from error
        finally:
            logging.disable(logging.NOTSET)
    signature = program.exported_program.graph_signature
    written = [*signature.user_inputs_to_mutate.values(), *signature.buffers_to_mutate.values()]
    if written:
        raise UserError(
            f"torch.compile: the model writes into {', '.join(map(repr, written))}",
            note="give back a new tensor instead",
        )


def _cause(error: BaseException) -> str:
    """The first line of what the exporter stumbled over."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _version(tensor: Any) -> Hashable:
    """Returns a key that changes when a parameter does, unless it is changed through `.data`."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _check(tensor: Any) -> None:
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise UserError(
            f"torch.compile: expected dense tensors of the CPU, got one of {tensor.device}, {tensor.layout}"
        )


def _array(tensor: Any) -> Array:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())


def _tensor(array: Array) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class _Forward(torch.autograd.Function):
    """A network among others that have gradients."""

    @staticmethod
    def forward(
        context: Any, network: _Network, tensors: Sequence[Any], *differentiated: Any
    ) -> Any:
        del context, differentiated
        return network(tensors)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        del context, gradients
        raise UserError(
            "torch.compile: glowpy has no gradients for PyTorch",
            note="compile for inference, under torch.no_grad()",
        )
