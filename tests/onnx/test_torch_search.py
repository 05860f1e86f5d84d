"""Masks, places and different values, as both of torch's exporters write them: one compilation for all extents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from tests.onnx.session_models import programs_of

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of torch's exporters
    pytest.mark.timeout(300),
]


class Search(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Rows that are kept, elements that are, where these are, and how often each of the others occurs."""

    def forward(self, x: Any) -> Any:
        mask = x > 0.2
        rows = x[torch.nonzero(mask[:, 0])[:, 0]]
        values, places, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
        shares = rows.softmax(-1) + torch.zeros(rows.shape[0], x.shape[1])
        return x[mask] * 2, torch.nonzero(mask), rows, shares, values, places, counts


@pytest.mark.parametrize("dynamo", [False, True])
def test_one_compilation_serves_all(dynamo: bool, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    if dynamo:
        pytest.importorskip("onnxscript")
    path = tmp_path / "search.onnx"
    axes = (
        {"dynamic_shapes": ({0: torch.export.Dim("n", min=2, max=64)},)}
        if dynamo
        else {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    )
    torch.onnx.export(Search(), (torch.randn(7, 5),), str(path), dynamo=dynamo, **axes)
    reference = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    session = glowpy.InferenceSession(path)
    for length in (7, 3, 2, 20, 50):
        x = np.random.default_rng(length).standard_normal((length, 5)).astype(np.float32)
        pairs = zip(session.run(None, {"x": x}), reference.run(None, {"x": x}), strict=True)
        for actual, expected in pairs:
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert len(session.assumptions) == 1
    assert not programs_of(session).values
