"""A transformer's encoder: products read heads where they lie, and nothing that follows one is a pass of its own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import glowpy
from glowpy.backends.cpu.insts_gen import CpuAttentionInst, CpuStandardizeInst
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array
from glowpy.engine import backend_of, compilation
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import CopyInst, TransposeInst
from glowpy.ir.run import Run
from tests.onnx.comparison import assert_same, graph_model, info
from tests.onnx.test_light import reference

BATCH, LENGTH, WIDTH, HEADS, HIDDEN = 2, 21, 48, 3, 80


class Encoder:
    """A layer of an encoder under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weight(self, *shape: int) -> str:
        numbers = self.rng.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(numbers.astype(np.float32))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def node(self, operator: str, *inputs: str, **attributes: int | list[int]) -> str:
        name = f"t{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [name])
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self.nodes.append(node)
        return name

    def linear(self, x: str, depth: int, width: int) -> str:
        return self.node(
            "Add", self.node("MatMul", x, self.weight(depth, width)), self.weight(width)
        )

    def heads(self, x: str, order: list[int]) -> str:
        shape = np.array([BATCH, LENGTH, HEADS, WIDTH // HEADS])
        return self.node("Transpose", self.node("Reshape", x, self.constant(shape)), perm=order)

    def attention(self, x: str) -> str:
        query, key, value = (
            self.heads(self.linear(x, WIDTH, WIDTH), order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = self.node("Mul", self.node("MatMul", query, key), self.number(0.25))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        shape = self.constant(np.array([BATCH, LENGTH, WIDTH]))
        joined = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), shape)
        return self.linear(joined, WIDTH, WIDTH)

    def feed_forward(self, x: str) -> str:
        x = self.linear(x, WIDTH, HIDDEN)
        erf = self.node("Erf", self.node("Div", x, self.number(2**0.5)))
        gelu = self.node("Mul", x, self.node("Add", erf, self.number(1)))
        return self.linear(self.node("Mul", gelu, self.number(0.5)), HIDDEN, WIDTH)

    def normalized_sum(self, x: str, y: str) -> str:
        total = self.node("Add", x, y)
        scale, shift = self.weight(WIDTH), self.weight(WIDTH)
        return self.node("LayerNormalization", total, scale, shift, axis=-1)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    net = Encoder()
    x = "x"
    for _ in range(2):
        x = net.normalized_sum(x, net.attention(x))
        x = net.normalized_sum(x, net.feed_forward(x))
    net.node("Identity", x)
    array = np.zeros((BATCH, LENGTH, WIDTH), np.float32)
    last = net.nodes[-1].output[0]
    return graph_model(net.nodes, [info("x", array)], [info(last, array)], 17, net.constants)


def _is_product(inst: Instruction) -> bool:
    """Whether it has an epilogue, and is no norm."""
    return inst.has(Trait.EPILOGUE) and not isinstance(inst, CpuStandardizeInst)


def _followers(runs: list[Run]) -> list[Instruction]:
    """What touches the result of a product next, after its run, and where that is."""
    followers = []
    for number, run in enumerate(runs):
        if _is_product(run.head):
            (result,) = run.members[-1].writes()
            later = (inst for other in runs[number + 1 :] for inst in other.members)
            followers += [
                next(
                    inst for inst in later if any(value.overlaps(result) for value in inst.reads())
                )
            ]
    return followers


def test_an_encoder_is_products_and_their_epilogues(model: onnx.ModelProto) -> None:
    ir = compilation(glowpy.load(model), backend_of("cpu")).program.ir
    assert not [inst for inst in ir.instructions if isinstance(inst, TransposeInst | CopyInst)]
    products = [run for run in ir.runs if _is_product(run.head)]
    assert len(products) == 2 * (1 + 1 + 2)  # queries, keys and values are one
    assert sum(isinstance(inst, CpuStandardizeInst) for inst in ir.instructions) == 4
    assert sum(isinstance(inst, CpuAttentionInst) for inst in ir.instructions) == 2
    assert max(len(run.members) for run in products) == 7
    assert not [inst for inst in _followers(ir.runs) if inst.has(Trait.ELEMENTWISE)]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_an_encoder_computes_what_onnxruntime_does(model: onnx.ModelProto, backend: str) -> None:
    x = np.random.default_rng(1).standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32)
    (result,) = glowpy.InferenceSession(model, backend=backend).run(None, {"x": x})
    assert_same(result, reference(model, {"x": x}), 1e-4, 1e-5)
