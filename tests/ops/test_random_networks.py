"""Random networks mean the same as optimized machine code and as they stand, interpreted."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.networks import RandomNetwork, arrays_for, check_on_cpu


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_cpu_computes_what_the_interpreter_does(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    check_on_cpu(module, arrays_for(module.placeholders, 3))
