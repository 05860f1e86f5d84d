"""How far outputs of a bundle may be from those of the interpreter, as a share of the largest one."""

from __future__ import annotations

__all__ = ["tolerance_of"]

_FLOATS, _BF16 = 1e-3, 2.0**-4
"""The second is that of 16 roundings to bf16: sums that differ in their last bits are rounded to other neighbours."""


def tolerance_of(*, bf16: bool) -> float:
    """The tolerance for code that computes products in f32, or in bf16."""
    return _BF16 if bf16 else _FLOATS
