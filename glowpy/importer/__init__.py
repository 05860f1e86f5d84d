"""Readers of model formats: files in, modules out.

Names are imported when they are first used: a session whose networks are in the cache needs no reader.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glowpy.importer.declared import ValueInfo
    from glowpy.importer.formats import Reader, load, open_any, open_file, reader_of
    from glowpy.importer.model import Model
    from glowpy.importer.onnx.contrib.four_bits import FOUR_BIT_LEVELS
    from glowpy.importer.onnx.contrib.schemas import operator_schemas
    from glowpy.importer.onnx.given_elements import Given, external_reader
    from glowpy.importer.onnx.model import OnnxModel, read_model
    from glowpy.importer.onnx.registry import registered as imported_operators
    from glowpy.importer.onnx.signature import inferred_outputs
    from glowpy.importer.onnx.source import read_proto

__all__ = [
    "FOUR_BIT_LEVELS",
    "Given",
    "Model",
    "OnnxModel",
    "Reader",
    "ValueInfo",
    "external_reader",
    "imported_operators",
    "inferred_outputs",
    "load",
    "open_any",
    "open_file",
    "operator_schemas",
    "read_model",
    "read_proto",
    "reader_of",
]

_HOMES = {
    "FOUR_BIT_LEVELS": "onnx.contrib.four_bits",
    "Given": "onnx.given_elements",
    "Model": "model",
    "OnnxModel": "onnx.model",
    "Reader": "formats",
    "ValueInfo": "declared",
    "external_reader": "onnx.given_elements",
    "imported_operators": "onnx.registry",
    "inferred_outputs": "onnx.signature",
    "load": "formats",
    "open_any": "formats",
    "open_file": "formats",
    "operator_schemas": "onnx.contrib.schemas",
    "read_model": "onnx.model",
    "read_proto": "onnx.source",
    "reader_of": "formats",
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
