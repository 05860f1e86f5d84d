"""Sequences and optionals that a session keeps itself, and the graphs of nodes that have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import glowpy
from glowpy.importer import OnnxModel
from glowpy.importer.onnx.opening import open_onnx
from glowpy.session.programs import Programs
from tests.onnx.comparison import assert_same
from tests.onnx.host_models import (
    FLOAT,
    INT64,
    STRING,
    collector,
    f32,
    model,
    run,
    sequence,
    tensor,
    texts,
    typed,
)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_computed_position(backend: str) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=0),
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("SequenceInsert", ["s", "twice", "at"], ["t"]),
        helper.make_node("SequenceErase", ["t", "gone"], ["u"]),
        helper.make_node("ConcatFromSequence", ["u"], ["c"], axis=0),
        helper.make_node("Neg", ["c"], ["y"]),
        helper.make_node("SequenceLength", ["u"], ["n"]),
    ]
    inputs = [tensor("x", FLOAT, ["rows", 2]), tensor("sizes", INT64, ["parts"])]
    inputs += [tensor("at", INT64, []), tensor("gone", INT64, [])]
    proto = model(nodes, inputs, [tensor("y", FLOAT), tensor("n", INT64)])
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend=backend)
    for sizes, at, gone in (([1, 2], -1, 0), ([3], 0, -1), ([1, 1, 1], 3, 2)):
        feeds = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "sizes": np.array(sizes)}
        feeds |= {"at": np.array(at), "gone": np.array(gone)}
        for got, wanted in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            assert_same(got, wanted)
    with pytest.raises(
        glowpy.UserError, match="SequenceInsert: expected a position from -1 to 1, got 2"
    ):
        session.run(None, feeds | {"sizes": np.array([3]), "at": np.array(2)})


def test_sequences_that_are_resolved_stay_in_machine_code() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "at"], ["y"]),
    ]
    proto = model(nodes, [tensor("x", FLOAT, [2, 3])], [tensor("y", FLOAT)], {"at": np.array(1)})
    assert isinstance(open_onnx(proto), OnnxModel)


def test_a_sequence_that_a_string_divides() -> None:
    """Its first part is ready before the string is known, its last one after: no segment can have all of it."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        helper.make_node("Cast", ["text"], ["n"], to=FLOAT),
        helper.make_node("Add", ["x", "n"], ["more"]),
        helper.make_node("SequenceInsert", ["s", "more"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
        helper.make_node("SequenceAt", ["s", "zero"], ["first"]),
        helper.make_node("Neg", ["first"], ["z"]),
    ]
    inputs = [tensor("x", FLOAT, [2]), tensor("text", STRING, [1])]
    outputs = [tensor("y", FLOAT), tensor("z", FLOAT)]
    proto = model(nodes, inputs, outputs, {"zero": np.array(0)})
    y, z = run(proto, x=f32([1, 2]), text=texts("10"))
    assert y.tolist() == [1, 2, 11, 12]
    assert z.tolist() == [-1, -2]


def test_a_sequence_as_input() -> None:
    nodes = [
        helper.make_node("ConcatFromSequence", ["s"], ["c"], axis=0),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    proto = model(nodes, [sequence("s", FLOAT)], [tensor("y", FLOAT)])
    session = glowpy.InferenceSession(proto, backend="interpreter")
    for lengths in ([1], [2, 0, 3], [1, 1, 1, 1]):
        parts = [np.arange(length, dtype=np.float32) for length in lengths]
        (y,) = session.run(None, {"s": parts})
        assert_same(y, -np.concatenate(parts))
    assert session.get_inputs()[0].type == "seq(tensor(float))"
    for wrong, message in (
        ([], "expected a sequence of at least one tensor"),
        (f32([1]), r"'s': expected a list for seq\(tensor\(float\)\), got ndarray"),
        ([np.array([1.0])], r"'s'\[0\]: expected float32, got float64"),
    ):
        with pytest.raises(glowpy.UserError, match=message):
            session.run(None, {"s": wrong})


def test_an_optional_as_input() -> None:
    branches = {
        name: helper.make_graph(nodes, name, [], [tensor(f"{name}_y", FLOAT)])
        for name, nodes in (
            ("given", [helper.make_node("OptionalGetElement", ["o"], ["e"]),
                       helper.make_node("Neg", ["e"], ["given_y"])]),
            ("none", [helper.make_node("Constant", [], ["none_y"], value_float=7.0)]),
        )
    }  # fmt: skip
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node(
            "If", ["has"], ["y"], then_branch=branches["given"], else_branch=branches["none"]
        ),
    ]
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    proto = model(nodes, [typed("o", optional)], [tensor("y", FLOAT)])
    session = glowpy.InferenceSession(proto, backend="interpreter")
    assert session.run(None, {"o": f32([1, 2])})[0].tolist() == [-1, -2]
    assert session.run(None, {"o": None})[0].tolist() == 7
    assert session.run(None, {})[0].tolist() == 7
    node = helper.make_node("OptionalGetElement", ["o"], ["y"], name="get")
    with pytest.raises(
        glowpy.UserError, match=r"'get' \(#0\): OptionalGetElement: expected an optional"
    ):
        run(model([node], [typed("o", optional)], [tensor("y", FLOAT)]), o=None)


# Graphs of nodes.


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_loop_collects_what_grows(backend: str) -> None:
    session = glowpy.InferenceSession(collector(), backend=backend)
    for trips in (3, 1, 0):
        feeds = {"x": f32([1, 2]), "trips": np.array(trips)}
        s, text, scan, n = session.run(None, feeds)
        assert [item.tolist() for item in s] == [[1 + 10 * i, 2 + 10 * i] for i in range(trips)]
        assert text.item() == "hi" + "!" * trips
        assert_same(scan, np.arange(trips, dtype=np.float32) * 10)
        assert n == trips


def growing(*, inside: bool) -> onnx.ModelProto:
    """Appends ones until their sum is at least 10, and stacks the sums; in a branch, if it is `inside` of one."""
    body = helper.make_graph(
        [helper.make_node("Concat", ["v", "one"], ["w"], axis=0),
         helper.make_node("ReduceSum", ["w"], ["sum"], keepdims=0),
         helper.make_node("Less", ["sum", "limit"], ["goes"])],
        "body",
        [tensor("i", INT64, []), tensor("g", TensorProto.BOOL, []), tensor("v", FLOAT, [None])],
        [tensor("goes", TensorProto.BOOL, []), tensor("w", FLOAT, [None]), tensor("sum", FLOAT, [])],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["", "yes", "twice"], ["y", "sums"], name="grow", body=body)
    outputs = [tensor("y", FLOAT, ["m"]), tensor("sums", FLOAT, ["rounds"])]
    nodes = [helper.make_node("Add", ["x", "x"], ["twice"])]
    inputs = [tensor("x", FLOAT, ["n"])]
    if inside:
        other = [
            helper.make_node("Identity", ["x"], ["y_0"]),
            helper.make_node("Neg", ["x"], ["s_0"]),
        ]
        names = [tensor("y_0", FLOAT, [None]), tensor("s_0", FLOAT, [None])]
        branches = {
            "then_branch": helper.make_graph([loop], "then", [], outputs),
            "else_branch": helper.make_graph(other, "else", [], names),
        }
        loop = helper.make_node("If", ["choice"], ["y_1", "sums_1"], **branches)
        inputs.append(tensor("choice", TensorProto.BOOL, []))
        outputs = [tensor("y_1", FLOAT, [None]), tensor("sums_1", FLOAT, [None])]
    stored = {"one": f32([1]), "limit": f32(10), "yes": np.array(True)}
    return model([*nodes, loop], inputs, outputs, stored)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_of_numbers_that_grow(backend: str, inside: bool) -> None:
    """Machine code cannot plan its memory: the session runs it round by round."""
    proto = growing(inside=inside)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend=backend)
    for x in ([1, 1.5], [0], [7, 0, 1]):
        for choice in (True, False) if inside else (True,):
            feeds = {"x": f32(x)} | ({"choice": np.array(choice)} if inside else {})
            expected = reference.run(None, feeds)
            for got, wanted in zip(session.run(None, feeds), expected, strict=True):
                assert_same(got, wanted)
    assert session.get_inputs()[0].type == "tensor(float)"
    with pytest.raises(glowpy.UserError, match="'x': expected float32, got float64"):
        session.run(None, feeds | {"x": np.zeros(2)})
    session.close()


@pytest.mark.parametrize("dims", ["", "[1]"])
def test_rounds_may_be_counted_in_a_vector(dims: str) -> None:
    """As some exporters declare the inputs of a body: of one element."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N] x, int64 n) => (float[M] y, int64[K, 1] rounds) {{
        t = Constant <value = bool {{1}}> ()
        y, rounds = Loop (n, t, x) <body = b (int64{dims} i, bool{dims} c, float[L] a)
            => (bool{dims} d, float[J] e, int64[1] k) {{
            d = Identity(c) e = Concat <axis = 0> (a, a)
            one = Constant <value_ints = [1]> () k = Reshape(i, one) }}> }}"""
    got, rounds = run(onnx.parser.parse_model(text), x=f32([1, 2]), n=np.array(3))
    assert_same(got, f32([1, 2] * 8))
    assert_same(rounds, np.array([[0], [1], [2]]))


def test_a_branch_that_gives_too_few_outputs() -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"])]
    whole = helper.make_graph(nodes, "g", [], [sequence("s", FLOAT)])
    none = helper.make_graph([], "g", [], [])
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=whole, else_branch=none)
    inputs = [tensor("c", TensorProto.BOOL, []), tensor("x", FLOAT, [1])]
    proto = model([node], inputs, [sequence("y", FLOAT)])
    message = r"'if' \(#0\): If: expected a body that takes 0 and gives at least 1 values, got one"
    with pytest.raises(glowpy.UserError, match=message):
        run(proto, c=np.array(True), x=f32([1]))


def test_a_loop_that_grows_is_not_for_bundles() -> None:
    with pytest.raises(
        glowpy.UnsupportedError, match=r"node 'grow' \(#1\): Loop: 'w' is f32\[2\] before"
    ) as caught:
        glowpy.load(growing(inside=False), dims={"n": 2})
    assert "or run the model with glowpy run, or in a session" in str(caught.value)


def test_scan_of_strings() -> None:
    body = helper.make_graph(
        [helper.make_node("StringConcat", ["all", "item"], ["more"]),
         helper.make_node("StringConcat", ["item", "item"], ["twice"])],
        "body",
        [tensor("all", STRING, []), tensor("item", STRING, [])],
        [tensor("more", STRING, []), tensor("twice", STRING, [])],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["start", "x"], ["y", "z"], body=body, num_scan_inputs=1,
        scan_input_directions=[1], scan_output_directions=[1],
    )  # fmt: skip
    inputs = [tensor("start", STRING, []), tensor("x", STRING, ["n"])]
    proto = model([node], inputs, [tensor("y", STRING), tensor("z", STRING)])
    y, z = run(proto, start=texts(">", shape=()), x=texts("a", "b", "c"))
    assert y.item() == ">cba"
    assert z.tolist() == ["aa", "bb", "cc"]


def test_sequence_map_of_strings() -> None:
    body = helper.make_graph(
        [helper.make_node("StringConcat", ["item", "end"], ["out"])],
        "body",
        [tensor("item", STRING, [None]), tensor("end", STRING, [])],
        [tensor("out", STRING, [None])],
    )
    node = helper.make_node("SequenceMap", ["s", "end"], ["y"], body=body)
    proto = model(
        [node], [sequence("s", STRING), tensor("end", STRING, [])], [sequence("y", STRING)]
    )
    (y,) = run(proto, s=[texts("a", "b"), texts("c")], end=texts(".", shape=()))
    assert [item.tolist() for item in y] == [["a.", "b."], ["c."]]


@pytest.mark.parametrize("length", [4, 1 << 17])
def test_branches_of_other_shapes_are_chosen_by_the_session(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data decides: code for each value of it would be compiled in each run, or refused where there is much of it."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[{length}] x) => (float[N] y) {{
      sum = ReduceSum <keepdims = 0> (x)
      zero = Constant <value = float {{0.0}}> ()
      positive = Greater(sum, zero)
      y = If(positive) <
        then_branch = then () => (float[N] t) {{ t = Neg(x) }},
        else_branch = else () => (float[2] e) {{ e = Constant <value_floats = [1.0, 2.0]> () }}
      >
    }}"""
    compiled: list[object] = []
    compile = Programs._compiled

    def count(*arguments: Any) -> Any:
        compiled.append(arguments)
        return compile(*arguments)

    monkeypatch.setattr(Programs, "_compiled", count)
    session = glowpy.InferenceSession(parser.parse_model(text), backend="interpreter")
    for number in (1, -1, 2, -2, 3):
        x = np.full(length, number, np.float32)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, -x if number > 0 else [1, 2])
    assert len(compiled) <= 4
