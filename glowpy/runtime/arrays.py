"""Arrays of callers: whether they fit the ports of a network, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.support.errors import UserError

if TYPE_CHECKING:
    from glowpy.runtime.executable import Executable

__all__ = ["check_array", "given_inputs", "input_mismatch", "mismatch", "store_outputs"]


def store_outputs(results: dict[str, Array], out: Mapping[str, Array]) -> None:
    """Copies results to the arrays of `out` that a run did not write, which take their places.

    Raises UserError for arrays that do not take them, and names that there are no results of.
    """
    for name, array in out.items():
        if name not in results:
            raise UserError(f"expected the outputs {', '.join(map(repr, results))}, got '{name}'")
        if results[name] is not array:
            if not array.flags.writeable:
                raise UserError(f"'{name}': expected a writeable array for an output")
            check_array(name, Tensor.of(results[name]).type, array)
            array[...] = results[name]
            results[name] = array


def given_inputs(function: Executable[Array], arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Selects the arrays that a network takes."""
    if len(arrays) == len(function.input_ports):
        return arrays
    return {port.name: arrays[port.name] for port in function.input_ports}


def input_mismatch(types: Mapping[str, object], names: Collection[str]) -> UserError:
    """Creates the error for inputs whose names are not the expected ones, which come with their types."""
    for name in names:
        if name not in types:
            expected = ", ".join(map(repr, types)) or "none"
            return UserError(f"expected the inputs {expected}, got '{name}'")
    missing = ", ".join(f"'{name}' ({type})" for name, type in types.items() if name not in names)
    return UserError(f"missing input {missing}")


def check_array(name: str, type: Type, array: Array) -> None:
    """Raises UserError for an array of another dtype or shape; symbolic shapes are checked with the extents."""
    fits = array.shape == type.shape or not type.is_static
    if array.dtype != type.kind.dtype or not fits:
        raise mismatch(name, type, array)


def mismatch(name: str, type: Type, array: Array) -> UserError:
    """Creates the error for an array of another type than that of a port."""
    got = f"{array.dtype}[{'x'.join(map(str, array.shape))}]"
    return UserError(f"'{name}': expected an array of type {type}, got {got}")
