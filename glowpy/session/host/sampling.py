"""Samples of the next token: which are likely enough, and the draw of one of them.

Random numbers are those of `minstd_rand0` of C++ (Park and Miller 1988), as `uniform_real_distribution<double>` takes
them in GNU's library, so that a seed gives the text that it gives in onnxruntime on Linux.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glowpy.core.tensor import Array

__all__ = ["Choice", "Generator", "drawn"]

_MODULUS, _FACTOR = 2147483647, 16807


class Generator:
    """Random numbers from 0 to 1, of 53 bits, which follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed % _MODULUS or 1

    def draw(self) -> float:
        """Draws a number, of two of the generator's."""
        low, high = self._number() - 1, self._number() - 1
        span = float(_MODULUS - 1)
        return min((low + high * span) / (span * span), float(np.nextafter(1.0, 0.0)))

    def _number(self) -> int:
        self._state = self._state * _FACTOR % _MODULUS
        return self._state


@dataclass(frozen=True)
class Choice:
    """How a token is drawn.

    Attributes:
        top_p: The chance that the tokens to draw from have together.
        filter_value: The score of all others.
        least: How many tokens there are to draw from at least.
        is_custom: Whether tokens are taken from the most likely one on, rather than left out from the least likely on.
    """

    top_p: float
    filter_value: float
    least: int
    is_custom: bool

    def filter(self, scores: Array) -> None:
        """Gives tokens that are too unlikely, [rows, vocabulary], the filter value."""
        keys = -scores if self.is_custom else scores
        order = np.argsort(keys, axis=1, kind="stable")
        in_order = np.take_along_axis(scores, order, axis=1)
        chances = np.exp(in_order - in_order.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        sums = np.cumsum(chances, axis=1, dtype=np.float32)
        if self.is_custom:
            unlikely = np.zeros(scores.shape, bool)
            unlikely[:, 1:] = sums[:, :-1] > np.float32(self.top_p)
        else:
            unlikely = sums <= np.float32(1) - np.float32(self.top_p)
            unlikely[:, max(scores.shape[1] - self.least, 1) :] = False
        row, place = np.nonzero(unlikely)
        scores[row, order[row, place]] = np.float32(self.filter_value)


def drawn(scores: Array, generator: Generator) -> Array:
    """Draws a token of each row by its scores, the logarithms of chances but for a constant; infinite ones never."""
    numbers = scores.astype(np.float64)
    finite = np.isfinite(numbers)
    top = np.max(numbers, axis=1, where=finite, initial=np.finfo(np.float32).min, keepdims=True)
    chances = np.where(finite, np.exp(np.where(finite, numbers - top, 0)), 0)
    sums = np.cumsum(chances, axis=1)
    tokens = [np.searchsorted(row, generator.draw() * row[-1], side="right") for row in sums]
    return np.asarray(tokens, np.int32)
