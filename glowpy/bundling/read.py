"""A bundle that lies on disk: its manifest, and whether its files are still what it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glowpy.bundling.network import Network
from glowpy.bundling.options import BundleOptions
from glowpy.support.errors import LoadError
from glowpy.support.loc import Loc

__all__ = [
    "FORMAT",
    "StoredBundle",
    "manifest_digest",
    "manifests",
    "read_bundle",
]

FORMAT = 1
"""The version of the form of a bundle's manifest."""


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
        """The options that the bundle was made with."""
        return BundleOptions(**self.manifest["options"])

    @property
    def backend(self) -> str:
        """The name of the backend that made it."""
        return str(self.manifest["backend"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """Options of the backend, by which it is one for the machine that the bundle was made for."""
        settings: Mapping[str, Any] = self.manifest["compile"]
        return settings

    @property
    def networks(self) -> tuple[Network, ...]:
        """Its networks."""
        return tuple(Network.of(fields) for fields in self.manifest["networks"])

    def damage(self) -> list[str]:
        """One sentence for every file that is missing or is not what it was when the bundle was made."""
        damages = []
        for name, digest in self.manifest["files"].items():
            path = self.directory / name
            if not path.is_file():
                damages.append(f"{name} is missing")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                damages.append(f"{name} was modified")
        return damages


def manifest_digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 of everything in a manifest but this: sizes that were changed would let code write where it may not."""
    rest = {name: value for name, value in fields.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_bundle(directory: Path) -> StoredBundle:
    """The bundle in a folder.

    Raises LoadError unless exactly one is there, of this version's form and as it was made.
    """
    stored = manifests(directory)
    if len(stored) != 1:
        names = ", ".join(path.stem for path in stored)
        raise LoadError(
            f"expected one bundle, got {names}" if stored else "expected a bundle's NAME.json",
            loc=Loc(str(directory)),
            note="give each bundle a folder" if stored else "glowpy bundle MODEL -o DIR makes one",
        )
    ((path, manifest),) = stored.items()
    if manifest["format"] != FORMAT:
        raise LoadError(
            f"expected a bundle of form {FORMAT}, got {manifest['format']!r}",
            loc=Loc(str(path)),
            note="make the bundle again, or use the glowpy that made it",
        )
    if manifest.get("digest") != manifest_digest(manifest):
        raise LoadError(
            "the manifest was modified", loc=Loc(str(path)), note="make the bundle again"
        )
    return StoredBundle(directory, manifest)


def manifests(directory: Path) -> dict[Path, dict[str, Any]]:
    """Reads the manifests in a folder, of whatever form; LoadError if its JSON files are all something else."""
    fields: dict[Path, dict[str, Any]] = {}
    wrong: list[LoadError] = []
    for path in sorted(directory.glob("*.json")):
        try:
            fields[path] = _fields(path)
        except LoadError as error:
            wrong.append(error)
    if wrong and not fields:
        raise wrong[0]
    return fields


def _fields(path: Path) -> dict[str, Any]:
    """Reads a manifest. Raises LoadError for any other file."""
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise LoadError(
            f"cannot read the manifest: {error.strerror}", loc=Loc(str(path))
        ) from error
    except ValueError as error:
        raise LoadError(f"not a bundle's manifest: {error}", loc=Loc(str(path))) from error
    if not isinstance(fields, dict) or not {"format", "fingerprint"} <= set(fields):
        raise LoadError(
            "not a bundle's manifest: expected the fields 'format' and 'fingerprint'",
            loc=Loc(str(path)),
        )
    return fields
