"""Readers of model formats: files in, modules out."""

from glowpy.importer.formats import Reader, load, open_file, reader_of
from glowpy.importer.kit.found import count_output
from glowpy.importer.kit.needs import RoundsError, ValueNeededError
from glowpy.importer.model import Model
from glowpy.importer.onnx.contrib.four_bits import FOUR_BIT_LEVELS
from glowpy.importer.onnx.contrib.schemas import operator_schemas
from glowpy.importer.onnx.given_elements import Given, external_reader
from glowpy.importer.onnx.indices import checks_among, raise_wrong
from glowpy.importer.onnx.model import OnnxModel, read_model
from glowpy.importer.onnx.registry import registered as imported_operators
from glowpy.importer.onnx.signature import ValueInfo, inferred_outputs
from glowpy.importer.onnx.source import read_proto

__all__ = [
    "FOUR_BIT_LEVELS",
    "Given",
    "Model",
    "OnnxModel",
    "Reader",
    "RoundsError",
    "ValueInfo",
    "ValueNeededError",
    "checks_among",
    "count_output",
    "external_reader",
    "imported_operators",
    "inferred_outputs",
    "load",
    "open_file",
    "operator_schemas",
    "raise_wrong",
    "read_model",
    "read_proto",
    "reader_of",
]
