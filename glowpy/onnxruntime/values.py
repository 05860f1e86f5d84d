"""`OrtValue`: a tensor in this process's memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, final

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.declared import type_name
from glowpy.importer.elements import STRING, elem_type_of, kind_of
from glowpy.onnxruntime.devices import OrtDevice, check_device
from glowpy.onnxruntime.sparse import SparseTensor
from glowpy.support.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["OrtValue", "OrtValueVector", "array_at", "copy_tensors", "kind_named"]


def kind_named(element_type: object) -> ElemKind:
    """The kind of a numpy dtype or of a number of ONNX's `TensorProto.DataType`. Raises RuntimeError for others."""
    try:
        if isinstance(element_type, int) and element_type != STRING:
            return kind_of(element_type)
        text = isinstance(element_type, int) or np.dtype(element_type).kind in "OSU"  # type: ignore[call-overload]
        if text:
            raise RuntimeError("Only binding non-string Tensors is supported, got strings")
        return ElemKind.of(np.dtype(element_type))  # type: ignore[call-overload]
    except (KeyError, TypeError, UnsupportedError):
        raise RuntimeError(
            f"expected the type of a tensor's elements, got {element_type!r}"
        ) from None


def array_at(address: int, kind: ElemKind, shape: Sequence[int]) -> Array:
    """The elements at an address, not copied. Whoever owns the memory must keep it."""
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, kind.dtype)
    block = (ctypes.c_uint8 * (count * kind.size)).from_address(address)
    return np.ctypeslib.as_array(block).view(kind.dtype).reshape(shape)


class _Capsule:
    """A capsule of DLPack, as an object with the method `__dlpack__` that gives it."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@final
class OrtValue:
    """A tensor. Its elements are the memory of a numpy array.

    It may be made of a sparse tensor as well, which has no such memory.
    """

    __slots__ = ("_dense", "_sparse")

    def __init__(self, array: Array, sparse: SparseTensor | None = None) -> None:
        self._dense, self._sparse = array, sparse

    @property
    def _array(self) -> Array:
        if self._sparse is not None:
            raise RuntimeError("expected a dense tensor, got a sparse one")
        return self._dense

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A sparse tensor as a value."""
        return cls(np.empty(0), sparse_tensor)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor. Raises RuntimeError for a dense one."""
        if self._sparse is None:
            raise RuntimeError("expected a sparse tensor, got a dense one")
        return self._sparse

    @classmethod
    def ortvalue_from_numpy(
        cls,
        numpy_obj: Array,
        /,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """The memory of an array; of a copy, if the array is not C-contiguous.

        Raises RuntimeError for what is no array of numbers, and for another device than the CPU.
        """
        del device_id, vendor_id
        check_device(device_type)
        if not isinstance(numpy_obj, np.ndarray):
            raise RuntimeError(f"expected a numpy array, got {type(numpy_obj).__name__}")
        kind_named(numpy_obj.dtype)
        return cls(np.require(numpy_obj, requirements=("C", "A")))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """The memory of an array, whose elements are of another type of the same size, such as u16 for bfloat16."""
        kind = kind_named(onnx_element_type)
        if kind.size != data.dtype.itemsize:
            raise RuntimeError(f"expected elements of {kind.size} bytes, got {data.dtype}")
        return cls(np.require(data, requirements=("C", "A")).view(kind.dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[SupportsIndex],
        element_type: object,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: object = None,
    ) -> OrtValue:
        """Memory of its own, with elements that are there by chance. Raises RuntimeError where memory is described.

        Args:
            shape: The sizes.
            element_type: A numpy dtype, or a number of ONNX's `TensorProto.DataType`.
            device_type: `cpu`. Raises RuntimeError for another.
            device_id: Not used.
            vendor_id: Not used.
            memory_info: The memory of a registered allocator, of which there is none.
        """
        del device_id, vendor_id
        if memory_info is not None:
            raise RuntimeError(f"No shared allocator found for {memory_info}")
        check_device(device_type)
        return cls(np.empty(tuple(shape), kind_named(element_type).dtype))

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool_tensor: bool = False) -> OrtValue:
        """The memory of a tensor of any library that knows DLPack, or of what its `__dlpack__` gave."""
        owner: Any = data if hasattr(data, "__dlpack__") else _Capsule(data)
        array = np.from_dlpack(owner)
        return cls.ortvalue_from_numpy(array.view(np.bool_) if is_bool_tensor else array)

    def to_dlpack(self) -> Any:
        """The memory, for a library that knows DLPack."""
        return self._array.__dlpack__()

    def numpy(self) -> Array:
        """An array with the memory of the value."""
        return self._array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._array.__dlpack_device__()
        return int(kind), index

    def shape(self) -> list[int]:
        """The sizes."""
        return list(self._array.shape) if self._sparse is None else self._sparse.dense_shape()

    def _is_text(self) -> bool:
        return self._array.dtype.kind in "OSU"

    def data_type(self) -> str:
        """The type as ONNX spells it, such as `tensor(float)`."""
        if self._sparse is not None:
            return self._sparse.data_type()
        return "tensor(string)" if self._is_text() else type_name(ElemKind.of(self._array.dtype))

    def element_type(self) -> int:
        """The element type, as a number of ONNX's `TensorProto.DataType`."""
        if self._sparse is not None:
            return self._sparse.element_type()
        return STRING if self._is_text() else elem_type_of(ElemKind.of(self._array.dtype))

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    def device_name(self) -> str:
        """`cpu`."""
        return "cpu"

    def has_value(self) -> bool:
        """True: there are no optional values."""
        return True

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return self._sparse is None

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return self._sparse is not None

    def is_tensor_sequence(self) -> bool:
        """False."""
        return False

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Writes other elements into the memory: as many of the same type, in whatever shape.

        Raises TypeError for what is neither an array nor a value, RuntimeError for another type or number.
        onnxruntime takes the bytes of an array of another type for elements of this one.
        """
        array = data._array if isinstance(data, OrtValue) else data
        if not isinstance(array, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue")
        target = self._array
        if array.dtype != target.dtype:
            raise RuntimeError(
                f"the source and destination must have the same data type: expected {target.dtype}, got {array.dtype}"
            )
        if array.size != target.size:
            raise RuntimeError(
                f"the source and destination must have the same size: expected {target.size} elements, got {array.size}"
            )
        target[...] = array.reshape(target.shape)


class OrtValueVector(list[OrtValue]):
    """A list of values, with the names that onnxruntime has for its methods."""

    def push_back(self, value: OrtValue | Any, is_bool_tensor: bool | None = None) -> None:
        """Appends a value, or with a flag the memory that `__dlpack__` gave."""
        self.append(
            value if is_bool_tensor is None else OrtValue.from_dlpack(value, is_bool_tensor)
        )

    def push_back_batch(
        self,
        torch_tensors: Sequence[object],
        data_ptrs: Sequence[int],
        element_types: Sequence[object],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[object],
    ) -> None:
        """Appends values at addresses, which the caller keeps."""
        del torch_tensors, devices
        for address, element_type, shape in zip(data_ptrs, element_types, shapes, strict=True):
            self.append(OrtValue(array_at(address, kind_named(element_type), shape)))

    def dlpack_at(self, index: int) -> Any:
        """The memory of a value, for a library that knows DLPack."""
        return self[index].to_dlpack()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None = None) -> list[Any]:
        """The memory of all values, each through a function if there is one."""
        return [to_tensor(v.to_dlpack()) if to_tensor else v.to_dlpack() for v in self]

    def reserve(self, count: int) -> None:
        """Nothing to do: a list grows."""
        del count

    def shrink_to_fit(self) -> None:
        """Nothing to do."""

    def element_type_at(self, index: int) -> int:
        """The element type of a value, as a number of ONNX's `TensorProto.DataType`."""
        return self[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """Which of the values are of bool."""
        return [index for index, value in enumerate(self) if value.numpy().dtype == np.bool_]

    @classmethod
    def of(cls, arrays: Iterable[Array]) -> Self:
        """The values of arrays."""
        return cls(OrtValue(array) for array in arrays)


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: object = None) -> None:
    """Copies values into others. Raises RuntimeError unless there are as many of both, of the same types and shapes."""
    del stream
    if len(src) != len(dst):
        raise RuntimeError(f"expected as many sources as targets, got {len(src)} and {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)
