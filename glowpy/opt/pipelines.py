"""The only place where the order of passes lives."""

from __future__ import annotations

from glowpy.opt.graph.dce import DcePass
from glowpy.passes import GraphPass, IRPass

__all__ = ["GRAPH_DEFAULT", "GRAPH_PASSES", "IR_DEFAULT", "IR_PASSES"]

GRAPH_DEFAULT: tuple[GraphPass, ...] = (DcePass(),)
"""What the recipe runs before and behind lowering, until nothing changes."""

IR_DEFAULT: tuple[IRPass, ...] = ()
"""What the recipe runs on the IR, in order."""

GRAPH_PASSES: dict[str, GraphPass] = {each.name: each for each in GRAPH_DEFAULT}
"""Every graph pass by its name, for `glowpy opt`."""

IR_PASSES: dict[str, IRPass] = {each.name: each for each in IR_DEFAULT}
"""Every IR pass by its name, for `glowpy opt`."""
