"""What a backend has no kernel for is an UnsupportedError that says so, never a wrong result."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.kernels_gen import KERNELS, SCALARS
from glowpy.core.elemkind import ElemKind
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import NODES
from tests.ops import test_conv, test_elementwise, test_matmul, test_norm, test_pool, test_reduce
from tests.ops.harness import Case, Row, cpu_kinds, run

ROWS_BY_CLASS: dict[type[Node], Row] = {
    row.cls: row
    for module in (test_conv, test_elementwise, test_matmul, test_norm, test_pool, test_reduce)
    for row in reversed(module.ROWS)
}


def _missing() -> list[tuple[Row, ElemKind]]:
    """Every operator with a kernel of its own, and the kinds of its row the kernel table lacks."""
    pairs = []
    for cls in NODES:
        mnemonic = cls.SCHEMA.mnemonic
        if (mnemonic in KERNELS or mnemonic in SCALARS) and cls in ROWS_BY_CLASS:
            row = ROWS_BY_CLASS[cls]
            pairs += [(row, kind) for kind in row.kinds if kind not in cpu_kinds(mnemonic)]
    return pairs


@pytest.mark.parametrize(
    ("row", "kind"), [pytest.param(*pair, id=f"{pair[0]}-{pair[1].value}") for pair in _missing()]
)
def test_cpu_refuses_a_kind_without_a_kernel(row: Row, kind: ElemKind) -> None:
    case = next(iter(row.cases(kind)))
    with pytest.raises(glowpy.UnsupportedError, match=r"cpu backend: no kernel for"):
        run(row.cls, [case], "cpu")


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(
    ("mnemonic", "kind"), [("sqrt", "i32"), ("and", "f32"), ("add", "bool"), ("neg", "u8")]
)
def test_undeclared_kind_is_refused_by_the_verifier(backend: str, mnemonic: str, kind: str) -> None:
    cls = test_elementwise.CLASSES[mnemonic]
    array = np.ones(3, ElemKind(kind).dtype)
    case = Case([array] * len(cls.SCHEMA.inputs), [])
    with pytest.raises(glowpy.VerifyError, match=rf"{mnemonic}: expected a kind of .*, got {kind}"):
        run(cls, [case], backend)
