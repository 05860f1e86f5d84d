"""`NAME.json`: what a bundle is, for programs. No dates and no paths, so equal bundles have equal manifests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.bundling.layout import Entry, Layout, Symbol
from glowpy.bundling.options import BundleOptions
from glowpy.bundling.read import FORMAT, manifest_digest
from glowpy.bundling.report import SizeReport
from glowpy.ir.plan import ALIGNMENT
from glowpy.llvm.machine import LLVM_VERSION, Machine

__all__ = ["fingerprint", "manifest_text"]

_MACHINE_OPTIONS = (
    "target",
    "cpu",
    "features",
    "float_abi",
    "relocation",
    "code_model",
    "optimize",
    "exact",
)
"""Options of the backend that a bundle depends on."""


def fingerprint(
    model: str,
    options: BundleOptions,
    machine: Machine,
    makers: str,
    libraries: Sequence[str],
    *,
    exact: bool,
    tuned: bool,
) -> str:
    """SHA-256 of everything a bundle's bytes follow from.

    Args:
        model: Text of the module, with the digests of its constants.
        options: How to make the bundle.
        machine: The processor that code is made for, which for this machine is not the same everywhere.
        makers: The versions of glowpy and of the package that the backend comes from.
        libraries: Digests of the kernel libraries' bitcode.
        exact: As in `CpuOptions`.
        tuned: Whether products are computed as was measured to be best; what that was is no part of it.
    """
    parts = [
        model,
        *(json.dumps(asdict(settings), sort_keys=True) for settings in (options, machine)),
    ]
    parts += [makers, LLVM_VERSION, *libraries, str(FORMAT), str(exact), str(tuned)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def manifest_text(
    layout: Layout,
    options: BundleOptions,
    backend: CpuBackend,
    report: SizeReport | None,
    files: Mapping[str, bytes],
    identity: Mapping[str, str],
) -> str:
    """The manifest.

    Args:
        layout: Where everything lies.
        options: How the bundle was made.
        backend: The name of the backend that compiled it.
        report: Sizes, where the object file's format is known.
        files: The other files of the bundle by name.
        identity: glowpy's version and the bundle's fingerprint.
    """
    machine, variant = backend.target.machine, backend.target.variant
    # Whoever makes it again takes what was measured then.
    tuned = {} if backend.options.tune is None else {"tune": 0.0}
    fields: dict[str, Any] = {
        "format": FORMAT,
        "name": options.name,
        **identity,
        "llvm": LLVM_VERSION,
        "options": asdict(options),
        "backend": backend.name,
        "compile": {name: getattr(backend.options, name) for name in _MACHINE_OPTIONS} | tuned,
        "target": {**asdict(machine), "variant": variant.name},
        "alignment": ALIGNMENT,
        "areas": {
            "constants": layout.constants.size,
            "mutable": layout.mutable_size,
            "activations": layout.activations_size,
        },
        "constants_crc32": layout.crc,
        "networks": [_network(entry) for entry in layout.entries],
        "sizes": report.as_json() if report is not None else None,
        "files": {
            name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())
        },
    }
    fields["digest"] = manifest_digest(fields)
    return json.dumps(fields, indent=2) + "\n"


def _network(entry: Entry) -> dict[str, Any]:
    plan = entry.program.plan
    fields = {
        "name": entry.name,
        "mutable": plan.mutable.size,
        "activations": plan.peak,
        "symbols": [_symbol(symbol) for symbol in entry.symbols],
    }
    if entry.extents:
        fields["extents"] = [
            {
                **asdict(extent.symbol),
                "name": extent.name,
                "symbol": extent.symbol.name,
                **({"found": True} if extent.found else {}),
            }
            for extent in entry.extents
        ]
    return fields


def _symbol(symbol: Symbol) -> dict[str, Any]:
    variable = symbol.variable
    variable_types = (
        {} if variable is None else {"reads": variable.type, "leaves": variable.following}
    )
    return {
        "name": symbol.name,
        "original": symbol.original,
        "weight": symbol.weight,
        "role": symbol.role,
        "type": str(symbol.type),
        "offset": symbol.offset,
        "size": symbol.type.room,
        **{what: str(type) for what, type in variable_types.items()},
        **({} if symbol.initial is None else {"initial": symbol.initial}),
    }
