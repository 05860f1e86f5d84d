"""How a graph that was dumped as an ONNX file is marked in it: `exporter` writes it, `importer` reads it back.

Every node is an operator of our domain, under its mnemonic, with its attributes; where a function of the file has a
body for it, that is what it computes in ONNX's own operators. What ONNX has no place for is in `metadata_props`.
"""

from __future__ import annotations

__all__ = ["DECLARATIONS", "DOMAIN", "PREDICATE", "SAVED", "TYPES"]

DOMAIN = "org.glowpy"
"""The domain of the operators."""

DECLARATIONS = "glowpy.declarations"
"""Of the graph: its symbols, and its placeholders, variables and constants, each with its name in the file."""

TYPES = "glowpy.types"
"""Of a node: the types of its results."""

PREDICATE = "glowpy.predicate"
"""Of a node whose last input is its predicate."""

SAVED = "glowpy.output"
"""Of a save: the storage that it writes."""
