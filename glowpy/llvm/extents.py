"""Symbolic extents in machine code: what a dimension is, computed from the extents of a run.

Where a network has symbols, its code is told their extents as an array of numbers of the target's pointer size, in the
order of `Symbols.names`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.ir.value import Mutability, Value, WeightVar
from glowpy.support.symbolic import Atom, Dim, Extreme, Quotient, Symbol

__all__ = ["Symbols", "emit_dim"]


@dataclass(frozen=True)
class Symbols:
    """The symbols of one network, in the order in which its code is told their extents.

    Attributes:
        names: Their names.
        memory: The stand-in for the array of extents among the memory that a function works on.
    """

    names: tuple[str, ...]
    memory: Value = field(
        default_factory=lambda: WeightVar("extents", Type(ElemKind.I64, ()), Mutability.MUTABLE)
    )


def emit_dim(
    dim: Dim, load: Callable[[Symbol], str], let: Callable[[str], str], integer: str
) -> str:
    """The number that a dimension is: a literal, or the register of what `let` appends.

    `load` gives the register of a symbol's extent; `integer` is the type of numbers.
    """
    if isinstance(dim, int):
        return str(dim)
    total = ""
    for atoms, factor in dim.terms:
        term = _product(atoms, factor, load, let, integer)
        total = let(f"add nsw {integer} {total}, {term}") if total else term
    return total


def _product(
    atoms: tuple[Atom, ...],
    factor: int,
    load: Callable[[Symbol], str],
    let: Callable[[str], str],
    integer: str,
) -> str:
    total = ""
    for atom in atoms:
        number = _atom(atom, load, let, integer)
        total = let(f"mul nsw {integer} {total}, {number}") if total else number
    if not total:
        return str(factor)
    return total if factor == 1 else let(f"mul nsw {integer} {total}, {factor}")


def _atom(
    atom: Atom, load: Callable[[Symbol], str], let: Callable[[str], str], integer: str
) -> str:
    match atom:
        case Symbol():
            return load(atom)
        case Quotient():
            dividend = emit_dim(atom.dividend, load, let, integer)
            divisor = emit_dim(atom.divisor, load, let, integer)
            if atom.dividend.low >= 0:
                return let(f"udiv {integer} {dividend}, {divisor}")
            # The floor: one less than the truncated quotient where something negative is left.
            quotient = let(f"sdiv {integer} {dividend}, {divisor}")
            rest = let(f"srem {integer} {dividend}, {divisor}")
            below = let(f"icmp slt {integer} {rest}, 0")
            return let(f"add {integer} {quotient}, {let(f'sext i1 {below} to {integer}')}")
        case Extreme():
            relation = "slt" if atom.name == "min" else "sgt"
            register, *others = (emit_dim(choice, load, let, integer) for choice in atom.choices)
            for other in others:
                better = let(f"icmp {relation} {integer} {other}, {register}")
                register = let(f"select i1 {better}, {integer} {other}, {integer} {register}")
            return register
