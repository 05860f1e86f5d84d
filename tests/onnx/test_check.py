"""`glowpy check`: everything that is wrong with a model at once, what to do about it, and what the model needs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.backend import Operation
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.cli import main
from glowpy.session.checkup import check
from tests.onnx.calls_models import decoder, model_of
from tests.onnx.comparison import graph_model, info

X = np.zeros((2, 3), np.float32)


def run(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    status = main.run(["check", *argv], io.StringIO(), out, err)
    return status, out.getvalue(), err.getvalue()


def troubled(folder: Path) -> Path:
    """A model with ten problems, each of another kind, and with nodes that have none."""
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="no_operator"),
        helper.make_node("Relu", ["a"], ["b"], name="depends"),
        helper.make_node("Bar", ["b"], ["c"], name="own_domain", domain="com.example"),
        helper.make_node("Baz", ["x"], ["d"], name="no_opset", domain="com.other"),
        helper.make_node("Relu", ["x"], ["e"], name="no_attribute", slope=1.0),
        helper.make_node("Pad", ["x", "p"], ["f"], name="no_mode", mode="wild"),
        helper.make_node("MatMul", ["x", "x"], ["g"], name="no_product"),
        helper.make_node("Add", ["x", "far"], ["h"], name="reads_far"),
        helper.make_node("Relu", ["shapeless"], ["i"], name="reads_shapeless"),
        helper.make_node("Identity", ["z"], ["j"], name="reads_complex"),
        helper.make_node("ReduceMax", ["w"], ["k"], name="no_reduction"),
        helper.make_node("Relu", ["x"], ["y"], name="fine"),
        helper.make_node("Sin", ["x", "x"], ["m"], name="two_inputs"),
    ]
    wide = np.zeros((2, 3), np.uint16)
    inputs = [
        info("x", X),
        helper.make_tensor_value_info("shapeless", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("z", TensorProto.COMPLEX64, [2]),
        info("w", wide),
    ]
    outputs = [info("y", X), helper.make_tensor_value_info("k", TensorProto.UINT16, [1, 1])]
    model = graph_model(nodes, inputs, outputs, 13, {"p": np.zeros(4, np.int64)})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    far = TensorProto(name="far", data_type=TensorProto.FLOAT, dims=[2, 3])
    far.data_location = TensorProto.EXTERNAL
    far.external_data.add(key="location", value="missing.bin")
    model.graph.initializer.append(far)
    path = folder / "troubled.onnx"
    onnx.save(model, path)
    return path


EXPECTED = [
    (None, "'z': element type COMPLEX64 is not supported", "supported are"),
    (None, "expected external data in a plain file", "put it there"),
    ("no_operator", "Foo (opset 13) is not supported", "misspelled"),
    ("own_domain", "com.example.Bar (opset 1) is not supported", "a package can bring"),
    ("no_opset", "imports no opset of the domain 'com.other'", "add the domain"),
    ("no_attribute", "attribute 'slope' is not supported", "convert the model"),
    ("two_inputs", "expected 1 inputs, got 2", ""),
    (None, "input 'shapeless' has no declared shape", "give it one: --shape"),
    ("no_mode", "mode 'wild' is not supported", ""),
    ("no_product", "mat_mul: lhs has 3 columns", ""),
    ("no_reduction", "ReduceMax: expected bfloat16", ""),
]


def test_everything_is_reported_at_once(tmp_path: Path) -> None:
    """Eleven problems, in the order in which they are found."""
    status, out, err = run(str(troubled(tmp_path)), "--json")
    assert (status, err) == (1, "")
    figures = json.loads(out)
    problems = figures["problems"]
    assert [problem["node"] for problem in problems] == [node for node, _, _ in EXPECTED]
    for problem, (_, message, remedy) in zip(problems, EXPECTED, strict=True):
        assert message in problem["message"]
        assert remedy in (problem["remedy"] or "")
    assert not figures["runs"]
    assert (figures["macs"], figures["peak_bytes"], figures["parameters"]) == (None, None, 10)


def test_problems_are_printed_with_remedies(tmp_path: Path) -> None:
    status, out, err = run(str(troubled(tmp_path)))
    assert (status, err) == (1, "")  # what `check m.onnx > report.txt` is to keep is all of it
    assert "troubled.onnx: node 'no_mode' (#5): Pad: mode 'wild' is not supported" in out
    assert "note: add the domain 'com.other' to the opset_import of the model" in out
    assert out.rstrip().endswith("11 problems on the cpu backend")


def test_newer_opset_is_one_problem_among_others() -> None:
    nodes = [helper.make_node("Foo", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    model = graph_model(nodes, [info("x", X)], [info("y", X), info("z", X)], 13)
    model.opset_import[0].version = 99
    model.ir_version = 99
    messages = [problem.message for problem in check(model, backend="interpreter").problems]
    assert [message.split(",")[0] for message in messages] == [
        f"expected an IR version of at most {onnx.IR_VERSION}",
        "expected an opset of 'ai.onnx' from 1 to 28",
        "Foo (opset 99) is not supported",
    ]


def linear(batch: str | int) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    weights = np.ones((3, 5), np.float32)
    inputs, outputs = [info("x", X, [batch, 3])], [info("y", X, [batch, 5])]
    return graph_model(nodes, inputs, outputs, 13, {"w": weights})


def test_needs_are_counted() -> None:
    result = check(linear(4))
    assert result.problems == ()
    assert (result.parameters, result.weight_bytes, result.macs) == (15, 60, 60)
    assert result.peak_bytes is not None
    assert result.assumed == {}


def test_symbolic_dimension_is_assumed_or_given() -> None:
    assert check(linear("batch")).macs == 15
    assert check(linear("batch")).assumed == {"batch": 1}
    given = check(linear("batch"), dims={"batch": 8})
    assert (given.macs, given.assumed) == (120, {})
    shaped = check(linear("batch"), shapes={"x": (2, 3)})
    assert (shaped.macs, shaped.assumed) == (30, {})


def test_wrong_sizes_are_told_with_what_was_assumed() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="fold")]
    model = graph_model(
        nodes, [info("x", X, ["n", 3])], [info("y", X)], 13, {"s": np.array([2, 3])}
    )
    (problem,) = check(model).problems
    assert problem.loc.node == "fold"
    assert problem.note == "this is for --shape n=1; give the sizes that the model is meant for"
    assert check(model, dims={"n": 2}).problems == ()


def test_only_what_sizes_change_is_told_with_what_was_assumed() -> None:
    """An attribute is as wrong with any size; dimensions without a name are assumed, too."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"], name="mode", mode="wild"),
        helper.make_node("ReduceMax", ["w"], ["b"], name="kind"),
        helper.make_node("Reshape", ["u", "s"], ["y"], name="fold"),
    ]
    inputs = [
        info("x", X, ["n", 3]),
        info("w", X.astype(np.uint16), ["n", 3]),
        info("u", X, [None, 3]),
    ]
    constants = {"p": np.zeros(4, np.int64), "s": np.array([2, 3])}
    result = check(graph_model(nodes, inputs, [info("y", X)], 13, constants))
    notes = {problem.loc.node: problem.note for problem in result.problems}
    options = "--shape n=1 --shape u:1x3"
    told = f"this is for {options}; give the sizes that the model is meant for"
    assert notes == {"mode": "", "kind": "", "fold": told}
    assert result.assumed == {"n": 1, "u[0]": 1}


BODIES = """
<ir_version: 8, opset_import: ["": 17, "com.example": 1]>
net (bool up, bool far, float[3] x, int64 n) => (float[3] z, float[3] last) {
    [choice] z = If (up) <
        then_branch = a () => (float[3] p) { [no_operator] q = Foo (x) p = Relu (q) },
        else_branch = b () => (float[3] s) {
            [inner] s = If (far) <
                then_branch = c () => (float[3] v) { [no_kind] v = MatMul (x, n) },
                else_branch = d () => (float[3] m) { [no_attribute] m = Neg <slope = 1.0, top = 2> (x) }
            >
        }
    >
    [loop] last = Loop (n, , x) <
        body = step (int64 i, bool c, float[3] before) => (bool more, float[3] after) {
            [own] y = com.example.Bar (before)
            [mixed] t = Add (i, before)
            more = Identity (c)
            [no_mode] after = Pad <mode = "wild"> (before, pads)
        }
    >
}
"""


def test_everything_in_bodies_is_reported_with_its_path() -> None:
    model = onnx.parser.parse_model(BODIES)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2, np.int64), "pads"))
    problems = {problem.loc.node: problem.message for problem in check(model).problems}
    assert problems.keys() == {
        "loop",  # which could run no round
        "choice/then_branch/no_operator",
        "choice/else_branch/inner/then_branch/no_kind",
        "choice/else_branch/inner/else_branch/no_attribute",
        "loop/body/own",
        "loop/body/mixed",
        "loop/body/no_mode",
    }
    message = problems["choice/else_branch/inner/else_branch/no_attribute"]
    assert message == "Neg (opset 17): attributes 'slope', 'top' are not supported"


def test_bodies_are_counted() -> None:
    """A loop that stacks has room for so many rounds; of one without a bound one round counts, and is named."""
    bounded = check(decoder())
    assert bounded.problems == ()
    assert (bounded.macs, bounded.counted_once) == (11 * (8 * 8 + 8 * 16), ())
    stored = 16 * 8 + 8 * 8 + 8 * 16
    assert bounded.parameters >= stored
    assert bounded.constant_bytes is not None
    assert bounded.constant_bytes > 4 * stored
    body = """net (int64 n, float[3] x) => (float[3] last) {
        [outer] last = Loop (n, , x) <body = f (int64 i, bool c, float[3] b) => (bool k, float[3] a) {
            k = Identity (c) w = Constant <value = float[3, 1] {1, 2, 3}> ()
            p = MatMul (b, w) a = Add (b, p)
        }>
    }"""
    open_ = check(model_of(body))
    assert (open_.macs, open_.counted_once, open_.parameters) == (3, ("outer",), 3)


def test_branch_with_more_products_counts() -> None:
    text = """net (bool c, float[3] x, float[3, 3] w) => (float[3] y) {
        y = If (c) <
            then_branch = a () => (float[3] p) { q = MatMul (x, w) p = MatMul (q, w) },
            else_branch = b () => (float[3] n) { n = MatMul (x, w) }
        >
    }"""
    assert check(model_of(text)).macs == 2 * 9


def test_loop_without_a_bound_is_named(tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    text = """net (int64 n, float[3] x, float[3, 3] w) => (float[3] last) {
        [outer] last = Loop (n, , x) <body = f (int64 i, bool c, float[3] b) => (bool k, float[3] a) {
            k = Identity (c) a = MatMul (b, w)
        }>
    }"""
    onnx.save(model_of(text), path)
    status, out, _ = run(str(path))
    assert status == 0
    assert "one round of loop 'outer' is counted: nothing says how many there are" in out
    assert json.loads(run(str(path), "--json")[1])["counted_once"] == ["outer"]


def test_cycle_is_told_with_what_else_is_wrong() -> None:
    nodes = [
        helper.make_node("Foo", ["x"], ["a"]),
        helper.make_node("Add", ["x", "y"], ["z"]),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 13)
    with pytest.raises(glowpy.UserError) as caught:
        check(model)
    messages = [diagnostic.message for diagnostic in caught.value.diagnostics]
    assert "Foo (opset 13) is not supported" in messages[0]
    assert "cycle" in messages[1]


def test_names_that_nothing_computes_are_told_with_what_else_is_wrong() -> None:
    """Nobody tells what depends on them."""
    inner = helper.make_node("Add", ["x", "lost"], ["b"])
    body = helper.make_graph([inner], "body", [], [info("b", X)])
    nodes = [
        helper.make_node("Add", ["x", "missing"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["e"], name="after"),
        helper.make_node("Softmax", ["x"], ["y"], name="softmax", axis=9),
        helper.make_node("If", ["c"], ["z"], name="if", then_branch=body, else_branch=body),
        helper.make_node("Relu", ["x"], ["y"], name="again"),
    ]
    outputs = [info("e", X), info("y", X), info("nothing", X)]
    model = graph_model(nodes, [info("x", X), info("c", np.array(True))], outputs, 13)
    lost = [
        "node 'again' (#4): Relu: output 'y' exists already",
        "node 'add' (#0): Add: input 'missing' is computed by no node",
        "node 'if' (#3): If: input 'lost' is computed by no node",
        "output 'nothing' is computed by no node",
    ]
    axis = "node 'softmax' (#2): Softmax: expected an axis between -2 and 1, got 9"
    messages = [str(problem).partition(": ")[2] for problem in check(model).problems]
    assert messages == [*lost, axis]
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.load(model)
    assert [str(problem).partition(": ")[2] for problem in caught.value.diagnostics] == lost


class NoSine(CpuBackend):
    """A backend without code for sines, whatever others get."""

    def unsupported(self, operation: Operation) -> str:
        return "no sines" if operation.mnemonic == "sin" else super().unsupported(operation)


def test_all_that_the_backend_refuses_is_reported_beside_what_the_importer_does() -> None:
    nodes = [
        helper.make_node("Sin", ["x"], ["y"], name="first"),
        helper.make_node("Sin", ["y"], ["z"], name="second"),
        helper.make_node("Foo", ["z"], ["u"], name="third"),
    ]
    outputs = [info("u", X)]
    problems = check(graph_model(nodes, [info("x", X)], outputs, 13), backend=NoSine()).problems
    assert [problem.loc.node for problem in problems] == ["third", "first", "second"]
    assert "no sines" in problems[1].message
    assert problems[1].note == "the interpreter may: --backend interpreter"


def test_text_is_checked(tmp_path: Path) -> None:
    text = tmp_path / "net.glow"
    text.write_text(
        "module {\n  placeholder %x : f32[2x3]\n  placeholder %y : f32[2x3]\n"
        "  function @main {\n    %r = relu(%x) : f32[2x3]\n    save(%r, %y)\n  }\n}\n"
    )
    status, out, err = run(str(text))
    assert (status, err) == (0, "")
    assert out.rstrip().endswith("runs on the cpu backend")


def test_a_model_that_cannot_be_read_is_a_problem_in_json(tmp_path: Path) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes(b"no model")
    status, out, _ = run(str(file), "--json")
    figures = json.loads(out)
    assert status == 1
    assert not figures["runs"]
    assert "does not parse" in figures["problems"][0]["message"]
    status, out, err = run(str(file))
    assert (status, out) == (1, "")
    assert "does not parse" in err
