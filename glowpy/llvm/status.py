"""Results of entry points, as numbers that C programs see. Imports no LLVM."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Status"]


class Status(IntEnum):
    """Results of an entry point."""

    OK = 0
    MISSING_AREA = 1
    MISALIGNED = 2
    OVERRUN = 3
    CORRUPT_WEIGHTS = 4
    SELFTEST_FAILED = 5
    OUT_OF_BOUNDS = 6

    @property
    def meaning(self) -> str:
        """The meaning of the status, in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Status.OK: "done",
    Status.MISSING_AREA: "a pointer to an area that is not empty is NULL",
    Status.MISALIGNED: "an area does not begin at a multiple of the alignment",
    Status.OVERRUN: "something wrote outside the activations (bundles made with --guard)",
    Status.CORRUPT_WEIGHTS: "the constants are not this network's weights",
    Status.SELFTEST_FAILED: "an output differs from the golden one",
    Status.OUT_OF_BOUNDS: "an extent lies outside its bounds",
}
