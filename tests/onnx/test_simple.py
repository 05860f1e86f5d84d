"""onnx's `simple` and PyTorch cases: small models stored as files, at opsets from 6 on."""

from __future__ import annotations

from pathlib import Path

import onnx.backend.test
import pytest

import glowpy
from tests.onnx.comparison import check_session, read_data_set

DATA = Path(onnx.backend.test.__file__).parent / "data"
KINDS = ("simple", "pytorch-converted", "pytorch-operator")
FOLDERS = {path.name: path for kind in KINDS for path in sorted((DATA / kind).iterdir())}
REFUSED = {name for name in FOLDERS if name.startswith("test_strnorm_")}
"""Strings."""


def run(name: str, backend: str) -> None:
    session = glowpy.InferenceSession(FOLDERS[name] / "model.onnx", backend=backend)
    data_sets = sorted(FOLDERS[name].glob("test_data_set_*"))
    assert data_sets
    for folder in data_sets:
        inputs, outputs = read_data_set(folder, "input"), read_data_set(folder, "output")
        check_session(session, inputs, outputs, 1e-3, 1e-6)


@pytest.mark.parametrize("name", sorted(set(FOLDERS) - REFUSED))
def test_simple_model_passes(name: str) -> None:
    run(name, "interpreter")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_simple_model_is_refused(name: str) -> None:
    with pytest.raises(glowpy.UnsupportedError):
        run(name, "interpreter")


@pytest.mark.parametrize(
    "name",
    [n for n in sorted(FOLDERS) if n.startswith(("test_g", "test_se", "test_ex", "test_sh"))],
)
def test_simple_model_passes_on_cpu(name: str) -> None:
    """Gradients, sequences, Expand and Shrink."""
    run(name, "cpu")
