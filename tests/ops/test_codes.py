"""Floats of at most 8 bits: each one decoded, floats encoded, and moved on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.bundling.verify import _compare
from glowpy.cli.files import read_array, read_constants, write_constants
from glowpy.core.array_file import as_codes, write_array
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.engine import BACKENDS
from glowpy.graph.nodes_gen import DecodeNode, EncodeNode
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ops import numeric
from glowpy.runtime.ports import Port
from glowpy.support.errors import UserError
from tests.libjit.code_cases import FORMATS, floats_to_encode
from tests.ops.harness import Case, Row, check_row, on_every_backend

CODES = tuple(kind for kind in ElemKind if kind.is_code)


def every(kind: ElemKind) -> Array:
    return np.arange(256, dtype=np.uint8).view(kind.dtype)


def _numbers(kind: ElemKind) -> Array:
    codes = range(256)
    return np.array([FORMATS[kind.suffix].number(code) for code in codes], np.float32)


def _decode(kind: ElemKind) -> Iterator[Case]:
    yield Case([every(kind)], [_numbers(kind)], result_type=Type(ElemKind.F32, (256,)))


def _encode(_: ElemKind) -> Iterator[Case]:
    for kind in CODES:
        x = floats_to_encode(kind.suffix)
        codes = FORMATS[kind.suffix].nearest(x).view(kind.dtype)
        yield Case([x], [codes], result_type=Type(kind, x.shape))


ROWS = [
    Row(DecodeNode, CODES, _decode, thinned=False),
    Row(EncodeNode, (ElemKind.F32,), _encode),
]


@on_every_backend(ROWS)
def test_codes(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.value)
def test_every_number_is_its_own_code(kind: ElemKind) -> None:
    numbers = numeric.decode(every(kind))
    again = numeric.encode(numbers, Type(kind, numbers.shape))
    known = ~np.isnan(numbers)
    mask = (1 << kind.code_bits) - 1
    np.testing.assert_array_equal(again.view(np.uint8)[known], np.arange(256)[known] & mask)


def moves(kind: ElemKind) -> glowpy.Module:
    """Every way to move elements, with a constant."""
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(kind, (4, 3)))
    rows = module.create_constant("rows", np.array([2, 0, -1]))
    table = module.create_constant("table", every(kind)[8:14].reshape(2, 3))
    turned = f.create_transpose("t", f.create_gather("g", x, rows, 0), (1, 0))
    wide = f.create_broadcast(
        "b", Type(kind, (3, 2)), module.create_constant("one", every(kind)[5:6].reshape(1, 1))
    )
    ends = f.create_splat("s", Type(kind, (3, 1)), 2.0)
    joined = f.create_concat("c", [turned, wide, ends, f.create_transpose("u", table, (1, 0))], 1)
    part = f.create_slice("p", Type(kind, (3, 4)), joined, (0, 7), (1, -2))
    padded = f.create_pad("q", part, (1, 0, 0, 1), 1.0)
    flat = f.create_reshape("r", Type(kind, (20,)), padded)
    f.create_save("save", flat, module.create_placeholder("y", flat.type))
    f.create_save("copy", joined, module.create_placeholder("z", joined.result.type))
    return module


@pytest.mark.parametrize("backend", BACKENDS)
def test_codes_move(backend: str) -> None:
    kind = ElemKind.F8E4M3FN
    x = every(kind)[[*range(40, 50), 0x7F, 0x80]].reshape(4, 3)
    bits = x.view(np.uint8)
    table = np.arange(8, 14, dtype=np.uint8).reshape(2, 3)
    ends = np.full((3, 1), 2.0).astype(kind.dtype).view(np.uint8)
    joined = np.concatenate([bits[[2, 0, 3]].T, np.full((3, 2), 5, np.uint8), ends, table.T], 1)
    one = np.ones((), kind.dtype).view(np.uint8)
    padded = np.pad(joined[:, 7::-2], ((1, 0), (0, 1)), constant_values=one)
    got = glowpy.compile(moves(kind), backend)({"x": x})
    assert got["y"].dtype == kind.dtype
    np.testing.assert_array_equal(got["z"].view(np.uint8), joined)
    np.testing.assert_array_equal(got["y"].view(np.uint8), padded.reshape(-1))


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.value)
def test_codes_are_text(kind: ElemKind) -> None:
    text = print_module(moves(kind))
    assert print_module(parse_module(text)) == text
    module = glowpy.Module()
    known = every(kind)[: 1 << kind.code_bits]
    known = known[~np.isnan(known.astype(np.float32))]
    for start in range(0, len(known), 16):
        module.create_constant("c", known[start : start + 16])
    text = print_module(module)
    assert "blob" not in text
    parts = [constant.tensor.array for constant in parse_module(text).constants]
    np.testing.assert_array_equal(np.concatenate(parts).view(np.uint8), known.view(np.uint8))


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.value)
def test_codes_are_bytes_in_files_of_numpy(kind: ElemKind, tmp_path: Path) -> None:
    codes = np.tile(every(kind)[: 1 << kind.code_bits], 48)
    write_array(tmp_path / "x.npy", codes)
    again = as_codes(read_array(str(tmp_path / "x.npy")), kind)
    assert again.dtype == kind.dtype
    np.testing.assert_array_equal(again.view(np.uint8), codes.view(np.uint8))
    module = glowpy.Module()
    constant = module.create_constant("c", codes)
    write_constants(tmp_path / "c.npz", [constant])
    text = print_module(module)
    assert "blob" in text
    (parsed,) = parse_module(text, blobs=read_constants(str(tmp_path / "c.npz"))).constants
    assert parsed.tensor.equals(constant.tensor)


def test_a_network_that_only_differs_in_a_step_of_its_codes_is_verified() -> None:
    """Neighbours are one step apart, wherever they are; NaN is like NaN only."""
    type = parse_type("f8e5m2[3]")
    port = Port("y", "y", type)
    near, far = (
        ([28.0, -1.25, np.nan], [32.0, -1.0, np.nan]),
        ([28.0, -1.25, 1], [40.0, -1.0, np.nan]),
    )
    for pair, same in ((near, True), (far, False)):
        got, expected = (np.array(numbers).astype(type.kind.dtype) for numbers in pair)
        check = _compare("", "", port, {"y": got}, {"y": expected}, 0.0)
        assert check.within is same


@pytest.mark.parametrize(
    ("operator", "result", "message"),
    [
        ("add", None, "add: expected operands of kinds to compute with, got f8e5m2"),
        ("reduce_max", None, "reduce_max: expected operands of kinds to compute with, got f8e5m2"),
        ("convert", "f16[4]", "convert: expected operands of kinds to compute with, got f8e5m2"),
        ("decode", "f16[4]", "decode: expected floats of kind f32 and codes, got f16"),
        ("decode", "f32[3]", "result has shape f32.3., expected that of f8e5m2.4."),
        ("encode", "f8e8m0[4]", "encode: expected floats of kind f32 and codes, got f8e5m2"),
    ],
)
def test_nothing_is_computed_with_codes(operator: str, result: str | None, message: str) -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f8e5m2[4]"))

    def refused() -> None:
        match operator:
            case "add":
                f.create_add("n", x, x)
            case "reduce_max":
                f.create_reduce_max("n", x, (0,))
            case _:
                assert result is not None
                getattr(f, f"create_{operator}")("n", parse_type(result), x)
                verify_module(module)

    with pytest.raises(UserError, match=message):
        refused()
