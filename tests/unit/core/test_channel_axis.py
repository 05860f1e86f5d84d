"""Where scales and offsets are after elements have moved: numpy moves the scale of each element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from glowpy.core import channel_axis as moved
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, stored
from glowpy.core.type import Quant, Type, parse_type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol


def _scales(type: Type) -> Array:
    """The scale of every element; those of the samples are all different, and tell offsets, too."""
    assert type.quant is not None
    if type.quant.axis is None:
        return np.full(type.extents, type.quant.scales[0])
    return np.broadcast_to(
        np.array(type.quant.scales).reshape(-1, *(1,) * (type.rank - type.quant.axis - 1)),
        type.extents,
    )


@st.composite
def types(draw: st.DrawFn, *, least: int = 0, rank: int = 4) -> Type:
    """Quantized as a whole or along an axis, with as many different scales."""
    shape = tuple(draw(st.lists(st.integers(least, 4), min_size=1, max_size=rank)))
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    count = 1 if axis is None else shape[axis]
    scales = tuple(0.5 + index for index in range(count))
    return Type(ElemKind.I8, shape, Quant(scales, tuple(range(count)), axis))


@given(types(), st.data())
def test_permuted(type: Type, data: st.DataObject) -> None:
    shuffle = data.draw(st.permutations(range(type.rank)))
    result = moved.permuted(type, shuffle)
    np.testing.assert_array_equal(_scales(result), _scales(type).transpose(shuffle))


@given(types(least=1), st.data())
def test_reshaped(type: Type, data: st.DataObject) -> None:
    """Refused is what has no dimension with one channel in each place."""
    shape: list[int] = []
    rest = math.prod(type.extents)
    while rest > 1 or data.draw(st.booleans()):
        shape.append(data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0])))
        rest //= shape[-1]
        assume(len(shape) < 7)
    scales = _scales(type).reshape(shape)
    try:
        result = moved.reshaped(type, shape)
    except UserError:
        for axis in range(len(shape)):
            lines = np.moveaxis(scales, axis, 0).reshape(shape[axis], -1)
            assert (lines != lines[:, :1]).any() or len(lines) > len(np.unique(lines))
    else:
        np.testing.assert_array_equal(_scales(result), scales)
        assert moved.keeps_parameters(type, 0, result)


@given(types(), st.data())
def test_sliced(type: Type, data: st.DataObject) -> None:
    starts, counts, steps = [], [], []
    for size in type.extents:
        step = data.draw(st.sampled_from([-2, -1, 1, 3]))
        indices = range(size)[::step]
        starts.append(indices.start if size else 0)
        counts.append(data.draw(st.integers(0, len(indices))))
        steps.append(step)
    grid = [[s + i * d for i in range(n)] for s, n, d in zip(starts, counts, steps, strict=True)]
    result = moved.sliced(type, starts, counts, steps)
    np.testing.assert_array_equal(_scales(result), _scales(type)[np.ix_(*grid)])


@given(types(least=1), st.lists(st.integers(1, 3), max_size=3), st.data())
def test_gathered(type: Type, indices: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, type.rank - 1))
    taken = np.zeros(indices, np.int64)
    assert type.quant is not None
    if type.quant.axis == axis:
        with pytest.raises(UserError, match="other than the channel axis"):
            moved.gathered(type, axis, tuple(indices))
        return
    result = moved.gathered(type, axis, tuple(indices))
    np.testing.assert_array_equal(_scales(result), np.take(_scales(type), taken, axis))


@given(types(), st.data())
def test_concatenated(type: Type, data: st.DataObject) -> None:
    """The parts of a tensor, one after the other, are the tensor."""
    axis = data.draw(st.integers(0, type.rank - 1))
    size = type.extents[axis]
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=3)))
    parts = []
    for begin, end in zip([0, *cuts], [*cuts, size], strict=True):
        starts = [begin if at == axis else 0 for at in range(type.rank)]
        shape = [end - begin if at == axis else n for at, n in enumerate(type.shape)]
        parts.append(moved.sliced(type, starts, shape))
    assert moved.concatenated(parts, axis) == type


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            ["i8[2x3](s=0.5,o=1)", "i8[2x3](s=[0.25,2.0],o=[0,1],axis=0)"],
            "i8[4x3](s=[0.5,0.5,0.25,2.0],o=[1,1,0,1],axis=0)",
        ),
        (
            ["i8[1x3](s=0.5,o=0)", "i8[1x3](s=0.25,o=1)"],
            "i8[2x3](s=[0.5,0.25],o=[0,1],axis=0)",
        ),
        (["i8[2x3](s=[0.5,1.0,2.0],o=[0,0,0],axis=1)", "i8[2x3](s=[0.25,2.0],o=[0,1],axis=0)"], ""),
        (["i8[2x3]", "i8[2x3](s=[0.25,2.0],o=[0,1],axis=0)"], ""),
    ],
)
def test_concatenated_channels(texts: list[str], expected: str) -> None:
    """Parts quantized as a whole have equal channels."""
    parts = [parse_type(text) for text in texts]
    if expected:
        assert str(moved.concatenated(parts, 0)) == expected
        return
    with pytest.raises(UserError, match="or channels along dimension 0, got i8"):
        moved.concatenated(parts, 0)


@given(types(least=1, rank=3), st.data())
def test_views_keep_the_parameters_of_their_elements(type: Type, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, math.prod(type.extents)))
    flat = _scales(type).reshape(-1)[offset:]
    part = data.draw(types(least=1, rank=2))
    assume(part.count <= flat.size)
    expected = np.array_equal(_scales(part).reshape(-1), flat[: part.count])
    assert moved.keeps_parameters(type, offset, part) == expected


def test_open_extents_before_and_after_channels() -> None:
    """Dimensions before those of the channels are split and joined, and those after keep their number of elements."""
    symbols = {"b": symbol("b", 1, 4), "n": symbol("n", 1, 4)}
    type = parse_type("i32[4*b x 2 x n](s=[0.5,0.25],o=[0,1],axis=1)", symbols)
    for shape in ("4 x b x 2 x n", "b x 4 x 2 x n", "4*b x 2 x 1 x n"):
        result = moved.reshaped(type, parse_type(f"i32[{shape}]", symbols).shape)
        assert moved.keeps_parameters(type, 0, result)
        assert not moved.keeps_parameters(type, symbols["n"], result)
    for text in (
        "i32[4*b x 2 x n](s=[0.5,0.25],o=[0,0],axis=1)",
        "i32[b*n x 2 x 4](s=[0.5,0.25],o=[0,1],axis=1)",
        "i32[2 x 4*b x n](s=[0.5,0.25],o=[0,1],axis=0)",
        "i32[4*b x 2 x n](s=0.5,o=0)",
    ):
        assert not moved.keeps_parameters(type, 0, parse_type(text, symbols))


def test_views_of_other_kinds() -> None:
    signed, unsigned = parse_type("i8[4](s=0.5,o=0)"), parse_type("u8[4](s=0.5,o=0)")
    plain = parse_type("i8[4]")
    assert not moved.keeps_parameters(signed, 0, unsigned)
    assert not moved.keeps_parameters(signed, 0, plain)
    assert not moved.keeps_parameters(plain, 0, signed)
    assert moved.keeps_parameters(plain, 0, parse_type("u8[4]"))


@pytest.mark.parametrize(
    ("texts", "shape", "expected"),
    [
        (["i8[4](s=0.5,o=1)", "i8[](s=0.5,o=1)"], (4,), "i8[4](s=0.5,o=1)"),
        (
            ["i8[2](s=[0.5,1.0],o=[0,1],axis=0)", "i8[3x2](s=[0.5,1.0],o=[0,1],axis=1)"],
            (3, 2),
            "i8[3x2](s=[0.5,1.0],o=[0,1],axis=1)",
        ),
        (["i8[2](s=[0.5,1.0],o=[0,1],axis=0)", "i8[2x2](s=[0.5,1.0],o=[0,1],axis=0)"], (2, 2), ""),
        (["i8[2](s=[0.5,1.0],o=[0,1],axis=0)", "i8[](s=0.5,o=0)"], (2,), ""),
        (["i8[4](s=0.5,o=1)", "i8[4](s=0.5,o=0)"], (4,), ""),
        (["i8[4](s=0.5,o=1)", "i8[4]"], (4,), ""),
    ],
)
def test_broadcast(texts: list[str], shape: tuple[int, ...], expected: str) -> None:
    operands = [parse_type(text) for text in texts]
    if expected:
        assert str(moved.broadcast(operands, shape)) == expected
        return
    with pytest.raises(UserError, match="expected equal quantization parameters, got i8"):
        moved.broadcast(operands, shape)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("i8[2x3](s=[1.0,2.0],o=[0,0],axis=0)", (3, 3)),
        ("i8[2x3](s=[1.0,2.0],o=[0,0],axis=0)", (2,)),
    ],
)
def test_resized_keeps_the_channels(text: str, shape: tuple[int, ...]) -> None:
    type = parse_type(text)
    with pytest.raises(UserError, match="keeps the channel axis 0"):
        moved.resized(type, shape)
    assert moved.resized(type, (2, 7)).shape == (2, 7)


@given(
    st.sampled_from([ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.I32]),
    st.floats(1e-6, 1e6),
    st.data(),
    st.floats(allow_nan=False),
)
def test_stored_is_the_nearest_element(
    kind: ElemKind, scale: float, data: st.DataObject, value: float
) -> None:
    low, high = kind.limits
    offset = data.draw(st.integers(low, high))
    element = int(stored(Type(kind, (3,), Quant((scale,), (offset,))), value))
    exact = value / scale
    assert low <= element <= high
    if not math.isfinite(exact):
        assert element == (high if exact > 0 else low)
    elif low < element < high:
        assert abs(exact - (element - offset)) <= 0.5
    else:
        assert (exact + offset - element) * (1 if element == high else -1) >= -0.5


def test_stored_per_channel() -> None:
    type = parse_type("u8[2x2x3](s=[0.5,0.25],o=[7,9],axis=1)")
    assert stored(type, 0.25).tolist() == [[7], [10]]  # half a step goes to the even one
    assert stored(type, -1e9).tolist() == 0
    with pytest.raises(UserError, match="expected a number, which elements of u8"):
        stored(type, math.nan)
