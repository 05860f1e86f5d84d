"""What a backend has no kernel for is an UnsupportedError that says so, never a wrong result."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import engine
from glowpy.core.elemkind import ElemKind
from glowpy.engine import unsupported
from glowpy.graph.node import Node
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


def test_answers_are_remembered_for_equal_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal but for names, scales and the elements of large constants; what folds is asked by itself."""
    asked: list[Node] = []
    answer = engine._reasons

    def counted(node: Node, backend: glowpy.Backend) -> tuple[str, ...]:
        asked.append(node)
        return answer(node, backend)

    monkeypatch.setattr(engine, "_reasons", counted)
    backend = glowpy.CpuBackend()
    module = glowpy.Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(n, glowpy.parse_type("f32[4x8]")) for n in "xy")
    p = module.create_placeholder("p", glowpy.parse_type("bool[]"))
    low, high = (
        module.create_placeholder(n, glowpy.parse_type(f"i8[4x8](s={scale},o=0)"))
        for n, scale in (("low", 0.5), ("high", 0.25))
    )
    numbers = np.arange(64, dtype=np.float32).reshape(8, 8)
    large = [module.create_constant("w", numbers * i) for i in (1, 2)]
    small = [module.create_constant("c", np.array([i], np.float32)) for i in (1, 2, np.nan)]
    groups: list[list[Node]] = [
        [f.create_add("a", x, y), f.create_add("b", y, x)],
        [f.create_add("a", x, x)],
        [f.predicated(f.create_add("a", x, y), p)],
        [f.create_mat_mul("m", x, w) for w in large],
        [f.create_mul("s", x, small[0]), f.create_mul("t", y, small[0])],
        [f.create_mul("s", x, small[1])],
        [f.create_mul("s", x, small[2])],
        [f.create_neg("n", v, result_type=v.type) for v in (low, high)],
        [f.create_softmax("soft", x, axis) for axis in (1, 1)],
        [f.create_softmax("soft", x, 0)],
    ]
    for group in groups * 2:
        assert not any(unsupported(node, backend) for node in group)
    assert asked == [group[0] for group in groups]
    i16 = module.create_placeholder("i", glowpy.parse_type("u16[4x8]"))
    for _ in range(2):
        (reason,) = unsupported(f.create_reduce_max("r", i16, (0,)), backend)
        assert "u16" in reason
    assert len(asked) == len(groups) + 1
    assert not unsupported(groups[0][0], glowpy.CpuBackend())  # another one asks for itself
    assert len(asked) == len(groups) + 2
