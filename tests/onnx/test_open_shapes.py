"""Operators whose shapes, indices or coordinates depend on open dimensions: one compilation, many extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, symbol
from tests.onnx.calls_models import model_of

RANGES = {"batch": (1, 3), "h": (2, 17), "w": (2, 12), "seq": (1, 20), "past": (0, 9)}
EXTENTS = [
    {name: bounds[0] for name, bounds in RANGES.items()},
    {name: bounds[1] for name, bounds in RANGES.items()},
    {"batch": 1, "h": 5, "w": 2, "seq": 7, "past": 1},
    {"batch": 2, "h": 2, "w": 11, "seq": 2, "past": 8},
    {"batch": 3, "h": 16, "w": 7, "seq": 19, "past": 3},
]
DIMS: dict[str, Dim] = {name: symbol(name, *bounds) for name, bounds in RANGES.items()}

DIMS_OF_SEQ = {"seq": DIMS["seq"]}
RNG = np.random.default_rng(0)


class Net:
    """A model with many outputs: each node's result that no other node reads."""

    def __init__(self, opset: int = 19) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Iterable[int | str], kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, array: Array) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def node(self, op_type: str, *inputs: str, count: int = 1, **attributes: Any) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        outputs = [name, *(f"{name}_{index}" for index in range(1, count))]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name, **attributes))
        return name

    def extent(self, value: str, axis: int) -> str:
        """One extent, as a vector."""
        return self.node("Shape", value, start=axis, end=axis + 1)

    @property
    def model(self) -> onnx.ModelProto:
        read = {name for node in self.nodes for name in node.input}
        names = [name for node in self.nodes for name in node.output if name not in read]
        outputs = [onnx.ValueInfoProto(name=name) for name in names]
        graph = helper.make_graph(self.nodes, "net", self.inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def check(self) -> None:
        """Both backends against onnxruntime, compiled once for all extents."""
        model = self.model
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        reference = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in reference.get_outputs()]
        used = {d.dim_param for i in self.inputs for d in i.type.tensor_type.shape.dim} - {""}
        module = glowpy.load(model, dims={name: DIMS[name] for name in used})
        compiled = [glowpy.compile(module, backend) for backend in ("interpreter", "cpu")]
        for extents in EXTENTS:
            feeds = {info.name: _array(info, extents) for info in self.inputs}
            expected = dict(zip(names, reference.run(None, feeds), strict=True))
            for network in compiled:
                actual = network({name: feeds[name] for name in network.inputs})
                for name, array in expected.items():
                    assert actual[name].shape == array.shape, (name, extents)
                    np.testing.assert_allclose(
                        actual[name], array, rtol=1e-4, atol=1e-4, err_msg=f"{name} {extents}"
                    )


def _array(info: onnx.ValueInfoProto, extents: Mapping[str, int]) -> Array:
    type = info.type.tensor_type
    shape = [extents[dim.dim_param] if dim.dim_param else dim.dim_value for dim in type.shape.dim]
    if type.elem_type == TensorProto.INT64:
        return RNG.integers(0, 4, shape)
    return RNG.standard_normal(shape).astype(np.float32)


def test_images_are_resized() -> None:
    net = Net()
    image = net.input("image", ("batch", 2, "h", "w"))
    batch, rows, columns = (net.extent(image, axis) for axis in (0, 2, 3))
    double, half = net.node("Mul", rows, net.ints(2)), net.node("Div", columns, net.ints(2))
    sizes = net.node("Concat", batch, net.ints(2), double, half, axis=0)
    for mode, coordinates in (
        ("nearest", "asymmetric"),
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("linear", "pytorch_half_pixel"),
        ("cubic", "half_pixel"),
    ):
        attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
        if mode == "nearest":
            attributes["nearest_mode"] = "floor"
        net.node("Resize", image, "", "", sizes, **attributes)
    scales = net.constant(np.array([1, 1, 1.5, 2], np.float32))
    net.node("Resize", image, "", scales, mode="nearest", nearest_mode="round_prefer_floor")
    net.node("Resize", image, "", scales, mode="linear")
    net.node("Resize", image, "", scales, mode="cubic", exclude_outside=1)
    net.check()


def test_windows_over_images_that_are_open() -> None:
    net = Net()
    image = net.input("image", ("batch", 4, "h", "w"))
    filter = net.constant(RNG.standard_normal((4, 3, 2, 2)).astype(np.float32))
    net.node("ConvTranspose", image, filter, strides=[2, 2])
    net.node(
        "ConvTranspose", image, filter, strides=[2, 3], pads=[0, 1, 1, 0], output_padding=[1, 0]
    )
    net.node("ConvTranspose", image, filter, strides=[2, 2], auto_pad="SAME_UPPER")
    tall = net.constant(RNG.standard_normal((4, 1, 3, 2)).astype(np.float32))
    net.node("ConvTranspose", image, tall, strides=[2, 3])  # one column of three is its bias
    wide = net.constant(RNG.standard_normal((3, 4, 3, 3)).astype(np.float32))
    net.node("Conv", image, wide, auto_pad="SAME_LOWER", strides=[2, 2])
    net.node("AveragePool", image, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    net.node("MaxPool", image, kernel_shape=[2, 2], strides=[1, 2], count=2)
    net.node("GlobalAveragePool", image)
    large: dict[str, Any] = {
        "kernel_shape": [9, 640],
        "strides": [9, 640],
        "ceil_mode": 1,
    }  # than most images
    net.node("AveragePool", image, **large)
    net.node("AveragePool", image, **large, count_include_pad=1)
    net.node("LpPool", image, **large)
    net.node("MaxPool", image, **large, count=2)
    net.check()


@pytest.mark.parametrize("most", [11, 22])
def test_a_convolution_of_images_that_may_have_no_columns(most: int) -> None:
    """Its kernel takes an image row by row, and a row of none divides nothing."""
    net = Net()
    image = net.input("image", (4, 4, "h", "w"))
    filter = RNG.standard_normal((16, 4, 2, 1)).astype(np.float32)
    y = net.node("Conv", image, net.constant(filter), dilations=[3, 1])
    dims = {"h": symbol("h", 25, 26), "w": symbol("w", 0, most)}
    function = glowpy.compile(glowpy.load(net.model, dims=dims), "cpu")
    for height, width in ((25, 0), (26, 1), (25, most)):
        x = RNG.standard_normal((4, 4, height, width)).astype(np.float32)
        taps = [np.einsum("nchw,oc->nohw", x, filter[:, :, tap, 0]) for tap in range(2)]
        expected = taps[0][:, :, :-3] + taps[1][:, :, 3:]
        np.testing.assert_allclose(function({"image": x})[y], expected, rtol=1e-4, atol=1e-5)


def test_a_session_finds_out_from_which_sizes_on_there_is_one_window() -> None:
    """As the pooler of an EfficientNet has it, whose result is reshaped to rows of channels."""
    net = Net()
    image = net.input("image", ("batch", 4, "h", "w"))
    filter = net.constant(RNG.standard_normal((5, 4, 3, 3)).astype(np.float32))
    features = net.node("Conv", image, filter, strides=[2, 2])
    pooled = net.node("MaxPool", features, kernel_shape=[640] * 2, strides=[640] * 2, ceil_mode=1)
    net.node("Reshape", pooled, net.ints(-1, 5))
    net.node("Reshape", pooled, net.ints(1, 5))
    reference = onnxruntime.InferenceSession(net.model.SerializeToString())
    session = glowpy.InferenceSession(net.model, backend="interpreter")
    for height, width in ((10, 12), (3, 5), (40, 31)):
        feeds = {"image": RNG.standard_normal((1, 4, height, width)).astype(np.float32)}
        for actual, array in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(actual, array, rtol=1e-5, atol=1e-5, strict=True)
    assert session.assumptions["h"].startswith("3..")
    assert session.assumptions["w"].startswith("3..")


@pytest.mark.parametrize("ceil", [0, 1])
def test_a_session_meets_images_smaller_than_a_window(ceil: int) -> None:
    """As the pools after the last convolution of classifiers do; nothing is compiled for one size of it."""
    net = Net()
    image = net.input("image", ("batch", 4, "h", "w"))
    window: dict[str, Any] = {"kernel_shape": [5, 5], "strides": [5, 5], "ceil_mode": ceil}
    for op_type in ("AveragePool", "MaxPool"):
        net.node(op_type, image, **window)
    reference = onnxruntime.InferenceSession(net.model.SerializeToString())
    for sizes in ([(3, 3), (7, 4), (30, 12), (1, 9)], [(12, 17), (2, 9), (5, 1)]):
        session = glowpy.InferenceSession(net.model, backend="interpreter")
        for height, width in sizes:
            feeds = {"image": RNG.standard_normal((2, 4, height, width)).astype(np.float32)}
            expected = reference.run(None, feeds)
            for actual, array in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(actual, array, rtol=1e-5, atol=1e-5, strict=True)
        assert not any("constant" in text for text in session.assumptions.values())


def test_every_second_row_of_rows_that_were_chosen() -> None:
    """Nobody proves that an image ends after its rows: they are copied."""
    net = Net()
    image = net.input("image", ("batch", 3, "h", "w"))
    pooled = net.node("MaxPool", image, kernel_shape=[1, 5], pads=[0, 2, 0, 2], strides=[2, 2])
    net.node("Slice", pooled, net.ints(1), net.ints(99), net.ints(2), net.ints(2))
    dims = {"batch": DIMS["batch"], "h": symbol("h", 9, 17), "w": DIMS["w"]}
    module = glowpy.load(net.model, dims=dims)
    compiled = [glowpy.compile(module, backend) for backend in ("interpreter", "cpu")]
    for extents in ({"batch": 2, "h": 9, "w": 7}, {"batch": 1, "h": 14, "w": 12}):
        feeds = {"image": _array(net.inputs[0], extents)}
        (expected,), (actual,) = (list(network(feeds).values()) for network in compiled)
        np.testing.assert_array_equal(actual, expected)


def test_what_is_the_same_in_every_element() -> None:
    net = Net()
    image = net.input("image", ("batch", 2, "h", "w"))
    net.node("Dropout", image, count=2)
    net.node("IsInf", image, detect_positive=0, detect_negative=0)
    whole = net.node("Cast", image, to=TensorProto.INT64)
    net.node("Pow", whole, net.constant(np.array(0, np.int64)))
    net.check()


def test_pads_follow_from_shapes_and_from_elements() -> None:
    net = Net()
    image = net.input("image", ("batch", 2, "h", "w"))
    rows = net.extent(image, 2)
    fours = net.node("Div", net.node("Add", rows, net.ints(3)), net.ints(4))
    rest = net.node("Sub", net.node("Mul", fours, net.ints(4)), rows)
    zeros = net.ints(0, 0, 0, 1, 0, 0)
    net.node("Pad", image, net.node("Concat", zeros, rest, net.ints(2), axis=0))
    for mode in ("reflect", "edge", "wrap"):
        net.node("Pad", image, net.ints(0, 0, 1, 1, 0, 0, 1, 1), mode=mode)
    net.check()


def test_elements_are_picked_and_moved() -> None:
    net = Net()
    rows = net.input("rows", ("batch", "seq", 6))
    more = net.input("more", ("batch", "past", 6))
    ids = net.input("ids", ("batch", "seq"), TensorProto.INT64)
    net.node("Split", rows, axis=2, count=3, num_outputs=3)
    net.node("Split", rows, axis=1, count=2, num_outputs=2)
    both = net.node("Concat", more, rows, axis=1)
    sizes = net.node("Concat", net.extent(more, 1), net.extent(rows, 1), axis=0)
    net.node("Split", both, sizes, axis=1, count=2)
    length = net.node("Squeeze", net.extent(rows, 1))
    zero, one, two = (net.constant(np.array(number)) for number in (0, 1, 2))
    net.node("Range", zero, length, two)
    net.node("Range", length, zero, net.constant(np.array(-3)))
    net.node("Range", net.node("Neg", length), length, one)
    net.node("Trilu", rows, one, upper=0)
    net.node("Trilu", rows, net.node("Sub", length, two))
    net.node("Slice", rows, net.ints(-1), net.ints(-100), net.ints(1), net.ints(-2))
    net.node("GatherElements", rows, net.node("Unsqueeze", ids, net.ints(2)), axis=2)
    first = net.node("Mul", net.node("Unsqueeze", ids, net.ints(2)), net.ints(0))
    net.node("GatherND", rows, first, batch_dims=1)
    net.node("Hardmax", rows, axis=1)
    net.node("EyeLike", net.node("ReduceMax", rows, net.ints(0), keepdims=0), k=1)
    net.node("OneHot", ids, net.constant(np.array(4)), net.constant(np.array([0, 1], np.float32)))
    net.check()


def test_shapes_that_are_computed_as_floats() -> None:
    net = Net()
    image = net.input("image", ("batch", 2, "h", "w"))
    rows, columns = net.extent(image, 2), net.extent(image, 3)

    def real(value: str) -> str:
        return net.node("Cast", value, to=TensorProto.FLOAT)

    def whole(value: str) -> str:
        return net.node("Cast", value, to=TensorProto.INT64)

    third = net.node("Div", real(rows), net.constant(np.array([3], np.float32)))
    up, down = whole(net.node("Ceil", third)), whole(net.node("Floor", third))
    half = whole(net.node("Mul", real(columns), net.constant(np.array([0.5], np.float32))))
    sizes = net.node("Concat", net.extent(image, 0), up, down, half, axis=0)
    net.node("ConstantOfShape", sizes, value=helper.make_tensor("value", 1, [1], [2.0]))
    net.node("Mul", third, net.constant(np.array([2], np.float32)))
    net.check()


def test_numbers_that_no_float_holds_stay_as_they_are() -> None:
    net = Net()
    x = net.input("x", ("seq",))
    both = net.node("Concat", net.extent(x, 0), net.ints((1 << 63) - 1), axis=0)
    net.node("Cast", both, to=TensorProto.INT64)
    net.check()


def test_expressions_that_grow_are_computed_when_the_network_runs() -> None:
    net = Net()
    number = net.node("Add", net.extent(net.input("x", ("seq",)), 0), net.ints(2))
    for _ in range(30):
        number = net.node("Mul", number, number)
    net.check()


@pytest.mark.parametrize(
    ("op_type", "operand", "message"),
    [
        ("Gather", 7, "Gather: expected indices from -1 to 0, got 7"),
        ("Reshape", 3, "Reshape: expected a shape of 1 elements"),
    ],
)
def test_wrong_uses_of_a_shape_are_refused(op_type: str, operand: int, message: str) -> None:
    net = Net()
    net.node(op_type, net.node("Shape", net.input("x", ("seq",))), net.ints(operand))
    with pytest.raises(UserError, match=message):
        glowpy.load(net.model, dims=DIMS_OF_SEQ)


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_ranges_without_steps_are_refused(kind: type) -> None:
    net = Net()
    size = net.node("Squeeze", net.node("Shape", net.input("x", ("seq",))))
    limit = net.node("Cast", size, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    zero = net.constant(np.array(0, kind))
    net.node("Range", zero, limit, zero)
    with pytest.raises(UserError, match="expected a delta other than 0"):
        glowpy.load(net.model, dims=DIMS_OF_SEQ)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ranges_of_floats(kind: type) -> None:
    """Where their numbers are exact, and where only the network knows how many there are."""
    net = Net()
    size = net.node("Squeeze", net.extent(net.input("x", ("seq",)), 0))
    real = net.node("Cast", size, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def number(value: float) -> str:
        return net.constant(np.array(value, kind))

    half = net.node("Mul", real, number(0.5))
    third = net.node("Floor", net.node("Div", real, number(3)))
    tenth = net.node("Mul", real, number(0.1))
    for start, limit, delta in [
        (number(0), real, number(1)),
        (number(-2), real, number(0.5)),
        (real, number(-3), number(-2)),
        (half, real, number(0.25)),
        (third, real, number(1)),
        (tenth, real, number(0.3)),
        (number(1), net.node("Sqrt", real), number(0.5)),
        (number(0), net.node("Ceil", tenth), number(1)),
    ]:
        net.node("Range", start, limit, delta)
    net.check()


def test_integers_that_may_be_negative() -> None:
    net = Net()
    size = net.extent(net.input("x", ("seq",)), 0)
    five = net.ints(5)
    less = net.node("Sub", size, five)
    for kind in (TensorProto.INT32, TensorProto.INT64, TensorProto.INT16, TensorProto.DOUBLE):
        negative = net.node("Cast", net.node("Neg", size), to=kind)
        whole = net.node("Cast", negative, to=TensorProto.INT64)
        net.node("ConstantOfShape", net.node("Add", whole, net.node("Add", size, five)))
    net.node("ConstantOfShape", net.node("Abs", less))
    net.node("ConstantOfShape", net.node("Mod", less, five))
    net.node("Div", net.node("Neg", size), net.ints(2))
    is_long = net.node("Cast", net.node("Max", less, net.ints(1)), to=TensorProto.BOOL)
    both = net.node("Or", net.node("Not", is_long), net.node("Equal", size, net.ints(0)))
    net.node("ConstantOfShape", net.node("Where", both, five, size))
    net.check()


def test_every_second_row_of_rows_that_are_joined() -> None:
    """As Funnel pools: a view, if it is known where it ends."""
    net = Net()
    square = net.input("square", ("seq", "seq"))
    first = net.node("Slice", square, net.ints(0), net.ints(1), net.ints(0))
    joined = net.node("Concat", first, square, axis=0)
    pooled = net.node("Slice", joined, net.ints(0), net.ints(-1), net.ints(0), net.ints(2))
    net.node("Relu", pooled)
    columns = net.node("Concat", square, square, square, axis=1)
    for step in (2, 3):
        every = net.node("Slice", columns, net.ints(1), net.ints(-1), net.ints(1), net.ints(step))
        net.node("Exp", every)
        both = net.node("Slice", every, net.ints(0), net.ints(99), net.ints(0), net.ints(step))
        net.node("Transpose", net.node("Abs", both), perm=[1, 0])
    net.check()


@pytest.mark.parametrize("first", [(2, 3), (1, 1)])
def test_a_session_finds_out_that_two_names_are_one_batch(first: tuple[int, int]) -> None:
    """As Whisper's decoder: what comes from the encoder is split into heads by the batch of the words."""
    text = """net (float[a, s] x, float[b, 6] y) => (float[a, 3, k] z) {
        shape = Shape <end = 1> (x) rest = Constant <value_ints = [3, -1]> ()
        sizes = Concat <axis = 0> (shape, rest) z = Reshape (y, sizes)
    }"""
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    for batch, length in (first, (3, 4), (2, 7), (5, 1)):
        y = np.arange(6 * batch, dtype=np.float32).reshape(batch, 6)
        (z,) = session.run(None, {"x": np.zeros((batch, length), np.float32), "y": y})
        np.testing.assert_array_equal(z, y.reshape(batch, 3, 2))
    assert session.assumptions["a"] == "b"


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("c", ["m", "r, m"])
def test_what_is_added_to_a_product_says_what_dimensions_are(domain: str, c: str) -> None:
    """As an operand of Add: C has dimensions of its own, by name."""
    name, attributes = ("FusedGemm", 'activation = "Relu", ') if domain else ("Gemm", "")
    text = f"""
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    net (float[n, k] a, float[l, p] b, float[{c}] c) => (float[i, j] y) {{
        y = {domain}{"." if domain else ""}{name} <{attributes}alpha = 0.5> (a, b, c)
    }}"""
    model = onnx.parser.parse_model(text)
    reference = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    session = glowpy.InferenceSession(model, backend="interpreter")
    for rows, depth, columns in ((3, 4, 5), (2, 4, 6), (1, 7, 9), (5, 2, 1)):
        shapes = [(columns,), (1,)] if c == "m" else [(rows, columns), (1, columns), (rows, 1)]
        for shape in shapes:
            arrays = [RNG.standard_normal(s) for s in ((rows, depth), (depth, columns), shape)]
            feeds = {n: a.astype(np.float32) for n, a in zip("abc", arrays, strict=True)}
            expected = reference.run(None, feeds)[0]
            np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)


def test_open_dimensions_in_messages_are_spelled_as_everywhere() -> None:
    """In lists of dimensions as well, which show what Python calls its objects."""
    text = "net (float[n, 4] a, float[4, m] b, float[3, 2, 2] c) => (float[n, m] y) { y = Gemm (a, b, c) }"
    dims = {name: symbol(name, 1, 9) for name in "nm"}
    with pytest.raises(UserError, match=r"expected C to broadcast to \[n, m\], got f32\[3x2x2\]"):
        glowpy.load(model_of(text), dims=dims)


def _weights(net: Net, *shape: int) -> str:
    return net.constant((RNG.standard_normal(shape) / 3).astype(np.float32))


def test_a_decoder_with_a_cache_grouped_queries_and_rotary_positions() -> None:
    """As Llama is exported: two heads of queries for one of keys and values."""
    net = Net(17)
    ids = net.input("ids", ("batch", "seq"), TensorProto.INT64)
    caches = [net.input(name, ("batch", 1, "past", 4)) for name in ("past_key", "past_value")]
    batch, length, seen = net.extent(ids, 0), net.extent(ids, 1), net.extent(caches[0], 2)
    x = net.node("Gather", _weights(net, 4, 8), ids)

    def heads(count: int) -> str:
        wide = net.node("MatMul", x, _weights(net, 8, 4 * count))
        shape = net.node("Concat", batch, length, net.ints(count, 4), axis=0)
        return net.node("Transpose", net.node("Reshape", wide, shape), perm=[0, 2, 1, 3])

    total = net.node("Add", seen, length)
    ends = [net.node("Squeeze", extent) for extent in (seen, total)]
    zero, one = (net.constant(np.array(number)) for number in (0, 1))
    places, others = net.node("Range", *ends, one), net.node("Range", zero, ends[1], one)
    column = net.node("Unsqueeze", places, net.ints(1))
    steps = net.constant(np.array([[1, 0.1]], np.float32))
    angles = net.node("Mul", net.node("Cast", column, to=TensorProto.FLOAT), steps)
    cos, sin = net.node("Cos", angles), net.node("Sin", angles)

    def turned(value: str) -> str:
        left = net.node("Slice", value, net.ints(0), net.ints(2), net.ints(3))
        right = net.node("Slice", value, net.ints(2), net.ints(4), net.ints(3))
        first = net.node("Sub", net.node("Mul", left, cos), net.node("Mul", right, sin))
        second = net.node("Add", net.node("Mul", right, cos), net.node("Mul", left, sin))
        return net.node("Concat", first, second, axis=3)

    query = turned(heads(2))
    key, value = (
        net.node("Concat", cache, new, axis=2)
        for cache, new in zip(caches, (turned(heads(1)), heads(1)), strict=True)
    )
    shape = net.node("Concat", batch, net.ints(2), total, net.ints(4), axis=0)
    keys, values = (net.node("Expand", part, shape) for part in (key, value))
    scores = net.node("MatMul", query, net.node("Transpose", keys, perm=[0, 1, 3, 2]))
    later = net.node("Greater", others, column)
    hidden = net.node("Where", later, net.constant(np.array(-1e9, np.float32)), scores)
    sums = net.node("MatMul", net.node("Softmax", hidden, axis=3), values)
    rows = net.node("Transpose", sums, perm=[0, 2, 1, 3])
    joined = net.node("Reshape", rows, net.ints(0, 0, -1))
    net.node("MatMul", joined, _weights(net, 8, 5))
    net.check()


def test_a_network_down_and_up_again_for_images_of_any_size() -> None:
    """As a U-Net is exported: resized to what is joined with it, and padded."""
    net = Net(17)
    image = net.input("image", ("batch", 2, "h", "w"))

    def layer(value: str, inputs: int, outputs: int) -> str:
        filter = _weights(net, outputs, inputs, 3, 3)
        return net.node("Relu", net.node("Conv", value, filter, pads=[1, 1, 1, 1]))

    first = layer(image, 2, 3)
    second = layer(net.node("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 3, 4)
    up = net.node("ConvTranspose", second, _weights(net, 4, 3, 2, 2), strides=[2, 2])
    missing = [net.node("Sub", net.extent(first, axis), net.extent(up, axis)) for axis in (2, 3)]
    padded = net.node("Pad", up, net.node("Concat", net.ints(0, 0, 0, 0, 0, 0), *missing, axis=0))
    sizes = net.node("Shape", first, start=2)
    channels = net.node("Concat", net.extent(image, 0), net.ints(4), sizes, axis=0)
    resized = net.node("Resize", second, "", "", channels, mode="linear")
    layer(net.node("Concat", first, padded, resized, axis=1), 10, 2)
    net.check()


@pytest.mark.parametrize("sizes", [[(8, 8), (12, 20), (64, 4), (4, 12)], [(16, 6), (6, 10)]])
def test_a_session_finds_out_that_sizes_are_multiples(sizes: list[tuple[int, int]]) -> None:
    """Upsampled images are joined with what they were made from: all sizes are even, or multiples of 4."""
    net = Net()
    image = net.input("image", (1, 2, "h", "w"))
    down = net.node("MaxPool", image, kernel_shape=[2, 2], strides=[2, 2])
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.node("Resize", down, "", scales, mode="nearest")
    joined = net.node("Concat", image, up, axis=1)
    assert joined
    session = glowpy.InferenceSession(net.model, backend="interpreter")
    for height, width in sizes:
        array = RNG.standard_normal((1, 2, height, width)).astype(np.float32)
        (result,) = session.run(None, {"image": array})
        blocks = array.reshape(1, 2, height // 2, 2, width // 2, 2).max((3, 5))
        expected = np.concatenate([array, blocks.repeat(2, 2).repeat(2, 3)], 1)
        np.testing.assert_array_equal(result, expected)
    assert {name: text.partition(", ")[2] for name, text in session.assumptions.items()} == {
        "h": "2*h_2",
        "w": "2*w_2",
    }


def test_nothing_is_learned_from_a_call_that_fails() -> None:
    """Not even where it needs values that are too large to be known while compiling."""
    text = """net (float[n] x, float[m] y) => (float[1, k, 1] z) {
        s = Mul (x, y) total = ReduceSum <keepdims = 1> (s) count = Cast <to = 7> (total)
        one = Constant <value = float[1, 1, 1] {1}> () z = Resize <mode = "nearest"> (one, , , sizes)
        first = Constant <value_ints = [1]> () sizes = Concat <axis = 0> (first, count, first)
    }"""
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    x = np.zeros(1 + (1 << 16), np.float32)
    with pytest.raises(glowpy.UserError, match="must be known while compiling"):
        session.run(None, {"x": x, "y": x})
    with pytest.raises(glowpy.UserError) as caught:
        session.run(None, {"x": x, "y": np.zeros(7, np.float32)})
    assert "as before" not in str(caught.value)
    assert "expected shapes that broadcast" in str(caught.value)


@pytest.mark.filterwarnings("ignore:code is compiled for each extent")
def test_what_is_learned_and_changes_nothing_is_an_extent_for_each_call() -> None:
    """A window of a table that ends before the dimensions' bounds do: no bound of theirs makes it as long as x."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float[seq] x, float[past] p) => (float[seq] y)
    <float[8] table = {0, 1, 2, 3, 4, 5, 6, 7}, int64[1] zero = {0}>
    {
        begin = Shape (p)
        count = Shape (x)
        end = Add (begin, count)
        window = Slice (table, begin, end, zero)
        y = Add (x, window)
    }"""
    session = glowpy.InferenceSession(onnx.parser.parse_model(text), backend="interpreter")
    for seq, past in ((2, 2), (2, 5), (1, 7)):
        feeds = {"x": np.zeros(seq, np.float32), "p": np.zeros(past, np.float32)}
        (y,) = session.run(None, feeds)
        assert y.tolist() == [*range(past, past + seq)]
