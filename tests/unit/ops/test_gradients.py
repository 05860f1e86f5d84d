"""Every derivative against forward mode, in f64 on the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.autodiff.derivative import derivative
from glowpy.autodiff.gradients import gradients
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph import nodes_gen as nodes
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from tests.forward import check_adjoint

STEP = 1e-6


@dataclass(frozen=True)
class Slope:
    """A node on inputs of these shapes, drawn from [low, high], where it is smooth."""

    cls: type[Node]
    shapes: Sequence[tuple[int, ...]]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    result: tuple[int, ...] | None = None
    condition: bool = False
    """Whether the first input is bool; nothing flows into it."""
    indices: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Indices, and their shape, that are the second input."""

    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(7)
        arrays: list[Array] = [rng.uniform(self.low, self.high, shape) for shape in self.shapes]
        if self.condition:
            arrays[0] = arrays[0] > 0
        if self.indices is not None:
            arrays.insert(1, np.reshape(np.array(self.indices[0]), self.indices[1]))
        return arrays

    def __str__(self) -> str:
        return f"{self.cls.SCHEMA.mnemonic} of {' '.join(map(str, self.shapes))}"


PAIR = ((2, 3), (2, 3))
SPREAD = ((2, 1, 3), (4, 1))
VECTORS = [(3,)] * 4
POOLS = [
    ((2, 5, 6, 3), (2, 3), (2, 1), (0, 1, 1, 0), (1, 1), False),
    ((1, 6, 5, 2), (3, 2), (2, 2), (1, 0, 1, 1), (1, 2), True),
    ((2, 9, 2), (3,), (2,), (0, 0), (2,), False),
    ((1, 3, 4, 3, 2), (2, 2, 1), (1, 2, 2), (0, 1, 0, 1, 0, 0), (1, 1, 1), True),
]
SLOPES = [
    *(
        Slope(cls, shapes)
        for cls in (nodes.AddNode, nodes.SubNode, nodes.MulNode, nodes.MaxNode, nodes.MinNode)
        for shapes in (PAIR, SPREAD)
    ),
    *(
        Slope(cls, shapes, low=0.5)
        for cls in (nodes.DivNode, nodes.PowNode)
        for shapes in (PAIR, SPREAD)
    ),
    *(
        Slope(cls, [(2, 3)])
        for cls in (
            nodes.NegNode,
            nodes.AbsNode,
            nodes.ErfNode,
            nodes.ExpNode,
            nodes.TanhNode,
            nodes.SigmoidNode,
            nodes.SinNode,
            nodes.CosNode,
            nodes.AtanNode,
            nodes.SinhNode,
            nodes.CoshNode,
            nodes.AsinhNode,
            nodes.ReluNode,
            nodes.SignNode,
            nodes.FloorNode,
            nodes.CeilNode,
            nodes.RoundNode,
        )
    ),
    *(
        Slope(cls, [(2, 3)], low=0.5)
        for cls in (nodes.SqrtNode, nodes.ReciprocalNode, nodes.LogNode)
    ),
    *(
        Slope(cls, [(2, 3)], low=-0.8, high=0.8)
        for cls in (nodes.TanNode, nodes.AsinNode, nodes.AcosNode, nodes.AtanhNode)
    ),
    Slope(nodes.AcoshNode, [(2, 3)], low=1.2),
    Slope(nodes.LeakyReluNode, [(2, 3)], {"alpha": 0.25}),
    Slope(nodes.PReluNode, [(2, 3), (2, 1)]),
    Slope(nodes.ThresholdedReluNode, [(2, 3)], {"alpha": 0.5}),
    Slope(nodes.ShrinkNode, [(2, 5)], {"lambd": 0.5, "bias": 0.25}),
    Slope(nodes.EluNode, [(2, 3)], {"alpha": 0.75}),
    Slope(nodes.SeluNode, [(2, 3)], {"alpha": 1.5, "gamma": 1.25}),
    Slope(nodes.CeluNode, [(2, 3)], {"alpha": 0.5}),
    Slope(nodes.SoftplusNode, [(2, 3)]),
    Slope(nodes.SoftsignNode, [(2, 3)]),
    Slope(nodes.HardSigmoidNode, [(2, 5)], {"alpha": 0.5, "beta": 0.25}),
    Slope(nodes.HardSwishNode, [(2, 7)], low=-4.0, high=4.0),
    Slope(nodes.SwishNode, [(2, 3)], {"alpha": 1.5}),
    Slope(nodes.MishNode, [(2, 3)]),
    Slope(nodes.GeluNode, [(2, 3)], {"approximate": False}),
    Slope(nodes.GeluNode, [(2, 3)], {"approximate": True}),
    Slope(nodes.ClipNode, [(2, 5)], {"min": -0.5, "max": 1.0}),
    Slope(nodes.SelectNode, [(2, 3), (2, 3), (3,)], condition=True),
    Slope(nodes.ConvertNode, [(2, 3)], result=(2, 3)),
    *(
        Slope(nodes.FourierTransformNode, shapes, {"inverse": inverse, "half": half})
        for shapes in ([(2, 6, 2), (6, 2)], [(3, 1), (5, 2)], [(7, 2), (5, 2)])
        for inverse in (False, True)
        for half in (False, True)
    ),
    Slope(nodes.MatMulNode, [(2, 3), (3, 4)]),
    Slope(nodes.MatMulNode, [(2, 1, 2, 3), (5, 3, 4)]),
    Slope(nodes.FullyConnectedNode, [(2, 3), (3, 4), (4,)]),
    Slope(nodes.BatchNormalizationNode, [(2, 3, 4), *VECTORS], {"axis": 1, "epsilon": 0.1}, 0.5),
    Slope(nodes.BatchNormalizationNode, [(2, 3), *VECTORS], {"axis": 1, "epsilon": 0.1}, 0.5),
    Slope(nodes.SoftmaxNode, [(2, 3, 2)], {"axis": 1}),
    Slope(nodes.LogSoftmaxNode, [(2, 3)], {"axis": 1}),
    *(
        Slope(cls, [(2, 3, 4)], {"axes": (0, 2)})
        for cls in (
            nodes.ReduceAddNode,
            nodes.ReduceMeanNode,
            nodes.ReduceMulNode,
            nodes.ReduceMaxNode,
            nodes.ReduceMinNode,
        )
    ),
    *(
        Slope(
            nodes.CumSumNode, [(2, 3, 2)], {"axis": 1, "exclusive": exclusive, "reverse": reverse}
        )
        for exclusive, reverse in itertools.product((False, True), repeat=2)
    ),
    Slope(nodes.GatherNode, [(4, 3)], {"axis": 0}, indices=((2, 1, -1, 1), (4,))),
    Slope(nodes.GatherNode, [(2, 4, 3)], {"axis": 1}, indices=((2, 0, 2, 1, 3, 2), (3, 2))),
    Slope(nodes.GatherNode, [(2, 3)], {"axis": 1}, indices=((1,), ())),
    Slope(nodes.ScatterAddNode, [(4, 3), (3, 3)], indices=((2, -2, 0), (3,))),
    Slope(nodes.ReshapeNode, [(2, 3)], result=(3, 2)),
    Slope(nodes.TransposeNode, [(2, 3, 4)], {"shuffle": (2, 0, 1)}),
    Slope(nodes.BroadcastNode, [(2, 1)], result=(2, 3)),
    Slope(nodes.ConcatNode, [(2, 3), (2, 1)], {"axis": 1}),
    Slope(nodes.SliceNode, [(4, 5)], {"starts": (1, 2), "steps": (1, 1)}, result=(2, 3)),
    Slope(nodes.SliceNode, [(4, 7)], {"starts": (3, 1), "steps": (-2, 3)}, result=(2, 2)),
    Slope(nodes.SliceNode, [(1, 2)], {"starts": (0, 1), "steps": (-2, -1)}, result=(0, 2)),
    *(
        Slope(
            nodes.ConvolutionNode,
            [(images, *image, channels), (outputs, *kernels, channels // group), (outputs,)],
            {
                "kernels": kernels,
                "strides": strides,
                "pads": pads,
                "dilation": dilation,
                "group": group,
            },
        )
        for images, image, channels, outputs, kernels, strides, pads, dilation, group in (
            (2, (5, 6), 3, 2, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
            (1, (7, 8), 4, 6, (3, 2), (2, 3), (0, 1, 2, 0), (1, 2), 2),
            (2, (6, 5), 3, 3, (2, 3), (2, 1), (1, 0, 1, 2), (1, 1), 3),
            (2, (9,), 2, 3, (3,), (2,), (1, 0), (2,), 1),
            (1, (3, 4, 3), 2, 2, (2, 1, 2), (1, 2, 1), (0,) * 6, (1, 1, 1), 1),
        )
    ),
    *(
        Slope(
            nodes.TransposedConvolutionNode,
            [(images, *image, channels), (outputs, *kernels, channels // group), (outputs,)],
            {
                "kernels": kernels,
                "strides": strides,
                "begins": begins,
                "dilation": dilation,
                "group": group,
            },
            result=(images, *extents, outputs),
        )
        for images, image, extents, channels, outputs, kernels, strides, begins, dilation, group in (
            (2, (3, 2), (7, 5), 3, 2, (3, 3), (2, 2), (0, 1), (1, 1), 1),
            (1, (4,), (9,), 4, 2, (3,), (2,), (1,), (2,), 2),
        )
    ),
    *(
        Slope(
            nodes.FilterGradientNode,
            [(images, *image, channels), (images, *pixels, outputs)],
            {
                "kernels": kernels,
                "strides": strides,
                "begins": begins,
                "dilation": dilation,
                "group": group,
            },
            result=(outputs, *kernels, channels // group),
        )
        for images, image, pixels, channels, outputs, kernels, strides, begins, dilation, group in (
            (2, (5, 6), (2, 3), 2, 4, (3, 2), (2, 2), (1, 0), (1, 2), 2),
        )
    ),
    *(
        Slope(
            cls,
            [shape],
            {
                "kernels": kernels,
                "strides": strides,
                "pads": pads,
                "dilation": dilation,
                "ceil": ceil,
            },
        )
        for cls in (nodes.MaxPoolNode, nodes.MaxPoolWithArgmaxNode)
        for shape, kernels, strides, pads, dilation, ceil in POOLS
    ),
    *(
        Slope(
            nodes.AvgPoolNode,
            [shape],
            {
                "kernels": kernels,
                "strides": strides,
                "pads": pads,
                "dilation": dilation,
                "ceil": ceil,
                "count_include_pads": count_pads,
            },
        )
        for shape, kernels, strides, pads, dilation, ceil in POOLS
        for count_pads in (False, True)
    ),
    *(
        Slope(
            nodes.LocalResponseNormalizationNode,
            [(2, 3, 5)],
            {"size": size, "alpha": 0.5, "beta": 0.75, "k": 1.5},
        )
        for size in (1, 3, 4, 7)
    ),
    *(
        Slope(nodes.TopKNode, [(3, 4, 2)], {"axis": axis, "k": k, "largest": largest})
        for axis, k in ((1, 3), (2, 1), (0, 2))
        for largest in (False, True)
    ),
    *(
        Slope(
            nodes.CumProdNode,
            [(2, 3, 2)],
            {"axis": axis, "exclusive": exclusive, "reverse": reverse},
        )
        for axis in (1, 2)
        for exclusive, reverse in itertools.product((False, True), repeat=2)
    ),
    *(Slope(nodes.DeterminantNode, [shape]) for shape in ((3, 3), (2, 2, 2), (4, 1, 1), (1, 4, 4))),
    *(
        Slope(cls, [(4, 3), (5, 3)], indices=((2, -2, 0, 2, 1), (5,)))
        for cls in (
            nodes.ScatterNode,
            nodes.ScatterMulNode,
            nodes.ScatterMaxNode,
            nodes.ScatterMinNode,
        )
    ),
    *(
        Slope(
            nodes.DynamicSliceNode,
            [(2, 5, 3)],
            {"axis": 1, "step": step},
            indices=((start,), (1,)),
            result=(2, 4, 3),
        )
        for start, step in ((0, 1), (3, 1), (4, -2), (-3, 2), (9, -1))
    ),
    *(
        Slope(
            nodes.SampleNode,
            [(2, *image, 4), (2, 7, groups, len(image))],
            {"order": order, "padding": padding, "aligned": aligned},
            high=5.0,
        )
        for image, groups, order, padding, aligned in (
            ((4, 3), 2, 0, 0, False),
            ((4, 3), 2, 1, 0, True),
            ((4, 3), 1, 1, 1, False),
            ((4, 3), 2, 1, 2, False),
            ((5,), 1, 1, 2, True),
            ((5,), 2, 3, 0, False),
            ((5,), 1, 3, 1, True),
            ((3,), 1, 3, 2, False),
        )
    ),
    *(
        Slope(
            nodes.ColumnsToImageNode,
            [(2, 3 * 6, windows)],
            {"kernels": (2, 3), "strides": strides, "pads": (1, 0, 0, 1), "dilation": dilation},
            result=(2, 3, 4, 5),
        )
        for windows, strides, dilation in ((16, (1, 1), (1, 1)), (6, (1, 2), (2, 1)))
    ),
    Slope(nodes.PadNode, [(2, 3)], {"pads": (1, 0, -1, 2), "value": 3.0}),
]


def _node(f: Function, slope: Slope, inputs: Sequence[Array]) -> Node:
    operands = [
        f.module.create_placeholder(f"in{index}", Tensor.of(array).type)
        for index, array in enumerate(inputs)
    ]
    result = Type(ElemKind.F64, slope.result) if slope.result is not None else None
    return f.create(slope.cls, "node", operands, slope.attrs, result)


def _feeds(inputs: Sequence[Array]) -> dict[str, Array]:
    return {f"in{index}": array for index, array in enumerate(inputs)}


def _weights(shape: tuple[int, ...], number: int) -> Array:
    """Weights of the results, so that the gradients of different elements differ."""
    return np.random.default_rng((8, number)).uniform(0.5, 1.5, shape)


def _loss(f: Function, values: Sequence[NodeValue]) -> NodeValue:
    """The sum of all elements of values that are floats, with a weight for each."""
    numbers: list[Operand] = []
    for number, value in enumerate(values):
        if value.type.kind is ElemKind.F64:
            weights = f.module.create_constant("weights", _weights(value.type.extents, number))
            product = f.create_mul("weighted", value, weights)
            flat = value.type.with_shape((value.type.count, 1))
            numbers.append(f.create_reshape("flat", flat, product))
    return f.create_reduce_add("loss", f.create_concat("all", numbers, 0), (0,)).result


def _check(f: Function, loss: NodeValue, inputs: Sequence[Array]) -> None:
    f.create_save("loss", loss, f.module.create_placeholder("loss", loss.type))
    check_adjoint(f, _feeds(inputs))


@pytest.mark.parametrize("slope", SLOPES, ids=str)
def test_derivative(slope: Slope) -> None:
    f, inputs = glowpy.Module().create_function("main"), slope.inputs()
    _check(f, _loss(f, _node(f, slope, inputs).results), inputs)


FLAT = {nodes.SignNode, nodes.FloorNode, nodes.CeilNode, nodes.RoundNode}
"""Those whose gradients are 0 and depend on nothing."""


@pytest.mark.parametrize("slope", [s for s in SLOPES if s.cls not in FLAT], ids=str)
def test_second_derivative(slope: Slope) -> None:
    """Of a square, so that there is one of linear operators as well."""
    f, inputs = glowpy.Module().create_function("main"), slope.inputs()
    node = _node(f, slope, inputs)
    by = [value for value in node.inputs if value.type.kind is ElemKind.F64]
    first = _loss(f, node.results)
    loss = _loss(f, gradients(f, f.create_mul("square", first, first).result, by))
    _check(f, loss, inputs)


CONTROL = {
    nodes.CallNode,
    nodes.IfNode,
    nodes.LoopNode,
    nodes.LstmNode,
    nodes.GruNode,
    nodes.RnnNode,
}
"""Tested in tests/unit/autodiff/."""


def test_every_derivative_is_tested() -> None:
    with_rule = {cls for cls in nodes.NODES if cls in derivative}
    assert with_rule == {slope.cls for slope in SLOPES} | CONTROL


def _gradients_of_pow(base: Array, exponent: Array) -> list[Array]:
    f = glowpy.Module().create_function("main")
    operands = [
        f.module.create_placeholder(name, Tensor.of(array).type).value
        for name, array in (("base", base), ("exponent", exponent))
    ]
    node = f.create_pow("pow", *operands)
    for name, gradient in zip("be", gradients(f, node.result, operands), strict=True):
        f.create_save(name, gradient, f.module.create_placeholder(name, gradient.type))
    outputs = glowpy.compile(f, "interpreter")({"base": base, "exponent": exponent})
    return [outputs["b"], outputs["e"]]


def test_power_has_a_derivative_at_zero() -> None:
    """0 ** 2 falls to 0 with its base, and stays 0 whatever the exponent near 2 is."""
    base = np.array([0.0, 0.0, 0.0, -0.0, -2.0, -3.0, 5.0])
    exponent = np.array([2.0, 1.0, 0.0, 3.0, 3.0, 2.0, 0.0])
    by_base, by_exponent = _gradients_of_pow(base, exponent)
    np.testing.assert_array_equal(by_base, [0, 1, 0, 0, 12, -6, 0])
    np.testing.assert_array_equal(by_exponent[:4], [0, 0, 0, 0])
    np.testing.assert_allclose(by_exponent[6], np.log(5))


def test_a_square_has_a_derivative_at_zero() -> None:
    """With a scalar exponent, against numeric differences."""
    base = np.array([[-1.5, 0.0, 2.0]])
    by_base, _ = _gradients_of_pow(base, np.array(2.0))
    sides = [(base + step) ** 2 for step in (STEP, -STEP)]
    np.testing.assert_allclose(by_base, (sides[0] - sides[1]) / (2 * STEP), atol=1e-9)


def test_nothing_flows_through_integers() -> None:
    f = glowpy.Module().create_function("main")
    x = f.module.create_placeholder("x", Type(ElemKind.F32, (3,)))
    whole = f.create_convert("whole", Type(ElemKind.I32, (3,)), x)
    place = f.create_convert(
        "place", Type(ElemKind.F32, (1,)), f.create_arg_max("arg", x, 0, False)
    )
    product = f.create_mul("product", f.create_convert("back", x.type, whole), place)
    (gradient,) = gradients(f, product.result, [x.value])
    f.create_save("s", gradient, f.module.create_placeholder("g", gradient.type))
    outputs = glowpy.compile(f, "interpreter")({"x": np.array([1.5, 2.5, -3], np.float32)})
    np.testing.assert_array_equal(outputs["g"], np.zeros(3, np.float32))
    with pytest.raises(glowpy.UserError, match=r"expected a value of a floating-point kind .* i32"):
        gradients(f, whole.result, [x.value])


def test_why_there_is_no_derivative() -> None:
    f = glowpy.Module().create_function("main")
    x = f.module.create_placeholder("x", Type(ElemKind.F32, (3,)))
    bits = f.create_bit_cast("bits", Type(ElemKind.I32, (3,)), x)
    back = f.create_bit_cast("back", x.type, bits)
    with pytest.raises(
        glowpy.UnsupportedError, match="bit_cast %back has no derivative: bits are no numbers"
    ):
        gradients(f, back.result, [x.value])


def test_a_product_with_a_zero_has_a_derivative() -> None:
    f = glowpy.Module().create_function("main")
    x = f.module.create_placeholder("x", Type(ElemKind.F64, (2, 2)))
    (gradient,) = gradients(f, f.create_reduce_mul("p", x, (0, 1)).result, [x.value])
    f.create_save("s", gradient, f.module.create_placeholder("g", gradient.type))
    outputs = glowpy.compile(f, "interpreter")({"x": np.array([[2.0, 0.0], [3.0, 5.0]])})
    np.testing.assert_array_equal(outputs["g"], [[0, 30], [0, 0]])


def test_extrema_share_the_gradient_among_equals() -> None:
    f = glowpy.Module().create_function("main")
    x = f.module.create_placeholder("x", Type(ElemKind.F32, (4,)))
    (gradient,) = gradients(f, f.create_reduce_max("m", x, (0,)).result, [x.value])
    f.create_save("s", gradient, f.module.create_placeholder("g", gradient.type))
    outputs = glowpy.compile(f, "interpreter")({"x": np.array([1, 3, 3, 2], np.float32)})
    np.testing.assert_array_equal(outputs["g"], np.array([0, 0.5, 0.5, 0], np.float32))
