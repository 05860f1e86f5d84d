"""Random bits: the words that the authors of Philox give, on every backend."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import RandomBitsNode
from glowpy.support.errors import VerifyError
from glowpy.support.symbolic import symbol
from tests.ops.harness import Case, Row, check_row, on_every_backend


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Four words of a counter, with Python's integers."""
    words = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    first, second = key
    for _ in range(10):
        left, right = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
        words = [
            right >> 32 ^ words[1] ^ first,
            right & 0xFFFFFFFF,
            left >> 32 ^ words[3] ^ second,
            left & 0xFFFFFFFF,
        ]
        first, second = (first + 0x9E3779B9) & 0xFFFFFFFF, (second + 0xBB67AE85) & 0xFFFFFFFF
    return words


def drawn(shape: tuple[int, ...], key: tuple[int, int]) -> Array:
    count = int(np.prod(shape))
    words = [word for counter in range(-(-count // 4)) for word in philox(counter, key)]
    return np.array(words[:count], np.uint32).reshape(shape)


def test_words_are_those_that_are_published() -> None:
    """The known answers of Random123 for a counter and a key of zeros."""
    assert philox(0, (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def _cases(kind: ElemKind) -> Iterator[Case]:
    for shape in ((), (1,), (4,), (7,), (3, 5), (2, 0), (41, 3)):
        for key in ((0, 0), ((1 << 31) - 1, 12345)):
            expected = drawn(shape, key)
            yield Case([], [expected], {"key": key}, Type(kind, shape))


ROWS = [Row(RandomBitsNode, (ElemKind.U32,), _cases)]


@on_every_backend(ROWS)
def test_random(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_the_first_elements_do_not_depend_on_how_many_there_are(backend: str) -> None:
    module = Module()
    size = symbol("size", 0, 9)
    x = module.create_placeholder("x", Type(ElemKind.U32, (size,)))
    f = module.create_function("main")
    bits = f.create_random_bits("bits", x.type, (7, 8))
    total = f.create_xor("total", bits, x)
    f.create_save("save", total, module.create_placeholder("y", x.type))
    network = glowpy.compile(module, backend)
    for count in (9, 0, 6):
        got = network({"x": np.zeros(count, np.uint32)})["y"]
        np.testing.assert_array_equal(got, drawn((count,), (7, 8)))


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        (ElemKind.I32, (0, 0), "expected a result of kind u32"),
        (ElemKind.U32, (0,), "two numbers of 31 bits"),
        (ElemKind.U32, (1 << 31, 0), "two numbers of 31 bits"),
    ],
)
def test_what_is_no_such_node(kind: ElemKind, key: tuple[int, ...], message: str) -> None:
    f = Module().create_function("main")
    type = Type(kind, (3,))
    bits = f.create_random_bits("bits", type, key)
    f.create_save("save", bits, f.module.create_placeholder("y", type))
    with pytest.raises(VerifyError, match=message):
        glowpy.compile(f.module, "interpreter")
