"""Ports as bytes: types with the bounds of their symbols, and initial values, bit for bit."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.initial import Uniform
from glowpy.core.state import StatePort
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.runtime.ports import Port, Ports
from glowpy.support.symbolic import ceil_div, symbol

ROWS, KEPT = symbol("rows", 1, 8, likely=4), symbol("kept", 0, 8)
PAIR = Type(ElemKind.F64, (2,))


def variable(name: str, kind: ElemKind, elements: list[float]) -> StatePort:
    """A variable that begins with these elements."""
    type = Type(kind, (len(elements),))
    initial = Tensor(type, np.array(elements).astype(kind.dtype))
    return StatePort(name, name, type, type, type, initial)


def test_what_was_written_is_read() -> None:
    growing = Type(ElemKind.F32, (ROWS, 3))
    ports = Ports(
        (Port("images/x", "x", growing), Port("n", "n", Type(ElemKind.I64, ()))),
        (Port("y", "y", Type(ElemKind.BF16, (KEPT, ceil_div(ROWS, 2)))), Port("n", "n", growing)),
        (
            variable("codes", ElemKind.F8E4M3FN, [1, -2, 0.5]),
            variable("none", ElemKind.F32, []),
            StatePort("h", "h_1", growing, growing, Type(ElemKind.F32, (8, 3))),
            variable("counts", ElemKind.I64, [1 << 40, -7]),
            StatePort("w", "w", PAIR, PAIR, PAIR, Uniform(3, -1.0, 0.25)),
        ),
    )
    again = Ports.parse(ports.payload())
    assert again == ports
    for port, other in zip(again.state, ports.state, strict=True):
        assert port.contents.equals(other.contents)
    assert Ports.parse(Ports().payload()) == Ports()
