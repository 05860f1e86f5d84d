"""Runs shared bundles: `NAME.json` says what is in `libNAME.so`, ctypes calls it, numpy arrays go in and out.

Neither LLVM nor ONNX is imported. A bundle is checked before any of its code runs: the manifest's format, the
machine it is for, the digest of every file used, and the CRC of the weights that the library was made with.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from glowpy.bundling.host import check_host
from glowpy.bundling.network import Network
from glowpy.bundling.options import WeightsPlace
from glowpy.bundling.read import StoredBundle, read_bundle
from glowpy.core.extents import Extents
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.ir.plan import ALIGNMENT, aligned
from glowpy.llvm.status import Status
from glowpy.runtime.host_call import HostCall
from glowpy.runtime.host_memory import aligned_array, part_of
from glowpy.runtime.instance import Instance
from glowpy.runtime.state import State
from glowpy.support.errors import InternalError, LoadError, UserError
from glowpy.support.forks import Lock
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc
from glowpy.support.process_bound import ProcessBound

__all__ = ["LoadedBundle", "LoadedNetwork", "load_bundle"]

_Entry = Callable[..., int]


@dataclass(frozen=True)
class _Manifest:
    """The fields of `NAME.json` that the loader reads. Sizes in bytes; digests by file name."""

    name: str
    directory: Path
    triple: str
    features: str
    weights: WeightsPlace
    selftest: bool
    constants: int
    mutable: int
    activations: int
    networks: Mapping[str, Network]
    files: Mapping[str, str]


@final
class LoadedNetwork(HostCall):
    """A network of a bundle. Each instance has a mutable area and activations; all share the constants.

    The interpreter lock is free while the network runs.

    Attributes:
        name: The name of its entry point.
        described: The network as the manifest describes it.
    """

    def __init__(
        self, manifest: _Manifest, name: str, library: ctypes.CDLL, constants: Array
    ) -> None:
        described = manifest.networks[name]
        self.name = name
        self.described = described
        self._written = (*described.inputs, *described.variables)
        self._read = (*described.outputs, *described.variables)
        self._symbols = [extent.symbol.name for extent in described.extents]
        self._start = aligned(manifest.activations)
        super().__init__(described.interface(constants), self._start + manifest.mutable)
        self._entry: _Entry = _function(library, name, 4 if self._symbols else 3)
        self._extents_array = ctypes.c_size_t * len(self._symbols)
        self._constants = constants

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Copies the inputs into the mutable area, which lies after the activations, and the outputs out of it.

        So it does the variables, all of them.
        """
        return self.execute_in(
            bindings, arena[self._start :], arena, self.numbers(extents), extents
        )

    def numbers(self, extents: Extents) -> ctypes.Array[ctypes.c_size_t]:
        """Returns the array in which the entry point reads the extents of its inputs and stores those it computes."""
        return self._extents_array(*(extents.get(name, 0) for name in self._symbols))

    def execute_in(
        self,
        bindings: Mapping[str, Array],
        mutable: Array,
        activations: Array,
        numbers: ctypes.Array[ctypes.c_size_t],
        extents: Extents,
    ) -> Extents:
        """The same in two areas, with `numbers` of these extents."""
        for symbol in self._written:
            np.copyto(symbol.elements(mutable, extents), bindings[symbol.weight])
        arguments = [area.ctypes.data for area in (self._constants, mutable, activations)]
        if self._symbols:
            arguments.append(ctypes.addressof(numbers))
        _expect_ok(self.name, self._entry(*arguments))
        everything = dict(zip(self._symbols, numbers, strict=True)) | dict(extents)
        for symbol in self._read:
            result = symbol.elements(mutable, everything)
            np.copyto(part_of(bindings[symbol.weight], result.shape), result)
        return {name: n for name, n in everything.items() if name not in extents}


@final
class LoadedBundle(ProcessBound):
    """A shared bundle, ready to run.

    A bundle of one network is called itself, `outputs = bundle({"x": array})`; the networks of others are in
    `networks`. Safe from several threads.
    """

    def __init__(self, manifest: _Manifest, library: ctypes.CDLL, constants: Array) -> None:
        self.name = manifest.name
        self.networks: Mapping[str, LoadedNetwork] = {
            name: LoadedNetwork(manifest, name, library, constants) for name in manifest.networks
        }
        self._selftest = (
            _function(library, f"{self.name}_selftest", 3) if manifest.selftest else None
        )
        self._library = library
        self._areas = manifest.mutable, manifest.activations
        self._constants = constants

    def __repr__(self) -> str:
        networks = [f"{network.name}: {network.signature}" for network in self.networks.values()]
        return f"<LoadedBundle '{self.name}' of {'; '.join(networks)}>"

    @property
    def inputs(self) -> dict[str, Type]:
        """The type of every input of the only network by its name. Raises UserError if there are several."""
        return self._only.inputs

    @property
    def outputs(self) -> dict[str, Type]:
        """The type of every output of the only network by its name. Raises UserError if there are several."""
        return self._only.outputs

    def instance(self, **extents: int) -> Instance:
        """Memory of its own to run the only network in, with these extents of its symbols.

        Raises UserError if there are several networks, and unless all symbols have an extent.
        """
        return self._only.instance(**extents)

    def state(self) -> State:
        """The variables of the only network before the first run. Raises UserError if there are several."""
        return self._only.state()

    def __call__(
        self, inputs: Mapping[str, Array], *, state: State | None = None
    ) -> dict[str, Array]:
        """Runs the only network, on these variables if it has some. Outputs are copies that belong to the caller.

        Raises UserError if there are several networks, for a missing or unknown input, and for an array of
        another type or shape.
        """
        return self._only(inputs, state=state)

    def selftest(self) -> None:
        """Runs the golden inputs inside the bundle, in memory of its own.

        Raises UserError if the bundle was made without them, InternalError if an output differs.
        """
        if self._selftest is None:
            raise UserError(
                f"bundle '{self.name}' has no self-test", note="bundle it with --selftest N"
            )
        areas = [self._constants, *(aligned_array(size) for size in self._areas)]
        pointers = [area.ctypes.data for area in areas]
        _expect_ok(f"{self.name}_selftest", self._selftest(*pointers))

    def hooks(self) -> ctypes.Array[ctypes.c_void_p]:
        """The variable of a sanitized bundle that points to what is called before and after every run."""
        return (ctypes.c_void_p * 2).in_dll(self._library, f"{self.name}_hooks")

    @property
    def area_sizes(self) -> tuple[int, int]:
        """Bytes of the mutable area and of the activations."""
        return self._areas

    @property
    def constants(self) -> Array:
        """All weights, as they lie in memory."""
        return self._constants

    @property
    def _only(self) -> LoadedNetwork:
        if len(self.networks) > 1:
            raise UserError(
                f"bundle '{self.name}' has several networks: {', '.join(self.networks)}",
                note="choose one: bundle.networks[name]",
            )
        return next(iter(self.networks.values()))


@within_limits
def load_bundle(directory: Path | str) -> LoadedBundle:
    """Loads a bundle that was made with `--emit shared` for this machine.

    Raises LoadError for a file that is missing, damaged, or of a newer glowpy, UserError for a bundle that
    cannot run here.
    """
    manifest = _understood(read_bundle(Path(directory)))
    check_host(manifest.triple, manifest.features)
    library = _open_library(manifest)
    if manifest.weights == "embedded":
        constants = _embedded_weights(manifest, library)
    elif manifest.weights == "file":
        constants = _file_weights(manifest)
    else:
        raise UserError(
            f"bundle '{manifest.name}' has its weights in a C header, which only a C compiler can read",
            note="bundle it with --weights file or --weights embedded",
        )
    check = _function(library, f"{manifest.name}_check_weights", 1)
    code = check(constants.ctypes.data)
    if code:
        raise LoadError(f"weights of bundle '{manifest.name}': {_meaning(code)}", note=_AGAIN)
    return LoadedBundle(manifest, library, constants)


_AGAIN = "bundle the model again"


def _understood(stored: StoredBundle) -> _Manifest:
    """Reads what the loader needs from a manifest. Raises LoadError if it is not there or makes no sense."""
    try:
        return _manifest(stored)
    except (AttributeError, KeyError, TypeError, ValueError, UserError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise LoadError(
            f"not a bundle's manifest: {what}", loc=Loc(str(stored.directory)), note=_AGAIN
        ) from error


def _manifest(stored: StoredBundle) -> _Manifest:
    fields, options = stored.manifest, stored.options
    areas = fields["areas"]
    if fields["alignment"] > ALIGNMENT:
        raise UserError(f"expected an alignment of at most {ALIGNMENT}, got {fields['alignment']}")
    networks = {network.name: network for network in stored.networks}
    if not networks:
        raise UserError("expected at least one network")
    for network in networks.values():
        network.check_places(areas)
    return _Manifest(
        name=stored.name,
        directory=stored.directory,
        triple=stored.triple,
        features=str(fields["target"]["features"]),
        weights=options.weights,
        selftest=options.selftest > 0,
        constants=int(areas["constants"]),
        mutable=int(areas["mutable"]),
        activations=int(areas["activations"]),
        networks=networks,
        files={str(file): str(digest) for file, digest in fields["files"].items()},
    )


def _checked_file(manifest: _Manifest, file: str, note: str) -> bytes:
    """The content of a file of the bundle. Raises LoadError if it is missing or not what the manifest says."""
    path = manifest.directory / file
    if file not in manifest.files:
        raise LoadError(f"bundle '{manifest.name}' was made without {file}", note=note)
    where = Loc(str(path))
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"cannot read a file of bundle '{manifest.name}': {error.strerror}"
        raise LoadError(message, loc=where, note=note) from error
    if hashlib.sha256(content).hexdigest() != manifest.files[file]:
        raise LoadError("the file is damaged, or of another bundle", loc=where, note=_AGAIN)
    return content


_versions: dict[Path, list[str]] = {}
"""The digests of the libraries loaded from each path."""
_versions_lock = Lock()


def _open_library(manifest: _Manifest) -> ctypes.CDLL:
    """The shared library, loaded.

    The system's loader knows a library by its path, and would return an old one if the bundle was made again in
    the same folder. So each version of a file is loaded under a spelling of the path of its own.
    """
    file = f"lib{manifest.name}.so"
    _checked_file(manifest, file, "bundle the model with --emit shared")
    folder, digest = manifest.directory.resolve(), manifest.files[file]
    with _versions_lock:
        versions = _versions.setdefault(folder / file, [])
        if digest not in versions:
            versions.append(digest)
        spelling = f"{folder}{'/.' * versions.index(digest)}/{file}"
        try:
            return ctypes.CDLL(spelling)
        except OSError as error:
            raise LoadError(f"the system cannot load {file}: {error}") from error


def _file_weights(manifest: _Manifest) -> Array:
    file = f"{manifest.name}.weights.bin"
    content = _checked_file(manifest, file, "put it beside the manifest")
    if len(content) != manifest.constants:
        raise LoadError(f"{file}: expected {manifest.constants} bytes, got {len(content)}")
    constants = aligned_array(manifest.constants)
    constants[:] = np.frombuffer(content, np.uint8)
    constants.flags.writeable = False
    return constants


def _embedded_weights(manifest: _Manifest, library: ctypes.CDLL) -> Array:
    symbol = f"{manifest.name}_constants"
    try:
        block = (ctypes.c_uint8 * manifest.constants).in_dll(library, symbol)
    except ValueError as error:
        raise LoadError(f"lib{manifest.name}.so has no {symbol}", note=_AGAIN) from error
    return np.ctypeslib.as_array(block)


def _function(library: ctypes.CDLL, name: str, pointers: int) -> Callable[..., int]:
    """A function of the library that takes so many pointers and returns a status."""
    try:
        address = library[name]
    except AttributeError as error:
        raise LoadError(f"{library._name} has no function {name}", note=_AGAIN) from error
    address.argtypes = [ctypes.c_void_p] * pointers
    address.restype = ctypes.c_int
    return address


def _meaning(code: int) -> str:
    is_status = code in list(Status)
    return Status(code).meaning if is_status else f"unknown status {code}"


def _expect_ok(function: str, code: int) -> None:
    if code != Status.OK:
        raise InternalError(f"{function} returned {code}: {_meaning(code)}")
