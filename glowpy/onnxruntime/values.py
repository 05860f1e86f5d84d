"""`OrtValue`: a tensor in this process's memory; and the devices there are, which is one."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self, SupportsIndex, final

import numpy as np
from numpy.typing import DTypeLike

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.onnx.tensor import elem_type_of, kind_of, type_name
from glowpy.support.errors import UnsupportedError

__all__ = [
    "OrtDevice",
    "OrtValue",
    "OrtValueVector",
    "array_at",
    "check_device",
    "copy_tensors",
    "kind_named",
]

_DEVICES = ("cpu", "cuda", "cann", "dml", "webgpu", "gpu", "npu")


def check_device(device_type: str) -> None:
    """Raises RuntimeError for a device that glowpy does not compute on, ValueError for one nobody knows."""
    if device_type.lower() not in _DEVICES:
        raise ValueError(f"expected one of the devices {', '.join(_DEVICES)}, got '{device_type}'")
    if device_type.lower() != "cpu":
        raise RuntimeError(f"expected memory of the device 'cpu', got '{device_type}'")


def kind_named(element_type: object) -> ElemKind:
    """The kind of a numpy dtype or of a number of ONNX's `TensorProto.DataType`. Raises RuntimeError for others."""
    try:
        if isinstance(element_type, int):
            return kind_of(element_type)
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


@final
class OrtDevice:
    """Where a value is: always on the CPU."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        check_device(device_type)
        self._id = device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device called so. Raises RuntimeError for any but `cpu`."""
        del vendor_id
        return OrtDevice(ort_device_name, device_id)

    @staticmethod
    def cpu() -> int:
        """The number of the CPU among the types of devices."""
        return 0

    def device_id(self) -> int:
        """Which of the devices of this type."""
        return self._id

    def device_type(self) -> int:
        """The type, as a number: that of the CPU is 0."""
        return self.cpu()

    def device_vendor_id(self) -> int:
        """0, the number for no vendor."""
        return 0


@final
class OrtValue:
    """A tensor. Its elements are the memory of a numpy array."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(
        cls,
        numpy_obj: Array,
        /,
        device_type: str = "cpu",
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
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: object = None,
    ) -> OrtValue:
        """Memory of its own, with elements that are there by chance.

        Args:
            shape: The sizes.
            element_type: A numpy dtype, or a number of ONNX's `TensorProto.DataType`.
            device_type: `cpu`. Raises RuntimeError for another.
            device_id: Not used.
            vendor_id: Not used.
            memory_info: Not used.
        """
        del device_id, vendor_id, memory_info
        check_device(device_type)
        return cls(np.empty(tuple(shape), kind_named(element_type).dtype))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """The memory of a tensor of any library that knows DLPack."""
        return cls.ortvalue_from_numpy(np.from_dlpack(data))

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
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type as ONNX spells it, such as `tensor(float)`."""
        return type_name(ElemKind.of(self._array.dtype))

    def element_type(self) -> int:
        """The element type, as a number of ONNX's `TensorProto.DataType`."""
        return elem_type_of(ElemKind.of(self._array.dtype))

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
        """True: there are no other values."""
        return True

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

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
        own = self._array
        if array.dtype != own.dtype:
            raise RuntimeError(
                f"the source and destination must have the same data type: expected {own.dtype}, got {array.dtype}"
            )
        if array.size != own.size:
            raise RuntimeError(
                f"the source and destination must have the same size: expected {own.size} elements, got {array.size}"
            )
        own[...] = array.reshape(own.shape)


class OrtValueVector(list[OrtValue]):
    """A list of values, with the names that onnxruntime has for its methods."""

    def push_back(self, value: OrtValue) -> None:
        """Appends a value."""
        self.append(value)

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
