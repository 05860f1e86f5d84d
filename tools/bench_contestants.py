"""The contestants of `tools/bench.py`, by name: glowpy in its precisions, and other runtimes held to f32 or not.

One that is added to CONTESTANTS can be named by `--against` and by sections of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backends.cpu.measuring.peaks import peaks_of
from glowpy.benchmark.peers import PEERS, Contestant, loaded
from glowpy.core.tensor import Array
from glowpy.debugging.compare import compare
from glowpy.engine import compilation
from glowpy.measuring.roofline import efforts
from glowpy.support.errors import UserError
from tools.bench_rows import Row
from tools.bench_subjects import Subject

__all__ = ["CONTESTANTS", "TOLERANCE", "Kind", "Setting", "prepare"]

TOLERANCE = 1e-3
"""Networks end in a softmax or in scores of unit scale; a wrong kernel is off by far more."""
_ROUGH = 1 / 16
"""As much as 16 roundings to bf16, as `glowpy run --check-with` allows."""
_STEPS = 2.01 / 255
"""Two steps of shares of 1 in 8 bits, in which networks of integers give them: how these round differs."""


@dataclass(frozen=True)
class Setting:
    """Conditions that all contestants share.

    Attributes:
        threads: How many threads compute; 0 for as many as each runtime takes by itself.
        cpu: The processor that glowpy's code is for; this one if empty.
        ncnn_models: A folder with what pnnx made of networks.
    """

    threads: int = 1
    cpu: str = ""
    ncnn_models: Path | None = None


@dataclass(frozen=True)
class Kind:
    """One way to run a network.

    Attributes:
        ready: Loads it; it has run once then.
        share: How far outputs may be off besides TOLERANCE, as a share of the largest one.
    """

    ready: Callable[[Subject, Setting], Contestant]
    share: float = TOLERANCE


@dataclass(frozen=True)
class _Own(Contestant):
    """A network that glowpy has compiled, and the seconds that its instructions take at least on this machine."""

    least: float | None = None


def _with_glowpy(
    subject: Subject, setting: Setting, precision: Literal["f32", "bf16"] = "f32"
) -> Contestant:
    """The network compiled by glowpy, running in buffers of its own."""
    options = CpuOptions(cpu=setting.cpu, threads=setting.threads, precision=precision)
    backend = CpuBackend(options)
    stages, least = compilation(glowpy.load(subject.path), backend), None
    compiled = stages.compiled
    if setting.threads == 1 and not setting.cpu:
        peaks = peaks_of(backend.target, 1)
        least = sum(effort.least(peaks) for effort in efforts(stages.program, {}))
    stages.close()
    instance = compiled.instance()
    for name, array in subject.inputs.items():
        instance.write(name, array)
    instance.run()

    def outputs() -> list[Array]:
        return [instance[name].copy() for name in compiled.outputs]

    return _Own("glowpy", instance.run, outputs, least=least)


def _with_peer(
    subject: Subject, setting: Setting, name: str, *, own_precision: bool = False
) -> Contestant:
    threads, folder = setting.threads, setting.ncnn_models
    return loaded(name, subject.path, subject.inputs, threads, folder, own_precision=own_precision)


CONTESTANTS: Mapping[str, Kind] = {
    "glowpy": Kind(_with_glowpy),
    "glowpy bf16": Kind(partial(_with_glowpy, precision="bf16"), _ROUGH),
    **{name: Kind(partial(_with_peer, name=name)) for name in PEERS},
    "openvino default": Kind(partial(_with_peer, name="openvino", own_precision=True), _ROUGH),
}
"""Everybody who can run a network, by name. Those of glowpy begin with its name."""


def prepare(subject: Subject, names: Sequence[str], setting: Setting, row: Row) -> list[Contestant]:
    """Everybody of `names` who loads the network and computes what it has to; `row` notes why others do not."""
    reference = {str(index): array for index, array in enumerate(subject.expected)}
    ready = []
    for name in names:
        kind = CONTESTANTS[name]
        try:
            contestant = kind.ready(subject, setting)
        except UserError as error:
            row.missing[name] = error.diagnostics[0].message
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and the table goes on
            row.missing[name] = repr(error)
            continue
        got = {str(index): array for index, array in enumerate(contestant.outputs())}
        least = _STEPS if subject.is_rounded else TOLERANCE
        share = max(kind.share, _ROUGH if subject.is_rounded else 0)
        differences = compare(got, reference, TOLERANCE, least, share)
        row.errors[name] = max(difference.absolute for difference in differences)
        if all(difference.within for difference in differences):
            ready.append(replace(contestant, name=name))
            if isinstance(contestant, _Own) and contestant.least is not None:
                row.least[name] = 1e3 * contestant.least
        else:
            row.missing[name] = f"wrong by {row.errors[name]:.3g}"
    return ready
