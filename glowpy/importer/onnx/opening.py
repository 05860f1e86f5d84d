"""Opening an ONNX model for a session, as one of numbers or as one of which it computes a part itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from glowpy.importer.onnx.given_elements import Given, replaced
from glowpy.importer.onnx.host.model import OnnxHostedModel, malformed, may_need_host
from glowpy.importer.onnx.model import OnnxModel, checked_model
from glowpy.importer.onnx.source import read_source
from glowpy.importer.reports import raise_all
from glowpy.importer.storage import InFile
from glowpy.support.limits import within_limits

__all__ = ["open_onnx"]


@within_limits
def open_onnx(
    model: str | Path | bytes | onnx.ModelProto,
    given: Given | None = None,
    files: Mapping[Path, InFile] | None = None,
) -> OnnxModel | OnnxHostedModel:
    """Reads and checks a model for a session: of the second kind only if the session has to compute something itself.

    Elements that are `given` take the places of those of the model. `files` are open already.

    Raises what `read_model` raises.
    """
    source = read_source(model, files=files)
    source = source if given is None else replaced(source, given)
    loaded: OnnxModel | OnnxHostedModel = OnnxModel(source)
    if may_need_host(source.proto.graph):
        raise_all([*malformed(source, source.proto.graph)])
        hosted = OnnxHostedModel(source, checked_model)
        loaded = hosted if hosted.has_host_steps or hosted.has_host_ports else loaded
    loaded.check()
    return loaded
