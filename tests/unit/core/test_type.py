"""Element kinds, types, shapes and schemas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import AttrSpec, check_attrs
from glowpy.core.shape import broadcast_shapes, normalize_axis, permute, window_shape
from glowpy.core.type import MAX_RANK, Quant, Type, parse_type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, UndecidedError, at_extents, symbol

kinds = st.sampled_from(list(ElemKind))
shapes: st.SearchStrategy[tuple[int, ...]] = st.lists(st.integers(0, 9), max_size=MAX_RANK).map(
    lambda sizes: tuple(sizes)
)
scales = st.floats(1e-6, 1e6)


@st.composite
def types(draw: st.DrawFn) -> Type:
    kind, shape = draw(kinds), draw(shapes)
    if kind not in (ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.I32) or draw(st.booleans()):
        return Type(kind, shape)
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    count = shape[axis] if axis is not None else 1
    factors = draw(st.tuples(*[scales] * count))
    offsets = draw(st.tuples(*[st.integers(*kind.limits)] * count))
    return Type(kind, shape, Quant(factors, offsets, axis))


@given(types())
def test_types_read_back_as_they_were(type: Type) -> None:
    assert parse_type(str(type)) == type


@pytest.mark.parametrize("kind", ElemKind)
def test_kinds_agree_with_their_numpy_dtype(kind: ElemKind) -> None:
    assert ElemKind.of(kind.dtype) is kind
    assert kind.size == np.zeros(1, kind.dtype).nbytes
    assert kind.is_float + kind.is_integer + kind.is_code + (kind is ElemKind.BOOL) == 1
    assert kind.is_signed == (kind.value[0] in "fi" or kind is ElemKind.BF16) - (
        kind is ElemKind.F8E8M0
    )


def test_one_channel_is_the_whole_tensor() -> None:
    assert str(parse_type("i8[3x1](s=[0.5],o=[3],axis=1)")) == "i8[3x1](s=0.5,o=3)"
    assert str(parse_type("i8[2](s=[0.5,0.5],o=[3,3],axis=0)")) == "i8[2](s=0.5,o=3)"
    assert str(parse_type("i8[3x0](s=[],o=[],axis=1)")) == "i8[3x0](s=[],o=[],axis=1)"


def test_a_channel_axis_is_not_taken_to_another_shape() -> None:
    whole = parse_type("i8[2x3](s=0.5,o=3)")
    assert str(whole.with_shape((6,))) == "i8[6](s=0.5,o=3)"
    with pytest.raises(UserError, match="expected a type quantized as a whole, got i8"):
        parse_type("i8[2x3](s=[0.5,0.25],o=[0,0],axis=0)").with_shape((2, 3))


def test_size_and_count() -> None:
    assert (Type(ElemKind.F32, (2, 3)).count, Type(ElemKind.F32, (2, 3)).size) == (6, 24)
    assert (Type(ElemKind.I8, ()).count, Type(ElemKind.I8, (0, 7)).size) == (1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32", "expected '['"),
        ("f32[1x2", "expected ']'"),
        ("f32[1y2]", "expected dimensions such as 1x28x28, got '1y2'"),
        ("f32[1x1x1x1x1x1x1x1x1]", "expected a rank of at most 8, got 9"),
        ("f32[99999999x99999999]", "shape overflows"),
        ("f32[0x99999999x99999999]", "shape overflows"),
        ("f32[4](s=0.1,o=0)", "expected a quantizable element kind"),
        ("i8[4](s=0.1)", "expected quantization parameters such as"),
        ("i8[4](s=0.1,o=0,z=1)", "expected quantization parameters such as"),
        ("i8[4](s=-1.0,o=0)", "expected positive finite scales"),
        ("i8[4](s=inf,o=0)", "expected positive finite scales"),
        ("i8[4](s=[0.1,0.2],o=[0,0])", "expected one scale without an axis"),
        ("i8[4](s=[0.1,0.2],o=[0],axis=0)", "expected as many scales as offsets"),
        ("i8[4](s=[0.1],o=[0],axis=0)", "expected 4 scales, got 1"),
        ("i8[4](s=0.1,o=128)", "expected offsets from -128 to 127, as i8 holds, got [128]"),
        (
            "u8[2](s=[0.1,0.2],o=[255,-1],axis=0)",
            "expected offsets from 0 to 255, as u8 holds, got [255,-1]",
        ),
        ("i8[4](s=[0.1,0.2],o=[0,0],axis=0)", "expected 4 scales, got 2"),
        ("i8[2](s=[0.1,0.2],o=[0,0],axis=1)", "expected a quantization axis below 1, got 1"),
        ("f32[٣]", "unexpected character '٣'"),
        ("i8[4](s=٣,o=1)", "unexpected character '٣'"),
        (f"f32[1x{'9' * 5000}]", "expected an integer, got '9999"),
        ("f32[2] more", "unexpected 'more' after a type"),
    ],
)
def test_bad_types_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_type(text)
    assert message in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].context.endswith("^")


def test_negative_dimensions_are_refused() -> None:
    with pytest.raises(UserError, match="dimensions of at least 0"):
        Type(ElemKind.F32, (2, -1))


@given(shapes.flatmap(lambda s: st.tuples(st.just(s), st.permutations(range(len(s))))))
def test_permute_is_numpys_transpose(case: tuple[tuple[int, ...], list[int]]) -> None:
    shape, shuffle = case
    assert permute(shape, shuffle) == np.transpose(np.empty(shape), shuffle).shape


@given(st.lists(st.lists(st.integers(0, 3), max_size=4).map(tuple), min_size=1, max_size=3))
def test_broadcast_is_numpys(cases: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*cases)
    except ValueError:
        with pytest.raises(UserError, match="shapes that broadcast"):
            broadcast_shapes(*cases)
    else:
        assert broadcast_shapes(*cases) == expected


def test_normalize_axis() -> None:
    assert [normalize_axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis in (-4, 3):
        with pytest.raises(UserError, match="expected an axis between -3 and 2"):
            normalize_axis(axis, 3)


@given(*(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3)), st.integers(0, 2))
def test_windows_are_those_that_fit(size: int, kernel: int, stride: int, pad: int) -> None:
    starts = range(0, size + 2 * pad - kernel + 1, stride)
    if not starts:
        with pytest.raises(UserError, match="larger than the padded input"):
            window_shape([size], [kernel], [stride], [pad, pad], [1])
        return
    assert window_shape([size], [kernel], [stride], [pad, pad], [1]) == (len(starts),)


def test_images_without_elements_have_the_windows_of_their_pads() -> None:
    counts = [window_shape([0], [3], [2], [pad, 1], [1]) for pad in (1, 2)]
    assert counts == [(0,), (1,)]
    assert window_shape([0], [1], [1], [0, 0], [1]) == (0,)
    with pytest.raises(UserError, match="window of 2 is larger than the padded input of 0"):
        window_shape([0], [2], [2], [0, 0], [1])


def test_a_window_that_is_larger_says_what_it_spans_and_what_there_is() -> None:
    message = "window of 3 with dilation 4, which spans 9, is larger than the padded input of 7 in spatial dimension 1"
    for options in ({}, {"partial": True}, {"partial": True, "ceil": True}):
        with pytest.raises(UserError, match=message):
            window_shape([9, 5], [3, 3], [1, 1], [0, 1, 0, 1], [4, 4], **options)


@given(*(st.integers(1, 9), st.integers(1, 12), st.integers(1, 5)), st.booleans())
def test_larger_windows_of_open_images(size: int, kernel: int, stride: int, ceil: bool) -> None:
    """What is said of every extent is what is said of each, where no bounds are asked for."""

    def counted(extent: Dim) -> Dim:
        (count,) = window_shape([extent], [kernel], [stride], [0, 0], [1], ceil=ceil, partial=True)
        return count

    try:
        count = counted(symbol("h", 1, 40, size))
    except UndecidedError:
        assert kernel > 1 + stride or (size >= kernel and not ceil)
    else:
        for extent in range(1, 41):
            assert at_extents(count, {"h": extent}) == counted(extent)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({}, "expected the attributes count, kernels, got none"),
        ({"count": 1, "kernels": (1,), "more": 1}, "expected the attributes count, kernels"),
        ({"count": True, "kernels": (1,)}, "attribute count must be of kind 'int'"),
        ({"count": 1, "kernels": 3}, "attribute kernels must be of kind 'ints'"),
    ],
)
def test_attributes_are_checked_against_the_schema(attrs: dict[str, object], message: str) -> None:
    specs = (AttrSpec("count", "int"), AttrSpec("kernels", "ints"))
    with pytest.raises(UserError, match=message):
        check_attrs(specs, attrs)  # type: ignore[arg-type]
