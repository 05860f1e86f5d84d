"""onnx's own cases of single operators, with all dimensions open. As they are, test_suite.py runs them."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto

import glowpy
from tests.onnx.comparison import check_session, node_cases
from tools.onnx_suite import listed

CASES = node_cases()
PASSING = frozenset(CASES) - {name for name, _ in listed()}

HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}


def has_halves(model: onnx.ModelProto) -> bool:
    """Whether an input or output is of a kind that the CPU backend computes in f32."""
    infos = (*model.graph.input, *model.graph.output)
    return any(info.type.tensor_type.elem_type in HALVES for info in infos)


def one_of_each_operator() -> list[str]:
    """The first case of every operator."""
    first: dict[str, str] = {}
    for name in sorted(PASSING):
        model = CASES[name].model
        assert model is not None
        if len(model.graph.node) == 1 and not has_halves(model):
            first.setdefault(model.graph.node[0].op_type, name)
    return sorted(first.values())


OPEN = ("test_compress_default_axis", "test_dequantizelinear_blocked", "test_slice_default_axes")
"""Cases in which extents have to be equal, or less than others, that are open."""


@pytest.mark.parametrize("name", sorted({*one_of_each_operator(), *OPEN}))
def test_node_case_passes_with_open_dimensions(name: str) -> None:
    """All extents are left open, equal ones as one: a session finds out which have to be constant."""
    case = CASES[name]
    assert case.model is not None
    assert case.data_sets is not None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value > 1:
                dim.dim_param = f"d{dim.dim_value}"
    session = glowpy.InferenceSession(model, backend="interpreter")
    for inputs, outputs in case.data_sets:
        check_session(session, inputs, outputs, case.rtol, case.atol)
