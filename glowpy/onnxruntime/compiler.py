"""`ModelCompiler`: models written anew. What glowpy compiles is kept in its cache, so the file is an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntFlag
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, final

from glowpy.core.tensor import Array
from glowpy.onnxruntime.errors import Fail, InvalidGraph, NoSuchFile, translated
from glowpy.onnxruntime.options import GraphOptimizationLevel, SessionOptions
from glowpy.onnxruntime.values import OrtValue
from glowpy.support.errors import GlowError, UserError
from glowpy.support.output_files import write_output_file

if TYPE_CHECKING:
    from glowpy.exporter import Place

__all__ = ["ModelCompiler", "OrtCompileApiFlags", "OrtExternalInitializerInfo"]


class OrtCompileApiFlags(IntFlag):
    """Conditions that are errors."""

    __str__ = Enum.__str__

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


@final
@dataclass(frozen=True)
class OrtExternalInitializerInfo:
    """Where the elements of an initializer are."""

    filepath: str
    file_offset: int
    byte_size: int


Locate = Callable[
    [str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None
]


@final
class ModelCompiler:
    """Writes a model as an ONNX file, optimized if `graph_optimization_level` says so.

    Args:
        sess_options: How a session would be made; sizes of dimensions, and initializers, count.
        input_model_path_or_bytes: A path, or the bytes of a file.
        embed_compiled_data_into_model: Has no effect.
        external_initializers_file_path: Where initializers are written that take as many bytes as the threshold; in the
            model if None.
        external_initializers_size_threshold: Bytes.
        flags: The conditions that are errors.
        graph_optimization_level: Whether the model is optimized. All levels but the lowest are one.
        get_initializer_location_func: Says where the elements of each initializer are; None for in the model.

    Raises NoSuchFile if there is no such file, ValueError for two ways to say where initializers are.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Locate | None = None,
    ) -> None:
        del embed_compiled_data_into_model
        model = input_model_path_or_bytes
        if not isinstance(model, bytes) and not Path(fspath(model)).exists():
            raise NoSuchFile(f"cannot read '{fspath(model)}': there is no such file")
        if (
            external_initializers_file_path is not None
            and get_initializer_location_func is not None
        ):
            raise ValueError(
                "expected external_initializers_file_path or get_initializer_location_func, got both"
            )
        self._model = model if isinstance(model, bytes) else Path(fspath(model))
        self._options = sess_options.copy()
        self._options.graph_optimization_level = graph_optimization_level
        self._flags, self._locate = flags, get_initializer_location_func
        self._apart = external_initializers_file_path, external_initializers_size_threshold

    def compile_to_file(self, output_model_path: str | PathLike[str] | None = None) -> None:
        """Writes a file; without a path, `NAME_ctx.onnx` beside the model's.

        Raises Fail as the flags say, and for a file that cannot be written.
        """
        if output_model_path is None:
            if isinstance(self._model, bytes):
                raise Fail("expected a path for the model, which was given as bytes")
            output_model_path = self._model.with_name(f"{self._model.stem}_ctx.onnx")
        path = Path(fspath(output_model_path))
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and path.exists():
            raise Fail(f"the output model '{path}' exists already")
        from glowpy.onnxruntime.optimized import check_target  # noqa: PLC0415 - the exporter

        check_target(path, self._model, self._options)
        content = self._content(path.parent)
        try:
            write_output_file(path, lambda file: file.write(content))
        except UserError as error:
            raise Fail(f"cannot write '{path}': {error}") from error

    def compile_to_bytes(self) -> bytes:
        """The bytes of the file."""
        return self._content(None)

    def compile_to_stream(self, write_function: Callable[[bytes], object]) -> None:
        """Calls a function with the bytes of the file. Raises Fail if that raises anything."""
        content = self._content(None)
        try:
            write_function(content)
        except Exception as error:
            raise Fail(f"the function that writes the model has failed: {error}") from error

    def set_ep_context_data_write_func(self, write_func: object) -> None:
        """Has no effect: the file has no data of providers."""
        del write_func

    def clear_ep_context_data_write_func(self) -> None:
        """Nothing to do."""

    def set_ep_context_binary_information(self, directory: str, model_name: str) -> None:
        """Has no effect: the file has no data of providers."""
        del directory, model_name

    def _content(self, folder: Path | None) -> bytes:
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise Fail("Unable to compile any nodes: those of the CPU are compiled by a session")
        from glowpy.exporter import with_data_apart  # noqa: PLC0415 - ONNX
        from glowpy.onnxruntime.optimized import (  # noqa: PLC0415 - the exporter
            check_target,
            optimized_model,
        )

        path, threshold = self._apart
        optimized = partial(optimized_model, self._model, self._options)
        try:
            if path is not None:
                target = (folder or Path()) / fspath(path)
                check_target(target, self._model, self._options)
                return with_data_apart(target, threshold, optimized)
            return optimized(self._placed if self._locate else None)
        except GlowError as error:
            raise translated(error, InvalidGraph) from error

    def _placed(self, name: str, elements: Array, known: Place | None) -> Place | None:
        assert self._locate is not None
        info = None if known is None else OrtExternalInitializerInfo(*known)
        told = self._locate(name, OrtValue(elements), info)
        return None if told is None else (told.filepath, told.file_offset, told.byte_size)
