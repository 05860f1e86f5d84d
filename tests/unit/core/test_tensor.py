"""Tensors."""

import hashlib
import math

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor, converted, stored
from glowpy.core.type import Type
from glowpy.support.errors import UserError


def test_a_splat_takes_the_memory_of_one_element() -> None:
    tensor = Tensor.splat(Type(ElemKind.F32, (1000, 1000)), 2.5)
    assert tensor.array.strides == (0, 0)
    assert tensor.splat_value == 2.5
    dense = Tensor.of(np.full((1000, 1000), 2.5, np.float32))
    assert dense.splat_value is None
    assert tensor.equals(dense)
    assert tensor.digest() == dense.digest()


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
