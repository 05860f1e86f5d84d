"""Files that onnxruntime's optimizers write compute what the model did that they were made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.transformers import fusion_options, optimizer

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same
from tests.onnx.contrib_cases import reference
from tests.onnx.optimized_models import (
    BATCH,
    HEADS,
    LENGTH,
    LEVELS,
    WIDTH,
    WORDS,
    bert,
    cnn,
    gpt,
    saved,
)

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {"cnn": cnn, "bert": bert, "gpt": gpt}
TYPES = {"bert": "bert", "gpt": "gpt2"}
"""How the transformer tool calls models."""


def feeds(name: str) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    if name == "cnn":
        return {"x": rng.standard_normal((2, 3, 33, 33)).astype(np.float32)}
    inputs = {"input_ids": rng.integers(0, WORDS, (BATCH, LENGTH))}
    if name == "bert":
        inputs["segment_ids"] = rng.integers(0, 2, (BATCH, LENGTH))
        inputs["mask"] = np.array([[1] * LENGTH, [1] * 5 + [0] * (LENGTH - 5)])
    return inputs


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    """What onnxruntime computes of the models as they are."""
    return {name: reference(make(), feeds(name))[0] for name, make in MODELS.items()}


def operators(path: Path) -> Counter[str]:
    nodes = onnx.load(path).graph.node
    return Counter(f"{node.domain}.{node.op_type}".lstrip(".") for node in nodes)


def check(path: Path, name: str, expected: dict[str, Array]) -> None:
    for backend in ("interpreter", "cpu"):
        (result,) = glowpy.InferenceSession(path, backend=backend).run(None, feeds(name))
        assert_same(result, expected[name], 1e-4, 2e-5, backend)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_saved_at_a_level(
    name: str, level: str, expected: dict[str, Array], tmp_path: Path
) -> None:
    check(saved(MODELS[name](), level, tmp_path / "saved.onnx"), name, expected)


def test_levels_write_what_this_is_about(tmp_path: Path) -> None:
    """Otherwise the tests above would say little."""
    found = Counter[str]()
    for name, make in MODELS.items():
        for level in ("ENABLE_EXTENDED", "ENABLE_ALL"):
            found += operators(saved(make(), level, tmp_path / f"{name}_{level}.onnx"))
    blocked = ["Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "Upsample"]
    moved = ["ReorderInput", "ReorderOutput"]
    own = [
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "BiasGelu",
        "FastGelu",
        "SkipLayerNormalization",
    ]
    wanted = [f"com.microsoft.nchwc.{name}" for name in blocked + moved]
    wanted += [f"com.microsoft.{name}" for name in own]
    assert [name for name in wanted if not found[name]] == []


@pytest.mark.parametrize("name", TYPES)
def test_fused_by_the_transformer_tool(
    name: str, expected: dict[str, Array], tmp_path: Path
) -> None:
    onnx.save(MODELS[name](), tmp_path / "plain.onnx")
    options = fusion_options.FusionOptions(TYPES[name])
    options.enable_shape_inference = False  # it needs another package
    fused = optimizer.optimize_model(
        str(tmp_path / "plain.onnx"),
        model_type=TYPES[name],
        num_heads=HEADS,
        hidden_size=WIDTH,
        optimization_options=options,
        opt_level=0,
    )
    path = tmp_path / "fused.onnx"
    fused.save_model_to_file(str(path))
    found = operators(path)
    assert found["com.microsoft.Attention"] == 2
    assert found["com.microsoft.EmbedLayerNormalization"] == (name == "bert")
    check(path, name, expected)
