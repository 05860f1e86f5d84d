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
"""Key of a graph's symbols, and its placeholders, variables and constants, each with its name in the file."""

TYPES = "glowpy.types"
"""Key of the types of a node's results."""

PREDICATE = "glowpy.predicate"
"""Key that marks a node whose last input is its predicate."""

SAVED = "glowpy.output"
"""Key of the storage that a save writes."""

NUMBERED = "."
"""Separator of a mnemonic and the number of the function that is the body; few runtimes know ONNX's own overloads."""

CONSTANTS = "glowpy.constants"
"""Key of the number of a calling node's last inputs that are constants which the called functions read."""

CALLED = "@"
"""First character of the names of functions that nodes call, as in dumps."""

INITIAL = "glowpy.initial"
"""Key of the initial values of a graph's variables, one a line, in every file that glowpy writes.

A line has the name of the input that the variable is in the file, and random numbers as in text, or the name of a
tensor of the file that no node reads."""

TAKES = "glowpy.takes"
"""Key of the storages that are the inputs of such a function, by the names that dumps have."""

GIVES = "glowpy.gives"
"""Key of the storages that are the outputs of such a function."""

FUNCTIONS = "glowpy.functions"
"""Key of the names of all functions, in the order of the module."""
