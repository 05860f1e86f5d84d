"""Decoders of operators that generate text: they compute the logits of the next token, and keep the caches between.

The first step is computed once for each text, whatever the number of beams is; from the second on, each beam has a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.generation import DecoderForm
from glowpy.support.errors import UserError

__all__ = ["Caller", "Decoder", "EncodedDecoder", "PromptedDecoder"]

Caller = Callable[[Sequence[Array]], list[Array]]
"""Computes a graph."""


class Decoder(Protocol):
    """A decoder in the midst of some texts."""

    @property
    def begun(self) -> Array:
        """The tokens that the texts begin with, [texts, length]."""

    def first(self) -> Array:
        """Computes the logits of the token after the beginnings, [texts, vocabulary]."""

    def next(self, tokens: Array, origins: Array) -> Array:
        """Computes the logits of the next token for each row, [rows, vocabulary].

        Args:
            tokens: Those of every row so far, [rows, length].
            origins: For each row, the one of the step before whose next token is its last one.
        """


@dataclass
class _Caches:
    """The caches of a decoder's layers, with one row for each text until the second step.

    Attributes:
        axis: Along which axis of a cache its rows are.
    """

    axis: int
    items: list[Array] = field(default_factory=list)

    def reorder(self, rows: Array) -> None:
        """Lets each row go on from one that there is."""
        if self.items and not np.array_equal(rows, np.arange(self.items[0].shape[self.axis])):
            self.items = [np.take(item, rows, self.axis) for item in self.items]


def _last(logits: Array) -> Array:
    """The logits after the last token."""
    if logits.ndim != 3 or not logits.shape[1]:
        raise UserError(f"expected logits of rank 3 of a decoder, got {list(logits.shape)}")
    return logits[:, -1]


def _empty(form: DecoderForm, texts: int, dtype: np.dtype[np.generic]) -> list[Array]:
    """Caches without an entry."""
    return [np.zeros(form.empty_cache(texts), dtype)] * form.num_caches


class PromptedDecoder:
    """A decoder alone, as GPT-2 is one: the texts begin with prompts, which may be padded.

    Args:
        start: The graph of the first step.
        step: That of all others.
        form: The form of the decoder.
        prompts: The prompts.
        mask: Which tokens count; None for all that are no padding.
        pad: The token that fills prompts up.
        dtype: What caches consist of.
    """

    def __init__(
        self,
        start: Caller,
        step: Caller,
        form: DecoderForm,
        prompts: Array,
        mask: Array | None,
        pad: int,
        dtype: np.dtype[np.generic],
    ) -> None:
        self._start, self._step = start, step
        self._form, self._dtype = form, dtype
        self.begun = prompts
        counts = prompts != pad
        self._mask = counts.astype(np.int32) if mask is None else mask
        self._positions = np.where(counts, np.cumsum(counts, axis=1) - 1, 0).astype(np.int32)
        self._lengths = counts.sum(axis=1, dtype=np.int32)
        self._caches = _Caches(axis=1)

    def first(self) -> Array:
        """Computes the logits after the prompts."""
        empty = _empty(self._form, len(self.begun), self._dtype)
        logits, *self._caches.items = self._start([self.begun, self._positions, self._mask, *empty])
        return _last(logits)

    def next(self, tokens: Array, origins: Array) -> Array:
        """Computes the logits of the next token."""
        rows = len(tokens)
        if rows != len(self._mask):
            beams = rows // len(self._mask)
            origins = origins // beams
            self._mask = np.repeat(self._mask, beams, axis=0)
            self._lengths = np.repeat(self._lengths, beams)
        self._mask = np.concatenate([self._mask, np.ones((rows, 1), np.int32)], axis=1)
        positions = self._lengths[:, np.newaxis]
        self._lengths = self._lengths + np.int32(1)
        self._caches.reorder(origins)
        logits, *self._caches.items = self._step(
            [tokens[:, -1:], positions, self._mask, *self._caches.items]
        )
        return _last(logits)


class EncodedDecoder:
    """A decoder after an encoder, which has computed what the decoder reads of its input.

    Args:
        step: The decoder.
        form: Its form.
        begun: The tokens that the texts begin with.
        fixed: What the decoder takes that does not change, by name, with one row for each text.
        encoded: What the encoder gives: caches of what it has read alone, or logits and hidden states before caches of
            the first step as well.
    """

    def __init__(
        self,
        step: Caller,
        form: DecoderForm,
        begun: Array,
        fixed: dict[str, Array],
        encoded: Sequence[Array],
    ) -> None:
        self._step, self._form, self.begun = step, form, begun
        self._caches = _Caches(axis=0)
        self._logits: Array | None = None
        if len(encoded) == form.num_cross:
            cross = [*encoded]
        elif len(encoded) == 2 + form.num_caches + form.num_cross:
            self._logits, hidden, *caches = encoded
            fixed = {**fixed, "encoder_hidden_states": hidden}
            self._caches.items, cross = caches[: form.num_caches], caches[form.num_caches :]
        else:
            least, most = form.num_cross, 2 + form.num_caches + form.num_cross
            raise UserError(f"encoder: expected {least} or {most} outputs, got {len(encoded)}")
        if missing := [name for name in form.fixed if name not in fixed]:
            raise UserError(f"decoder: nothing gives its input '{missing[0]}'")
        self._fixed = [fixed[name] for name in form.fixed]
        self._cross = cross

    def first(self) -> Array:
        """Computes the logits after the beginnings, if the encoder has not."""
        if self._logits is not None:
            return _last(self._logits)
        texts = len(self.begun)
        empty = _empty(self._form, texts, self._cross[0].dtype)
        logits, *self._caches.items = self._step([self.begun, *self._fixed, *empty, *self._cross])
        return _last(logits)

    def next(self, tokens: Array, origins: Array) -> Array:
        """Computes the logits of the next token."""
        texts = len(self._cross[0])
        if texts != len(tokens):
            beams = len(tokens) // texts
            origins = origins // beams
            self._fixed = [np.repeat(item, beams, axis=0) for item in self._fixed]
            self._cross = [np.repeat(item, beams, axis=0) for item in self._cross]
        self._caches.reorder(origins)
        given = tokens if self._form.takes_texts else tokens[:, -1:]
        logits, *self._caches.items = self._step(
            [given, *self._fixed, *self._caches.items, *self._cross]
        )
        return _last(logits)
