"""The fuzzer of passes reaches each of them, and says what differs."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from tools.patterns.__main__ import PATTERNS, network_of
from tools.patterns.judge import judged
from tools.patterns.network import Network
from tools.patterns.trial import DisagreementError, Judgement, compare, run_trial

REACHED = [
    ("attention", 1, "cpu_attention"),
    ("norm", 10, "cpu_standardize"),
    ("gelu", 1, "fold-gelu"),
    ("merged_products", 0, "merge-products"),
    ("product", 7, "cpu_strassen"),
    ("convolution", 5, "cpu_winograd"),
    ("depthwise", 1, "cpu_depthwise_conv"),
    ("depthwise", 4, "band-depthwise"),
    ("few_channels", 2, "merge-pixels"),
    ("shuffle", 0, "fold-shuffle"),
    ("transposed", 8, "merge-phases"),
    ("resize", 1, "fuse-resize"),
    ("sums_of_gathers", 2, "fuse-resize"),
    ("pool", 0, "max_pool"),
    ("quantized_layers", 0, "fold-quantize"),
    ("byte_products", 0, "cpu_matmul"),
]


def test_every_pattern_is_tried() -> None:
    assert {name for name, _, _ in REACHED} == set(PATTERNS)


@pytest.mark.parametrize(("name", "seed", "what"), REACHED)
def test_pattern_reaches(name: str, seed: int, what: str) -> None:
    """What the passes made of it is interpreted only: machine code has tests of its own."""
    counts: Counter[str] = Counter()
    run_trial(network_of(name, seed), seed, counts, code=0)
    assert counts[what]


def test_differences_are_found() -> None:
    network = network_of("norm", 10)
    right = {"y": np.array([1, 2, np.inf], np.float32)}
    compare(right, right, network, "equal")
    for wrong in ([1, 2.01, np.inf], [1, 2, 3e38], [np.nan, 2, np.inf], [1, 2, -np.inf]):
        with pytest.raises(DisagreementError):
            compare({"y": np.array(wrong, np.float32)}, right, network, "different")


def test_rounding_is_no_difference() -> None:
    """A divisor near 0 moves the result by far more than the last place; that explains so much, and no more."""
    network = Network(random.Random(0))
    network.dtype = np.float32
    x = np.array([1.0001, 3], np.float32)
    name = network.op("Reciprocal", network.op("Sub", network.given(x), network.number(1.0)))
    model, exact = network.model(), 1 / (x.astype(np.float64) - 1)

    def check(*factors: float) -> None:
        moved = (exact * np.array(factors)).astype(np.float32)
        right = {name: exact.astype(np.float32)}
        compare({name: moved}, right, network, "x", lambda: judged(model, network.inputs))

    check(1.002, 1)
    for factors in ((1.1, 1), (1, 1e6)):
        with pytest.raises(DisagreementError):
            check(*factors)


def test_the_other_one_may_be_wrong() -> None:
    """Elu of tiny numbers is 0 in onnxruntime."""
    network = Network(random.Random(0))
    network.dtype = np.float32
    x = np.array([-1e-35, -2e-35], np.float32)
    name = network.op("Elu", network.given(x))
    model, wrong = network.model(), np.zeros_like(x)

    def judge() -> Judgement:
        return judged(model, network.inputs)

    compare({name: x}, {name: wrong}, network, "right", judge)
    with pytest.raises(DisagreementError):
        compare({name: wrong}, {name: x}, network, "wrong", judge)
