"""Cases for kernels that have none of their own: those of the operator's row in `tests/ops`.

Cases written for a kernel look for the edges of its vectors and tiles; a new operator has its row first.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.ir.insts_gen import INSTS
from glowpy.irgen import scratch
from tests.libjit.kernel_cases import Case, Maker
from tests.ops import harness
from tests.ops.harness import Row

_FOLDER = Path(harness.__file__).parent
_SCHEMAS = {cls.SCHEMA.mnemonic: cls.SCHEMA for cls in INSTS}


def read() -> None:
    """Reads all rows now, and not in every process that is forked later."""
    _rows()


@cache
def _rows() -> dict[str, list[Row]]:
    """The rows of every test module by mnemonic."""
    rows: dict[str, list[Row]] = {}
    for path in sorted(_FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.ops.{path.stem}")
        for row in getattr(module, "ROWS", []):
            rows.setdefault(row.cls.SCHEMA.mnemonic, []).append(row)
    return rows


def maker_of(mnemonic: str) -> Maker:
    """What makes the cases of a kernel. Raises KeyError that says what is missing."""
    if mnemonic not in _rows():
        raise KeyError(
            f"the kernel {mnemonic} has no cases: give the operator a row in tests/ops/, "
            "or the kernel an entry in MAKERS of tests/libjit/kernel_cases.py"
        )

    def make(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
        named = [name for name, _ in KERNELS[mnemonic].kinds]
        for row in _rows()[mnemonic]:
            for case in cases_of_row(row, suffixes[0]):
                arrays = {**case.operands, **case.expected}
                kinds = [ElemKind.of(arrays[name].dtype) for name in named]
                if all(map(_has_suffix, kinds, suffixes)):
                    yield case

    return make


def cases_of_row(row: Row, suffix: str) -> Iterator[Case]:
    """The cases of a row for the first of its kinds that has a suffix."""
    kind = next((kind for kind in row.kinds if _has_suffix(kind, suffix)), None)
    yield from map(partial(_of_kernel, row), row.cases(kind) if kind is not None else ())


def _has_suffix(kind: ElemKind, suffix: str) -> bool:
    return suffix in (kind.suffix, f"x{8 * kind.size}")


def _of_kernel(row: Row, case: harness.Case) -> Case:
    schema, tolerance = row.cls.SCHEMA, case.tolerance
    node = harness.node_of(row.cls, case)
    arrays = [np.asarray(array, order="C") for array in case.inputs]
    operands = dict(zip(schema.inputs, arrays, strict=True))
    if (rule := scratch.get(row.cls)) is not None:
        specs = [
            spec for spec in _SCHEMAS[schema.mnemonic].operands if spec.access is Access.SCRATCH
        ]
        for spec, type in zip(specs, rule(node), strict=True):
            operands[spec.name] = np.zeros(type.extents, type.kind.dtype)
    with np.errstate(all="ignore"):
        expected = {
            result: np.ma.asanyarray(array).astype(value.type.kind.dtype, order="C")
            for result, array, value in zip(
                schema.results, case.expected, node.results, strict=True
            )
        }
    like = [*case.inputs, *case.expected][0].dtype
    eps = float(harness.float_limits(like).eps) if like.kind == "f" else 0.0
    return Case(
        operands,
        expected,
        dict(case.attrs),
        rtol=tolerance.ulps * eps,
        atol=tolerance.epsilons * eps * tolerance.scale,
    )
