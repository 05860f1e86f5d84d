"""Random networks mean the same as optimized machine code and as they stand, interpreted."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glowpy
from tests.unit.networks import RandomNetwork, arrays_for, execute, unoptimized


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_cpu_computes_what_the_interpreter_does(rng: random.Random) -> None:
    module = RandomNetwork(rng).module
    inputs = arrays_for(module.placeholders, 3)
    expected = execute(unoptimized(module), inputs)
    options = glowpy.CompileOptions(verify_each=True, cache=False)
    compiled = glowpy.compile(module, "cpu", options)
    found = compiled({name: inputs[name] for name in compiled.inputs})
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], array, err_msg=name)
            continue
        # Intermediate values may cancel, so that errors are relative to the largest number about.
        scale = max(1.0, float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array))))
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5 * scale, err_msg=name)
