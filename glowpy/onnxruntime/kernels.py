"""The operators there are, and those that are imported, as onnxruntime lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from glowpy.onnxruntime.providers import CPU

__all__ = ["KernelDef", "get_all_operator_schema", "get_all_opkernel_def"]

_LAST = (1 << 31) - 1


@final
@dataclass(frozen=True)
class KernelDef:
    """An operator at a range of opsets."""

    op_name: str
    domain: str
    version_range: tuple[int, int]
    provider: str = CPU
    type_constraints: Mapping[str, list[str]] = field(default_factory=dict)


def get_all_operator_schema() -> list[Any]:
    """The schemas of ONNX's operators, and of those that onnxruntime adds and glowpy reads."""
    from glowpy.importer import operator_schemas  # noqa: PLC0415 - ONNX

    return operator_schemas()


def get_all_opkernel_def() -> list[KernelDef]:
    """Lists the opsets of each operator that glowpy reads. docs/reference/onnx.md has the element kinds."""
    from glowpy.importer import imported_operators  # noqa: PLC0415 - ONNX

    kernels = []
    for (domain, name), begins in imported_operators().items():
        ends = [*(begin - 1 for begin in begins[1:]), _LAST]
        kernels += [
            KernelDef(name, domain, (begin, end)) for begin, end in zip(begins, ends, strict=True)
        ]
    return kernels
