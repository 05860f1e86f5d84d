"""Products of quantized operands on the CPU: the sums that the interpreter gives, whatever the offsets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions, Module
from glowpy.backends.cpu.variant import VARIANTS
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import sum_type
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function
from glowpy.graph.node import Operand

BACKENDS = {
    "fast": CpuBackend(),
    "without dots": CpuBackend(CpuOptions(cpu="x86-64-v2")),
    "small": CpuBackend(CpuOptions(optimize="size")),
}


def offsets(kind: str, shape: tuple[int, ...], axis: int | None, offset: int) -> Type:
    """A quantized type; with an axis, scales differ from channel to channel, and offsets do unless they are 0."""
    if axis is None:
        return Type(ElemKind(kind), shape, Quant((0.5,), (offset,)))
    count = shape[axis]
    scales = tuple(0.5 + channel for channel in range(count))
    return Type(
        ElemKind(kind),
        shape,
        Quant(
            scales, tuple(offset - (channel % 9 if offset else 0) for channel in range(count)), axis
        ),
    )


def stored(type: Type) -> Array:
    low, high = type.kind.limits
    array = np.random.default_rng([7, *type.extents]).integers(low, high + 1, type.extents)
    return array.astype(type.kind.dtype)


def check(operands: dict[str, Type], constants: set[str], build: Callable[..., Any]) -> None:
    """A network of one product gives the same on the interpreter and on every kind of CPU backend."""
    arrays = {name: stored(type) for name, type in operands.items()}

    def network() -> Module:
        module = Module()
        f = module.create_function("main")
        values: dict[str, Operand] = {
            name: module.create_constant(name, Tensor(type, arrays[name]))
            if name in constants
            else module.create_placeholder(name, type)
            for name, type in operands.items()
        }
        node = build(f, *values.values())
        f.create_save("save", node, module.create_placeholder("y", node.result.type))
        return module

    inputs = {name: arrays[name] for name in operands if name not in constants}
    expected = glowpy.compile(network(), "interpreter")(inputs)["y"]
    for name, backend in BACKENDS.items():
        result = glowpy.compile(network(), backend)(inputs)["y"]
        np.testing.assert_array_equal(result, expected, name)


@dataclass(frozen=True)
class Conv:
    """A convolution of quantized operands: what there is of input, filter and lists."""

    input: tuple[int, ...]
    filter: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]
    group: int = 1

    def __str__(self) -> str:
        return f"{self.input} {self.filter}"


CONVS = [
    Conv((1, 6, 7, 3), (5, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    Conv((2, 6, 7, 8), (9, 1, 1, 8), (1, 1), (0, 0, 0, 0), (1, 1)),
    Conv((2, 7, 8, 6), (4, 3, 2, 3), (2, 1), (2, 0, 1, 3), (1, 2), 2),
    Conv((1, 6, 7, 9), (9, 3, 3, 1), (1, 2), (1, 1, 1, 1), (1, 1), 9),
    Conv((2, 9, 5), (6, 3, 5), (2,), (1, 2), (1,)),
    Conv((1, 0, 4, 4), (5, 3, 3, 4), (1, 1), (2, 2, 2, 2), (1, 1)),
    Conv((1, 4, 4, 0), (5, 3, 3, 0), (1, 1), (1, 1, 1, 1), (1, 1)),
    Conv((2, 4, 5, 6, 4), (6, 3, 2, 3, 2), (2, 1, 1), (1, 0, 1, 1, 1, 1), (1, 2, 1), 2),
]


def in_turns(cases: Sequence[Any], weights: Sequence[str], step: int) -> list[tuple[Any, str, str]]:
    """Each case with some kinds of input and weights, all of which occur."""
    kinds = list(itertools.product(weights, ("i8", "u8")))
    return [
        (case, *pair) for number, case in enumerate(cases) for pair in kinds[number % step :: step]
    ]


@pytest.mark.parametrize(
    ("conv", "weights", "kind"), in_turns(CONVS, ["i8", "u8", "channels", "computed"], 3), ids=str
)
def test_convolution(conv: Conv, weights: str, kind: str) -> None:
    axis = 0 if weights == "channels" else None
    offset = {"i8": 0, "u8": 117, "channels": -3, "computed": 5}[weights]
    data = offsets(kind, conv.input, None, 11 if kind == "u8" else -11)
    filter = offsets("u8" if weights == "u8" else "i8", conv.filter, axis, offset)
    outputs = conv.filter[:1]
    steps = sum_type(data, filter, 0, outputs)

    def build(f: Function, x: Operand, w: Operand, b: Operand) -> Any:
        rank = len(conv.filter) - 2
        area = [
            (size + conv.pads[i] + conv.pads[i + rank] - (k - 1) * conv.dilation[i] - 1)
            // conv.strides[i] + 1
            for i, (size, k) in enumerate(zip(conv.input[1:-1], conv.filter[1:-1], strict=True))
        ]  # fmt: skip
        result = sum_type(data, filter, 0, (conv.input[0], *area, *outputs))
        return f.create_convolution(
            "conv", x, w, b, conv.filter[1:-1], conv.strides, conv.pads, conv.dilation, conv.group,
            result_type=result,
        )  # fmt: skip

    constants = {"b"} if weights == "computed" else {"w", "b"} if kind == "u8" else {"w"}
    check({"x": data, "w": filter, "b": steps}, constants, build)


PRODUCTS = [
    ((5, 8), (8, 19)),
    ((3, 7), (7, 5)),
    ((1, 64), (64, 40)),
    ((2, 3, 4, 6), (3, 6, 5)),
    ((2, 1, 4, 8), (1, 3, 8, 70)),
    # Blocks that suit the rows do not suit a single one, of ones: on AVX-512, on SSE4.
    ((2, 5, 8), (2, 8, 100)),
    ((2, 5, 8), (2, 8, 130)),
    ((2, 0), (0, 3)),
    ((0, 4), (4, 3)),
]


@pytest.mark.parametrize(
    ("shapes", "weights", "kind"),
    in_turns(PRODUCTS, ["i8", "u8", "channels", "computed", "computed channels"], 3),
    ids=str,
)
def test_matrix_product(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], weights: str, kind: str
) -> None:
    left, right = shapes
    axis = len(right) - 1 if "channels" in weights else None
    offset = {"i8": 0, "u8": 117}.get(weights, -3)
    data = offsets(kind, left, None, 11 if kind == "u8" else -11)
    matrix = offsets("u8" if weights == "u8" else "i8", right, axis, offset)
    rows = np.broadcast_shapes(left[:-2], right[:-2])
    result = sum_type(data, matrix, len(right) - 1, (*rows, left[-2], right[-1]))

    def build(f: Function, x: Operand, w: Operand) -> Any:
        return f.create_mat_mul("product", x, w, result_type=result)

    check({"x": data, "w": matrix}, set() if "computed" in weights else {"w"}, build)


def quantized(kind: str) -> Module:
    """A product of what is quantized from floats."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[4x8]"))
    type = parse_type(f"{kind}[4x8](s=0.5,o=3)")
    weights = Tensor(parse_type("i8[8x4](s=0.25,o=0)"), np.ones((8, 4), np.int8))
    sums = f.create_mat_mul(
        "product", f.create_quantize("q", type, x), module.create_constant("w", weights),
        result_type=parse_type("i8[4x4](s=1.0,o=2)"),
    )  # fmt: skip
    f.create_save("save", sums, module.create_placeholder("y", sums.result.type))
    return module


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_inputs_are_of_the_kind_that_is_fast(variant: Any) -> None:
    """What is quantized just before is rounded to that kind at once."""
    features = ",".join(f"+{feature}" for feature in sorted(variant.requires))
    backend = CpuBackend(CpuOptions(variant.triple, cpu=variant.cpu, features=features))
    assert backend.target.variant is variant
    for kind in ("i8", "u8"):
        text = compilation(quantized(kind), backend).text("lowered")
        assert text.count("= saturate(") == 2
        wanted = variant.activations.value if variant.activations else kind
        moved = 3 + (128 if (wanted, kind) == ("u8", "i8") else 0)
        moved -= 128 if (wanted, kind) == ("i8", "u8") else 0
        assert f": {wanted}[4x8](s=0.5,o={moved})" in text


def test_no_copy_is_made_of_whole_words() -> None:
    """Only where the depth is no multiple of four."""
    for depth, pads in ((8, 0), (6, 1)):
        module = Module()
        f = module.create_function("main")
        x = module.create_placeholder("x", parse_type(f"u8[4x{depth}](s=0.5,o=3)"))
        weights = Tensor(parse_type(f"i8[{depth}x4](s=0.25,o=0)"), np.ones((depth, 4), np.int8))
        sums = f.create_mat_mul(
            "product", x, module.create_constant("w", weights),
            result_type=parse_type("i32[4x4](s=0.125,o=0)"),
        )  # fmt: skip
        f.create_save("save", sums, module.create_placeholder("y", sums.result.type))
        text = compilation(module, CpuBackend(CpuOptions("x86_64-linux-gnu"))).text("lowered")
        assert text.count("= pad(") == pads
