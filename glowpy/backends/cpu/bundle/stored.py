"""A bundle that lies on disk: its manifest, and whether its files are still what it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.abi import FORMAT
from glowpy.backends.cpu.bundle.options import BundleOptions
from glowpy.support.errors import LoadError
from glowpy.support.loc import Loc

__all__ = ["StoredBundle", "read_bundle"]


@dataclass(frozen=True)
class StoredBundle:
    """A folder with a bundle, and what NAME.json says about it."""

    directory: Path
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The bundle's name."""
        return str(self.manifest["name"])

    @property
    def triple(self) -> str:
        """LLVM's name of the target."""
        return str(self.manifest["target"]["triple"])

    @property
    def options(self) -> BundleOptions:
        """What the bundle was made of."""
        return BundleOptions(**self.manifest["options"])

    @property
    def compile_options(self) -> CompileOptions:
        """For which machine the bundle was made, as the user asked for it."""
        return CompileOptions(**self.manifest["compile"])

    def damage(self) -> list[str]:
        """One sentence for every file that is missing or is not what it was when the bundle was made."""
        found = []
        for name, digest in self.manifest["files"].items():
            path = self.directory / name
            if not path.is_file():
                found.append(f"{name} is missing")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                found.append(f"{name} was modified")
        return found


def read_bundle(directory: Path) -> StoredBundle:
    """The bundle in a folder. Raises LoadError unless exactly one of this version's form is there."""
    found = {path: fields for path in sorted(directory.glob("*.json")) if (fields := _fields(path))}
    if len(found) != 1:
        names = ", ".join(path.name for path in found)
        raise LoadError(
            f"expected one bundle, got {names}" if found else "expected a bundle's NAME.json",
            loc=Loc(str(directory)),
            note="glowpy bundle MODEL -o DIR makes one",
        )
    ((path, manifest),) = found.items()
    if manifest["format"] != FORMAT:
        raise LoadError(
            f"expected a bundle of form {FORMAT}, got {manifest['format']}",
            loc=Loc(str(path)),
            note="make the bundle again",
        )
    return StoredBundle(directory, manifest)


def _fields(path: Path) -> dict[str, Any]:
    """What a manifest holds; nothing for any other JSON file."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) and {"format", "fingerprint"} <= set(fields) else {}
