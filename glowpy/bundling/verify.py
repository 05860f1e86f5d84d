"""Verifies bundles: builds the example, runs it, and compares what comes out with the interpreter."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from glowpy.backend import Program
from glowpy.bundling.example import (
    build_examples,
    stored_extents,
    stored_ports,
    stored_programs,
)
from glowpy.bundling.make import random_inputs, run_in
from glowpy.bundling.read import StoredBundle, read_bundle
from glowpy.bundling.sanitize import run_sanitized
from glowpy.bundling.tolerance import tolerance_of
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import Extents
from glowpy.core.tensor import Array
from glowpy.engine import backend_class, backend_of, known_instructions
from glowpy.runtime.ports import Port
from glowpy.support.errors import LoadError
from glowpy.support.loc import Loc

__all__ = ["OutputCheck", "Verification", "verify_bundle"]

_SMALLEST = 1e-6
"""Outputs are compared relative to the largest expected one, or to this if they are all smaller."""


@dataclass(frozen=True)
class OutputCheck:
    """One output of a bundle's example beside the interpreter's.

    Attributes:
        build: How the example was built.
        network: The entry point.
        output: The output's name in the model.
        error: The largest difference.
        scale: The largest absolute value expected, which the difference is held against.
        within: Whether they agree.
        extents: The values of symbols in this run.
    """

    build: str
    network: str
    output: str
    error: float
    scale: float
    within: bool
    extents: Extents = field(default_factory=dict)


@dataclass(frozen=True)
class Verification:
    """The result of running a bundle's example.

    `seconds` is the time of building and running, by build. `sanitized` is the number of runs that a sanitizer watched.
    """

    name: str
    target: str
    selftest: bool
    checks: tuple[OutputCheck, ...]
    seconds: Mapping[str, float]
    sanitized: int = 0

    @property
    def passed(self) -> bool:
        """Whether every output agrees."""
        return all(check.within for check in self.checks)


def verify_bundle(directory: Path | str, seed: int = 0, *, system: bool = True) -> Verification:
    """Builds and runs the example of the bundle in a folder, and compares it with the interpreter.

    The example gets random inputs: where there are symbols, for the highest extents, the lowest, and the mean of both.
    Variables are random as well, and in one more run what they are before the first.
    The interpreter runs the bundle's own IR on the weights that the example writes out. A bundle made with
    `--sanitize` runs in this process as well, watched by `glowpy.sanitizer`.

    Args:
        directory: The bundle's folder.
        seed: The seed of the random inputs.
        system: Whether compilers of the system may be taken; zig builds for every target.

    Raises AccessError for an access to memory that the sanitizer finds, MissingToolError where the machine cannot
    build or run it, LoadError if there is no whole bundle, UserError
    for an example that does not compile or that fails.
    """
    stored = read_bundle(Path(directory))
    if damage := stored.damage():
        raise LoadError("; ".join(damage), loc=Loc(str(directory)), note="make the bundle again")
    instructions = known_instructions(backend_class(stored.backend))
    networks = stored_ports(stored)
    runs = [
        ({n: random_inputs(ports, seed, extents[n]) for n, (ports, _) in networks.items()}, extents)
        for extents in stored_extents(stored)
    ]
    if any(network.variables for network in stored.networks):
        runs.append(_first_run(stored, *runs[0]))
    checks: list[OutputCheck] = []
    tolerance = tolerance_of(bf16=stored.manifest["target"].get("bf16", False))
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        for example in build_examples(stored, Path(scratch), system=system):
            results = [example.run(arrays, extents) for arrays, extents in runs]
            seconds[example.label] = time.perf_counter() - start
            if not checks:
                programs = stored_programs(stored, instructions, example.constants)
                expected = _interpreted(programs, runs)
            for (_, extents), outputs, right in zip(runs, results, expected, strict=True):
                checks += [
                    replace(
                        _compare(example.label, name, port, outputs[name], right[name], tolerance),
                        extents=extents[name],
                    )
                    for name, (_, ports) in networks.items()
                    for port in ports
                ]
            start = time.perf_counter()
    watched = run_sanitized(directory, seed) if stored.options.sanitize else 0
    return Verification(
        stored.name, stored.triple, stored.options.selftest > 0, tuple(checks), seconds, watched
    )


def _first_run(
    stored: StoredBundle, inputs: Mapping[str, Mapping[str, Array]], extents: Mapping[str, Extents]
) -> tuple[dict[str, dict[str, Array]], dict[str, Extents]]:
    """The run with these inputs but for variables, which begin as the network does."""
    kept = {network.name: {s.weight for s in network.variables} for network in stored.networks}
    others = {
        name: {port: array for port, array in arrays.items() if port not in kept[name]}
        for name, arrays in inputs.items()
    }
    return others, dict(extents)


def _begun(program: Program) -> dict[str, Array]:
    """The memory of variables before the first run, by placeholder."""
    return {port.placeholder: port.contents.array for port in program.ports.state}


def _interpreted(
    programs: Mapping[str, Program],
    runs: Sequence[tuple[Mapping[str, Mapping[str, Array]], Mapping[str, Extents]]],
) -> list[dict[str, dict[str, Array]]]:
    """The outputs of every network in every run by the placeholder, as the interpreter has them."""
    backend = backend_of("interpreter")
    compiled = {name: backend.function(p) for name, p in programs.items()}
    return [
        {
            name: run_in({**_begun(program), **inputs[name]}, compiled[name], extents[name])
            for name, program in programs.items()
        }
        for inputs, extents in runs
    ]


def _compare(
    build: str,
    network: str,
    port: Port,
    results: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerance: float,
) -> OutputCheck:
    """Floats agree within the tolerance, quantized elements and codes within one step, all others exactly."""
    got, want = (_numbers(arrays[port.placeholder]) for arrays in (results, expected))
    if got.size != want.size:  # the network found another extent
        return OutputCheck(build, network, port.name, math.inf, 0.0, within=False)
    got = got.reshape(want.shape)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        error = float(
            np.nan_to_num(np.where(same, 0.0, np.abs(got - want)), nan=np.inf).max(initial=0)
        )
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
    if port.type.kind.is_float:
        limit = tolerance * max(scale, _SMALLEST)
    else:
        limit = 1.0 if port.type.quant is not None or port.type.kind.is_code else 0.0
    return OutputCheck(build, network, port.name, error, scale, error <= limit)


def _numbers(array: Array) -> Array:
    """Elements in f64; of codes their places in the order of all codes, one apart."""
    numbers = array.astype(np.float64)
    if not ElemKind.of(array.dtype).is_code:
        return numbers
    codes = np.arange(256, dtype=np.uint8).view(array.dtype).astype(np.float64)
    places = np.searchsorted(np.unique(codes[~np.isnan(codes)]), numbers)
    return np.where(np.isnan(numbers), np.nan, places)
