"""Random initial values: the same on every machine, and of the distribution that they are named after."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from glowpy.core.initial import Initializer, Normal, Uniform, initializer
from glowpy.core.type import parse_type
from glowpy.support.errors import UserError

MANY = parse_type("f64[200x500]")


def test_uniform_numbers() -> None:
    numbers = Uniform(1, -0.5, 1.5).tensor(MANY).array
    assert -0.5 <= numbers.min() < -0.4999
    assert 1.4999 < numbers.max() < 1.5
    assert abs(numbers.mean() - 0.5) < 0.01
    counts, _ = np.histogram(numbers, 20)
    assert counts.min() > 4700


def test_normal_numbers() -> None:
    numbers = Normal(2, 3.0, 0.5).tensor(MANY).array
    assert abs(numbers.mean() - 3) < 0.01
    assert abs(numbers.std() - 0.5) < 0.005
    within = np.mean(np.abs(numbers - 3) < 0.5)
    assert abs(within - 0.6827) < 0.01
    assert np.abs(numbers - 3).max() < 3


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_numbers_follow_from_the_seed(kind: str) -> None:
    type = parse_type(f"{kind}[3x5]")
    for make in (Uniform, Normal):
        first, again, other, far = (
            make(seed).tensor(type).array.astype(np.float64) for seed in (5, 5, 6, 5 + (1 << 40))
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert not np.array_equal(first, far)
        assert len(np.unique(first)) > 10


def test_numbers_are_the_same_on_every_machine() -> None:
    tensors = [make(7).tensor(parse_type("f32[1000]")) for make in (Uniform, Normal)]
    digests = [hashlib.sha256(tensor.array.tobytes()).hexdigest()[:16] for tensor in tensors]
    assert digests == ["3e4b9a9ee363517c", "6cbf8f2abc498813"]


@pytest.mark.parametrize(
    ("distribution", "attrs", "message"),
    [
        ("uniform", {"seed": 1}, "uniform: expected the attributes high, low, seed, got seed"),
        ("normal", {}, "expected the attributes deviation, mean, seed, got none"),
        ("uniform", {"seed": -1, "low": 0, "high": 1}, "expected a seed of 62 bits, got -1"),
        ("uniform", {"seed": 1.0, "low": 0, "high": 1}, "expected a seed of 62 bits, got 1.0"),
        ("uniform", {"seed": 1, "low": "a", "high": 1}, "expected a number as low, got 'a'"),
        ("normal", {"seed": 1, "mean": 0, "deviation": np.inf}, "expected a finite deviation"),
    ],
)
def test_what_is_none_is_refused(distribution: str, attrs: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        initializer(distribution, attrs)
    assert initializer("gamma", attrs) is None


def test_attributes_say_all() -> None:
    for random in (Uniform(3, -1, 2.5), Normal(4, 0, 0.125)):
        assert isinstance(random, Initializer)
        assert initializer(random.distribution, random.attrs) == random
