"""Memory of devices: the host's, whose buffers are arrays."""

from __future__ import annotations

import inspect
from types import ModuleType

import numpy as np
import pytest

from glowpy.core.tensor import address_of
from glowpy.ir.plan import ALIGNMENT
from glowpy.runtime import executable, memory
from glowpy.runtime.host_memory import HOST
from glowpy.support.errors import UserError


@pytest.mark.parametrize("size", [1, 3, 64, 1000])
def test_buffers_of_the_host_begin_aligned_and_with_zeros(size: int) -> None:
    buffer = HOST.allocate(size)
    assert HOST.size(buffer) == size
    assert HOST.address(buffer) % ALIGNMENT == 0
    assert HOST.read(buffer) == bytes(size)


def test_a_buffer_without_bytes_has_no_address() -> None:
    empty = HOST.allocate(0)
    assert (HOST.size(empty), HOST.address(empty), bytes(HOST.read(empty))) == (0, 0, b"")


def test_what_is_written_is_read() -> None:
    buffer = HOST.allocate(8)
    HOST.write(buffer, b"abc", 2)
    assert HOST.read(buffer) == b"\0\0abc\0\0\0"
    assert HOST.read(buffer, 3) == b"bc\0\0\0"
    assert HOST.read(buffer, 1, 3) == b"\0ab"


def test_what_is_read_is_a_copy() -> None:
    buffer = HOST.allocate(2)
    content = HOST.read(buffer)
    content[0] = 7
    assert HOST.read(buffer) == b"\0\0"


def test_buffers_are_copied() -> None:
    source, target = HOST.allocate(2), HOST.allocate(4)
    HOST.write(source, b"ab")
    HOST.copy(source, target)
    assert HOST.read(target) == b"ab\0\0"


def test_an_array_of_a_caller_is_a_buffer_as_it_stands() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (HOST.size(array), HOST.address(array)) == (24, address_of(array))
    HOST.write(array, np.array([7], np.float32).tobytes(), 8)
    assert array.tolist() == [[0, 1, 7], [3, 4, 5]]
    assert np.frombuffer(HOST.read(array, 12), np.float32).tolist() == [3, 4, 5]


def test_more_than_there_is_room_for() -> None:
    with pytest.raises(UserError, match="there is no memory for"):
        HOST.allocate(1 << 62)


@pytest.mark.parametrize("module", [memory, executable])
def test_nothing_but_the_host_names_arrays(module: ModuleType) -> None:
    text = inspect.getsource(module)
    assert "numpy" not in text
    assert "Array" not in text
