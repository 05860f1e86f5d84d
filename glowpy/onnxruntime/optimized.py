"""`SessionOptions.optimized_model_filepath`: what glowpy's optimizer makes of a model, as an ONNX file."""

from __future__ import annotations

import tempfile
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glowpy.core.type import Shape
from glowpy.exporter import Locate, copied_model, save, with_data_apart
from glowpy.graph.function import Module
from glowpy.importer import Given, OnnxModel, external_reader
from glowpy.importer.declared import ValueInfo
from glowpy.importer.onnx.basic import basic
from glowpy.importer.onnx.host.model import OnnxHostedModel
from glowpy.onnxruntime.errors import Fail
from glowpy.onnxruntime.logs import say_once
from glowpy.onnxruntime.model import whole_model
from glowpy.onnxruntime.options import GraphOptimizationLevel, SessionOptions
from glowpy.session.session import InferenceSession as Session
from glowpy.support.errors import UserError
from glowpy.support.output_files import check_output_file, write_output_file
from glowpy.support.remedies import remedied
from glowpy.support.symbolic import Dim, Expr, UndecidedError, symbol
from glowpy.support.text import symbol_name

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["check_target", "optimized_model", "write_optimized"]

_FILE = "session.optimized_model_external_initializers_file_name"
_LEAST = "session.optimized_model_external_initializers_min_size_in_bytes"
_LEVELS = GraphOptimizationLevel
_MOST_IN_MEMORY = 1 << 30
"""A model of more bytes is copied where its operators are to stay: a file in memory cannot have twice as many."""
_MOST = 1 << 30
"""An extent that no tensor reaches."""


def write_optimized(model: str | PathLike[str] | bytes, options: SessionOptions) -> None:
    """Writes the file that the options ask for.

    A model that has no form in ONNX after it is optimized, and one of strings or sequences, keeps its operators, and
    that is said. Raises Fail for a file that cannot be written, or is the model's.
    """
    path = Path(options.optimized_model_filepath)
    name, least = options.entry(_FILE), options.entry(_LEAST) or "1024"
    check_target(path, model, options)
    optimized = partial(optimized_model, model, options)
    try:
        check_output_file(str(path))
        if name:
            check_target(path.parent / name, model, options)
            content = with_data_apart(path.parent / name, int(least), optimized)
        else:
            content = optimized()
        write_output_file(path, lambda file: file.write(content))
    except UserError as error:
        raise Fail(f"cannot write the optimized model '{path}': {error}") from error


def check_target(path: Path, model: str | PathLike[str] | bytes, options: SessionOptions) -> None:
    """Raises Fail where a file to be written is the model's, or holds its external data."""
    if isinstance(model, bytes) or not path.exists():
        return
    if any(
        path.samefile(stored_path)
        for stored_path in whole_model(model, options).source.stores.paths
    ):
        raise Fail(f"expected another file to write than those of the model, got '{path}'")


def optimized_model(
    model: str | PathLike[str] | bytes, options: SessionOptions, locate: Locate | None = None
) -> bytes:
    """The bytes of a file, as much optimized as the options say, with all elements inside or where `locate` says."""
    opened = whole_model(model, options)
    level = options.graph_optimization_level
    if level not in (_LEVELS.ORT_DISABLE_ALL, _LEVELS.ORT_ENABLE_BASIC):
        try:
            return _exported(opened, locate)
        except UserError as error:
            say_once(
                f"the optimized model keeps its operators: {error}", options.log_severity_level
            )
    path = None if isinstance(model, bytes) else Path(fspath(model))
    content = model if isinstance(model, bytes) else Path(fspath(model)).read_bytes()
    tensors = {name: value.numpy() for name, value in options.initializers.items()}
    external = external_reader(path, Given(tensors, options.files))
    size = len(content) + sum(path.stat().st_size for path in opened.source.stores.paths)
    if level is _LEVELS.ORT_DISABLE_ALL or size > _MOST_IN_MEMORY:
        return copied_model(content, external, locate, dims=options.dims)
    whole = basic(copied_model(content, external, dims=options.dims), _computed)
    return copied_model(whole, external_reader(None), locate) if locate else whole


def _computed(model: ModelProto) -> list[Any]:
    """The outputs of a model without inputs."""
    return Session(model, backend="interpreter").run(None, {})


def _exported(model: OnnxModel | OnnxHostedModel, locate: Locate | None) -> bytes:
    if isinstance(model, OnnxHostedModel):
        raise UserError("a session computes a part of it")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        save(_open_module(model), path, optimize=True, qoperators=True)
        content = copied_model(path.read_bytes(), external_reader(path))
    return copied_model(content, external_reader(None), locate) if locate else content


def _open_module(model: OnnxModel) -> Module:
    """The model with every dimension that it leaves open as a symbol. Raises UserError where that is impossible."""
    symbols: dict[str, Dim] = {}
    while True:
        shapes = {info.name: _open_shape(info, symbols) for info in model.inputs if info.shape}
        try:
            return model.build(shapes=shapes)
        except UndecidedError as error:
            raised = remedied(error, symbols)
            if not raised or not all(_is_symbol(dim, name) for name, dim in raised.items()):
                raise
            symbols |= raised  # what it may be does not stand in the file


def _is_symbol(dim: Dim, name: str) -> bool:
    return isinstance(dim, Expr) and dim.symbol is not None and dim.symbol.name == name


def _open_shape(info: ValueInfo, symbols: dict[str, Dim]) -> Shape:
    """The shape with symbols, which are made where they are not known. Those of one declared name are one."""
    shape: list[Dim] = []
    for axis, dim in enumerate(info.shape or ()):
        if isinstance(dim, int):
            shape.append(dim)
            continue
        name = symbol_name(dim or f"{info.name}_{axis}")
        shape.append(symbols.setdefault(name, symbol(name, 1, _MOST)))
    return tuple(shape)
