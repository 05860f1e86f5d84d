"""onnx's own suite, by onnx's own runner, on both backends. `not_passed.txt` lists what does not pass, and why.

A case that passes and is on the list, and one that is not and does not pass, are failures:
`python -m tools.onnx_suite --renew -k PATTERN` brings the list up to date.
"""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from tests.onnx.comparison import check_session, node_cases
from tools.onnx_suite import BACKENDS, EXCUSES, cases, listed, outcome

LISTED = listed()


@pytest.mark.parametrize("name", sorted(cases()))
def test_case(name: str) -> None:
    for backend in BACKENDS:
        got, reason = outcome(backend, name), LISTED.get((name, backend), "passed")
        assert got.split(":")[0] == reason.split(":")[0], f"{backend}: {got}"


def test_list_has_cases_with_reasons() -> None:
    """Nothing ends in an error of ours, and what gives other numbers is known one by one."""
    assert {name for name, _ in LISTED} <= cases().keys()
    assert {backend for _, backend in LISTED} <= BACKENDS.keys()
    others = {reason for reason in LISTED.values() if not reason.startswith("refused: ")}
    assert others == {f"differs: {excuse}" for excuse in EXCUSES.values()}


def test_suite_is_whole() -> None:
    """As many cases as onnx's runner has for processors."""
    assert len(cases()) >= 2033


INEXACT = ("test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded")
"""Half precision at every step, compared more closely than its unit in the last place."""


@pytest.mark.parametrize("name", INEXACT)
def test_case_is_close(name: str) -> None:
    case = node_cases()[name]
    assert case.model is not None
    assert case.data_sets is not None
    session = glowpy.InferenceSession(case.model, backend="interpreter")
    for inputs, outputs in case.data_sets:
        with np.errstate(all="ignore"):
            check_session(session, inputs, outputs, rtol=2**-9, atol=0)
