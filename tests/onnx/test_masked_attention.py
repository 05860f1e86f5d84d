"""Attention with Boolean masks, as exporters and ONNX itself write it, is one instruction, and means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import glowpy
from glowpy.backends.cpu.insts_gen import CpuAttentionInst
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from tests.onnx.comparison import assert_same, graph_model, info
from tests.onnx.test_light import reference

QUERIES, KEYS = 20, 9


def inputs() -> dict[str, Array]:
    """The mask hides all keys from one query."""
    rng = np.random.default_rng(0)
    shapes = {"q": (1, 2, QUERIES, 8), "k": (1, 2, KEYS, 8), "v": (1, 2, KEYS, 8)}
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    mask = rng.random((1, 1, QUERIES, KEYS)) > 0.4
    mask[:, :, 3] = False
    return {**feeds, "m": mask}


def exported() -> onnx.ModelProto:
    """What torch.onnx writes for `scaled_dot_product_attention(q, k, v, attn_mask=m)`."""
    feeds = inputs()
    texts = [
        "Transpose(k) -> kt", "Mul(q, root) -> q2", "Mul(kt, root) -> k2", "MatMul(q2, k2) -> s",
        "Where(m, zero, low) -> bias", "Add(s, bias) -> s2", "Softmax(s2) -> p", "IsNaN(p) -> n",
        "Where(n, zero, p) -> p2", "MatMul(p2, v) -> y",
    ]  # fmt: skip
    nodes = [_node(text) for text in texts]
    numbers = {"root": 8**-0.25, "zero": 0, "low": -np.inf}
    constants = {name: np.array([number], np.float32) for name, number in numbers.items()}
    result = info("y", feeds["q"])
    return graph_model(
        nodes, [info(name, one) for name, one in feeds.items()], [result], 17, constants
    )


def _node(text: str) -> onnx.NodeProto:
    operator, names, output = text.replace(") -> ", "(").split("(")
    known: dict[str, dict[str, Any]] = {
        "Transpose": {"perm": [0, 1, 3, 2]},
        "Softmax": {"axis": -1},
    }
    return helper.make_node(operator, names.split(", "), [output], **known.get(operator, {}))


def attentions(model: onnx.ModelProto) -> list[CpuAttentionInst]:
    program = compilation(glowpy.load(model), "cpu").program
    return [inst for inst in program.ir.instructions if isinstance(inst, CpuAttentionInst)]


def test_what_torch_writes_for_a_mask_of_bools() -> None:
    """Weights of NaN are 0 there: of a query that sees no key, and where the scores are NaN themselves."""
    model, feeds = exported(), inputs()
    (inst,) = attentions(model)
    assert inst.clears_nan
    session = glowpy.InferenceSession(model)
    (result,) = session.run(None, feeds)
    assert_same(result, reference(model, feeds), 1e-5, 1e-6)
    assert not result[:, :, 3].any()
    feeds["q"][0, 1, 5, 2], feeds["q"][0, 0, 6, 1] = np.nan, np.inf
    feeds["v"][0, 0, 4, 3] = np.inf
    (result,) = session.run(None, feeds)
    assert_same(result, reference(model, feeds), 1e-5, 1e-6)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_attention_of_onnx(softcap: float) -> None:
    feeds = inputs()
    node = helper.make_node("Attention", [*feeds], ["y"], softcap=softcap)
    ports = [info(name, one) for name, one in feeds.items()]
    model = graph_model([node], ports, [info("y", feeds["q"])], 23)
    (inst,) = attentions(model)
    assert inst.softcap == softcap
    (result,) = glowpy.InferenceSession(model).run(None, feeds)
    (expected,) = glowpy.InferenceSession(model, backend="interpreter").run(None, feeds)
    assert_same(result, expected, 1e-5, 1e-6)
