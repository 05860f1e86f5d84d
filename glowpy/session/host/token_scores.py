"""Scores of the next token: what operators that generate text forbid, make less likely, or divide by a temperature."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from glowpy.core.tensor import Array
from glowpy.support.errors import UserError

__all__ = ["FORBIDDEN", "Timestamps", "TokenScores", "log_softmax"]

FORBIDDEN = np.finfo(np.float32).min
"""The score of a token that is not to come."""

_LATEST_FIRST = 50
"""How many steps after its beginning a sound's first timestamp is at most."""


@dataclass(frozen=True)
class Timestamps:
    """The rules for timestamps in texts of Whisper, which are tokens from `begin` on.

    Attributes:
        begin: The first timestamp.
        end_of_text: The token that ends a text; all before it are words.
        never: Tokens that never come.
        not_within: Tokens that come before the first timestamp only.
    """

    begin: int
    end_of_text: int
    never: tuple[int, ...]
    not_within: tuple[int, ...]

    def check(self, vocabulary: int) -> None:
        """Raises UserError if timestamps are no tokens."""
        if not 0 < self.begin < vocabulary:
            raise UserError(
                f"attribute 'beginning_timestamp_token_id': expected 1 to {vocabulary - 1}, got {self.begin}"
            )

    def apply(self, scores: Array, tokens: Array) -> None:
        """Forbids what cannot follow the tokens of one text."""
        is_stamp = tokens >= self.begin
        start = int(np.argmax(is_stamp)) + 1 if is_stamp.any() else len(tokens)
        scores[[*self.never]] = FORBIDDEN
        if len(tokens) > start:
            scores[[*self.not_within]] = FORBIDDEN
        is_single = bool(is_stamp[-1] and len(tokens) > start and not is_stamp[-2])
        if is_single:  # they come in pairs, but for the first one
            scores[: self.end_of_text] = FORBIDDEN
        elif is_stamp[-1]:
            scores[self.begin :] = FORBIDDEN
        if is_stamp.any():  # time does not go back
            scores[self.begin : int(tokens[is_stamp][-1]) + (not is_single)] = FORBIDDEN
        if len(tokens) == start:
            scores[self.begin + _LATEST_FIRST + 1 :] = FORBIDDEN
        self._prefer(scores)

    def _prefer(self, scores: Array) -> None:
        """Forbids words where timestamps together are more likely than any of them."""
        stamps = scores[self.begin :]
        allowed = stamps[stamps > FORBIDDEN]
        if allowed.size:
            top = allowed.max()
            together = np.log(np.exp(allowed - top).sum(dtype=np.float32)) + top
            if together > scores[: self.begin].max():
                scores[: self.begin] = FORBIDDEN


@dataclass(frozen=True)
class TokenScores:
    """Changes of the scores of tokens, in the order in which they are made.

    Attributes:
        end: The token that ends a text.
        repetition_penalty: What scores of tokens that a text has already are divided by, if they are positive, or else
            multiplied by.
        ngram: The length of what no text has twice; 0 for any.
        vocab_mask: Which tokens may come.
        prefix_mask: Which tokens may come first, for each text.
        min_length: The length that a text has at least.
        temperature: What scores are divided by.
        presence: What is taken from the scores of tokens, for each text.
        timestamps: The rules for timestamps.
    """

    end: int
    repetition_penalty: float = 1.0
    ngram: int = 0
    vocab_mask: Array | None = None
    prefix_mask: Array | None = None
    min_length: int = 0
    temperature: float = 1.0
    presence: Array | None = None
    timestamps: Timestamps | None = None

    def with_timestamps(self, timestamps: Timestamps) -> TokenScores:
        """The same with rules for timestamps."""
        return replace(self, timestamps=timestamps)

    def tempered(self, temperature: float) -> TokenScores:
        """The same at a temperature."""
        return replace(self, temperature=temperature)

    def reduced(self, presence: Array) -> TokenScores:
        """The same with what is taken from scores."""
        return replace(self, presence=presence)

    def apply(self, scores: Array, tokens: Array, *, is_first: bool) -> None:
        """Changes the scores of the next token, [rows, vocabulary], of rows with these tokens."""
        rows, vocabulary = scores.shape
        if self.repetition_penalty != 1:
            self._penalize(scores, tokens)
        if 0 < self.ngram <= tokens.shape[1]:
            self._forbid_repetition(scores, tokens)
        if self.vocab_mask is not None:
            scores[:, self.vocab_mask == 0] = FORBIDDEN
        if self.prefix_mask is not None and is_first:
            beams = rows // len(self.prefix_mask)
            scores[np.repeat(self.prefix_mask == 0, beams, axis=0)] = FORBIDDEN
        if tokens.shape[1] < self.min_length and 0 <= self.end < vocabulary:
            scores[:, self.end] = FORBIDDEN
        if self.temperature > 0 and self.temperature != 1:
            scores /= np.float32(self.temperature)
        if self.presence is not None:
            scores -= self.presence
        if self.timestamps is not None:
            for row, text in zip(scores, tokens, strict=True):
                self.timestamps.apply(row, text)

    def _penalize(self, scores: Array, tokens: Array) -> None:
        row, place = np.nonzero((tokens >= 0) & (tokens < scores.shape[1]))
        token = tokens[row, place]
        old, factor = scores[row, token], np.float32(self.repetition_penalty)
        scores[row, token] = np.where(old < 0, old * factor, old / factor)

    def _forbid_repetition(self, scores: Array, tokens: Array) -> None:
        """Forbids tokens that would end a sequence of `ngram` tokens which the text has already."""
        windows = sliding_window_view(tokens, self.ngram, axis=1)
        ends = tokens[:, np.newaxis, tokens.shape[1] - self.ngram + 1 :]
        row, place = np.nonzero((windows[..., :-1] == ends).all(axis=2))
        token = windows[row, place, -1]
        valid = (token >= 0) & (token < scores.shape[1])
        scores[row[valid], token[valid]] = FORBIDDEN


def log_softmax(logits: Array) -> Array:
    """The logarithms of the chances of tokens."""
    logarithms: Array = logits - logits.max(axis=1, keepdims=True)
    logarithms -= np.log(np.exp(logarithms).sum(axis=1, keepdims=True))
    return logarithms
