"""The fuzzer of passes reaches each of them, and says what differs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from tools.patterns.__main__ import PATTERNS, network_of
from tools.patterns.trial import DisagreementError, compare, run_trial

REACHED = [
    ("attention", 1, "cpu_attention"),
    ("norm", 10, "cpu_standardize"),
    ("gelu", 1, "fold-gelu"),
    ("merged_products", 0, "merge-products"),
    ("product", 201, "cpu_strassen"),
    ("convolution", 5, "cpu_winograd"),
    ("depthwise", 1, "cpu_depthwise_conv"),
    ("few_channels", 2, "merge-pixels"),
    ("shuffle", 0, "fold-shuffle"),
    ("transposed", 8, "merge-phases"),
    ("resize", 1, "weigh-gathers"),
    ("sums_of_gathers", 2, "weigh-gathers"),
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
