"""Inputs of other sizes than a file declares, and numbers in it that follow."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import glowpy
import glowpy.onnxruntime as drop_in
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.importer.onnx.source import read_source
from glowpy.onnx_package.networks import packaged_network
from glowpy.onnx_package.random_weights import with_random_weights
from glowpy.onnxruntime.errors import InvalidArgument
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol

HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEADER} {text}")


def transformer(batch: int, *, inner: bool = False, computed: bool = False) -> onnx.ModelProto:
    """Attention with 2 heads over 5 tokens of 8 numbers, as traced: every size is written as a number.

    Products run over rows that are merged if `inner`; targets are computed from a shape if `computed`.
    """
    rng = np.random.default_rng(1)
    names = {"split": [batch, 5, 2, 4], "whole": [batch, 5, 8], "rows": [batch * 5, 8], "heads": [batch * 2, 5, 4],
             "apart": [batch, 2, 5, 4], "first": [batch, 40]}  # fmt: skip
    merged = (
        "r = Reshape(x, rows) p = MatMul(r, w) m = Reshape(p, whole)"
        if inner
        else "m = MatMul(x, w)"
    )
    start = "b = Shape<end = 1>(x) rest = Constant<value_ints = [5, 2, 4]>() split = Concat<axis = 0>(b, rest)"
    model = parsed(
        f"g (float[{batch}, 5, 8] x) => (float[{batch}, 40] y) {{ {merged} {start if computed else ''}"
        "s = Reshape(m, split) q = Transpose<perm = [0, 2, 1, 3]>(s) h = Reshape(q, heads)"
        "k = Transpose<perm = [0, 2, 1]>(h) a = MatMul(h, k) n = Softmax(a) v = MatMul(n, h)"
        "u = Reshape(v, apart) t = Transpose<perm = [0, 2, 1, 3]>(u) o = Reshape(t, whole)"
        "z = Add(o, x) y = Reshape(z, first) }"
    )
    for name, shape in names.items():
        if not (computed and name == "split"):
            model.graph.initializer.append(numpy_helper.from_array(np.array(shape), name))
    weights = rng.standard_normal((8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def image_network(batch: int) -> onnx.ModelProto:
    """A convolution, and rows of its result that are written with -1 as exporters do."""
    model = parsed(
        f"g (float[{batch}, 2, 6, 6] x) => (float[{batch}, 3] y)"
        f" <int64[2] s = {{{batch}, -1}}, int64[3] c = {{{batch}, 3, -1}}> {{ f = Conv<pads = [1, 1, 1, 1]>(x, w)"
        " r = Relu(f) g = Reshape(r, c) m = ReduceMean<axes = [2]>(g) y = Reshape(m, s) }"
    )
    weights = np.random.default_rng(2).standard_normal((3, 2, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).random(shape, np.float32)


def reference(model: onnx.ModelProto, x: Array) -> Array:
    (output,) = ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(output)


def command(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(argv, io.StringIO(), out, err), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("was", [1, 2, 3])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("computed", [False, True])
def test_a_traced_transformer_takes_another_batch(was: int, inner: bool, computed: bool) -> None:
    x = numbers(4, 5, 8)
    expected = reference(transformer(4), x)
    model = transformer(was, inner=inner, computed=computed)
    session = glowpy.InferenceSession(model, backend="interpreter", shapes={"x": (4, 5, 8)})
    if inner:
        expected = reference(transformer(4, inner=True), x)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-5)
    assert session.get_inputs()[0].shape == [4, 5, 8]
    assert session.get_outputs()[0].shape == [None, None]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_batch_becomes_open(backend: str) -> None:
    """Compiled once for every batch, and right for each."""
    shapes = {"x": ("batch", 5, 8)}
    with glowpy.InferenceSession(transformer(1), backend=backend, shapes=shapes) as session:
        assert session.get_inputs()[0].shape == ["batch", 5, 8]
        for batch in (3, 1, 6):
            x = numbers(batch, 5, 8)
            expected = reference(transformer(batch), x)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 2, 6, 6), (1, 2, 9, 7), (3, 2, 4, 8)])
def test_what_minus_one_stands_for_stays_with_its_image(shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    expected = reference(image_network(shape[0]), x)
    function = glowpy.compile(
        glowpy.load(image_network(1), shapes={"x": shape}), backend="interpreter"
    )
    np.testing.assert_allclose(function({"x": x})["y"], expected, atol=1e-5)


def test_a_range_of_sizes_is_one_function() -> None:
    module = glowpy.load(image_network(1), shapes={"x": (symbol("n", 1, 8), 2, 6, 6)})
    assert [str(p.type) for p in module.placeholders] == ["f32[n x 2 x 6 x 6]", "f32[n x 3]"]


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet"])
def test_light_networks_take_another_batch(name: str, tmp_path: Path) -> None:
    """Their shapes, which every reshape agrees with; elements are compared by the small networks above."""
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(with_random_weights(packaged_network(name), 0).SerializeToString())
    declared = glowpy.load(path)
    info = read_source(path).proto.graph.input[0]
    shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
    module = glowpy.load(path, shapes={info.name: (8, *shape[1:])})
    for old, new in zip(declared.placeholders, module.placeholders, strict=True):
        assert new.type.shape == (8, *old.type.shape[1:])


def save(model: onnx.ModelProto, path: Path) -> str:
    onnx.save(model, path)
    return str(path)


def test_every_verb_follows_the_remedy_that_is_printed(tmp_path: Path) -> None:
    path, array = save(transformer(1), tmp_path / "net.onnx"), tmp_path / "x.npy"
    np.save(array, numbers(4, 5, 8))
    _, _, err = command("run", path, "--input", f"x={array}", "--backend", "interpreter")
    assert "note: --shape x:4x5x8 changes the sizes that the file declares" in err
    with pytest.raises(UserError) as caught:
        glowpy.InferenceSession(path, backend="interpreter").run(None, {"x": numbers(4, 5, 8)})
    assert "opened with shapes={'x': (4, 5, 8)}" in caught.value.diagnostics[0].note
    with pytest.raises(InvalidArgument, match=r"glowpy.InferenceSession has other sizes if"):
        drop_in.InferenceSession(path).run(None, {"x": numbers(4, 5, 8)})
    _, _, err = command("run", path, "--shape", "x[0]=1..8")
    assert "note: give the whole shape: --shape x=1..8x5x8" in err
    shape = ["--shape", "x:4x5x8"]
    for verb in (
        ["run", path, "--input", f"x={array}", "--backend", "interpreter"],
        ["check", path, "--backend", "interpreter"],
        ["dump", path],
        ["bundle", path, "-o", str(tmp_path / "made")],
        ["export", path, "-o", str(tmp_path / "other.onnx")],
    ):
        status, out, err = command(*verb, *shape)
        assert status == 0, out + err
    exported = onnx.load(tmp_path / "other.onnx")
    expected = reference(transformer(4), numbers(4, 5, 8))
    got = reference(exported, numbers(4, 5, 8))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def forbidding() -> onnx.ModelProto:
    """Rows are merged behind the batch, where they may be columns as well, and something of a batch of 1 is stored."""
    model = parsed(
        "g (float[5, 1, 8] x) => (float[1, 5, 16] y)"
        " <int64[2] rows = {5, 8}, int64[3] back = {5, 1, 8}> { r = Reshape(x, rows) s = MatMul(r, w)"
        " t = Reshape(s, back) n = Relu(x) q = Reshape(n, rows) u = Concat<axis = 2>(kept, x)"
        " y = Transpose<perm = [1, 0, 2]>(u) }"
    )
    for name, shape in (("w", (8, 8)), ("kept", (5, 1, 8))):
        model.graph.initializer.append(numpy_helper.from_array(numbers(*shape), name))
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type.lower()}_{index}"
    return model


def test_all_that_forbids_other_sizes_is_named() -> None:
    model, shapes = forbidding(), {"x": (5, 4, 8)}
    glowpy.load(model)
    loads: list[Callable[[], object]] = [
        lambda: glowpy.load(model, shapes=shapes),
        lambda: glowpy.InferenceSession(model, backend="interpreter", shapes=shapes),
    ]
    for load in loads:
        with pytest.raises(UserError) as caught:
            load()
        places = [diagnostic.loc.node for diagnostic in caught.value.diagnostics]
        assert places == ["reshape_0", "reshape_4", "concat_5"]
        assert "[5x8] is written in the model, for an input of [5x1x8]" in str(caught.value)


def test_other_ranks_and_models_of_strings_are_refused() -> None:
    with pytest.raises(UserError, match=r"expected the shape \[1x5x8\], got \[5x8\]"):
        glowpy.load(transformer(1), shapes={"x": (5, 8)})
    words = parsed("g (string[1] x) => (string[1] y) { y = Identity(x) }")
    with pytest.raises(UserError, match="shapes: expected a model of numbers alone"):
        glowpy.InferenceSession(words, shapes={"x": (2,)})


def test_elements_that_have_to_be_known_are_compiled_for() -> None:
    model = parsed(
        "g (float[1, 4] x, int64[2] target) => (float[a, b] y) { y = Reshape(x, target) }"
    )
    session = glowpy.InferenceSession(model, backend="interpreter", shapes={"x": (3, 4)})
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = session.run(None, {"x": x, "target": np.array([-1, 2])})
    np.testing.assert_array_equal(y, x.reshape(6, 2))


EXPANDED = """g (float[1, 16] x, int64[2] s) => (float[a, b] y) {{
    c = Constant<value = float[1, 1] {{1.0}}>() e = Expand(c, s) z = Add(x, e) {reshape} y = Neg(r) }}"""


@pytest.mark.parametrize(
    ("reshape", "shape"),
    [
        ("r = Identity(z)", (1, 32)),
        (
            "t = Constant<value_ints = [-1, 3]>() p = Concat<axis = 1>(z, x, x) r = Reshape(p, t)",
            (32, 3),
        ),
        ("t = Constant<value_ints = [1, 32]>() r = Reshape(z, t)", (1, 32)),
    ],
)
def test_elements_may_be_for_the_sizes_asked_for(reshape: str, shape: tuple[int, ...]) -> None:
    """They fit nothing of the sizes in the file, whose reshapes are read as far as that goes."""
    model = parsed(EXPANDED.format(reshape=reshape))
    x, s = np.arange(32, dtype=np.float32).reshape(1, 32), np.array([1, 32])
    sums = x + 1 if "Concat" not in reshape else np.concatenate([x + 1, x, x], 1)
    module = glowpy.load(model, shapes={"x": (1, 32)}, values={"s": s})
    loaded = glowpy.compile(module, backend="interpreter")({"x": x, "s": s})["y"]
    session = glowpy.InferenceSession(model, backend="interpreter", shapes={"x": (1, 32)})
    for y in (loaded, session.run(None, {"x": x, "s": s})[0]):
        np.testing.assert_array_equal(y, -sums.reshape(shape))


def test_targets_that_may_follow_are_not_guessed() -> None:
    """Nothing says whether the 4 is a part of the 16 in the file."""
    model = parsed(
        EXPANDED.format(reshape="t = Constant<value_ints = [-1, 4]>() r = Reshape(z, t)")
    )
    with pytest.raises(
        UserError, match=r"\[-1x4\] is written in the model; the elements that are given"
    ):
        glowpy.load(model, shapes={"x": (1, 32)}, values={"s": np.array([1, 32])})
