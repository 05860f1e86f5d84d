"""From a path, bytes or a `ModelProto` to a checked `ModelProto`: the only code that opens a model's own file.

Large tensors stay where they are; see `wire`. What a file claims is not believed: it must parse, hold a graph, and be
of versions this importer knows. Model-local functions are inlined here, after a count of what they expand to, so that
no later module sees them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, EncodeError, Message  # type: ignore[import-untyped]
from onnx import defs, external_data_helper, inliner

from glowpy.importer.foreign import foreign_file, foreign_folder
from glowpy.importer.onnx.contrib.schemas import CONTRIB, NCHWC
from glowpy.importer.onnx.defaults import complete_calls
from glowpy.importer.onnx.function_outputs import name_outputs
from glowpy.importer.onnx.irregular import regularize
from glowpy.importer.onnx.opset_imports import imply_opsets
from glowpy.importer.onnx.order import subgraphs
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.tensor import open_external
from glowpy.importer.onnx.wire import extract
from glowpy.importer.storage import InFile, InMemory
from glowpy.plugins import load_operators
from glowpy.support.dumped import DECLARATIONS, DOMAIN
from glowpy.support.errors import LoadError, UnsupportedError, UserError, expect_type
from glowpy.support.loc import Loc

__all__ = [
    "IMPLIED_OPSETS",
    "MAX_NODES",
    "NEWEST_OPSETS",
    "Source",
    "domain_of",
    "read_proto",
    "read_source",
]

MAX_NODES = 200_000
"""No graph may have more nodes, functions expanded: a model beyond this is a mistake or an attack."""

MAX_FILE = (1 << 31) - 1
"""Protocol buffers end here; larger models keep their weights in files beside them."""

NEWEST_OPSETS = {
    "": 28, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, CONTRIB: 1, NCHWC: 1, DOMAIN: 1,
}  # fmt: skip
"""For each domain, the newest opset this importer was reviewed for. A later opset may change any operator."""

IMPLIED_OPSETS = {
    domain: min(version, defs.onnx_opset_version()) if not domain else version
    for domain, version in NEWEST_OPSETS.items()
    if domain != DOMAIN
}
"""Opsets of domains that a model uses without importing them: the newest of those that come with glowpy."""

_CACHES = frozenset({"GroupQueryAttention"})
"""Operators that put keys and values where those of the past are, if there is room after them."""


@dataclass(frozen=True)
class Source:
    """A parsed model, how messages call it, and where the elements of its tensors are.

    Of a part of a model, `part` tells it from other parts, and `places` are the positions of its nodes in the graph
    that it is a part of, which is `within` a node unless it is the model's.
    """

    proto: onnx.ModelProto
    file: str
    stores: Stores
    part: str = ""
    places: tuple[int, ...] = ()
    within: str = ""

    @property
    def opsets(self) -> dict[str, int]:
        """The opset version the model asks for, by domain."""
        return {domain_of(entry.domain): entry.version for entry in self.proto.opset_import}

    @property
    def is_dump(self) -> bool:
        """Whether it is a graph that `glowpy dump` wrote: its functions are for others, its nodes are ours."""
        return any(entry.key == DECLARATIONS for entry in self.proto.graph.metadata_props)

    @property
    def keeps_caches(self) -> bool:
        """Whether outputs may be in the memory of inputs, and then are only in part written."""
        return any(node.op_type in _CACHES for node in self.proto.graph.node)


def domain_of(domain: str) -> str:
    """The domain as this package spells it: ONNX's own, `ai.onnx`, is the empty string."""
    return "" if domain == "ai.onnx" else domain


def read_source(
    model: str | Path | bytes | onnx.ModelProto,
    noted: list[UserError] | None = None,
    files: Mapping[Path, InFile] | None = None,
) -> Source:
    """Parses and checks a model. Versions that are not known are `noted`, where that is given, and the model is read.

    `files` are open already: that of the model, and others of external data.

    Raises LoadError for a file that is missing, truncated, too large, or no ONNX model, UnsupportedError for
    versions newer than this importer.
    """
    match model:
        case onnx.ModelProto():
            name = model.graph.name or "model"
            source = _parse(_serialized(model, name), name)
        case bytes():
            source = _parse(model, "model")
        case _:
            expect_type(
                "model", model, str | os.PathLike, "a path, the bytes of a file or a ModelProto"
            )
            source = _read(Path(model), dict(files or {}))
    external = _check_texts(source)
    _check_contents(source)
    regularize(source.proto)
    imply_opsets(source.proto, IMPLIED_OPSETS)
    for error in _version_problems(source):
        if noted is None:
            raise error
        noted.append(error)
    for domain in source.opsets:
        load_operators(domain)
    _open_external(external, source.stores)
    if source.proto.functions and not source.is_dump:
        source = _inline(source)
    if len(source.proto.graph.node) > MAX_NODES:
        raise UserError(
            f"expected at most {MAX_NODES} nodes, got {len(source.proto.graph.node)}",
            loc=Loc(source.file),
        )
    return source


def read_proto(content: bytes) -> onnx.ModelProto:
    """The parsed bytes of a file, whatever is in it. Raises LoadError for what is no model."""
    return _parse(content, "model").proto


def _serialized(model: onnx.ModelProto, name: str) -> bytes:
    """The bytes of a model, which may be changed after it was loaded."""
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError) as error:
        raise LoadError(
            f"cannot take a model of more than {MAX_FILE} bytes as an object: {error}",
            loc=Loc(name),
            note="keep the weights in external data, and load the model by its path",
        ) from None


def _read(path: Path, files: dict[Path, InFile]) -> Source:
    if path in files:
        return _read_file(files.pop(path), path, files)
    try:
        if not path.is_file():
            if path.is_dir() and (folder := foreign_folder(path)) is not None:
                raise folder.error(str(path))
            what = "it is no file" if path.exists() else "there is no such file"
            raise LoadError(f"cannot read '{path}': {what}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise LoadError(f"cannot read '{path}': {reason}") from None
    return _read_file(InFile(path), path, files)


def _read_file(file: InFile, path: Path, others: dict[Path, InFile]) -> Source:
    if file.size > MAX_FILE:
        _check_foreign(path, path.name)
        raise LoadError(
            f"cannot read '{path}': expected at most {MAX_FILE} bytes",
            note="keep the weights in external data beside the model",
        )
    small, extracted = extract(file.size, lambda start, count: file.read(start, count).data)
    return _parsed(small, path.name, Stores(file, extracted, path.parent, path, others), path)


def _parse(content: bytes, file: str) -> Source:
    view = memoryview(content)
    small, extracted = extract(len(content), lambda start, count: view[start : start + count])
    return _parsed(small, file, Stores(InMemory(content), extracted), content)


def _check_foreign(whole: Path | bytes, file: str) -> None:
    """Raises LoadError for what is a file of something else."""
    if (format := foreign_file(whole, file)) is not None:
        raise format.error(str(whole) if isinstance(whole, Path) else file)


def _parsed(content: bytes, file: str, stores: Stores, whole: Path | bytes) -> Source:
    """Raises LoadError for what is no model."""
    if not content:
        raise LoadError(
            "expected an ONNX model, got an empty file",
            loc=Loc(file),
            note="copy or download it again: nothing of it was written",
        )
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except (DecodeError, RuntimeError, ValueError):
        _check_foreign(whole, file)
        raise LoadError(
            "expected an ONNX model, got something that does not parse",
            loc=Loc(file),
            note="the file is truncated, or not a model",
        ) from None
    if not proto.HasField("graph"):
        _check_foreign(whole, file)
    return Source(proto, file, stores)


def _check_texts(source: Source) -> list[onnx.TensorProto]:
    """Raises LoadError if a name is no UTF-8: protocol buffers hand such a text out as bytes.

    Returns the tensors with external data.
    """
    external: list[onnx.TensorProto] = []
    work: list[Any] = [source.proto]
    while work:
        message = work.pop()
        is_no_tensor = not isinstance(message, onnx.TensorProto)  # the rest of a tensor is numbers
        for field, value in message.ListFields() if is_no_tensor else ():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                work.extend([value] if isinstance(value, Message) else value)
            elif field.type == FieldDescriptor.TYPE_STRING:
                for text in [value] if isinstance(value, str | bytes) else value:
                    _check_text(text, source.file)
        if isinstance(message, onnx.TensorProto):
            _check_text(message.name, source.file)
            work.extend(message.external_data)
            if external_data_helper.uses_external_data(message):
                external.append(message)
    return external


def _open_external(tensors: Iterable[onnx.TensorProto], stores: Stores) -> None:
    """Opens their files, which belong to what the model is; `decode` says what is wrong with them."""
    for tensor in tensors if stores.folder is not None else ():
        with suppress(UserError):
            open_external(tensor, stores)


def _check_text(text: str | bytes, file: str) -> None:
    if isinstance(text, bytes):
        raise LoadError(
            f"expected an ONNX model, got a name that is no UTF-8: {text[:40]!r}",
            loc=Loc(file),
            note="the file is damaged",
        )


def _check_contents(source: Source) -> None:
    proto = source.proto
    if not proto.HasField("graph") or not proto.opset_import or proto.ir_version < 1:
        raise LoadError(
            "expected an ONNX model with a graph and an opset",
            loc=Loc(source.file),
            note="the file is truncated, or not a model",
        )


def _version_problems(source: Source) -> Iterator[UserError]:
    loc, ir_version = Loc(source.file), source.proto.ir_version
    if ir_version > onnx.IR_VERSION:
        yield UnsupportedError(
            f"expected an IR version of at most {onnx.IR_VERSION}, got {ir_version}",
            loc=loc,
            note="a newer onnx package may read it",
        )
    for domain, version in source.opsets.items():
        newest = NEWEST_OPSETS.get(domain, version)
        if not 1 <= version <= newest:
            yield UnsupportedError(
                f"expected an opset of '{domain or 'ai.onnx'}' from 1 to {newest}, got {version}",
                loc=loc,
                note="export the model at an older opset",
            )


def _inline(source: Source) -> Source:
    """The model without model-local functions."""
    _check_expansion(source)
    complete_calls(source.proto, MAX_NODES, Loc(source.file))
    for function in source.proto.functions:
        name_outputs(function, source.opsets.get("", 1))
        _take_opsets(function, source.opsets)
    try:
        proto = inliner.inline_local_functions(source.proto, True)
    except Exception as error:  # noqa: BLE001 -- the bindings raise whatever the C++ side throws
        raise UserError(
            f"cannot inline the model's functions: {error}", loc=Loc(source.file)
        ) from None
    return Source(proto, source.file, source.stores)


def _take_opsets(function: onnx.FunctionProto, opsets: Mapping[str, int]) -> None:
    """Takes the model's opsets for a function's where all its operators are the same in both.

    The others are converted as they are inlined, for which onnx has to know the types of all values, and may not.
    """
    nodes = list(function.node)
    for node in nodes:
        nodes += [inner for graph in subgraphs(node) for inner in graph.node]
    for opset in function.opset_import:
        domain = domain_of(opset.domain)
        version = opsets.get(domain, opset.version)
        operators = {node.op_type for node in nodes if domain_of(node.domain) == domain}
        if all(
            _since(domain, op, version) == _since(domain, op, opset.version) for op in operators
        ):
            opset.version = version


def _since(domain: str, op_type: str, opset: int) -> int | None:
    """Since when an operator is what it is at an opset; None of what onnx does not know."""
    try:
        return int(onnx.defs.get_schema(op_type, opset, domain).since_version)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: the number is larger than any opset's
        return None


def _check_expansion(source: Source) -> None:
    """Raises UserError if functions call each other in a circle, or expand to more nodes than any graph may have."""
    bodies = {(domain_of(f.domain), f.name): list(f.node) for f in source.proto.functions}
    sizes: dict[tuple[str, str], int] = {}
    for root in bodies:
        path: list[tuple[str, str]] = [root]
        while path:
            key = path[-1]
            calls = [call for node in bodies[key] if (call := _callee(node)) in bodies]
            waiting = next((call for call in calls if call not in sizes), None)
            if waiting is None:
                sizes[key] = _expanded(bodies[key], sizes)
                path.pop()
            elif waiting in path:
                raise UserError(f"function '{waiting[1]}' calls itself", loc=Loc(source.file))
            else:
                path.append(waiting)
    total = _expanded(source.proto.graph.node, sizes)
    if max(total, *sizes.values()) > MAX_NODES:
        raise UserError(
            f"functions expand to more than {MAX_NODES} nodes",
            loc=Loc(source.file),
        )


def _callee(node: onnx.NodeProto) -> tuple[str, str]:
    return domain_of(node.domain), node.op_type


def _expanded(nodes: Iterable[onnx.NodeProto], sizes: dict[tuple[str, str], int]) -> int:
    return sum(sizes.get(_callee(node), 1) for node in nodes)
