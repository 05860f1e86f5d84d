"""Inverted residuals, as in MobileNetV2: pointwise and depthwise convolutions that compute all that follows them."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.type import Type
from glowpy.engine import backend_of, compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.ir.insts_gen import CopyInst, ExtractTensorInst, InsertTensorInst, TransposeInst
from tests.unit.networks import arrays_for, check_on_cpu


def convolution(
    f: Function, x: NodeValue, outputs: int, kernel: int, stride: int = 1, group: int = 1
) -> NodeValue:
    """With the batch normalisation that is folded into it."""
    rng = np.random.default_rng([outputs, kernel, stride])
    shape = (outputs, kernel, kernel, x.type.extents[3] // group)
    weights = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    filter = f.module.create_constant("w", weights.astype(np.float32))
    bias, mean, shift = (
        f.module.create_constant("b", rng.standard_normal(outputs).astype(np.float32))
        for _ in range(3)
    )
    variance = f.module.create_constant("v", rng.uniform(0.5, 2, outputs).astype(np.float32))
    lists = ((kernel, kernel), (stride, stride), ((kernel - 1) // 2,) * 4, (1, 1), group)
    result = f.create_convolution("conv", x, filter, bias, *lists)
    return f.create_batch_normalization(
        "bn", result, bias, shift, mean, variance, axis=3, epsilon=1e-5
    ).result


def bounded(f: Function, x: NodeValue) -> NodeValue:
    return f.create_clip("relu6", x, 0.0, 6.0).result


def inverted_residual(
    f: Function, x: NodeValue, outputs: int, stride: int, expansion: int
) -> NodeValue:
    inputs = x.type.extents[3]
    inner = inputs * expansion
    y = bounded(f, convolution(f, x, inner, 1)) if expansion > 1 else x
    y = bounded(f, convolution(f, y, inner, 3, stride, inner))
    y = convolution(f, y, outputs, 1)
    return f.create_add("sum", x, y).result if stride == 1 and inputs == outputs else y


def mobilenet(size: int, blocks: list[tuple[int, int, int, int]]) -> Module:
    """The blocks are expansion, outputs, how many, stride of the first."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, size, size, 3)))
    f = module.create_function("main")
    y = bounded(f, convolution(f, x.value, 32, 3, 2))
    for expansion, outputs, count, stride in blocks:
        for number in range(count):
            y = inverted_residual(f, y, outputs, stride if number == 0 else 1, expansion)
    f.create_save("save", y, module.create_placeholder("y", y.type))
    return module


def test_inverted_residuals_are_convolutions_and_nothing_else() -> None:
    module = mobilenet(26, [(1, 16, 1, 1), (6, 24, 2, 2), (6, 40, 2, 2)])
    program = compilation(module, backend_of("cpu")).program
    copies = (InsertTensorInst, ExtractTensorInst, CopyInst, TransposeInst)
    assert not [inst for inst in program.ir.instructions if isinstance(inst, copies)]
    assert len(program.ir.runs) == 15
    assert all(run.head.has(Trait.EPILOGUE) for run in program.ir.runs)
    assert program.plan.peak <= program.plan.lower_bound * 1.05
    check_on_cpu(module, arrays_for(module.placeholders, 5))
