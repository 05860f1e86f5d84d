"""Shapes that state begins with are found out once: the cache has them then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from glowpy.core.tensor import Array
from glowpy.importer import read_model
from glowpy.importer.onnx.model import OnnxModel
from glowpy.session.initial_state import fresh_shapes

GROWING = """
<ir_version: 8, opset_import: ["": 17]>
net (float[N, 2] x, float[P, 2] past, float[M, 2] sums) => (float[T, 2] present, float[M, 2] sums2) {
    present = Concat <axis = 0> (past, x)
    sums2 = Add (sums, x)
}
"""
CHOSEN = """
<ir_version: 8, opset_import: ["": 17]>
net (int64[1] k, float[P] past) => (float[Q] present) {
    ones = ConstantOfShape (k)
    present = Add (past, ones)
}
"""


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, cache_folder: object) -> list[OnnxModel]:
    """The models of which something was built."""
    del cache_folder
    built: list[OnnxModel] = []
    build = OnnxModel.build

    def noting(self: OnnxModel, **given: object) -> object:
        built.append(self)
        return build(self, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(OnnxModel, "build", noting)
    return built


def begun(
    text: str, pairs: Mapping[str, str], feeds: Mapping[str, Array]
) -> tuple[dict[str, tuple[int, ...]], bool]:
    model = read_model(onnx.parser.parse_model(text))
    given = {name: array.shape for name, array in feeds.items()}
    return fresh_shapes(model, pairs, given, feeds)


def test_what_follows_from_shapes_is_found_out_once_for_each(builds: list[OnnxModel]) -> None:
    pairs = {"past": "present", "sums": "sums2"}
    for rows in (3, 3, 5, 5):
        before = len(builds)
        shapes = begun(GROWING, pairs, {"x": np.ones((rows, 2), np.float32)})
        assert shapes == ({"past": (0, 2), "sums": (rows, 2)}, False)
        builds[before:] = builds[before : before + 1]
    assert len(builds) == 2
    assert begun(GROWING, {"past": "present"}, {
        "x": np.ones((3, 2), np.float32), "sums": np.ones((3, 2), np.float32)
    }) == ({"past": (0, 2)}, False)  # fmt: skip
    assert len(builds) > 2


def test_what_elements_decide_is_found_out_for_each_value(builds: list[OnnxModel]) -> None:
    counts = []
    for number in (4, 4, 6, 4, 6):
        before = len(builds)
        shapes = begun(CHOSEN, {"past": "present"}, {"k": np.array([number])})
        assert shapes == ({"past": (number,)}, True)
        counts.append(len(builds) > before)
    assert counts == [True, False, True, False, False]


REPEATED = """
<ir_version: 8, opset_import: ["": 17]>
net (float[1] x, float[2, N] h) => (float[2, N] h2) { h2 = Add (h, x) }
"""


def test_sizes_that_the_model_is_opened_with_are_a_question_of_their_own(
    cache_folder: Path,
) -> None:
    del cache_folder
    model = read_model(onnx.parser.parse_model(REPEATED))
    for rows in (3, 4, 3):
        resized = model.resized({"h": (rows, "N")})
        shapes = fresh_shapes(resized, {"h": "h2"}, {"x": (1,)}, {})
        assert shapes == ({"h": (rows, 1)}, False)
