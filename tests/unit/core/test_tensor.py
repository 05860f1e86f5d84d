"""Tensors."""

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import LARGE, MAX_COST, Array, Tensor, allocated, converted, stored
from glowpy.core.type import Type
from glowpy.support.errors import InternalError, UserError


def test_a_splat_takes_the_memory_of_one_element() -> None:
    tensor = Tensor.splat(Type(ElemKind.F32, (1000, 1000)), 2.5)
    assert tensor.array.strides == (0, 0)
    assert tensor.splat_value == 2.5
    dense = Tensor.of(np.full((1000, 1000), 2.5, np.float32))
    assert dense.splat_value is None
    assert tensor.equals(dense)
    assert tensor.digest() == dense.digest()


def test_a_copy_has_memory_of_its_own() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for source in (array, array.T, array[:, ::-1], np.broadcast_to(array[0], (4, 3)), array[:0]):
        expected = source.copy()
        tensor = Tensor.of(source).copy()
        assert tensor.equals(Tensor.of(expected))
        assert not np.shares_memory(tensor.array, array)
    splat = Tensor.splat(Type(ElemKind.F32, (1000, 1000)), 2.5).copy()
    assert (splat.array.strides, splat.splat_value) == ((0, 0), 2.5)
    assert Tensor.of(np.zeros((0, 2), np.float32)).copy().type.shape == (0, 2)


def test_one_element_is_a_splat_and_none_is_not() -> None:
    assert Tensor.of(np.array([3], np.int8)).splat_value == 3
    assert Tensor.of(np.array(3, np.int64)).splat_value == 3
    assert Tensor.of(np.zeros((0, 2), np.float32)).splat_value is None


def test_the_digest_is_that_of_the_elements_in_row_major_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    expected = hashlib.sha256(array.tobytes()).hexdigest()
    assert Tensor.of(array).digest() == expected
    assert Tensor.of(np.asfortranarray(array)).digest() == expected


def test_equality_is_of_bits() -> None:
    zero, minus = (Tensor.of(np.array([value], np.float32)) for value in (0.0, -0.0))
    nan = Tensor.of(np.array([np.nan], np.float32))
    assert not zero.equals(minus)
    assert nan.equals(nan)
    assert not zero.equals(Tensor.of(np.array([0], np.int32)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 2), np.float32), r"expected an array of type f32\[2x3\]"),
        (np.zeros((2, 3), np.float64), r"got float64\[2, 3\]"),
    ],
)
def test_array_and_type_must_agree(array: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Tensor(Type(ElemKind.F32, (2, 3)), array)


def test_arrays_of_other_things_are_refused() -> None:
    with pytest.raises(UserError, match="numbers or booleans"):
        Tensor.of(np.array(["a"]))


@pytest.mark.parametrize("kind", [kind for kind in ElemKind if kind.is_integer], ids=str)
def test_integers_saturate(kind: ElemKind) -> None:
    low, high = kind.limits
    numbers = [-math.inf, low - 1.0, -0.75, 1.9, high + 1.0, math.inf, math.nan]
    expected = [low, low, 0, 1, high, high, 0]
    assert converted(np.array(numbers), kind).tolist() == expected
    assert [stored(Type(kind, ()), number).item() for number in numbers] == expected


def _large(offset: float = 0.0) -> Tensor:
    return Tensor.of(np.arange(LARGE, dtype=np.float32) + np.float32(offset))


def _doubled(source: Tensor, operation: str = "double") -> Tensor:
    return Tensor.derived(source.type, operation, [source], lambda array: array * 2)


def test_what_follows_from_a_large_tensor_is_computed_when_it_is_asked_for() -> None:
    calls = []

    def compute(array: Array) -> Array:
        calls.append(array)
        return array + 1

    source = _large()
    tensor = Tensor.derived(source.type, "add 1", [source], compute)
    assert tensor.is_deferred
    assert not calls
    np.testing.assert_array_equal(tensor.array, source.array + 1)
    assert tensor.digest() == Tensor.of(source.array + 1).digest()
    assert len(calls) == 2, "nothing is kept"
    assert tensor.splat_value is None
    assert tensor.compact() is tensor


def test_what_follows_from_a_small_tensor_is_computed_at_once() -> None:
    tensor = _doubled(Tensor.of(np.arange(3)))
    assert not tensor.is_deferred
    assert tensor.array.tolist() == [0, 2, 4]


def test_elements_may_come_in_pieces() -> None:
    source = _large()

    def halves(array: Array) -> Iterator[Array]:
        yield from np.split(array, 2)

    tensor = Tensor.derived(source.type, "halves", [source], halves)
    assert [piece.size for piece in tensor.pieces()] == [LARGE // 2] * 2
    np.testing.assert_array_equal(tensor.array, source.array)
    assert tensor.digest() == source.digest()
    short = Tensor.derived(source.type, "half", [source], lambda array: iter([array[::2]]))
    with pytest.raises(InternalError, match=f"expected {LARGE} elements .*, got {LARGE // 2}"):
        _ = short.array


def test_what_is_computed_must_have_the_type() -> None:
    source = _large()
    tensor = Tensor.derived(source.type, "wrong", [source], lambda array: array[1:])
    with pytest.raises(UserError, match="expected an array of type"):
        _ = tensor.array


def test_keys_say_that_elements_are_the_same() -> None:
    assert _large().key == _large().key
    assert _large().key != _large(1).key
    assert _doubled(_large()).key == _doubled(_large()).key
    assert _doubled(_large()).key != _doubled(_large(1)).key
    assert _doubled(_large()).key != _doubled(_large(), "other").key
    wide, flat = np.zeros((2, 3), np.int32), np.zeros(6, np.int32)
    assert Tensor.of(wide).key != Tensor.of(flat).key
    assert Tensor.of(flat).key != Tensor.of(flat.view(np.float32)).key


def test_a_long_chain_does_not_fill_the_stack() -> None:
    tensor = _large()
    for _ in range(5000):
        tensor = Tensor.derived(tensor.type, "step", [tensor], lambda array: array + 1)
    assert tensor.array[1] == 5001


def test_what_follows_twice_from_the_same_is_not_computed_ever_more_often() -> None:
    calls = []

    def compute(left: Array, right: Array) -> Array:
        calls.append(left)
        return left + right

    tensor = _large()
    for _ in range(60):
        tensor = Tensor.derived(tensor.type, "sum", [tensor, tensor], compute)
    assert tensor.cost <= MAX_COST
    assert tensor.array[0] == 0
    assert len(calls) < 60 * MAX_COST


@pytest.mark.parametrize("extents", [(1 << 58,), (1 << 40, 1 << 40)])
def test_more_memory_than_there_is_is_an_error_with_a_remedy(extents: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"no memory for .* bytes") as error:
        allocated(extents, np.float32)
    assert "--shape" in str(error.value)
