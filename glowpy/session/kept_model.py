"""Kept models: what a session asks of a model before something of it has to be built, from the cache.

An entry is named after the file that was opened (where it is, its size and times), or after the bytes of a model in
memory, and lists the files of external data in the same way. A file that is so young that it may be changed again
without other times has no entry. The files stay open: when something has to be built, the model is read from them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import DeclaredDim, ValueInfo
from glowpy.importer.model import HostedModel, Model, onnx_digest
from glowpy.importer.storage import InFile
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import LoadError
from glowpy.support.identity import package_identity
from glowpy.support.limits import within_limits

if TYPE_CHECKING:
    from onnx import ModelProto

    from glowpy.core.tensor import Array
    from glowpy.core.type import Type
    from glowpy.graph.function import Module
    from glowpy.graph.state import StatePairs
    from glowpy.importer import OnnxModel
    from glowpy.importer.needs import RoundsError, ValueNeededError
    from glowpy.importer.onnx.source import Source
    from glowpy.support.symbolic import Dim

__all__ = ["KeptModel", "open_kept"]


@final
class KeptModel(Model):
    """A model that was read and checked before, which is opened when something of it has to be built."""

    def __init__(
        self, model: str | Path | bytes, fields: Mapping[str, Any], files: Mapping[Path, InFile]
    ) -> None:
        self._model, self._fields, self._files = model, fields, files
        self._whole: list[OnnxModel] = []  # of all copies, once it is opened

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return "model" if isinstance(self._model, bytes) else Path(self._model).name

    @property
    def digest(self) -> str:
        """Digest of the model, equal to that of its `OnnxModel`."""
        content, block = self._fields["content"], self._fields["block"]
        return onnx_digest(content, block, [], checked=self.checked, shared=self.shares_caches)

    @cached_property
    def inputs(self) -> list[ValueInfo]:
        """The inputs without initializers."""
        return [_info(info) for info in self._fields["inputs"]]

    @cached_property
    def outputs(self) -> list[ValueInfo]:
        """The outputs."""
        return [_info(info) for info in self._fields["outputs"]]

    @property
    def state(self) -> dict[str, str]:
        """The inputs and outputs that look like state by their names and types."""
        state: dict[str, str] = self._fields["state"]
        return state

    def check_state(self, pairs: StatePairs) -> None:
        """Raises UserError that lists what is wrong with pairs of inputs and outputs."""
        if pairs:
            super().check_state(pairs)

    def resized(self, shapes: Mapping[str, Sequence[Dim | DeclaredDim]]) -> Model:
        """The model with inputs of these shapes: see `OnnxModel.resized`."""
        return self.opened().resized(shapes)

    def opened(self) -> OnnxModel:
        """The model itself. Raises LoadError if its file was changed since."""
        from glowpy.importer import OnnxModel  # noqa: PLC0415 - the reader
        from glowpy.importer.onnx.host.model import open_model  # noqa: PLC0415 - the same

        whole = self._whole[0] if self._whole else open_model(self._model, files=self._files)
        if not isinstance(whole, OnnxModel):
            raise LoadError(f"'{self.file}' was changed while it was in use")
        self._whole[:] = [whole]
        return whole.for_session(checked=self.checked, shares_caches=self.shares_caches)

    def in_parts(self, error: RoundsError | ValueNeededError) -> HostedModel | None:
        """The same model, whose session runs what the error is about itself: see `Model.in_parts`."""
        return self.opened().in_parts(error)

    def asks_for_rounds(self, error: ValueNeededError) -> bool:
        """Whether an error asks how often a loop of the model runs: see `Model.asks_for_rounds`."""
        return self.opened().asks_for_rounds(error)

    def build(self, **given: Any) -> Module:
        """A module: see `OnnxModel.build`."""
        return self.opened().build(**given)

    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """A module for inputs of these types: see `OnnxModel.module`."""
        return self.opened().module(types, values, supposed)


@within_limits
def open_kept(model: str | Path | bytes | ModelProto) -> Model | HostedModel:
    """Returns what the cache has of a model; else reads and checks the model, and stores that.

    Raises what `open_any` raises.
    """
    kept = None if not isinstance(model, str | os.PathLike | bytes) else _Kept(model)
    if kept is not None and (known := kept.model()) is not None:
        return known
    from glowpy.importer import OnnxModel, open_any  # noqa: PLC0415 - the reader

    opened = open_any(model, files=None if kept is None else kept.files)
    if kept is not None and isinstance(opened, OnnxModel):
        kept.keep(opened)
    return opened


@final
class _Kept:
    """The entry of a model that is in a file, or in bytes.

    Attributes:
        files: The file, if it is one and can be opened.
    """

    def __init__(self, model: str | Path | bytes) -> None:
        self._model: str | Path | bytes = model
        self.files: dict[Path, InFile] = {}
        self._key: Key | None = None
        if isinstance(model, bytes):
            parts = ["bytes", hashlib.sha256(model).hexdigest()]
        else:
            try:
                file = InFile(Path(model))
            except (LoadError, ValueError):  # which is told by who reads it
                return
            if not file.identity:
                return
            self.files = {Path(model): file}
            parts = ["file", str(Path(model).absolute()), file.identity]
        self._key = Key.of("model", package_identity(), *parts)

    def model(self) -> KeptModel | None:
        """Reads the entry; None if there is none, or a file of external data is another now."""
        payload = None if self._key is None else read(self._key)
        if payload is None:
            return None
        fields = json.loads(payload)
        files = dict(self.files)
        for path, identity in fields["external"]:
            try:
                files[Path(path)] = InFile(Path(path))
            except LoadError:
                return None
            if files[Path(path)].identity != identity:
                return None
        return KeptModel(self._model, fields, files)

    def keep(self, opened: OnnxModel) -> None:
        """Makes the entry, where all that a session may ask can be said."""
        source, files = opened.source, opened.source.stores.files
        if (
            self._key is None
            or _is_foreign(source)
            or source.is_dump
            or len(files) > _MOST_FILES
            or not all(file.identity for file in files.values())
            or any(info.narrow for info in (*opened.inputs, *opened.outputs))
        ):
            return
        fields = {
            "inputs": [_fields(info) for info in opened.inputs],
            "outputs": [_fields(info) for info in opened.outputs],
            "state": opened.state,
            "content": source.stores.digest,
            "block": opened.block,
            "external": [(str(path), file.identity) for path, file in files.items()],
        }
        write(self._key, json.dumps(fields).encode())


def _is_foreign(source: Source) -> bool:
    """Whether a model has operators of other packages, which may mean something else another time."""
    from glowpy.importer.onnx.check import KNOWN_DOMAINS  # noqa: PLC0415 - the reader

    return any(domain not in KNOWN_DOMAINS for domain in source.opsets)


_MOST_FILES = 64
"""A model with more files of external data is read each time."""

_Fields = tuple[str, str, list[DeclaredDim] | None, list[DeclaredDim] | None]


def _fields(info: ValueInfo) -> _Fields:
    return info.name, info.kind.value, info.shape, info.names


def _info(fields: Sequence[Any]) -> ValueInfo:
    name, kind, shape, names = fields
    return ValueInfo(name, ElemKind(kind), shape, None, names)
