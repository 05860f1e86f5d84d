"""How a graph that was dumped as an ONNX file is marked in it: `exporter` writes it, `importer` reads it back.

Every node is an operator of our domain, under its mnemonic, with its attributes. A number after that names a function
of the file, which says what it computes in ONNX's own operators. Functions that nodes call are functions of the file,
which take the constants that they read after all else. What ONNX has no place for is in `metadata_props`.
"""

from __future__ import annotations

__all__ = [
    "CALLED",
    "CONSTANTS",
    "DECLARATIONS",
    "DOMAIN",
    "FUNCTIONS",
    "GIVES",
    "INITIAL",
    "NUMBERED",
    "PREDICATE",
    "SAVED",
    "TAKES",
    "TYPES",
]

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

NUMBERED = "."
"""Between a mnemonic and the number of the function that is the body: overloads, which ONNX has, few runtimes know."""

CONSTANTS = "glowpy.constants"
"""Of a node that calls functions: how many of its last inputs are constants that these read."""

CALLED = "@"
"""What the name of a function begins with that nodes call, as in dumps."""

INITIAL = "glowpy.initial"
"""Of the graph, in every file that glowpy writes: the initial values of variables, one a line. That is the name of the
input that the variable is in the file, and random numbers as in text, or a tensor of the file that no node reads."""

TAKES = "glowpy.takes"
"""Of such a function: the storages that its inputs are, by the names that dumps have."""

GIVES = "glowpy.gives"
"""Of such a function: the storages that its outputs are."""

FUNCTIONS = "glowpy.functions"
"""Of the graph: the names of all functions, in the order of the module."""
