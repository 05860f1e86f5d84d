"""What a backend has no kernel for is an UnsupportedError that says so, never a wrong result."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from tests.ops import (
    test_activation,
    test_conv,
    test_convert,
    test_debug,
    test_elementwise,
    test_gather,
    test_matmul,
    test_norm,
    test_pool,
    test_reduce,
    test_shape,
)
from tests.ops.harness import Case, Row, run

ROWS: list[Row] = [
    row
    for module in (
        test_activation,
        test_conv,
        test_convert,
        test_debug,
        test_elementwise,
        test_gather,
        test_matmul,
        test_norm,
        test_pool,
        test_reduce,
        test_shape,
    )
    for row in module.ROWS
]

LACKING: dict[str, set[str]] = {
    "convolution": {"i8", "i32"},
    "mat_mul": {"i8", "i16", "u8", "u16"},
    "fully_connected": {"i8", "i16", "u8", "u16"},
    "max_pool": {"i64", "u64"},
    "max_pool_with_argmax": {"i64", "u64"},
    "reduce_add": {"u16"},
    "reduce_add wraps": {"u16"},
    "reduce_mul": {"u16"},
    "reduce_max": {"u16", "bool"},
    "reduce_min": {"u16", "bool"},
    "reduce_max of specials": {"u16"},
    "reduce_min of specials": {"u16"},
}
"""Reviewed: what else the CPU backend has no kernels for. A row runs on the kinds that the backend says it supports, so
that a kernel that is lost would be a test that is not run, but for this."""


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_cpu_supports_what_it_always_has(row: Row) -> None:
    refused = {kind.value for kind in row.kinds if row.refused(kind, "cpu")}
    assert refused == LACKING.get(str(row), set())


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_cpu_refuses_a_kind_without_a_kernel(row: Row) -> None:
    for kind in row.kinds:
        if row.refused(kind, "cpu"):
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
