"""The only place where the order of passes lives."""

from __future__ import annotations

from glowpy.opt.graph.canonical_order import CanonicalOrderPass
from glowpy.opt.graph.constant_fold import ConstantFoldPass
from glowpy.opt.graph.cse import CsePass
from glowpy.opt.graph.dce import DcePass
from glowpy.opt.graph.fold_arithmetic import FoldArithmeticPass
from glowpy.opt.graph.fold_batch_norm import FoldBatchNormPass
from glowpy.opt.graph.fold_blocks import FoldBlocksPass
from glowpy.opt.graph.fold_broadcast import FoldBroadcastPass
from glowpy.opt.graph.fold_calls import FoldCallsPass
from glowpy.opt.graph.fold_clip import FoldClipPass
from glowpy.opt.graph.fold_concat import FoldConcatPass
from glowpy.opt.graph.fold_convert import FoldConvertPass
from glowpy.opt.graph.fold_gelu import FoldGeluPass
from glowpy.opt.graph.fold_power import FoldPowerPass
from glowpy.opt.graph.fold_quantize import FoldQuantizePass
from glowpy.opt.graph.fold_reshape import FoldReshapePass
from glowpy.opt.graph.fold_select import FoldSelectPass
from glowpy.opt.graph.fold_slice import FoldSlicePass
from glowpy.opt.graph.fold_splat import FoldSplatPass
from glowpy.opt.graph.fold_storage_cast import FoldStorageCastPass
from glowpy.opt.graph.fold_transpose import FoldTransposePass
from glowpy.opt.graph.hoist_invariants import HoistInvariantsPass
from glowpy.opt.graph.lower_quantized import LowerQuantizedPass
from glowpy.opt.graph.merge_pad import MergePadPass
from glowpy.opt.graph.narrow_constants import NarrowConstantsPass
from glowpy.opt.graph.sink_transpose import SinkTransposePass
from glowpy.opt.graph.split_products import SplitProductsPass
from glowpy.opt.graph.widen_sums import WidenSumsPass
from glowpy.opt.ir.dead_store import DeadStorePass
from glowpy.opt.ir.elide_copy import ElideCopyPass
from glowpy.opt.ir.peephole import PeepholePass
from glowpy.opt.ir.share_buffers import ShareBuffersPass
from glowpy.opt.ir.shrink_lifetimes import ShrinkLifetimesPass
from glowpy.opt.ir.stack import StackPass
from glowpy.opt.ir.update_in_place import UpdateInPlacePass
from glowpy.opt.ir.view_extract import ViewExtractPass
from glowpy.opt.ir.view_insert import ViewInsertPass
from glowpy.opt.ir.view_transpose import ViewTransposePass
from glowpy.opt.ir.write_transposed import WriteTransposedPass
from glowpy.passes import GraphPass, IRPass, RewritePass, Rewrites

__all__ = [
    "CALLS",
    "GRAPH_DEFAULT",
    "GRAPH_PASSES",
    "IR_DEFAULT",
    "IR_PASSES",
    "LOCAL_REWRITES",
    "QUANTIZED",
]

LOCAL_REWRITES: tuple[RewritePass, ...] = (
    CanonicalOrderPass(),
    FoldBroadcastPass(),
    FoldSplatPass(),
    FoldReshapePass(),
    FoldBlocksPass(),
    FoldTransposePass(),
    SinkTransposePass(),
    FoldConcatPass(),
    FoldSlicePass(),
    FoldSelectPass(),
    FoldConvertPass(),
    FoldClipPass(),
    FoldStorageCastPass(),
    FoldQuantizePass(),
    FoldArithmeticPass(),
    FoldPowerPass(),
    FoldGeluPass(),
    MergePadPass(),
    FoldBatchNormPass(),
)
"""The rules that every node is tried with, in this order, until none fits."""

GRAPH_DEFAULT: tuple[GraphPass, ...] = (
    DcePass(),
    ConstantFoldPass(),
    NarrowConstantsPass(),
    Rewrites(LOCAL_REWRITES),
    CsePass(),
    WidenSumsPass(),
    FoldCallsPass(),
    HoistInvariantsPass(),
)
"""Passes that the recipe runs before and after lowering, repeatedly until nothing changes."""

CALLS: tuple[GraphPass, ...] = (FoldCallsPass(),)
"""Passes that the recipe runs first, on every function that calls others, so that all later passes know more."""

QUANTIZED: tuple[GraphPass, ...] = (SplitProductsPass(), LowerQuantizedPass())
"""Passes that lower quantized arithmetic, run once, between the first optimization and the lowering."""

IR_DEFAULT: tuple[IRPass, ...] = (
    PeepholePass(),
    DeadStorePass(),
    ElideCopyPass(),
    ViewExtractPass(),
    ViewTransposePass(),
    UpdateInPlacePass(),
    ShareBuffersPass(),
    WriteTransposedPass(),
    ViewInsertPass(),
    ShrinkLifetimesPass(),
    StackPass(),
)
"""Passes that the recipe runs on the IR, in order. Only the last two depend on where allocs and deallocs stand.

The order matters: a slice or transposition disappears when its result is written in place, and a buffer that was
written in place can then be inserted or transposed in place as a whole.
"""

GRAPH_PASSES: dict[str, GraphPass] = {
    member.name: member for step in (*GRAPH_DEFAULT, *QUANTIZED) for member in step.flattened()
}
"""Every graph pass by its name, for `glowpy opt`."""

IR_PASSES: dict[str, IRPass] = {member.name: member for member in IR_DEFAULT}
"""Every IR pass by its name, for `glowpy opt`."""
