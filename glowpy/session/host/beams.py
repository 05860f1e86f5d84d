"""Beam search: the most likely texts, of which those that are not ended go on side by side as beams.

What onnxruntime defines is that of the library transformers: at each step the best tokens of all beams of a text go on,
those that end it are kept, and a text is done when none of its beams can become better than what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from glowpy.core.tensor import Array
from glowpy.support.errors import UserError

__all__ = ["Beams", "best"]

_UNLIKELY = np.float32(-1e9)
"""The score that all beams but the first begin with, so that they do not all find the same."""


def best(scores: Array, count: int) -> tuple[Array, Array]:
    """Finds the highest scores of each row, in order, and where they are; of equal ones the first come first."""
    if scores.shape[1] < count:
        raise UserError(f"expected at least {count} scores to choose from, got {scores.shape[1]}")
    least = np.partition(scores, -count, axis=1)[:, -count]
    places = np.empty((len(scores), count), np.int64)
    for row, bound in enumerate(least):
        candidates = np.flatnonzero(scores[row] >= bound)
        if len(candidates) < count:  # NaN is the highest there, and not at least itself here
            raise UserError("expected logits that are numbers, got NaN")
        order = np.argsort(-scores[row, candidates], kind="stable")[:count]
        places[row] = candidates[order]
    return np.take_along_axis(scores, places, axis=1), places


@dataclass
class _Texts:
    """The best texts that have ended, with their scores, best first.

    Attributes:
        most: How many there are at most.
        length_penalty: The power of a text's length that the logarithm of its chance is divided by.
        is_done: Whether no better ones are to be expected.
    """

    most: int
    length_penalty: np.float32
    kept: list[tuple[np.float32, Array]] = field(default_factory=list)
    is_done: bool = False

    def score(self, logarithm: np.float32, length: int) -> np.float32:
        """The score of a text of that length, with the logarithm of its chance."""
        return np.float32(logarithm / np.float32(length) ** self.length_penalty)

    def add(self, text: Array, logarithm: np.float32) -> None:
        """Keeps a text if it is one of the best; of equal ones the earlier are better."""
        score = self.score(logarithm, len(text))
        place = next((i for i, (other, _) in enumerate(self.kept) if score > other), len(self.kept))
        self.kept.insert(place, (score, text))
        del self.kept[self.most :]


class Beams:
    """The beams of all texts of a batch.

    Args:
        begun: The tokens that texts begin with, [texts, length].
        count: How many beams a text has.
        length_penalty: As `_Texts` has it.
        end: The token that ends a text.
        pad: The token after its end.
        stops_early: Whether a text is done once it has ended as often as it has beams.

    Attributes:
        tokens: The tokens of each beam so far, [texts * beams, length].
        scores: The logarithms of their chances.
        origins: For each beam, the one of the step before that it goes on from.
    """

    def __init__(
        self,
        begun: Array,
        count: int,
        *,
        length_penalty: float,
        end: int,
        pad: int,
        stops_early: bool,
    ) -> None:
        self._count, self._end, self._pad = count, end, pad
        self._stops_early = stops_early
        self.tokens = np.repeat(begun, count, axis=0)
        self.scores = np.where(np.arange(len(self.tokens)) % count == 0, np.float32(0), _UNLIKELY)
        self.origins = np.arange(len(self.tokens))
        self._texts = [_Texts(count, np.float32(length_penalty)) for _ in begun]

    @property
    def is_done(self) -> bool:
        """Whether all texts are."""
        return all(text.is_done for text in self._texts)

    def advance(self, scores: Array) -> None:
        """Chooses the next token of every beam, by the scores of all tokens, [texts * beams, vocabulary]."""
        vocabulary = scores.shape[1]
        count = self._count
        values, places = best(scores.reshape(len(self._texts), -1), 2 * count)
        origins, tokens = np.divmod(places, vocabulary)
        chosen_tokens = np.full(len(self.tokens), self._pad, self.tokens.dtype)
        # Beams of what is done go on from the first one of all, as in onnxruntime: the scores of each step show it.
        self.scores, self.origins = np.zeros_like(self.scores), np.zeros_like(self.origins)
        for index, text in enumerate(self._texts):
            if text.is_done:
                continue
            beams = slice(index * count, (index + 1) * count)
            ends = (tokens[index] == self._end) & (self._end >= 0)
            rows = origins[index] + index * count
            for place in np.flatnonzero(ends[:count]):
                text.add(self.tokens[rows[place]], values[index, place])
            going = np.flatnonzero(~ends)[:count]
            chosen_tokens[beams], self.origins[beams] = tokens[index, going], rows[going]
            self.scores[beams] = values[index, going]
            text.is_done = self._ends(text, index, values)
        self.tokens = np.concatenate(
            [self.tokens[self.origins], chosen_tokens[:, np.newaxis]], axis=1
        )

    def _ends(self, text: _Texts, index: int, values: Array) -> bool:
        """Whether a text is done."""
        if len(text.kept) < self._count or self._stops_early:
            return len(text.kept) == self._count
        # The candidates looked at begin at the text's number of beams, not of candidates, as onnxruntime's do.
        start = index * self._count
        top = values.reshape(-1)[start : start + 2 * self._count].max()
        worst, _ = text.kept[-1]
        return not worst < text.score(top, self.tokens.shape[1])

    def results(self, count: int, length: int) -> tuple[Array, Array]:
        """The best texts of each beginning, filled up to that length, [texts, count, length], and their scores."""
        texts = np.full((len(self._texts), count, length), self._pad, self.tokens.dtype)
        scores = np.zeros((len(self._texts), count), np.float32)
        for index, text in enumerate(self._texts):
            if not text.is_done:
                beams = range(index * self._count, (index + 1) * self._count)
                for beam in beams:
                    text.add(self.tokens[beam], self.scores[beam])
            for place, (score, tokens) in enumerate(text.kept[:count]):
                texts[index, place, : len(tokens)] = tokens
                scores[index, place] = score
        return texts, scores
