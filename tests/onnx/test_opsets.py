"""Operators at every opset that changed them, on both sides of each change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, defs, helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.graph.printer import print_module
from glowpy.importer.needs import ValueNeededError
from glowpy.importer.onnx.contrib.schemas import contrib_schemas
from glowpy.importer.onnx.registry import handler_of, registered
from glowpy.importer.onnx.source import NEWEST_OPSETS
from tests.onnx.comparison import assert_same, graph_model, info
from tests.onnx.data_rows import DATA_ROWS
from tests.onnx.image_rows import IMAGE_ROWS
from tests.onnx.norm_rows import NORM_ROWS
from tests.onnx.opset_rows import RNG, VERSIONS, Row, X
from tests.onnx.opset_rows import ROWS as OPERATOR_ROWS
from tests.onnx.quant_rows import QUANT_ROWS
from tests.onnx.reduction_rows import REDUCTION_ROWS

ROWS = [*OPERATOR_ROWS, *NORM_ROWS, *IMAGE_ROWS, *REDUCTION_ROWS, *QUANT_ROWS, *DATA_ROWS]

BATCH = ["x", *["c"] * 4]
STORED: dict[str, Array] = {
    "c": np.ones(3, np.float32),
    "row": np.ones(4, np.float32),
    "one": np.array(0.5, np.float32),
    "yes": np.array(True),
    "a": np.ones((2, 3), np.float32),
    "b": np.ones((3, 4), np.float32),
    "bias": np.ones(4, np.float32),
    "shape": np.array([4, 6]),
    "axes": np.array([0]),
}
NEWEST = NEWEST_OPSETS[""]
IDS = [f"{row.op_type}-{row.title}-{'.'.join(map(str, row.opsets))}" for row in ROWS]


def versions(row: Row) -> list[int]:
    """The opsets that brought the versions that a row is about."""
    known = VERSIONS[row.op_type]
    return sorted({max(v for v in known if v <= opset) for opset in row.opsets}) or known


def last_opset(op_type: str, since: int) -> int:
    """The last opset before the version after this one."""
    later = [
        schema.since_version
        for schema in defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.name == op_type and schema.since_version > since
    ]
    return min(later, default=NEWEST + 1) - 1


def boundaries(row: Row) -> Iterator[int]:
    """The first and the last opset of each version."""
    for since in versions(row):
        yield from sorted({since, last_opset(row.op_type, since)})


def model_of(row: Row, opset: int, *, known: bool, **attributes: Any) -> onnx.ModelProto:
    """A model of one node, whose first input comes at run time or is `known` as the others are."""
    names = [f"in{index}" if array is not None else "" for index, array in enumerate(row.inputs)]
    outputs = [f"out{index}" for index in range(len(row.expected))]
    node = helper.make_node(row.op_type, names, outputs, **row.attributes, **attributes)
    arrays = {n: a for n, a in zip(names, row.inputs, strict=True) if a is not None}
    inputs = [] if known else [info(name, arrays.pop(name)) for name in names[:1]]
    declared = [info(name, array) for name, array in zip(outputs, row.expected, strict=True)]
    return graph_model([node], inputs, declared, opset, arrays)


@pytest.mark.parametrize("known", [False, True], ids=["run", "folded"])
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_operator_at_its_opsets(row: Row, known: bool) -> None:
    """At run time on both sides of each change; folded, once for each version."""
    for opset in versions(row) if known else boundaries(row):
        session = glowpy.InferenceSession(model_of(row, opset, known=known), backend="interpreter")
        first = next(iter(row.inputs), None)
        feeds = {} if known or first is None else {"in0": first}
        for result, expected in zip(session.run(None, feeds), row.expected, strict=True):
            assert_same(
                result, np.asarray(expected), rtol=2e-6, atol=1e-6, context=f"opset {opset}"
            )


QUIRKS = {"is_test"}
"""Attributes whose defaults are not believed: exporters of models for inference left `is_test` out."""


def defaults(op_type: str, opset: int) -> dict[str, Any]:
    """The attributes that ONNX gives a default."""
    schema = defs.get_schema(op_type, opset, "")
    protos = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: helper.get_attribute_value(value) for name, value in protos.items() if value.name}


def printed(row: Row, opset: int, attributes: dict[str, Any]) -> str:
    """A model as glowpy reads it."""
    try:
        module = glowpy.load(model_of(row, opset, known=False, **attributes))
    except ValueNeededError:
        module = glowpy.load(model_of(row, opset, known=True, **attributes))
    return print_module(module)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_attribute_left_out_has_its_default(row: Row) -> None:
    """The default itself: the number that ONNX states as an f32, whatever kind is computed in."""
    for opset in versions(row):
        plain = printed(row, opset, {})
        for name, value in defaults(row.op_type, opset).items():
            if name not in row.attributes and name not in QUIRKS:
                assert printed(row, opset, {name: value}) == plain, f"{name} at opset {opset}"


REFUSED: list[tuple[str, Sequence[int], list[str], dict[str, Any], str]] = [
    ("Add", (1, 6), ["x", "c"], {}, "of one shape without 'broadcast'"),
    ("Less", (1, 6), ["x", "row"], {}, "of one shape without 'broadcast'"),
    ("Add", (1, 6), ["x", "c"], {"broadcast": 1}, "does not broadcast to f32[2x3x4] from"),
    ("Add", (7, 13), ["x", "row"], {"broadcast": 1}, "'broadcast' is not supported"),
    ("Pow", (7, 12), ["x", "row"], {"axis": 1}, "'axis' is not supported"),
    ("Sum", (1, 7), ["x", "row"], {}, "inputs of one shape below opset 8"),
    ("Max", (1, 7), ["x", "row"], {}, "inputs of one shape below opset 8"),
    ("Gemm", (1, 6), ["a", "b", "bias"], {}, "'broadcast'"),
    ("Gemm", (1, 10), ["a", "b"], {}, "expected 3 inputs, got 2"),
    ("Gemm", (7, 13), ["a", "b", "bias"], {"broadcast": 1}, "'broadcast' is not supported"),
    ("Clip", (1, 10), ["x", "one"], {}, "expected 1 inputs, got 2"),
    ("Clip", (11, 13), ["x"], {"min": 0.0}, "'min' is not supported"),
    ("Cast", (1, 5), ["x"], {"to": TensorProto.INT32}, "expected STRING, got INT"),
    ("Cast", (1, 5), ["x"], {"to": "WORD"}, "expected the name of an element type, got 'WORD'"),
    ("Cast", (6, 13), ["x"], {"to": "INT32"}, "expected INT, got STRING"),
    ("Dropout", (7, 11), ["x"], {"is_test": 1}, "'is_test' is not supported"),
    ("Dropout", (7, 11), ["x", "one"], {}, "expected 1 inputs, got 2"),
    ("Reshape", (1, 4), ["x", "shape"], {}, "expected 1 inputs, got 2"),
    ("Reshape", (5, 13), ["x"], {"shape": [4, 6]}, "'shape' is not supported"),
    ("Reshape", (5, 13), ["x", "shape"], {"allowzero": 1}, "'allowzero' is not supported"),
    ("Squeeze", (1, 12), ["x", "axes"], {}, "expected 1 inputs, got 2"),
    ("Squeeze", (13, 21), ["x"], {"axes": [0]}, "'axes' is not supported"),
    ("Unsqueeze", (1, 12), ["x", "axes"], {}, "expected 1 inputs, got 2"),
    ("Unsqueeze", (13, 21), ["x"], {"axes": [0]}, "'axes' is not supported"),
    ("Concat", (4, 11), ["x", "x"], {}, "attribute 'axis' is required"),
    ("Slice", (1, 9), ["x", "axes", "axes"], {}, "attribute 'ends' is required"),
    ("Slice", (10, 13), ["x"], {"starts": [0]}, "'starts' is not supported"),
    ("Split", (2, 17), ["x"], {"axis": 1}, "splits into 2 equal parts, got 3"),
    ("Split", (13, 18), ["x"], {"split": [1, 1]}, "'split' is not supported"),
    ("Split", (13, 17), ["x"], {"num_outputs": 2}, "'num_outputs' is not supported"),
    ("Split", (18,), ["x"], {"num_outputs": 3}, "expected 3 outputs, got 2"),
    ("Split", (18,), ["x", "axes"], {"num_outputs": 2}, "either the input 'split' or"),
    ("Pad", (1,), ["x"], {"pads": [0] * 6}, "'pads' is not supported"),
    ("Pad", (2, 10), ["x"], {"paddings": [0] * 6}, "'paddings' is not supported"),
    ("Pad", (11, 13), ["x"], {"pads": [0] * 6}, "'pads' is not supported"),
    ("Tile", (1, 5), ["x", "axes"], {}, "expected 3 inputs, got 2"),
    ("Tile", (6, 13), ["x", "axes"], {}, "expected 3 repeats, got 1"),
    ("ReduceSum", (1, 12), ["x", "axes"], {}, "expected 1 inputs, got 2"),
    ("ReduceSum", (13,), ["x"], {"axes": [0]}, "'axes' is not supported"),
    ("ReduceMean", (1, 17), ["x", "axes"], {}, "expected 1 inputs, got 2"),
    ("ReduceMean", (18,), ["x"], {"axes": [0]}, "'axes' is not supported"),
    ("ArgMax", (1, 11), ["x"], {"select_last_index": 1}, "'select_last_index' is not supported"),
    ("BatchNormalization", (6, 8), BATCH, {"spatial": 0}, "expected [3, 4] as input 1, got f32[3]"),
    ("BatchNormalization", (9, 15), BATCH, {"spatial": 0}, "'spatial' is not supported"),
    ("Softmax", (1, 12), ["x"], {"axis": 3}, "expected an axis between -3 and 2, got 3"),
    ("LogSoftmax", (1, 12), ["x"], {"axis": 3}, "expected an axis between -3 and 2, got 3"),
    ("Hardmax", (1, 12), ["x"], {"axis": 3}, "expected an axis between -3 and 2, got 3"),
    ("Upsample", (1, 6), ["x"], {"scales": [1.0] * 3}, "'scales' is not supported"),
    ("Upsample", (7, 8), ["x", "row"], {}, "expected 1 inputs, got 2"),
    ("Upsample", (10, 13), ["x", "row"], {}, "ended before this opset"),
    ("GroupNormalization", (18, 20), ["x", "c", "c"], {"num_groups": 1}, "1 elements as input 1"),
    ("Resize", (10,), ["x", "row", "row"], {}, "expected 2 inputs, got 3"),
    ("Celu", (11,), ["x"], {}, "Celu (opset 11) is not supported"),
    ("GreaterOrEqual", (11,), ["x", "x"], {}, "Greater"),
]
"""An operator, the opsets between which it refuses these inputs and attributes, and with which words."""


@pytest.mark.parametrize(
    ("op_type", "opsets", "names", "attributes", "message"),
    REFUSED,
    ids=[f"{op_type}-{'-'.join(map(str, opsets))}" for op_type, opsets, *_ in REFUSED],
)
def test_what_another_opset_allows_is_refused(
    op_type: str, opsets: Sequence[int], names: list[str], attributes: dict[str, Any], message: str
) -> None:
    outputs = ["y", "z"] if op_type == "Split" else ["y"]
    node = helper.make_node(op_type, names, outputs, name="bad", **attributes)
    stored = {name: array for name, array in STORED.items() if name in names}
    for opset in opsets:
        model = graph_model([node], [info("x", X)], [info("y", X, [None] * 3)], opset, stored)
        with pytest.raises(glowpy.UserError) as caught:
            glowpy.load(model)
        assert message in str(caught.value), f"opset {opset}"
        assert "node 'bad' (#0)" in str(caught.value)


TESTED = {
    "test_random.py": (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
    "test_recurrent.py": "GRU LSTM RNN",
    "test_attention_state.py": "LinearAttention TensorScatter",
    "test_calls.py": "If Loop Scan",
    "test_host.py": "OptionalGetElement OptionalHasElement TfIdfVectorizer",
}
"""What has more to it than inputs and numbers: files with tests of its own."""

ELSEWHERE = frozenset(name for names in TESTED.values() for name in names.split())


def test_every_version_of_every_operator_has_a_row() -> None:
    """And every attribute that has a default is left out in one. Sequences are in onnx's own tests."""
    seen = {(row.op_type, since) for row in ROWS for since in versions(row)}
    left_out = {
        (row.op_type, since, name)
        for row in ROWS
        for since in versions(row)
        for name in defaults(row.op_type, since)
        if name not in row.attributes
    }
    missing = []
    for domain, op_type in registered():
        if domain or "Sequence" in op_type or op_type in ELSEWHERE or op_type not in VERSIONS:
            continue
        for since in VERSIONS[op_type]:
            missing += [] if (op_type, since) in seen else [f"{op_type} at {since}"]
            missing += [
                f"{op_type} at {since} without {name}"
                for name in defaults(op_type, since)
                if (op_type, since, name) not in left_out and name not in QUIRKS
            ]
    assert missing == []


def test_every_opset_is_covered() -> None:
    """Nothing is registered that neither ONNX nor our table has, and no import function begins late.

    Those that mean the same in every opset begin at 1, even where the operator came later. Operators of others, which
    tests of plugins leave registered, are not ours to know.
    """
    known: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        known.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    table = {(schema.domain, schema.name) for schema in contrib_schemas()}
    for key, begins in registered().items():
        handlers = [handler_of(*key, since) for since in begins]
        if not any(handler and handler.__module__.startswith("glowpy.") for handler in handlers):
            continue
        if key in table and key not in known:
            continue
        assert min(begins) <= min(known[key]), key
        assert set(begins) <= known[key] | {1}, key


def test_newest_opsets_were_reviewed() -> None:
    """A newer onnx package may have changed operators: review them, then raise the number."""
    assert defs.onnx_opset_version() <= NEWEST_OPSETS[""]


TURNED = [
    {"strides": [2, 3], "pads": [1, 0, 0, 1]},
    {"strides": [2, 2], "output_padding": [1, 0], "dilations": [2, 1]},
    {"strides": [3, 2], "output_shape": [9, 8]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [1, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [1, 1], "pads": [2, 2, 2, 2], "group": 2},
]


@pytest.mark.parametrize("attributes", TURNED)
def test_transposed_convolution_matches_onnxruntime(attributes: dict[str, Any]) -> None:
    filter = RNG.standard_normal((4, 3, 3, 2)).astype(np.float32)
    x = RNG.standard_normal((1, 4, 3, 4)).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    outputs = 3 * attributes.get("group", 1)
    bias = RNG.standard_normal(outputs).astype(np.float32)
    dims: list[str | int | None] = ["n", "c", "h", "w"]
    stored = {"w": filter, "b": bias}
    model = graph_model([node], [info("x", x)], [info("y", x, dims)], 11, stored)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    (got,) = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": x})
    assert_same(got, expected, rtol=1e-4, atol=1e-5)


def test_mean_of_integers_matches_onnxruntime() -> None:
    """Their sum does not wrap where 64 bits hold it. The reference evaluator of ONNX wraps."""
    x = np.array([[2**31 - 1, 2**31 - 3], [-(2**31), 3 - 2**31], [-1, -2]], np.int32)
    node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
    stored = {"axes": np.array([1])}
    model = graph_model([node], [info("x", x)], [info("y", x[:, 0])], 18, stored)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    assert expected.tolist() == [2**31 - 2, 2 - 2**31, -1]
    (got,) = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": x})
    np.testing.assert_array_equal(got, expected)
