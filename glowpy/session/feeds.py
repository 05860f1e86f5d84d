"""Checks the inputs that a session is given and the outputs it is asked for: names and element types."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glowpy.core.tensor import Array
from glowpy.runtime.arrays import input_mismatch
from glowpy.support.errors import UserError, expect_type

if TYPE_CHECKING:
    from glowpy.importer.declared import ValueInfo
    from glowpy.importer.value_types import HostInfo

__all__ = [
    "check_out",
    "checked_feeds",
    "chosen_outputs",
    "kept_types",
    "key_of",
    "listed",
    "narrow_types",
    "narrowed",
]

Dtype = np.dtype[Any]


def chosen_outputs(
    output_names: Sequence[str] | None, given: Sequence[str], known: Sequence[str]
) -> Sequence[str]:
    """These outputs, or those that are given if there are none. Raises UserError for names the model does not have."""
    if output_names is None:
        return given
    if isinstance(output_names, str):
        raise UserError(f"expected a list of outputs, got the text '{output_names}'")
    names = list(output_names or given)
    for name in names:
        if name not in known:
            raise UserError(f"expected one of the outputs {listed(known)}, got '{name}'")
    return names


def check_out(out: Mapping[str, Array], narrow: Mapping[str, Dtype]) -> None:
    """Raises UserError for what is no dict, and for memory of what is `narrow`: the types of outputs kept in bytes."""
    expect_type("out", out, Mapping, "a dict of arrays")
    for name in out:
        if name in narrow:
            raise UserError(f"out: '{name}' is of {narrow[name]}, and only copied from bytes")


def kept_types(infos: Sequence[ValueInfo]) -> list[tuple[str, Dtype, Dtype | None]]:
    """The name of each input, its type, and that in which it is kept if it is another."""
    return [
        (info.name, info.dtype, None if info.dtype == info.kind.dtype else info.kind.dtype)
        for info in infos
    ]


def narrow_types(infos: Sequence[ValueInfo]) -> dict[str, Dtype]:
    """The types of outputs that are kept in bytes, by name."""
    return {info.name: info.dtype for info in infos if info.narrow is not None}


def checked_feeds(
    input_feed: Mapping[str, Array],
    dtypes: Sequence[tuple[str, Dtype, Dtype | None]],
    infos: Callable[[], Sequence[ValueInfo | HostInfo]],
) -> dict[str, Array]:
    """The arrays of a call, each in the type in which it is kept. `dtypes` is what `kept_types` says of the inputs."""
    if not isinstance(input_feed, (dict, Mapping)):  # the latter takes four times as long
        raise UserError(f"expected a dict of inputs, got {type(input_feed).__name__}")
    feeds = {}
    for name, dtype, kept_dtype in dtypes:
        if name not in input_feed:
            raise _misfit(infos(), input_feed)
        feeds[name] = array = np.asarray(input_feed[name])
        if array.dtype != dtype:
            raise UserError(f"'{name}': expected {dtype}, got {array.dtype}")
        if kept_dtype is not None:  # integers of 4 bits, in bytes
            feeds[name] = array.astype(kept_dtype)
    if len(feeds) != len(input_feed):
        raise _misfit(infos(), input_feed)
    return feeds


def narrowed(outputs: Mapping[str, Array], narrow: Mapping[str, Dtype]) -> dict[str, Array]:
    """Outputs in their own types, where they are kept in bytes."""
    return {
        name: array.astype(narrow[name]) if name in narrow else array
        for name, array in outputs.items()
    }


def _misfit(infos: Sequence[ValueInfo | HostInfo], input_feed: Mapping[str, Array]) -> UserError:
    return input_mismatch({info.name: info.type for info in infos}, input_feed)


def key_of(values: Mapping[str, Array]) -> Hashable:
    """Elements that are known, as a part of a key."""
    return tuple([(name, array.tobytes()) for name, array in values.items()]) if values else ()


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(f"'{name}'" for name in names) or "none"
