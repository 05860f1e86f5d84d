"""What the kernel of layer norms is called with, against f64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.libjit.kernel_cases import DTYPES, Attr, Case, Maker, numbers


def _cpu_standardize(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Rows of no, some and many vectors, with a mean far from 0, and one of equal numbers."""
    (suffix,) = suffixes
    lengths = (1, lanes - 1, lanes, 4 * lanes + 3, 11 * lanes, 256 * lanes + 5, 601 * lanes)
    for number, length in enumerate(lengths):
        if not length:
            continue
        for shape, centred in itertools.product(((length,), (2, 3, length)), (True, False)):
            rows = np.random.default_rng(length).standard_normal(shape) + number
            rows.reshape(-1, length)[0] = 2.5
            input = rows.astype(DTYPES[suffix])
            wide = input.astype(np.float64)
            apart = wide - wide.mean(-1, keepdims=True) if centred else wide
            deviation = np.sqrt((apart**2).mean(-1, keepdims=True) + 0.0625)
            result = (apart / deviation).astype(input.dtype)
            attrs: dict[str, Attr] = {"epsilon": 0.0625, "centred": centred}
            yield Case({"input": input}, {"result": result}, attrs, rtol=2e-6, atol=4e-6)
    yield Case(
        {"input": numbers(suffix, (0, 9))},
        {"result": numbers(suffix, (0, 9))},
        {"epsilon": 0.5, "centred": True},
    )


MAKERS: dict[str, Maker] = {"cpu_standardize": _cpu_standardize}
"""The cases by mnemonic."""
