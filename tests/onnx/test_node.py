"""onnx's own cases of single operators. `node_cases.txt` lists those that pass; every other one must be refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import glowpy
from tests.onnx.comparison import check_session, node_cases

CASES = node_cases()
PASSING = frozenset((Path(__file__).parent / "node_cases.txt").read_text("utf-8").split())

INEXACT = frozenset({"test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"})
"""Half precision at every step, compared more closely than its unit in the last place."""


RANDOM = frozenset(
    name
    for name in CASES
    if name.startswith(("test_bernoulli", "test_training_dropout")) and name not in PASSING
)
"""Numbers drawn by numpy's generator: test_random.py looks at how ours are distributed."""


def run(name: str, backend: str) -> None:
    case = CASES[name]
    assert case.model is not None
    assert case.data_sets is not None
    session = glowpy.InferenceSession(case.model, backend=backend)
    for inputs, outputs in case.data_sets:
        with np.errstate(all="ignore"):
            check_session(session, inputs, outputs, case.rtol, case.atol)


@pytest.mark.parametrize("name", sorted(PASSING))
def test_node_case_passes(name: str) -> None:
    run(name, "interpreter")


@pytest.mark.parametrize("name", sorted(set(CASES) - PASSING - INEXACT - RANDOM))
def test_node_case_is_refused(name: str) -> None:
    """A case that passes belongs into node_cases.txt."""
    with pytest.raises(glowpy.UserError):
        run(name, "interpreter")


@pytest.mark.parametrize("name", sorted(INEXACT))
def test_node_case_is_close(name: str) -> None:
    case = CASES[name]
    assert case.model is not None
    assert case.data_sets is not None
    session = glowpy.InferenceSession(case.model, backend="interpreter")
    for inputs, outputs in case.data_sets:
        check_session(session, inputs, outputs, rtol=2**-9, atol=0)


HALVES = {TensorProto.FLOAT16, TensorProto.BFLOAT16}


def has_halves(model: onnx.ModelProto) -> bool:
    """Whether something is of a kind the CPU backend has no kernels for."""
    infos = (*model.graph.input, *model.graph.output)
    return any(info.type.tensor_type.elem_type in HALVES for info in infos)


def one_of_each_operator() -> list[str]:
    """The first case of every operator: enough to see that the backends agree on what the importer makes."""
    first: dict[str, str] = {}
    for name in sorted(PASSING):
        model = CASES[name].model
        assert model is not None
        if len(model.graph.node) == 1 and not has_halves(model):
            first.setdefault(model.graph.node[0].op_type, name)
    return sorted(first.values())


@pytest.mark.parametrize("name", one_of_each_operator())
def test_node_case_passes_on_cpu(name: str) -> None:
    run(name, "cpu")


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


def quantization() -> list[str]:
    """Every case that is about quantization, but those that ONNX wrote out of others."""
    words = ("quant", "qlinear", "matmulinteger", "convinteger")
    names = (name for name in CASES if any(word in name for word in words))
    return sorted(name for name in names if not name.endswith("_expanded"))


@pytest.mark.slow
@pytest.mark.parametrize("name", quantization())
def test_quantization_passes_on_cpu(name: str) -> None:
    run(name, "cpu")
