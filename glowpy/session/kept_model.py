"""Kept models: what a session asks of a model before something of it has to be built, from the cache.

An entry is named after the file that was opened (where it is, its size and times), or after the bytes of a model in
memory, and lists the files of external data in the same way. A file that may be changed without other times, as where
another machine's clock is ahead, has no entry. The files stay open: when something has to be built, the model is read
from them. What else somebody asks of a model, such as its metadata, is an entry of its own (`told`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import DeclaredDim, ValueInfo
from glowpy.importer.model import Content, HostedModel, Model
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
    from glowpy.importer.needs import RoundsError, ValueNeededError
    from glowpy.support.symbolic import Dim

__all__ = ["KeptModel", "open_kept", "opened", "told"]

Reading: TypeAlias = "Callable[[Mapping[Path, InFile]], Model | HostedModel]"
"""Reads and checks a model, of which these files are open already."""


@final
class KeptModel(Model):
    """A model of which the cache says what a session asks: it is read when something of it has to be built."""

    def __init__(
        self,
        key: Key,
        file: str,
        fields: Mapping[str, Any],
        reading: Callable[[], Model | HostedModel],
        whole: Model | None = None,
    ) -> None:
        self._key, self._file, self._fields, self._reading = key, file, fields, reading
        self._whole = [] if whole is None else [whole]  # of all copies, once it is read

    @property
    def is_read(self) -> bool:
        """Whether the model itself was read."""
        return bool(self._whole)

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return self._file

    @property
    def digest(self) -> str:
        """Digest of the model, equal to that of the model itself."""
        return f"{self._fields['content']}{self.ways}"

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

    def resized(self, shapes: Mapping[str, Sequence[Dim | DeclaredDim]]) -> Model:
        """The model with inputs of these shapes: see `Model.resized`."""
        return self.opened().resized(shapes)

    def opened(self) -> Model:
        """The model itself. Raises LoadError if its file was changed since."""
        whole = self._whole[0] if self._whole else self._reading()
        if not isinstance(whole, Model):
            raise LoadError(f"'{self.file}' was changed while it was in use")
        self._whole[:] = [whole]
        return whole.for_session(checked=self.checked, shares_caches=self.shares_caches)

    def in_parts(self, error: RoundsError | ValueNeededError) -> HostedModel | None:
        """The same model, whose session runs what the error is about itself: see `Model.in_parts`."""
        return self.opened().in_parts(error)

    def asks_for_rounds(self, error: ValueNeededError) -> bool:
        """Whether an error asks how often a loop of the model runs: see `Model.asks_for_rounds`."""
        return self.opened().asks_for_rounds(error)

    def told(self, what: str, tell: Callable[[Any], Any]) -> Any:
        """Returns what `tell` says of the model, which has a form in JSON, or what it said before of `what`."""
        key = Key.of("model", self._key.digest, self._fields["content"], what)
        payload = read(key)
        if payload is None:
            payload = json.dumps(tell(self.opened())).encode()
            write(key, payload)
        return json.loads(payload)

    def build(self, **given: Any) -> Module:
        """A module: see `Model.build`."""
        return self.opened().build(**given)

    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """A module for inputs of these types: see `Model.module`."""
        return self.opened().module(types, values, supposed)


def opened(model: Model) -> Model:
    """The model itself of what is perhaps kept. Raises LoadError if its file was changed since."""
    return model.opened() if isinstance(model, KeptModel) else model


def told(model: Model | HostedModel, what: str, tell: Callable[[Any], Any]) -> Any:
    """Returns what `tell` says of a model that was read, which has a form in JSON: see `KeptModel.told`."""
    if isinstance(model, KeptModel):
        return model.told(what, tell)
    return tell(model)


@within_limits
def open_kept(
    model: str | Path | bytes | ModelProto, reading: Reading | None = None, way: str = ""
) -> Model | HostedModel:
    """Returns what the cache has of a model; else reads and checks the model, and stores that.

    Args:
        model: What to open.
        reading: How to read it. As a model of any format if that is left out.
        way: Text that differs for other ways to read it, by which a model says other things of itself.

    Raises what `reading` raises.
    """
    if reading is None:
        reading = partial(_of_any_format, model)
    if not isinstance(model, str | os.PathLike | bytes):
        return reading({})
    kept = _Kept(model, reading, way)
    known = kept.model()
    return kept.read() if known is None else known


def _of_any_format(
    model: str | Path | bytes | ModelProto, files: Mapping[Path, InFile]
) -> Model | HostedModel:
    from glowpy.importer import open_model  # noqa: PLC0415 - the readers

    return open_model(model, files=files)


@final
class _Kept:
    """The entry of a model that is in a file, or in bytes."""

    def __init__(self, model: str | Path | bytes, reading: Reading, way: str) -> None:
        self._file = "model" if isinstance(model, bytes) else Path(model).name
        self._reading = reading
        self._files: dict[Path, InFile] = {}
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
            self._files = {Path(model): file}
            parts = ["file", str(Path(model).absolute()), file.identity]
        self._key = Key.of("model", package_identity(), *parts, way)

    def model(self) -> KeptModel | None:
        """Reads the entry; None if there is none, or a file of external data is another now."""
        payload = None if self._key is None else read(self._key)
        if payload is None or self._key is None:
            return None
        fields = json.loads(payload)
        files = dict(self._files)
        for path, identity in fields["external"]:
            try:
                files[Path(path)] = InFile(Path(path))
            except LoadError:
                return None
            if files[Path(path)].identity != identity:
                return None
        return KeptModel(self._key, self._file, fields, partial(self._reading, files))

    def read(self) -> Model | HostedModel:
        """Reads the model, and makes the entry, where all that a session may ask can be said."""
        opened = self._reading(self._files)
        if self._key is None or not isinstance(opened, Model):
            return opened
        content = opened.content
        if content is None or not _is_plain(opened, content):
            return opened
        fields = {
            "inputs": [_fields(info) for info in opened.inputs],
            "outputs": [_fields(info) for info in opened.outputs],
            "state": opened.state,
            "content": content.digest,
            "external": [(str(path), file.identity) for path, file in content.files.items()],
        }
        write(self._key, json.dumps(fields).encode())
        reading = partial(self._reading, self._files)
        return KeptModel(self._key, self._file, fields, reading, opened)


def _is_plain(opened: Model, content: Content) -> bool:
    """Whether an entry can say all that a session may ask of a model."""
    return (
        len(content.files) <= _MOST_FILES
        and all(file.identity for file in content.files.values())
        and not any(info.narrow for info in (*opened.inputs, *opened.outputs))
    )


_MOST_FILES = 64
"""A model with more files of external data is read each time."""

_Fields = tuple[str, str, list[DeclaredDim] | None, list[DeclaredDim] | None]


def _fields(info: ValueInfo) -> _Fields:
    return info.name, info.kind.value, info.shape, info.names


def _info(fields: Sequence[Any]) -> ValueInfo:
    name, kind, shape, names = fields
    return ValueInfo(name, ElemKind(kind), shape, None, names)
