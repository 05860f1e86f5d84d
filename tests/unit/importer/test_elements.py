"""The numbers of element types: those of the onnx package."""

from __future__ import annotations

from contextlib import suppress

import pytest
from onnx import TensorProto

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import TYPE_NAMES
from glowpy.importer.elements import NARROW, PACKED, STRING, elem_type_of, kind_of
from glowpy.support.errors import UnsupportedError

NUMBERS = dict(TensorProto.DataType.items())


def test_the_numbers_are_those_of_onnx() -> None:
    named = {name.upper(): kind for kind, name in TYPE_NAMES.items()}
    named |= {narrow.name.upper(): narrow.kind for narrow in NARROW.values()}
    found = {}
    for name, number in NUMBERS.items():
        with suppress(UnsupportedError):
            found[name] = kind_of(number)
    assert found == {name: kind for name, kind in named.items() if name in NUMBERS}
    assert STRING == TensorProto.STRING


def test_a_kind_has_the_number_of_its_name() -> None:
    for kind in ElemKind:
        if (name := TYPE_NAMES.get(kind, "").upper()) in NUMBERS:
            assert elem_type_of(kind) == NUMBERS[name]


def test_packed_types_are_those_of_few_bits() -> None:
    few = {n for name, n in NUMBERS.items() if name.endswith(("INT4", "INT2"))}
    few |= {n for name, n in NUMBERS.items() if name.startswith(("FLOAT4", "FLOAT6"))}
    assert {number for number in PACKED if number in NUMBERS.values()} == few


@pytest.mark.parametrize("name", ["UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128"])
def test_other_types_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"element type {name} is not supported"):
        kind_of(NUMBERS[name])
    with pytest.raises(UnsupportedError, match="element type 99 is not supported"):
        kind_of(99)
