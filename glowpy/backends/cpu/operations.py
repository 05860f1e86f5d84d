"""The CPU backend's own nodes and instructions, with the rules that say what they mean."""

from __future__ import annotations

import glowpy.backends.cpu.interpret
import glowpy.backends.cpu.measuring.efforts  # noqa: F401 - fills the tables of rules
from glowpy.backends.cpu.insts_gen import INSTS
from glowpy.backends.cpu.nodes_gen import NODES

__all__ = ["INSTS", "NODES"]
