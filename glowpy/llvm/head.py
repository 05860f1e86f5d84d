"""Heads of functions: what one says of itself, and what a target has for all of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Head", "Heads"]


@dataclass(frozen=True)
class Head:
    """Head of one function: the parts that are not common to all functions of the target.

    Attributes:
        result: The LLVM type of what it returns.
        name: Without the `@`.
        parameters: Types and names, separated by commas.
        linkage: LLVM's word for who may call it; empty for everybody.
        words: LLVM's words for what it is to do with this function alone.
        is_launched: Whether its calls are launches: it computes runs, and is no part of another function.
    """

    result: str
    name: str
    parameters: str
    linkage: str = ""
    words: tuple[str, ...] = ()
    is_launched: bool = False


@dataclass(frozen=True)
class Heads:
    """Parts of a head that are common to all functions of a target.

    Attributes:
        attributes: LLVM's words, such as `nounwind`.
        convention: LLVM's name of how launches call functions, such as `ptx_kernel`; empty for the one of C.
    """

    attributes: str
    convention: str = ""

    @classmethod
    def for_vectors(cls, vector_bytes: int) -> Heads:
        """Creates the heads for a processor whose vectors have so many bytes: a launch is a call as in C."""
        return cls(f'nounwind "prefer-vector-width"="{8 * vector_bytes}"')

    def text(self, head: Head) -> str:
        """The definition of a function, up to its debug information and body."""
        convention = self.convention if head.is_launched else ""
        name = f"@{head.name}({head.parameters})"
        words = ("define", head.linkage, convention, head.result, name)
        return " ".join(filter(None, (*words, *head.words, self.attributes)))
