"""One node of onnxruntime's own domains: how a test describes it, and what onnxruntime and glowpy compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same, graph_model, info

CONTRIB, NCHWC = "com.microsoft", "com.microsoft.nchwc"
RNG = np.random.default_rng(0)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*values: Any) -> Array:
    return np.array(values, np.int32)


@dataclass(frozen=True)
class Case:
    """A node of a contrib domain.

    Attributes:
        inputs: None stands for one that is left out.
        outputs: The element types of the outputs, None for one that is left out; floats unless given.
        known: Inputs that are initializers.
    """

    op_type: str
    inputs: Sequence[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    outputs: Sequence[int | None] = (TensorProto.FLOAT,)
    known: Sequence[int] = ()
    domain: str = CONTRIB
    opset: int = 17
    rtol: float = 1e-5
    atol: float = 2e-6

    def __str__(self) -> str:
        return f"{self.op_type}-{self.title}" if self.title else self.op_type

    def model(self, **attributes: Any) -> onnx.ModelProto:
        """The model of this node alone, with these attributes besides its own."""
        names = [f"in{i}" if array is not None else "" for i, array in enumerate(self.inputs)]
        outputs = [f"out{i}" if kind is not None else "" for i, kind in enumerate(self.outputs)]
        node = helper.make_node(
            self.op_type, names, outputs, "bad", domain=self.domain, **self.attributes, **attributes
        )
        arrays = {f"in{i}": a for i, a in enumerate(self.inputs) if a is not None}
        stored = {f"in{i}": arrays.pop(f"in{i}") for i in self.known}
        declared = [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(outputs, self.outputs, strict=True)
            if kind is not None
        ]
        inputs = [info(name, array) for name, array in arrays.items()]
        model = graph_model([node], inputs, declared, self.opset, stored)
        model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in (CONTRIB, NCHWC))
        return model

    @property
    def feeds(self) -> dict[str, Array]:
        arrays = {f"in{i}": array for i, array in enumerate(self.inputs) if i not in self.known}
        return {name: array for name, array in arrays.items() if array is not None}

    def expected(self) -> list[Array]:
        """What onnxruntime computes."""
        return reference(self.model(), self.feeds)

    def check(self, backend: str, expected: Sequence[Array]) -> None:
        """Compares what glowpy computes."""
        results = glowpy.InferenceSession(self.model(), backend=backend).run(None, self.feeds)
        for result, array in zip(results, expected, strict=True):
            assert_same(result, array, self.rtol, self.atol, f"{self} on {backend}")

    def error(self) -> str:
        """Why glowpy refuses it."""
        with pytest.raises(glowpy.UserError) as caught:
            glowpy.load(self.model())
        assert "node 'bad' (#0)" in str(caught.value)
        return str(caught.value)


def case(op_type: str, *inputs: Array | None, **attributes: Any) -> Case:
    return Case(op_type, inputs, attributes)


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What onnxruntime computes of a model as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results: list[Array] = session.run(None, feeds)
    return results
