"""Gradients of exported networks against PyTorch's, by weights and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.graph.node import NodeValue

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch exports with")
catalogue = pytest.importorskip("tools.exports.catalogue")

pytestmark = pytest.mark.timeout(600)

NETWORKS = [name for name in catalogue.EXPORTS if name != "detector"]
"""The number of boxes of a detector is found, and none of its outputs has a gradient without choosing them."""
TIED = {"gpt2", "llama", "t5decoder"}
"""Networks whose embedding is their last matrix as well: the exporter stores that turned, as another weight."""


def _torchs(export: Any, network: Any, tensors: Any) -> tuple[dict[str, Array], dict[str, Array]]:
    """Weights of the sum that is the loss for each output, and PyTorch's gradients by weights and inputs."""
    leaves = {n: t.clone().requires_grad_() for n, t in tensors.items() if t.is_floating_point()}
    results = network(*catalogue.grouped({**tensors, **leaves}))
    results = list(results) if isinstance(results, list | tuple) else [results]
    rng = np.random.default_rng(3)
    weights: dict[str, Array] = {}
    loss = torch.zeros(())
    for name, result in zip(export.outputs, results, strict=True):
        if result.requires_grad:
            weights[name] = rng.uniform(0.5, 1.5, result.shape).astype(np.float32)
            loss = loss + (result * torch.from_numpy(weights[name])).sum()
    loss.backward()
    leaves |= dict(network.named_parameters())
    return weights, {
        name: leaf.grad.numpy() for name, leaf in leaves.items() if leaf.grad is not None
    }


def _with_loss(f: glowpy.Function, weights: dict[str, Array]) -> None:
    """Saves the weighted sum of outputs."""
    values = {save.output.storage.original: save.input for save in f.saves}
    total: NodeValue | None = None
    for name, array in weights.items():
        value = values[name]
        product = f.create_mul("weighted", value, f.module.create_constant("weights", array))
        sum = f.create_reduce_add("sum", product, tuple(range(value.type.rank)))
        number = f.create_reshape("number", value.type.with_shape(()), sum).result
        total = number if total is None else f.create_add("total", total, number).result
    assert total is not None
    f.create_save("save", total, f.module.create_placeholder("the loss", total.type))


@pytest.mark.parametrize("name", NETWORKS)
def test_as_pytorch_has_it(name: str, tmp_path: Path) -> None:
    """Within 1e-5 of the largest. Weights with equal elements are one for the exporter, so that all are random.

    A gradient that is 0 but for rounding, as by the bias of keys, is compared with the others.
    """
    export = catalogue.EXPORTS[name]
    network = catalogue.made(export, export.small)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.requires_grad_(True).add_(torch.randn_like(parameter) / 16)
    tensors = catalogue.inputs(export, export.small.extents)
    path = catalogue.exported(export, network, tensors, tmp_path / "net.onnx", dynamo=False)
    weights, expected = _torchs(export, network, tensors)

    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    f = glowpy.load(path, shapes=shapes, trainable="all").main
    _with_loss(f, weights)
    storages = {storage.original: storage for storage in (*f.variables, *f.inputs)}
    names = [
        n for n, a in expected.items() if n in storages and storages[n].type.extents == a.shape
    ]
    names = [n for n in names if not (name in TIED and n == "words.weight")]
    assert len(names) >= 2
    g = glowpy.differentiate(f, "the loss", wrt=names)
    network = glowpy.compile(g)
    state = network.state() if g.variables else None
    outputs = network({n: t.numpy() for n, t in tensors.items()}, state=state)
    largest = max(np.abs(expected[name]).max() for name in names)
    for name in names:
        scale = max(np.abs(expected[name]).max(), largest / 1000)
        error = np.abs(outputs[f"{name}_grad"] - expected[name]).max()
        assert error <= 1e-5 * scale, (name, error, scale)
