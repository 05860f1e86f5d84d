"""Where libjit is: its sources, the list of variants, and the program that compiles kernels."""

from __future__ import annotations

from pathlib import Path

__all__ = ["IS_INSTALLED", "LIBJIT_FOLDER"]

_INSTALLED = Path(__file__).parent / "libjit"
_CHECKOUT = Path(__file__).parents[3] / "libjit"

IS_INSTALLED = _INSTALLED.is_dir()
"""Whether this is an installed package, not a checkout."""

LIBJIT_FOLDER = _INSTALLED if IS_INSTALLED else _CHECKOUT
"""A wheel carries them."""
