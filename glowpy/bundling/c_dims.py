"""Symbolic dimensions as C expressions of `size_t`, in which what is below zero on the way to a result wraps around."""

from __future__ import annotations

from collections.abc import Mapping

from glowpy.support.symbolic import Atom, Dim, Quotient, Symbol

__all__ = ["DIM_FUNCTIONS", "c_dim"]

DIM_FUNCTIONS = """\
/* What expressions for extents are made of: the floor of a quotient, the least and the greatest of two. Numbers above
   half of what a size_t holds are below zero. */
static inline size_t glowpy_div(size_t dividend, size_t divisor) {
  return dividend <= ((size_t)-1 >> 1) ? dividend / divisor : ~(~dividend / divisor);
}
static inline size_t glowpy_min(size_t a, size_t b) {
  return a - ((size_t)-1 >> 1) - 1 < b - ((size_t)-1 >> 1) - 1 ? a : b;
}
static inline size_t glowpy_max(size_t a, size_t b) {
  return a - ((size_t)-1 >> 1) - 1 > b - ((size_t)-1 >> 1) - 1 ? a : b;
}"""
"""The C functions that `c_dim` calls."""


def c_dim(dim: Dim, extents: Mapping[str, str]) -> str:
    """The expression of a dimension; `extents` says how C spells symbols, by their names."""
    if isinstance(dim, int):
        return f"{dim}u" if dim >= 0 else f"(size_t){dim}"
    text = ""
    for atoms, factor in dim.terms:
        parts = [f"{abs(factor)}u"] if abs(factor) != 1 or not atoms else []
        term = " * ".join([*parts, *(_atom(atom, extents) for atom in atoms)])
        sign = " - " if factor < 0 else " + "
        text = f"{text or '0u'}{sign}{term}" if text or factor < 0 else term
    return text


def _atom(atom: Atom, extents: Mapping[str, str]) -> str:
    if isinstance(atom, Symbol):
        return extents[atom.name]
    if isinstance(atom, Quotient):
        return f"glowpy_div({c_dim(atom.dividend, extents)}, {c_dim(atom.divisor, extents)})"
    text, *others = (c_dim(choice, extents) for choice in atom.choices)
    for other in others:
        text = f"glowpy_{atom.name}({text}, {other})"
    return text
