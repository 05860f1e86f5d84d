"""`SparseTensor`: elements that are not zero, and where they are. Values of this kind are held, not computed with."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Any, final

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.declared import type_name
from glowpy.importer.elements import STRING, elem_type_of
from glowpy.onnxruntime.devices import OrtDevice

__all__ = [
    "OrtSparseFormat",
    "SparseBlockSparseView",
    "SparseCooView",
    "SparseCsrView",
    "SparseTensor",
]


class OrtSparseFormat(IntEnum):
    """How it is said where elements are."""

    __str__ = Enum.__str__

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class _View:
    """Indices that cannot be written to."""

    def __init__(self, *indices: Array) -> None:
        self._indices = [_fixed(array) for array in indices]


@final
class SparseCooView(_View):
    """Coordinates of the elements, or their places in a row."""

    def indices(self) -> Array:
        """One number for each element, or as many as there are dimensions."""
        return self._indices[0]


@final
class SparseCsrView(_View):
    """Columns of the elements, row by row, and where rows begin."""

    def inner(self) -> Array:
        """The column of each element."""
        return self._indices[0]

    def outer(self) -> Array:
        """Where each row begins, and where the last one ends."""
        return self._indices[1]


@final
class SparseBlockSparseView(_View):
    """Coordinates of blocks. No function makes such a tensor."""

    def indices(self) -> Array:
        """Where the blocks are."""
        return self._indices[0]


def _fixed(array: Array) -> Array:
    view = np.asarray(array)[:]
    view.flags.writeable = False
    return view


@final
class SparseTensor:
    """A sparse tensor on the CPU.

    Raises ValueError for what is no sparse tensor: they are made by `sparse_coo_from_numpy` and the like.
    """

    def __init__(self, sparse_tensor: Any) -> None:
        if not isinstance(sparse_tensor, SparseTensor):
            raise ValueError(
                "`Provided object` needs to be of type "
                "`onnxruntime.capi.onnxruntime_pybind11_state.SparseTensor`"
            )
        self.__dict__.update(sparse_tensor.__dict__)

    @classmethod
    def _of(
        cls,
        form: OrtSparseFormat,
        dense_shape: Sequence[int] | Array,
        values: Array,
        view: _View,
        device: OrtDevice,
    ) -> SparseTensor:
        if device.device_type() != OrtDevice.cpu():
            raise RuntimeError("expected memory of the device 'cpu'")
        tensor = cls.__new__(cls)
        tensor._form, tensor._view = form, view
        tensor._shape = [int(size) for size in dense_shape]
        tensor._values = np.asarray(values)
        return tensor

    _form: OrtSparseFormat
    _shape: list[int]
    _values: Array
    _view: _View

    @classmethod
    def sparse_coo_from_numpy(
        cls,
        dense_shape: Sequence[int] | Array,
        values: Array,
        coo_indices: Array,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Makes a tensor of elements and their coordinates, or their places in a row. The arrays are not copied.

        Raises RuntimeError for another number of coordinates, and for another device than the CPU.
        """
        count, rank = len(values), len(dense_shape)
        if coo_indices.size not in (count, count * rank):
            raise RuntimeError(
                f"expected {count} indices, or {rank} for each, got {coo_indices.size}"
            )
        view = SparseCooView(coo_indices)
        return cls._of(OrtSparseFormat.ORT_SPARSE_COO, dense_shape, values, view, ort_device)

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int] | Array,
        values: Array,
        inner_indices: Array,
        outer_indices: Array,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Makes a tensor of elements row by row, their columns, and where rows begin. The arrays are not copied.

        Raises RuntimeError unless there are as many columns as elements and one more begin than rows.
        """
        if len(inner_indices) != len(values) or len(outer_indices) != int(dense_shape[0]) + 1:
            raise RuntimeError(
                f"expected {len(values)} columns and {int(dense_shape[0]) + 1} begins of rows, "
                f"got {len(inner_indices)} and {len(outer_indices)}"
            )
        view = SparseCsrView(inner_indices, outer_indices)
        return cls._of(OrtSparseFormat.ORT_SPARSE_CSRC, dense_shape, values, view, ort_device)

    def values(self) -> Array:
        """The elements; they cannot be written to."""
        return _fixed(self._values)

    def _viewed(self, kind: type[_View]) -> Any:
        if not isinstance(self._view, kind):
            raise RuntimeError(f"the tensor is in the format {self._form.name}")
        return self._view

    def as_coo_view(self) -> SparseCooView:
        """Where the elements are. Raises RuntimeError for another format."""
        view: SparseCooView = self._viewed(SparseCooView)
        return view

    def as_csrc_view(self) -> SparseCsrView:
        """Where the elements are. Raises RuntimeError for another format."""
        view: SparseCsrView = self._viewed(SparseCsrView)
        return view

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """Where the blocks are. Raises RuntimeError for another format."""
        view: SparseBlockSparseView = self._viewed(SparseBlockSparseView)
        return view

    get_coo_data, get_csrc_data, get_blocksparse_data = (
        as_coo_view,
        as_csrc_view,
        as_blocksparse_view,
    )

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Raises RuntimeError: glowpy computes on the CPU."""
        del ort_device
        raise RuntimeError("expected memory of the device 'cpu', got 'cuda'")

    def format(self) -> OrtSparseFormat:
        """How it is said where elements are."""
        return self._form

    def dense_shape(self) -> list[int]:
        """The sizes."""
        return list(self._shape)

    def _is_text(self) -> bool:
        return self._values.dtype.kind in "OSU"

    def element_type(self) -> int:
        """The element type, as a number of ONNX's `TensorProto.DataType`."""
        return STRING if self._is_text() else elem_type_of(ElemKind.of(self._values.dtype))

    def data_type(self) -> str:
        """The type as ONNX spells it, such as `sparse_tensor(float)`."""
        if self._is_text():
            return "sparse_tensor(string)"
        return f"sparse_{type_name(ElemKind.of(self._values.dtype))}"

    def device_name(self) -> str:
        """`cpu`."""
        return "cpu"

    def _get_c_tensor(self) -> SparseTensor:
        return self
