"""What a search chooses of scores, and the random numbers of samples."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.session.host.beams import Beams, best
from glowpy.session.host.sampling import Generator
from glowpy.session.host.token_scores import FORBIDDEN, TokenScores


def floats(rows: list[list[float]]) -> Array:
    return np.array(rows, np.float32)


def integers(rows: list[list[int]]) -> Array:
    return np.array(rows, np.int32)


def test_first_of_equal_scores_is_chosen() -> None:
    values, places = best(floats([[1, 3, 3, 2, 3], [0, 0, 0, 0, 0]]), 2)
    assert places.tolist() == [[1, 2], [0, 1]]
    assert values.tolist() == [[3, 3], [0, 0]]
    with pytest.raises(glowpy.UserError, match="expected at least 6 scores to choose from, got 5"):
        best(np.zeros((1, 5), np.float32), 6)
    with pytest.raises(glowpy.UserError, match="expected logits that are numbers, got NaN"):
        best(floats([[1, np.nan]]), 1)


def test_random_numbers_are_those_of_the_standard() -> None:
    """ISO C++ says what the 10,000th number of `minstd_rand0` is that the seed 1 leads to."""
    generator = Generator(1)
    numbers = [generator._number() for _ in range(10_000)]
    assert numbers[-1] == 1043618065
    assert all(0 <= Generator(seed).draw() < 1 for seed in range(100))


def test_text_that_ended_is_kept_without_its_end() -> None:
    beams = Beams(integers([[5]]), 2, length_penalty=1.0, end=0, pad=9, stops_early=True)
    scores = np.full((2, 4), -50, np.float32)
    scores[0] = [-1, -2, -3, -4]
    beams.advance(scores)
    assert beams.tokens.tolist() == [[5, 1], [5, 2]]
    was_done = beams.is_done
    scores[1, 0] = -3
    beams.advance(scores)
    assert (was_done, beams.is_done) == (False, True)
    texts, chances = beams.results(2, 4)
    assert texts.tolist() == [[[5, 1, 9, 9], [5, 9, 9, 9]]]
    assert chances.tolist() == [[-0.5, -1.0]]


def test_rules_forbid_tokens() -> None:
    tokens = integers([[3, 1, 3], [2, 2, 40]])
    scores = floats([[1, 1, 1, -1], [1, 1, 1, -1]])
    TokenScores(end=0, repetition_penalty=2.0).apply(scores, tokens, is_first=True)
    assert scores.tolist() == [[1, 0.5, 1, -2], [1, 1, 0.5, -1]]
    scores = np.zeros((2, 4), np.float32)
    TokenScores(end=0, ngram=2, min_length=4).apply(scores, tokens, is_first=True)
    assert (scores == FORBIDDEN).tolist() == [[True, True, False, False], [True] + [False] * 3]
    scores = np.zeros((2, 4), np.float32)
    prefix = integers([[1, 0, 1, 1]])
    rules = TokenScores(end=0, prefix_mask=prefix)
    rules.apply(scores, tokens, is_first=False)
    assert not scores.any()
    rules.apply(scores, tokens, is_first=True)
    assert (scores == FORBIDDEN).tolist() == [[False, True, False, False]] * 2
