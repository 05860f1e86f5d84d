"""Readers of model formats: files in, modules out.

Names are imported when they are first used: a session whose networks are in the cache needs no reader.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glowpy.importer.declared import ValueInfo
    from glowpy.importer.formats import (
        Reader,
        format_of,
        is_onnx,
        load,
        open_model,
        open_whole,
        survey_model,
    )
    from glowpy.importer.model import HostedModel, Model
    from glowpy.importer.onnx.check import unsupported_reason
    from glowpy.importer.onnx.contrib.four_bits import FOUR_BIT_LEVELS
    from glowpy.importer.onnx.contrib.schemas import operator_schemas
    from glowpy.importer.onnx.given_elements import Given, external_reader
    from glowpy.importer.onnx.host.operators import HOSTED_OPERATORS
    from glowpy.importer.onnx.model import OnnxModel, read_model
    from glowpy.importer.onnx.registry import registered as imported_operators
    from glowpy.importer.onnx.signature import inferred_outputs
    from glowpy.importer.onnx.source import read_proto
    from glowpy.importer.onnx.tensor_files import read_tensor

__all__ = [
    "FOUR_BIT_LEVELS",
    "HOSTED_OPERATORS",
    "Given",
    "HostedModel",
    "Model",
    "OnnxModel",
    "Reader",
    "ValueInfo",
    "external_reader",
    "format_of",
    "imported_operators",
    "inferred_outputs",
    "is_onnx",
    "load",
    "open_model",
    "open_whole",
    "operator_schemas",
    "read_model",
    "read_proto",
    "read_tensor",
    "survey_model",
    "unsupported_reason",
]

_HOMES = {
    "FOUR_BIT_LEVELS": "onnx.contrib.four_bits",
    "HOSTED_OPERATORS": "onnx.host.operators",
    "Given": "onnx.given_elements",
    "HostedModel": "model",
    "Model": "model",
    "OnnxModel": "onnx.model",
    "Reader": "formats",
    "ValueInfo": "declared",
    "format_of": "formats",
    "external_reader": "onnx.given_elements",
    "imported_operators": "onnx.registry",
    "inferred_outputs": "onnx.signature",
    "is_onnx": "formats",
    "load": "formats",
    "open_model": "formats",
    "open_whole": "formats",
    "survey_model": "formats",
    "unsupported_reason": "onnx.check",
    "operator_schemas": "onnx.contrib.schemas",
    "read_model": "onnx.model",
    "read_proto": "onnx.source",
    "read_tensor": "onnx.tensor_files",
}
_OTHERWISE = {"imported_operators": "registered"}
"""The names in their modules, where these are others."""

if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        """The name, imported now and kept (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module 'glowpy.importer' has no attribute '{name}'")
        module = import_module(f"glowpy.importer.{_HOMES[name]}")
        value = getattr(module, _OTHERWISE.get(name, name))
        globals()[name] = value
        return value
