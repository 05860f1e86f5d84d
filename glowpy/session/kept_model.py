"""Kept models: what a session asks of a model before something of it has to be built, from the cache.

An entry is named after the file that was opened (where it is, its size and times), or after the bytes of a model in
memory, and lists the files of external data in the same way. A file that may be changed without other times, as where
another machine's clock is ahead, has no entry. The files stay open: when something has to be built, the model is read
from them. What else somebody asks of a model, such as its metadata, is an entry of its own (`told`).

Of a model that a session computes in part the entry has the plan, whose segments are kept models as well. A model of
numbers whose branches or rounds a session computes has such an entry for each error that asks for that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import astuple
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import DeclaredDim, ValueInfo, resized_infos, unsized
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.importer.reports import located
from glowpy.importer.storage import InFile
from glowpy.session.kept import Kept
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import LoadError, UserError
from glowpy.support.identity import package_identity
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc

if TYPE_CHECKING:
    from onnx import ModelProto

    from glowpy.core.tensor import Array
    from glowpy.core.type import Type
    from glowpy.graph.function import Module
    from glowpy.session.kept_hosted import KeptHosted
    from glowpy.support.symbolic import Dim

__all__ = ["KeptModel", "open_kept"]

Fields: TypeAlias = Mapping[str, Any]
"""An object of JSON."""
Reading: TypeAlias = "Callable[[Mapping[Path, InFile]], Model | HostedModel]"
"""Reads and checks a model, of which these files are open already."""


@final
class KeptModel(Model, Kept):
    """A model of numbers of which the cache says what a session asks."""

    def __init__(
        self,
        key: Key,
        file: str,
        fields: Mapping[str, Any],
        reading: Callable[[], Model | HostedModel],
        whole: Model | HostedModel | None = None,
    ) -> None:
        self._key, self._file, self._fields, self._reading = key, file, fields, reading
        self._whole = [whole] if isinstance(whole, Model) else []  # of all copies, once it is read
        self._hosted: dict[str, HostedModel | None] = {}  # the same, by what asks for it
        self._written: dict[str, list[DeclaredDim]] = {}  # as of `OnnxModel`
        self._shapes: list[Mapping[str, Sequence[Dim | DeclaredDim]]] = []
        """Shapes of inputs in place of those, one after the other."""

    @property
    def is_read(self) -> bool:
        """Whether the model itself was read."""
        return bool(self._whole)

    @property
    def identity(self) -> tuple[str, ...]:
        """The name of the entry, the digest of the content, and the shapes of inputs that are others."""
        sizes = [(info.name, info.shape) for info in self.inputs] if self._written else []
        return self._key.digest, self._fields["content"], f"{self._written} {sizes}"

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return self._file

    @property
    def digest(self) -> str:
        """Digest of the model, equal to that of the model itself."""
        own = f"{self._fields['content']}{self.ways}"
        return f"{own} written as {self._written}" if self._written else own

    @cached_property
    def inputs(self) -> list[ValueInfo]:
        """The inputs without initializers."""
        return [_info(info) for info in self._fields["inputs"]]

    @cached_property
    def outputs(self) -> list[ValueInfo]:
        """The outputs."""
        return [_info(info) for info in self._fields["outputs"]]

    @property
    def is_resizable(self) -> bool:
        """Whether `resized` gives inputs other sizes than the model declares."""
        is_resizable: bool = self._fields["resizable"]
        return is_resizable

    @property
    def state(self) -> dict[str, str]:
        """The inputs and outputs that look like state by their names and types."""
        state: dict[str, str] = super().state if self._written else self._fields["state"]
        return state

    def resized(self, shapes: Mapping[str, Sequence[Dim | DeclaredDim]]) -> Model:
        """The model with inputs of these shapes: see `Model.resized`."""
        if not self.is_resizable:
            return super().resized(shapes)
        try:
            written, inputs = resized_infos(self.inputs, shapes)
        except UserError as error:
            raise located(error, Loc(self.file)) from None
        if not written:
            return self
        model = copy(self)
        model._written, model._shapes = written | self._written, [*self._shapes, shapes]
        model.inputs, model.outputs = inputs, [unsized(info) for info in self.outputs]
        model._hosted = {}
        return model

    def opened(self) -> Model:
        """The model itself. Raises LoadError if its file was changed since."""
        whole = self._whole[0] if self._whole else self._reading()
        if not isinstance(whole, Model):
            raise LoadError(f"'{self.file}' was changed while it was in use")
        self._whole[:] = [whole]
        model = whole.for_session(checked=self.checked, shares_caches=self.shares_caches)
        for shapes in self._shapes:
            model = model.resized(shapes)
        model.runs_rounds = self.runs_rounds
        return model

    def in_parts(self, error: RoundsError | ValueNeededError) -> HostedModel | None:
        """The same model, whose session runs what the error is about itself: see `Model.in_parts`."""
        what = f"{isinstance(error, ValueNeededError)} {_places(error)}"
        if what not in self._hosted:
            self._hosted[what] = self._in_parts(what, error)
        return self._hosted[what]

    def _in_parts(self, what: str, error: RoundsError | ValueNeededError) -> HostedModel | None:
        from glowpy.session.kept_hosted import (  # noqa: PLC0415 - most models are compiled as a whole
            KeptHosted,
            hosted_fields,
        )

        whole = cache(lambda: self.opened().in_parts(error))

        def can_be(_: Model) -> bool:
            hosted = whole()
            return hosted is not None and hosted.has_host_steps

        def fields(_: Model) -> Fields:
            hosted = whole()
            return {} if hosted is None else hosted_fields(hosted, _fields)

        if not self.told(f"parts {what}", can_be):
            return None
        key = Key.of("model", *self.identity, what)
        kept_fields = cache(lambda: self.told(f"plan {what}", fields))
        make_part = partial(_kept_part, self.file)
        return KeptHosted(key, self.file, kept_fields, whole, make_part, has_host_steps=True)

    def asks_for_rounds(self, error: ValueNeededError) -> bool:
        """Whether an error asks how often a loop of the model runs: see `Model.asks_for_rounds`."""
        answer: bool = self.told(
            f"asks {_places(error)}", lambda model: model.asks_for_rounds(error)
        )
        return answer

    def build(self, **given: Any) -> Module:
        """A module: see `Model.build`."""
        return self.opened().build(**given)

    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """A module for inputs of these types: see `Model.module`."""
        return self.opened().module(types, values, supposed)


def _places(error: UserError) -> list[tuple[object, ...]]:
    """The places in a model that an error is about."""
    return [astuple(diagnostic.loc) for diagnostic in error.diagnostics]


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
                file = InFile(Path(model)) if Path(model).is_file() else None
            except (LoadError, OSError, ValueError):  # which is told by who reads it
                return
            if file is None or not file.identity:
                return
            self._files = {Path(model): file}
            parts = ["file", str(Path(model).absolute()), file.identity]
        self._key = Key.of("model", package_identity(), *parts, way)

    def model(self) -> KeptModel | KeptHosted | None:
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
        return self._kept(self._key, fields, files)

    def _kept(
        self,
        key: Key,
        fields: Fields,
        files: Mapping[Path, InFile],
        whole: Model | HostedModel | None = None,
    ) -> KeptModel | KeptHosted:
        reading = partial(self._reading, files)
        if "plan" in fields:
            return _kept_hosted(key, self._file, fields, reading, whole)
        return KeptModel(key, self._file, fields, reading, whole)

    def read(self) -> Model | HostedModel:
        """Reads the model, and makes the entry, where all that a session may ask can be said."""
        opened = self._reading(self._files)
        content = None if self._key is None else opened.content
        if self._key is None or content is None or not _are_known(content.files):
            return opened
        fields = _fields(opened) if isinstance(opened, Model) else _fields_in_parts(opened)
        if not fields:
            return opened
        external = [(str(path), file.identity) for path, file in content.files.items()]
        write(self._key, json.dumps({**fields, "external": external}).encode())
        return self._kept(self._key, fields, self._files, opened)


def _kept_part(
    file: str, key: Key, fields: Fields, reading: Callable[[], Model | HostedModel]
) -> KeptModel:
    return KeptModel(key, file, fields, reading)


def _kept_hosted(
    key: Key,
    file: str,
    fields: Fields,
    reading: Callable[[], Model | HostedModel],
    whole: Model | HostedModel | None,
) -> KeptHosted:
    from glowpy.session.kept_hosted import KeptHosted  # noqa: PLC0415 - most models are others

    return KeptHosted(
        key,
        file,
        lambda: fields,
        reading,
        partial(_kept_part, file),
        has_host_steps=fields["has_host_steps"],
        whole=whole if isinstance(whole, HostedModel) else None,
    )


def _fields_in_parts(model: HostedModel) -> Fields:
    from glowpy.session.kept_hosted import hosted_fields  # noqa: PLC0415 - most models are others

    return hosted_fields(model, _fields)


def _are_known(files: Mapping[Path, InFile]) -> bool:
    """Whether an entry can name files of external data."""
    return len(files) <= _MOST_FILES and all(file.identity for file in files.values())


def _fields(model: Model) -> Fields:
    """The fields of an entry for a model of numbers; none if they are not all that a session may ask."""
    content, infos = model.content, [*model.inputs, *model.outputs]
    if content is None or any(info.narrow for info in infos):
        return {}
    return {
        "inputs": [_info_fields(info) for info in model.inputs],
        "outputs": [_info_fields(info) for info in model.outputs],
        "state": model.state,
        "content": content.digest,
        "resizable": model.is_resizable,
    }


_MOST_FILES = 64
"""A model with more files of external data is read each time."""


def _info_fields(info: ValueInfo) -> Any:
    return info.name, info.kind.value, info.shape, info.names


def _info(fields: Sequence[Any]) -> ValueInfo:
    name, kind, shape, names = fields
    return ValueInfo(name, ElemKind(kind), shape, None, names)
