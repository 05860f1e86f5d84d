"""onnxruntime's own operators, one by one: as onnxruntime computes them, or numpy where it cannot on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import _pybind_state as capi

import glowpy
from glowpy.core.tensor import Array
from glowpy.importer.onnx.contrib.schemas import contrib_schemas
from glowpy.importer.onnx.host.operators import HOSTED_OPERATORS
from glowpy.importer.onnx.registry import registered
from tests.onnx.contrib_cases import CONTRIB, NCHWC, Case, case, f32, i32, reference

F, WHOLE = TensorProto.FLOAT, TensorProto.INT32
X, ROW, BIAS, SCALE = f32(2, 5, 8), f32(8), f32(8), f32(8)
IMAGE, FILTER = f32(2, 6, 7, 7), f32(4, 6, 3, 3) / 5
WORDS = i32([3, 0, 8, 1, 4], [2, 2, 7, 0, 5])
SEGMENTS = i32([0, 0, 1, 1, 1], [1, 0, 0, 0, 0])
TABLES = f32(9, 8), f32(12, 8), f32(2, 8)
MASK = i32([1, 1, 1, 0, 0], [1, 1, 2, 1, 0])


def f32s(value: float) -> Array:
    return np.array(value, np.float32)


def embedding(*rest: Array | None, segments: bool = True) -> Case:
    words, places, kinds = TABLES
    node = case("EmbedLayerNormalization", WORDS, SEGMENTS, words, places, kinds, ROW, BIAS, *rest)
    if not segments:
        node = replace(node, inputs=[WORDS, None, words, places, None, ROW, BIAS, *rest])
    return replace(node, outputs=(F, WHOLE, F))


def gemm(activation: str, *parameters: float) -> Case:
    names = [f"activation_{letter}" for letter in ("alpha", "beta", "gamma")]
    if activation == "Selu":
        names.remove("activation_beta")
    values = dict(zip(names, parameters, strict=False))
    node = case("FusedGemm", f32(4, 5), f32(5, 6), f32(6), activation=activation, **values)
    return replace(node, title=activation)


def conv(activation: str, *parameters: float) -> Case:
    values: dict[str, Any] = {"activation": activation}
    if parameters:
        values["activation_params"] = list(parameters)
    node = case("FusedConv", IMAGE, FILTER, f32(4), strides=[2, 1], pads=[1, 0, 1, 1], **values)
    return replace(node, title=activation)


ACTIVATIONS = [
    case("Gelu", X),
    case("FastGelu", X),
    case("FastGelu", X, BIAS),
    case("QuickGelu", X),
    case("QuickGelu", X, alpha=1.1),
    case("BiasGelu", X, BIAS),
]

NORMS = [
    case("SkipLayerNormalization", X, f32(2, 5, 8), SCALE, BIAS),
    replace(case("SkipLayerNormalization", X, X, SCALE, None, BIAS), outputs=(F, None, None, F)),
    case("SkipLayerNormalization", X, f32(1, 5, 8), SCALE, BIAS, ROW, epsilon=0.1),
    case("SkipLayerNormalization", X, f32(5, 8), SCALE, BIAS),
    case("SkipLayerNormalization", X[0], f32(5, 8), SCALE, BIAS),
    case("SkipSimplifiedLayerNormalization", X, f32(2, 5, 8), SCALE),
    replace(
        case("SkipSimplifiedLayerNormalization", X, f32(1, 5, 8), SCALE, BIAS),
        outputs=(F, None, None, F),
    ),
    replace(case("SimplifiedLayerNormalization", X, SCALE), domain=""),
    replace(case("SimplifiedLayerNormalization", X, SCALE, epsion=1.0), domain=""),
    replace(case("LayerNormalization", X, SCALE, epsion=1.0), domain=""),
    replace(case("SimplifiedLayerNormalization", X, SCALE), domain="", outputs=(F, F)),
    replace(case("SimplifiedLayerNormalization", X, f32(5, 8), axis=1, epsilon=0.1), domain=""),
    replace(case("LayerNormalization", X, SCALE, BIAS), domain="", opset=13),
    replace(
        case("LayerNormalization", X, SCALE, axis=1, epsilon=0.1),
        inputs=[X, f32(5, 8)],
        domain="",
        opset=9,
        outputs=(F, F, F),
    ),
    embedding(MASK),
    embedding(segments=False),
    embedding(None, WORDS),
    embedding(MASK, WORDS[:1]),
]

TURNED = dict.fromkeys(("transA", "transB", "transBatchA", "transBatchB"), 1)
PRODUCTS = [
    case("FusedMatMul", f32(2, 3, 4, 5), f32(2, 3, 5, 6), alpha=0.3),
    case("FusedMatMul", f32(2, 3, 5, 4), f32(2, 3, 6, 5), transA=1, transB=1),
    case("FusedMatMul", f32(4, 2, 3, 5), f32(5, 2, 3, 6), transBatchA=1, transBatchB=1),
    Case("FusedMatMul", [f32(5, 2, 3, 4), f32(6, 2, 3, 5)], TURNED),
    case("FusedMatMul", f32(4, 2, 5), f32(2, 5, 6), transBatchA=1),
    case("FusedMatMul", f32(5), f32(5, 6), transA=1),
    case("FusedMatMul", f32(3, 5), f32(5), transB=1),
    case("TransposeMatMul", f32(5, 4), f32(6, 5), transA=1, transB=1, alpha=2.0),
    case(
        *("FusedGemm", f32(5, 4), f32(6, 5), f32(4, 1)),
        transA=1,
        transB=1,
        alpha=0.5,
        beta=0.25,
        activation="Relu",
    ),
    *(gemm(name) for name in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign")),
    *(gemm(name, 0.3) for name in ("LeakyRelu", "ThresholdedRelu", "Elu", "Celu")),
    *(gemm(name, 0.3, 0.1) for name in ("Selu", "HardSigmoid")),
    *(conv(name) for name in ("Relu", "Tanh", "Sigmoid", "HardSwish")),
    *(conv("LeakyRelu", 0.2), conv("Clip", 0.0, 0.4), conv("HardSigmoid", 0.2, 0.4)),
    case("FusedConv", IMAGE, FILTER, f32(4), f32(2, 4, 5, 5), activation="Relu"),
    case("FusedConv", IMAGE, FILTER, None, f32(2, 4, 7, 7), pads=[1, 1, 1, 1]),
    case("FusedConv", IMAGE, f32(6, 1, 3, 3), f32(6), group=6, auto_pad="SAME_UPPER"),
    case("FusedConv", f32(1, 3, 9), f32(4, 3, 3), activation="Relu"),
    replace(case("Inverse", f32(3, 4, 4)), atol=1e-5),
    replace(case("Inverse", np.eye(3, dtype=np.float32)[[2, 0, 1]]), title="permutation"),
]

MOVES = [
    case("Trilu", f32(4, 5)),
    replace(case("Trilu", f32(2, 4, 5), np.array(-1), upper=0), known=[1]),
    case("Trilu", f32(4, 5), np.array([1])),
    replace(case("Trilu", f32(4, 5), np.array(-(2**63))), title="all"),
    case("GatherND", f32(3, 4, 5), np.array([[0, 1], [2, 3]])),
    case("GatherND", f32(3, 4, 5), i32([0, 1], [2, -1])),
    replace(case("ExpandDims", X, np.array(1, np.int32)), known=[1]),
    replace(case("ExpandDims", X, np.array(-1, np.int32)), known=[1]),
    replace(case("Pad", X, np.array([0, 1, 0, 0, 0, 2]), f32s(0.5)), known=[1, 2]),
    replace(case("Pad", X, np.array([[0, 1, 0, 0, -1, 2]]), mode="edge"), known=[1]),
    replace(case("Range", f32s(1), f32s(4)), known=[0, 1]),
    replace(case("Range", f32s(1), f32s(4), f32s(0.5)), known=[0, 1, 2]),
]

CASES = [*ACTIVATIONS, *NORMS, *PRODUCTS, *MOVES]


@pytest.mark.parametrize("node", CASES, ids=str)
def test_contrib_operator(node: Case) -> None:
    node.check("interpreter", node.expected())


@pytest.mark.parametrize("node", {node.op_type: node for node in CASES}.values(), ids=str)
def test_contrib_operator_on_cpu(node: Case) -> None:
    node.check("cpu", node.expected())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("stash", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_kinds_of_outputs_that_the_model_does_not_declare(dtype: type, stash: int) -> None:
    """That of the reciprocal of the root is an attribute's, whatever it is of."""
    node = case("SimplifiedLayerNormalization", X.astype(dtype), SCALE.astype(dtype))
    model = replace(node, domain="", outputs=(F, F)).model(stash_type=stash)
    for output in model.graph.output:
        output.ClearField("type")
    session = glowpy.InferenceSession(model, backend="interpreter")
    results = session.run(None, node.feeds)
    kinds = [np.dtype(dtype), helper.tensor_dtype_to_np_dtype(stash)]
    assert kinds == [info.dtype for info in session.get_outputs()]
    assert [result.dtype for result in results] == kinds
    root = np.sqrt((node.feeds["in0"].astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(results[1], 1 / root, 1e-5)


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_halves(op_type: str) -> None:
    inputs = [array.astype(np.float16) for array in (X, X, SCALE, BIAS)]
    node = Case(op_type, inputs, outputs=(TensorProto.FLOAT16,), rtol=2e-3, atol=2e-3)
    node.check("interpreter", node.expected())


# What onnxruntime computes on other processors only.


def gelu(x: Array) -> Array:
    (result,) = reference(case("Gelu", x).model(), {"in0": x})
    return result


def group_norm(x: Array, silu: bool) -> Array:
    """By 2 groups of channels, which are last."""
    grouped = x.reshape(*x.shape[:-1], 2, -1).astype(np.float64)
    mean, variance = (f(grouped, axis=(1, 2, 4), keepdims=True) for f in (np.mean, np.var))
    normal = ((grouped - mean) / np.sqrt(variance + 0.1)).reshape(x.shape) * SCALE + BIAS
    return np.asarray(normal / (1 + np.exp(-normal)) if silu else normal, np.float32)


def first(x: Array) -> Array:
    return np.moveaxis(x, -1, 1)


LAST = f32(2, 3, 4, 8)
ADDEND = f32(2, 8)
NORM: dict[str, Any] = {"groups": 2, "epsilon": 0.1}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (case("BiasSplitGelu", X, BIAS), [(X + BIAS)[..., :4] * gelu((X + BIAS)[..., 4:])]),
        (case("BiasAdd", X, BIAS, X), [X + BIAS + X]),
        (case("GemmFastGelu", X, np.eye(8, dtype=np.float32), BIAS), case("FastGelu", X, BIAS).expected()),
        (case("GroupNorm", LAST, SCALE, BIAS, activation=0, **NORM), [group_norm(LAST, False)]),
        (
            case("GroupNorm", first(LAST), SCALE, BIAS, activation=1, channels_last=0, **NORM),
            [first(group_norm(LAST, True))],
        ),
        (
            replace(case("SkipGroupNorm", LAST, SCALE, BIAS, ADDEND, ROW, activation=1, **NORM), outputs=(F, F)),
            [
                group_norm(LAST + ADDEND[:, None, None] + ROW, True),
                LAST + ADDEND[:, None, None] + ROW,
            ],
        ),
        (
            case(
                *("SkipGroupNorm", first(LAST), SCALE, BIAS, ADDEND, ROW),
                **{"activation": 0, "channels_last": 0, **NORM},
            ),
            [first(group_norm(LAST + ADDEND[:, None, None] + ROW, False))],
        ),
        (
            case("NhwcConv", np.moveaxis(IMAGE, 1, -1), np.moveaxis(FILTER, 1, -1), BIAS[:4]),
            [np.moveaxis(case("FusedConv", IMAGE, FILTER, BIAS[:4]).expected()[0], 1, -1)],
        ),
        (
            case("NhwcFusedConv", np.moveaxis(IMAGE, 1, -1), FILTER, BIAS[:4], activation="Relu"),
            [
                np.moveaxis(
                    case("FusedConv", IMAGE, FILTER, BIAS[:4], activation="Relu").expected()[0], 1, -1
                )
            ],
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Case) else "",
)  # fmt: skip
def test_operator_of_other_processors(node: Case, expected: list[Array]) -> None:
    node.check("interpreter", expected)


# The table.


def own(schema: Any) -> bool:
    return schema.domain in (CONTRIB, NCHWC) or (schema.domain == "" and schema.since_version == 1)


THEIRS = {(s.domain, s.name): s for s in capi.get_all_operator_schema() if own(s)}
ALLOWED = {
    "tensor(string)",
    "tensor(complex64)",
    "tensor(complex128)",
    "tensor(float4e2m1)",
    "tensor(float8e4m3fn)",
    "tensor(float8e4m3fnuz)",
    "tensor(float8e5m2)",
    "tensor(float8e5m2fnuz)",
    "tensor(float8e8m0)",
    "tensor(int4)",
    "tensor(uint4)",
}
"""Element types that glowpy does not have."""
INTEGERS = {"tensor(int32)", "tensor(int64)", "tensor(uint32)", "tensor(uint64)"}
NARROWER: dict[tuple[str, str], set[str]] = {
    **{("FusedGemm", name): INTEGERS for name in "ABCY"},
    **{
        ("GroupQueryAttention", f"{name}_"): {"tensor(int8)", "tensor(uint8)"}
        for name in ("past", "present")
    },
}
"""Element types that are refused by way of the table."""


NEWER = {
    "GroupQueryAttention": frozenset({"query_seqlens", "q_norm_epsilon", "k_norm_epsilon"}),
    "MoE": frozenset({"swiglu_limit_after_activation"}),
    "QMoE": frozenset(
        {
            "swiglu_limit_after_activation",
            "accuracy_level",
            *(f"fc{layer}_expert_weight_bits" for layer in (1, 2, 3)),
        }
    ),
}
"""Operands and attributes since onnxruntime 1.32, all or none of which a version has."""


def operands(formals: Any) -> list[tuple[str, str]]:
    return [(formal.name, str(formal.option).rpartition(".")[2]) for formal in formals]


@pytest.mark.parametrize("schema", contrib_schemas(), ids=lambda s: f"{s.domain}.{s.name}")
def test_table_agrees_with_onnxruntime(schema: onnx.defs.OpSchema) -> None:
    theirs = THEIRS[schema.domain, schema.name]
    newer = NEWER.get(schema.name, frozenset())
    missing = newer - {formal.name for formal in theirs.inputs} - set(theirs.attributes)
    assert missing in (frozenset(), newer)
    inputs = [formal for formal in schema.inputs if formal.name not in missing]
    assert operands(inputs) == operands(theirs.inputs)
    assert operands(schema.outputs) == operands(theirs.outputs)
    kinds = [
        {
            name: (str(a.type).rpartition(".")[2], a.required)
            for name, a in s.attributes.items()
            if name not in missing
        }
        for s in (schema, theirs)
    ]
    assert kinds[0] == kinds[1]
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    needed = {c.type_param_str: set(c.allowed_type_strs) for c in theirs.type_constraints}
    formals = [*inputs, *schema.outputs]
    for ours, other in zip(formals, [*theirs.inputs, *theirs.outputs], strict=True):
        refused = needed.get(other.typeStr, {other.typeStr}) - ALLOWED
        refused -= allowed.get(ours.type_str, {ours.type_str})
        assert refused <= NARROWER.get(
            (schema.name, ours.name.replace("key", "").replace("value", "")), set()
        ), ours.name


def test_table_and_import_functions_are_of_the_same_operators() -> None:
    table = {(schema.domain, schema.name) for schema in contrib_schemas()}
    functions = {key for key in (*registered(), *HOSTED_OPERATORS) if key[0] in (CONTRIB, NCHWC)}
    assert functions == {key for key in table if key[0]}
    assert {key for key in table if not key[0]} <= set(registered())


def test_documentation_lists_the_table() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    listed = {row[0].strip("`"): row[1].split(", ") for row in rows if len(row) == 2}
    for domain in (CONTRIB, NCHWC):
        names = [schema.name for schema in contrib_schemas() if schema.domain == domain]
        assert sorted(listed[domain]) == sorted(names)


@pytest.mark.parametrize("node", CASES, ids=str)
def test_attribute_left_out_has_its_default(node: Case) -> None:
    """As far as onnxruntime tells it; the rest is shown by the cases that leave attributes out."""
    plain = str(glowpy.load(node.model()))
    for name, attribute in THEIRS[node.domain, node.op_type].attributes.items():
        value = onnx.AttributeProto()
        value.ParseFromString(attribute._default_value)
        if value.name and name not in node.attributes:
            explicit = node.model(**{name: helper.get_attribute_value(value)})
            assert str(glowpy.load(explicit)) == plain, name


# What is refused.


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (case("FastGelu", X, f32(5)), "a vector for the last dimension of f32[2x5x8], got f32[5]"),
        (case("BiasSplitGelu", f32(2, 3, 7), f32(7)), "an even number of channels"),
        (case("BiasAdd", X, BIAS, f32(5, 8)), "a skip input like f32[2x5x8], got f32[5x8]"),
        (gemm("Gelu"), "activation 'Gelu' is not supported"),
        (gemm("LeakyRelu"), "expected 1 parameters of LeakyRelu, got 0"),
        (conv("Clip", 1.0), "expected 2 parameters of Clip, got 1"),
        (case("FusedConv", IMAGE, FILTER, None, f32(1, 4, 5, 5)), "f32[2x4x5x5] as input 3"),
        (case("GemmFastGelu", X, f32(8, 8), f32(5)), "a bias for the columns"),
        (case("Inverse", f32(2, 3)), "expected square matrices"),
        (case("Inverse", f32(17, 17)), "matrices of more than 16 rows (f32[17x17]) is not"),
        (replace(NORMS[0], outputs=(F, F)), "a second or third output (mean, inv_std_var) is not"),
        (case("SkipLayerNormalization", X, f32(4, 2, 5, 8), SCALE), "a skip input that broadcasts"),
        (case("SkipLayerNormalization", X, X, f32(5)), "the shape [8] as input 2 ('in2')"),
        (replace(embedding(), inputs=[*embedding().inputs[:4], None, ROW, BIAS]), "both segment_ids and"),
        (embedding(MASK[:, :3]), "the shape [2, 5] as input 7"),
        (embedding(None, WORDS[:, :3]), "expected positions of i32[2x5]"),
        (case("GroupNorm", LAST, SCALE, BIAS, groups=2, activation=2), "activation 2 is not supported"),
        (case("GroupNorm", LAST, SCALE, BIAS, groups=2), "attribute 'activation' is required"),
        (case("GroupNorm", LAST, SCALE, BIAS, groups=3, activation=0), "8 channels in equal groups"),
        (case("Gelu", X, X), "expected 1 inputs, got 2"),
        (case("Gelu", WORDS), "as input 0 ('in0'), got int32"),
        (case("QuickGelu", X, alpha=1), "attribute 'alpha': expected FLOAT, got INT"),
        (case("FusedMatMul", X, X, beta=1.0), "attribute 'beta' is not supported"),
        (case("BeamSearch", X), "com.microsoft.BeamSearch (opset 1) is not supported by machine code"),
        (replace(case("SimplifiedLayerNormalization", X), domain=""), "expected 2 inputs, got 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_contrib_operator_is_refused(node: Case, message: str) -> None:
    assert message in node.error()


def test_newer_operators_are_refused() -> None:
    model = case("Gelu", X).model()
    next(entry for entry in model.opset_import if entry.domain == CONTRIB).version = 2
    with pytest.raises(glowpy.UnsupportedError, match=r"'com\.microsoft' from 1 to 1, got 2"):
        glowpy.load(model)
