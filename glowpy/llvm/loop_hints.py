"""Hints for LLVM about loops, as metadata: whether one is unrolled, and when, and made of whole vectors."""

from __future__ import annotations

__all__ = ["hint_metadata", "hint_suffix"]

_ROLLED = 1_000_000
"""Metadata number, above all of the debug information's, of the hint not to unroll a loop. The next is that of the hint
not to do so before it is vectorised, but then. So are the sixth and seventh, for whole vectors; the eighth is for these
alone."""


def hint_suffix(*, rolled: bool, then: bool, in_vectors: bool) -> str:
    """The suffix of a branch back, of a loop `rolled` while vectors are made and unrolled `then` or not at all.

    One `in_vectors` is made of whole ones, whatever LLVM takes them to cost.
    """
    if in_vectors:
        return f", !llvm.loop !{_ROLLED + (5 + then if rolled else 7)}"
    return f", !llvm.loop !{_ROLLED + then}" if rolled else ""


def hint_metadata(lanes: int) -> list[str]:
    """Returns the metadata of a module, with that for whole vectors of so many elements unless these are 0."""
    lines = [
        f"!{_ROLLED} = distinct !{{!{_ROLLED}, !{_ROLLED + 2}}}",
        f"!{_ROLLED + 1} = distinct !{{!{_ROLLED + 1}, !{_ROLLED + 2}, !{_ROLLED + 3}}}",
        f'!{_ROLLED + 2} = !{{!"llvm.loop.unroll.disable"}}',
        f'!{_ROLLED + 3} = !{{!"llvm.loop.vectorize.followup_vectorized", !{_ROLLED + 4}}}',
        f'!{_ROLLED + 4} = !{{!"llvm.loop.unroll.full"}}',
    ]
    if lanes:
        vectors = f"!{_ROLLED + 8}, !{_ROLLED + 9}"
        lines += [
            f"!{_ROLLED + 5} = distinct !{{!{_ROLLED + 5}, !{_ROLLED + 2}, {vectors}}}",
            f"!{_ROLLED + 6} = distinct !{{!{_ROLLED + 6}, !{_ROLLED + 2}, !{_ROLLED + 3}, {vectors}}}",
            f"!{_ROLLED + 7} = distinct !{{!{_ROLLED + 7}, {vectors}}}",
            f'!{_ROLLED + 8} = !{{!"llvm.loop.vectorize.enable", i1 true}}',
            f'!{_ROLLED + 9} = !{{!"llvm.loop.vectorize.width", i32 {lanes}}}',
        ]
    return lines
