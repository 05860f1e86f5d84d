"""`Tensor`: a type and the elements: a numpy array, or what computes one.

The weights of a network may be most of a machine's memory. So large tensors are *deferred*: a file holds their
elements, or they follow from other tensors, and they are read or computed whenever they are asked for, and not kept.
What a compilation holds of them is how to get them; only the last step, which lays them out for the kernels, does.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, final

import numpy as np
import numpy.typing as npt

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.support.errors import InternalError, NoRoomError, UserError

__all__ = [
    "ALIGNMENT",
    "LARGE",
    "MAX_COST",
    "Array",
    "Tensor",
    "address_of",
    "allocated",
    "converted",
    "stored",
    "stored_key",
]

Array = npt.NDArray[Any]

Pieces = Callable[[], Array | Iterable[Array]]
"""Computes elements: an array, or several that follow each other in row-major order."""

LARGE = 1 << 16
"""Tensors of so many bytes are deferred where that is possible."""

MAX_COST = 16
"""A tensor that takes more computations than this is computed once, at once: where each follows twice from the one
before, every step would take twice as many."""


ALIGNMENT = 64
"""Every buffer begins at a multiple of so many bytes: a cache line, and the widest vector."""


def allocated(extents: Sequence[int], dtype: npt.DTypeLike, *, zeros: bool = True) -> Array:
    """A new array, of zeros or of anything. Raises NoRoomError where there is no memory for it."""
    try:
        return np.zeros(extents, dtype) if zeros else np.empty(extents, dtype)
    except (MemoryError, ValueError):  # the latter for more bytes than there are addresses
        size = prod(extents) * np.dtype(dtype).itemsize
        raise NoRoomError(
            f"there is no memory for {size:,} bytes",
            note="give dimensions closer bounds, such as --shape batch=1..8",
        ) from None


_begin, _address = ctypes.c_char.from_buffer, ctypes.addressof


def address_of(array: Array) -> int:
    """Returns the address of the first element of a contiguous array; 0 if there are none."""
    if not array.size:
        return 0
    try:
        # A quarter of the time that the attribute takes.
        return _address(_begin(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # read-only, or of a dtype that buffers do not have
        return array.ctypes.data


def converted(array: Array, kind: ElemKind) -> Array:
    """Numbers in another kind.

    Floats that become integers truncate and saturate, and NaN becomes 0; integers that become integers wrap; bool means
    not zero.
    """
    if kind is ElemKind.BOOL:
        return np.asarray(array != 0)
    if kind.is_integer and ElemKind.of(array.dtype).is_float:
        return _saturated(array.astype(np.float64), kind)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(kind.dtype))


def _saturated(wide: Array, kind: ElemKind) -> Array:
    """The highest i64 and u64 round up in f64, so that what is not below them is too high."""
    least, greatest = kind.limits
    low, high = wide <= float(least), wide >= float(greatest)
    result = np.where(low | high | np.isnan(wide), 0.0, wide).astype(kind.dtype)
    result[low], result[high] = least, greatest
    return result


def stored(type: Type, value: float) -> Array:
    """The number `value` as elements of `type` hold it: an array that broadcasts to the type's shape.

    An element that is not quantized is the number in its kind, as `converted` says. A quantized one is value / scale,
    rounded to the nearest integer, halves to even, plus offset, within the limits of the kind (ONNX QuantizeLinear).
    Where it differs by channel, the array is as long as there are channels. Raises UserError for a NaN, which no
    quantized element stands for.
    """
    quant, dtype = type.quant, type.kind.dtype
    if quant is None:
        return converted(np.asarray(value, np.float64), type.kind)
    if np.isnan(value):
        raise UserError(f"expected a number, which elements of {type} stand for, got nan")
    with np.errstate(over="ignore"):
        steps = np.rint(np.float64(value) / np.array(quant.scales)) + np.array(quant.offsets)
    elements: Array = np.clip(steps, *type.kind.limits).astype(dtype)
    if quant.axis is None or len(set(elements.tolist())) == 1:
        return np.asarray(elements[0])
    return elements.reshape(-1, *(1,) * (type.rank - quant.axis - 1))


@final
class Tensor:
    """Elements with their type. Never changed; compared by identity.

    The array has the type's shape and dtype, and may have any strides: zero strides are a splat. It is not copied, and
    must not be changed: what was compiled is kept under the digest of its elements. `copy` is for arrays of others.

    Raises UserError for an array of another shape or dtype.

    Attributes:
        type: Element kind and shape.
        cost: How many computations the elements take: none for an array, or one and those of what it follows from.
        derivation: The operation and the inputs that a deferred tensor was derived by: whoever knows the operation may
            compute something else of them.
    """

    __slots__ = ("_array", "_key", "_pieces", "_repeats", "cost", "derivation", "type")

    def __init__(self, type: Type, array: Array) -> None:
        _check(type, array)
        self.type = type
        self.cost = 0
        self._array: Array | None = array
        self._pieces: Pieces | None = None
        self._key: str | Callable[[], str] = ""
        self._repeats: tuple[bool, ...] | None = None
        self.derivation: tuple[str, Sequence[Tensor]] | None = None

    @classmethod
    def of(cls, array: Array) -> Tensor:
        """A tensor of the array's own kind and shape, in the array's memory.

        Raises UserError for what is no array, and for a dtype that is no element kind.
        """
        if not isinstance(array, np.ndarray | np.generic):
            raise UserError(
                f"expected a numpy array, got {type(array).__name__}", note="numpy.array makes one"
            )
        try:
            kind = ElemKind.of(array.dtype)
        except KeyError:
            raise UserError(
                f"expected an array of numbers or booleans, got dtype {array.dtype}"
            ) from None
        return cls(Type(kind, array.shape), np.asarray(array))

    @classmethod
    def splat(cls, type: Type, value: float) -> Tensor:
        """The element `value` everywhere, in the memory of one; of a quantized type it is what is stored."""
        return cls(type, np.broadcast_to(np.asarray(value, type.kind.dtype), type.extents))

    @classmethod
    def deferred(
        cls, type: Type, key: str | Callable[[], str], pieces: Pieces, cost: int = 1
    ) -> Tensor:
        """A tensor whose elements `pieces` reads or computes whenever they are asked for.

        Tensors with the same `key` have the same elements; it may be computed when it is needed.
        """
        tensor = cls.__new__(cls)
        tensor.type, tensor.cost = type, cost
        tensor._array, tensor._pieces, tensor._key = None, pieces, key
        tensor._repeats = tensor.derivation = None
        return tensor

    @classmethod
    def derived(
        cls,
        type: Type,
        operation: str,
        inputs: Sequence[Tensor],
        compute: Callable[..., Array | Iterable[Array]],
    ) -> Tensor:
        """Computes a tensor from the arrays of `inputs`: deferred if it is large, else at once.

        The same `operation` on tensors with the same keys gives the same elements; `operation` says all that `compute`
        depends on besides the inputs.
        """
        cost = 1 + sum(tensor.cost for tensor in inputs)

        def key() -> str:
            return _text_key("\0".join([operation, str(type), *(t.key for t in inputs)]))

        def pieces() -> Array | Iterable[Array]:
            return compute(*(tensor.array for tensor in inputs))

        tensor = cls.deferred(type, key, pieces, cost)
        if type.size < LARGE or cost > MAX_COST:
            return cls(type, tensor.array)
        tensor.derivation = operation, inputs
        return tensor

    @property
    def is_deferred(self) -> bool:
        """Whether `array` reads or computes the elements."""
        return self._array is None

    @property
    def array(self) -> Array:
        """The elements; not to be changed. Those of a deferred tensor are the caller's to drop soon."""
        if self._array is not None:
            return self._array
        pieces = list(self.pieces())
        if len(pieces) == 1:
            return pieces[0].reshape(self.type.extents)
        flat = [piece.reshape(-1) for piece in pieces]
        return np.concatenate(flat).reshape(self.type.extents)

    def pieces(self) -> Iterator[Array]:
        """The elements in row-major order, as one array after the other, so that not all are in memory at once."""
        result = self._array if self._pieces is None else self._pieces()
        if result is None or isinstance(result, np.ndarray):
            assert result is not None
            _check(self.type, result)
            yield result
            return
        count = 0
        for piece in result:
            count += piece.size
            yield piece
        if count != self.type.count:
            raise InternalError(f"expected {self.type.count} elements for {self.type}, got {count}")

    def raw_pieces(self) -> Iterator[Array]:
        """Yields the pieces as bytes: vectors of u8."""
        for piece in self.pieces():
            yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8)

    @property
    def key(self) -> str:
        """Key that tensors share of which it is known, without reading much, that their elements are the same."""
        if not self._key:
            self._key = stored_key(self.type, self.digest())
        elif not isinstance(self._key, str):
            self._key = self._key()
        return self._key

    @property
    def splat_value(self) -> float | int | None:
        """The value all elements share when the array says so by its strides or has one element, else None."""
        array = self._array
        if array is None or array.size == 0 or (array.size > 1 and any(array.strides)):
            return None
        item = array.reshape(-1)[0] if array.size == 1 else array[(0,) * array.ndim]
        return float(item) if self.type.kind.has_fractions else int(item)

    @property
    def repeats(self) -> tuple[bool, ...]:
        """Whether all elements have the same bits along each dimension, found out once; true where there are none."""
        if self._repeats is None:
            self._repeats = tuple(_repeats(self.array))
        return self._repeats

    def compact(self) -> Tensor:
        """Returns the tensor in the memory of one element where all have the same bits; a deferred one as it is."""
        array = self._array
        if array is None or array.size < 2:
            return self
        first = array.reshape(-1)[0]
        if not (array == first).all() or array.tobytes() != first.tobytes() * array.size:
            return self
        return Tensor.splat(self.type, first)

    def copy(self) -> Tensor:
        """Copies the elements to new memory, that of one element for a splat; a deferred tensor stays as it is."""
        if self._array is None:
            return self
        array = np.broadcast_to(self._array[_dense(self._array)].copy(), self.type.extents)
        return Tensor(self.type, array)

    def digest(self) -> str:
        """SHA-256 of the elements in row-major order."""
        digest = hashlib.sha256()
        for piece in self.raw_pieces():
            digest.update(piece.data)
        return digest.hexdigest()

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: object) -> Tensor:
        return self  # it never changes

    def __reduce__(self) -> tuple[Callable[[Type, Array], Tensor], tuple[Type, Array]]:
        """The elements, as one where all are the same by strides; those of a deferred tensor, too."""
        array = self.array
        return _spread, (self.type, array[_dense(array)])

    def equals(self, other: Tensor) -> bool:
        """Bit-for-bit equality of type and elements."""
        return self.type == other.type and self.array.tobytes() == other.array.tobytes()


def _dense(array: Array) -> tuple[slice, ...]:
    """Returns the index of the part of an array that does not repeat because of its strides."""
    return tuple(slice(None if stride else 1) for stride in array.strides)


def _spread(type: Type, array: Array) -> Tensor:
    """A tensor of elements that may repeat."""
    return Tensor(type, np.broadcast_to(array, type.extents))


def _repeats(array: Array) -> Iterator[bool]:
    """Whether elements are the same along each dimension; what is known to be is left out of what follows."""
    if array.size == 0:
        yield from (True for _ in array.shape)
        return
    bits = array.view(f"u{array.itemsize}")
    for axis in range(array.ndim):
        first = bits[(slice(None),) * axis + (slice(1),)]
        second = bits[(slice(None),) * axis + (slice(1, 2),)]
        same = bool((first == second).all() and (bits == first).all())
        bits = first if same else bits
        yield same


def _check(type: Type, array: Array) -> None:
    if array.dtype != type.kind.dtype or array.shape != type.shape:
        raise UserError(f"expected an array of type {type}, got {array.dtype}{list(array.shape)}")


def stored_key(type: Type, digest: str) -> str:
    """The `key` of a tensor of whose elements, as bytes, this is the SHA-256."""
    return _text_key(f"{type}\0{digest}")


def _text_key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
