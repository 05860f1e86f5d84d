"""`NAME.json`: what a bundle is, for programs. No dates and no paths, so equal bundles have equal manifests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from glowpy.bundling.layout import Layout
from glowpy.bundling.options import BundleOptions
from glowpy.bundling.read import FORMAT, manifest_digest
from glowpy.bundling.report import SizeReport
from glowpy.ir.plan import ALIGNMENT
from glowpy.llvm.bundle_compiler import BundleCompiler
from glowpy.llvm.machine import LLVM_VERSION, Machine

__all__ = ["fingerprint", "manifest_text"]


def fingerprint(
    model: str,
    options: BundleOptions,
    makers: str,
    compiler: BundleCompiler,
) -> str:
    """SHA-256 of everything a bundle's bytes follow from.

    Args:
        model: Text of the module, with the digests of its constants.
        options: How to make the bundle.
        makers: The versions of glowpy and of the package that the backend comes from.
        compiler: What makes the code. This machine as its target is not the same everywhere.
    """
    libraries = [hashlib.sha256(bitcode).hexdigest() for bitcode in compiler.bitcode]
    settings = [asdict(options), _described(compiler.target.machine)]
    parts = [model, *(json.dumps(fields, sort_keys=True) for fields in settings)]
    parts += [makers, LLVM_VERSION, *libraries, str(FORMAT), *compiler.identity]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _described(machine: Machine) -> dict[str, Any]:
    """A processor, whose instructions for bf16 are spoken of only where they are used."""
    return {name: value for name, value in asdict(machine).items() if name != "bf16" or value}


def manifest_text(
    layout: Layout,
    options: BundleOptions,
    backend: str,
    compiler: BundleCompiler,
    report: SizeReport | None,
    files: Mapping[str, bytes],
    identity: Mapping[str, str],
) -> str:
    """The manifest.

    Args:
        layout: Where everything lies.
        options: How the bundle was made.
        backend: The name of the backend that compiled it.
        compiler: What made the code.
        report: Sizes, where the object file's format is known.
        files: The other files of the bundle by name.
        identity: glowpy's version and the bundle's fingerprint.
    """
    target = compiler.target
    fields: dict[str, Any] = {
        "format": FORMAT,
        "name": options.name,
        **identity,
        "llvm": LLVM_VERSION,
        "options": asdict(options),
        "backend": backend,
        "compile": dict(compiler.settings),
        "target": {**_described(target.machine), "variant": target.variant.name},
        "alignment": ALIGNMENT,
        "areas": {
            "constants": layout.constants.size,
            "mutable": layout.mutable_size,
            "activations": layout.activations_size,
        },
        "constants_crc32": layout.crc,
        "networks": [entry.fields for entry in layout.entries],
        "sizes": report.as_json() if report is not None else None,
        "files": {
            name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())
        },
    }
    fields["digest"] = manifest_digest(fields)
    return json.dumps(fields, indent=2) + "\n"
