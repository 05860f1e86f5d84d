"""ONNX as a format of models: the one of which glowpy reads all that is known."""

from __future__ import annotations

from glowpy.importer.format import Format, Unopened
from glowpy.importer.onnx.host.model import OnnxHostedModel
from glowpy.importer.onnx.model import OnnxModel, read_model
from glowpy.importer.onnx.opening import open_onnx
from glowpy.importer.onnx.survey import SurveyedModel, read_with_problems

__all__ = ["OnnxFormat"]

_START = b"\x08"
"""The tag of the version, which all writers of ONNX files begin with."""


class OnnxFormat(Format):
    """ONNX. What is no format's is opened by it as well: it says what a file looks like."""

    name = "ONNX"
    suffixes = (".onnx",)

    def begins(self, start: bytes) -> bool:
        """Whether files begin so."""
        return start.startswith(_START)

    def open(self, unopened: Unopened) -> OnnxModel | OnnxHostedModel:
        """Reads and checks a model for a session."""
        return open_onnx(unopened.model, files=unopened.files)

    def open_whole(self, unopened: Unopened) -> OnnxModel:
        """Reads and checks a model of numbers alone. Raises UnsupportedError that lists what else it has."""
        return read_model(unopened.model)

    def survey(self, unopened: Unopened) -> SurveyedModel:
        """Reads a model and notes what is wrong with it."""
        return read_with_problems(unopened.model)
