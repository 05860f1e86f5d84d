"""Labels of channels stay above what moves their elements."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.core.type import parse_type

PLAIN, CHANNELS = "u8[2x3]", "u8[2x3](s=[0.5,0.25,2.0],o=[1,2,3],axis=1)"


@pytest.mark.parametrize(
    ("source", "label", "moved"),
    [
        (CHANNELS, PLAIN, "u8[6]"),
        (PLAIN, CHANNELS, "u8[2x3x1](s=[0.5,0.25,2.0],o=[1,2,3],axis=1)"),
    ],
)
def test_storage_casts_with_scales_of_channels_are_not_moved(
    source: str, label: str, moved: str
) -> None:
    """Without channels there may be no dimension left for them."""
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type(source))
    cast = f.create_storage_cast("label", parse_type(label), x)
    result = f.create_reshape("moved", parse_type(moved), cast)
    f.create_save("save", result, module.create_placeholder("y", result.result.type))
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3)
    got = glowpy.compile(f, "interpreter")({"x": stored})["y"]
    np.testing.assert_array_equal(got.ravel(), stored.ravel())
