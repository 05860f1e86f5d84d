"""Twice the network is twice the work: of every stage up to the program, and of import, all calls are counted.

A busy machine does not change a count; what is quadratic in C, such as copies of lists, it does not see.
"""

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from glowpy import Module
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.codegen import generate_llvm
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, Placeholder
from glowpy.importer import load
from glowpy.support.symbolic import symbol
from tests.unit.test_effort import TYPE, layer

Build = Callable[[int, Function, Placeholder], Operand]
"""Adds about so many nodes that compute something of the placeholder; returns what is saved."""


def f32(*shape: int) -> Type:
    return Type(ElemKind.F32, shape)


def scaled(f: Function, x: Operand, number: int) -> Node:
    """Something that no two numbers have in common."""
    return f.create_mul("m", x, f.module.create_constant("k", np.full(1, number + 2, np.float32)))


def transformer(n: int, f: Function, x: Placeholder) -> Operand:
    node: Node = f.create_neg("first", x)
    for _ in range(n // 30):
        node = layer(f, node)
    return node


def chain(n: int, f: Function, x: Placeholder) -> Operand:
    value: Operand = x
    for number in range(n):
        value = f.create_exp("e", value) if number % 2 else f.create_tanh("t", value)
    return value


def concat(n: int, f: Function, x: Placeholder) -> Operand:
    """Every input can be computed in its place."""
    return f.create_concat("c", [scaled(f, x, i) for i in range(n)], 0)


def concat_of_inputs(n: int, f: Function, x: Placeholder) -> Operand:
    """Half of the inputs are copied into their places."""
    rest = [scaled(f, x, i) for i in range(n // 2)]
    return f.create_concat("c", [*([x] * (n // 2)), *rest], 0)


def interleaved_concat(n: int, f: Function, x: Placeholder) -> Operand:
    """No input lies in one piece: all are alive when the first is copied."""
    return f.create_concat("c", [scaled(f, x, i) for i in range(n)], 2)


def chained_concats(n: int, f: Function, x: Placeholder) -> Operand:
    """A list that grows by one tensor at a time, as loops that were unrolled leave it."""
    value: Operand = x
    for number in range(n // 2):
        value = f.create_concat("c", [value, scaled(f, x, number)], 1)
    return value


def nested_concats(n: int, f: Function, x: Placeholder) -> Operand:
    """As `chained_concats`, but every list is also read."""
    value: Operand = f.create_neg("n", x)
    for _ in range(n // 4):
        total = f.create_reduce_add("r", value, (1,))
        value = f.create_concat("c", [value, f.create_softmax("s", total, 2)], 1)
    return value


def nested_channels(n: int, f: Function, x: Placeholder) -> Operand:
    """The same along the last dimension: every list is strided memory of the last one."""
    value: Operand = f.create_neg("n", x)
    for _ in range(n // 4):
        total = f.create_reduce_add("r", value, (2,))
        value = f.create_concat("c", [value, f.create_softmax("s", total, 1)], 2)
    return value


def users(n: int, f: Function, x: Placeholder) -> Operand:
    """One value with many users, all alive."""
    value = f.create_exp("e", x)
    nodes = [scaled(f, value, i) for i in range(n // 2)]
    while len(nodes) > 1:
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        nodes = [f.create_add("a", a, b) for a, b in pairs] + nodes[len(nodes) // 2 * 2 :]
    return nodes[0]


def slices(n: int, f: Function, x: Placeholder) -> Operand:
    whole = f.create_softmax(
        "s", f.create_concat("c", [scaled(f, x, i) for i in range(n // 3)], 1), 2
    )
    shape = f32(1, 4, 8)
    part = [f.create_slice("p", shape, whole, (0, 4 * i, 0), (1, 1, 1)) for i in range(n // 3)]
    return f.create_concat("d", [f.create_softmax("t", p, 1) for p in reversed(part)], 1)


def outputs(n: int, f: Function, x: Placeholder) -> Operand:
    value = f.create_exp("e", x)
    for number in range(n // 2):
        output = f.module.create_placeholder(f"y{number}", value.type)
        f.create_save("save", scaled(f, value, number), output)
    return value


def stack_of_values(n: int, f: Function, x: Placeholder) -> Operand:
    """Values that are all needed once more, the last first, as a backward pass needs them."""
    value: NodeValue | Node = f.create_neg("n", x)
    before: list[Operand] = []
    for number in range(n // 3):
        before.append(value)
        value = f.create_softmax("s", value, 1 + number % 2)
    for other in reversed(before):
        value = f.create_softmax("t", f.create_add("a", value, other), 1)
    return value


def transposed(n: int, f: Function, x: Placeholder) -> Operand:
    """Half of the transpositions are read where their one input is, half are written where their results go."""
    whole = f.create_reshape("w", f32(2, 2, 8), f.create_softmax("s", x, 2))
    values: list[Operand] = []
    for number in range(n // 6):
        read = f.create_softmax("r", f.create_transpose("t", whole, (1, 0, 2)), 2)
        flat = scaled(f, f.create_reshape("f", f32(4, 8), read), number)
        back = f.create_softmax("v", f.create_reshape("b", f32(2, 2, 8), flat), 2)
        moved = f.create_transpose("u", back, (1, 0, 2))
        values.append(f.create_reshape("x", f32(1, 4, 8), moved))
    return f.create_concat("d", values, 1)


def views(n: int, f: Function, x: Placeholder) -> Operand:
    """In place between reshapes: views of views of views."""
    value: Operand = x
    for number in range(n // 2):
        shape = f32(4, 8) if number % 2 else f32(8, 4)
        value = f.create_softmax("s", f.create_reshape("r", shape, value), number % 2)
    return value


def lowered(n: int, f: Function, x: Placeholder) -> Operand:
    value: Operand = x
    for _ in range(n // 4):
        mean = f.create_reduce_mean("m", f.create_relu("r", value), (2,))
        value = f.create_elu("e", f.create_add("a", value, mean), 0.5)
    return value


def known(n: int, f: Function, x: Placeholder) -> Operand:
    value: Operand = f.module.create_constant("c", np.ones((1, 4, 8), np.float32))
    for number in range(n):
        value = scaled(f, value, number % 2)
    return f.create_mul("y", x, value)


def gathers(n: int, f: Function, x: Placeholder) -> Operand:
    """A weighted sum of slices, as resizing is; no two gathers have the same indices."""
    value: Operand = x
    for number in range(n // 3):
        indices = f.module.create_constant("i", number // 4 ** np.arange(4) % 4)
        term = scaled(f, f.create_gather("g", x, indices, 1), number)
        value = f.create_add("a", value, term) if number else term
    return value


BUILDS = (
    *(transformer, chain, concat, concat_of_inputs, interleaved_concat, chained_concats),
    *(
        nested_concats,
        nested_channels,
        users,
        slices,
        outputs,
        stack_of_values,
        views,
        transposed,
        lowered,
        known,
        gathers,
    ),
)


def calls(action: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called by `action`."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def network(build: Build, n: int) -> Module:
    module = Module()
    x = module.create_placeholder("x", TYPE)
    f = module.create_function("main")
    result = build(n, f, x)
    f.create_save("save", result, module.create_placeholder("y", result.type))
    return module


def prepared(backend: CpuBackend, module: Module) -> None:
    """From the graph to the text that LLVM reads."""
    program = compilation(module, backend).program
    generate_llvm({"net": program}, backend.target, backend.kernels)


@pytest.fixture(scope="module")
def backend() -> CpuBackend:
    """A backend that has asked once for all it keeps."""
    cpu = CpuBackend()
    for build in BUILDS:
        prepared(cpu, network(build, 30))
    return cpu


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_preparing_is_linear(build: Build, backend: CpuBackend) -> None:
    single, double = network(build, 120), network(build, 240)
    ratio = calls(lambda: prepared(backend, double)) / calls(lambda: prepared(backend, single))
    assert ratio <= 2.3


def test_a_node_of_a_transformer_takes_so_much_work(backend: CpuBackend) -> None:
    """5,800 calls once, when every pass visited every node again and again."""
    module = network(transformer, 120)
    count = calls(lambda: compilation(module, backend).program)
    assert count <= 3000 * module.main.num_nodes


def shape_arithmetic(n: int) -> bytes:
    """A model that reshapes its input to what so many known nodes compute, as exporters of dynamic shapes do."""
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    nodes.append(helper.make_node("Gather", ["s", "zero"], ["d0"], axis=0))
    for i in range(n // 7):
        nodes.append(helper.make_node("Mul", [f"d{i}", "one"], [f"m{i}"]))
        nodes.append(helper.make_node("Cast", [f"m{i}"], [f"f{i}"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Floor", [f"f{i}"], [f"g{i}"]))
        nodes.append(helper.make_node("Cast", [f"g{i}"], [f"i{i}"], to=TensorProto.INT64))
        nodes.append(helper.make_node("Unsqueeze", [f"i{i}", "axes"], [f"u{i}"]))
        nodes.append(helper.make_node("Concat", [f"u{i}", "axes"], [f"c{i}"], axis=0))
        nodes.append(helper.make_node("Gather", [f"c{i}", "zero"], [f"d{i + 1}"], axis=0))
    nodes.append(helper.make_node("Reshape", ["x", f"u{n // 7 - 1}"], ["y"]))
    numbers = {"zero": np.int64(0), "one": np.int64(1), "axes": np.zeros(1, np.int64)}
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [12])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def test_importing_known_nodes_is_linear_and_cheap() -> None:
    single, double = shape_arithmetic(140), shape_arithmetic(280)
    load(single)
    few, many = calls(lambda: load(single)), calls(lambda: load(double))
    assert many <= 2.3 * few
    assert many <= 600 * 280


def rows(width: int) -> Module:
    """One loop over all elements of an open batch, and a tensor in two strided parts."""
    module = Module()
    x = module.create_placeholder("x", parse_type(f"f32[n x {width}]", {"n": symbol("n", 1, 64)}))
    f = module.create_function("main")
    halves = [f.create_softmax("s", f.create_neg("m", x), 1) for _ in range(2)]
    whole = f.create_concat("c", halves, 1)
    f.create_save("save", f.create_exp("e", whole), module.create_placeholder("y", whole.type))
    return module


def test_longer_rows_are_no_more_work(backend: CpuBackend) -> None:
    """Not for units that are looked for among numbers, nor for the proof of the memory plan."""
    prepared(backend, rows(64))
    short, long = rows(64), rows(100_000)
    few, many = calls(lambda: prepared(backend, short)), calls(lambda: prepared(backend, long))
    assert many <= 1.3 * few
