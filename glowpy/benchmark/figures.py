"""Measurements as figures: of the machine, of models and of their runs of instructions, with the reasons for them."""

from __future__ import annotations

import os
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from glowpy.benchmark.measure import Plan
from glowpy.benchmark.measured import Layer, Measured
from glowpy.benchmark.peers import PEERS
from glowpy.measuring.meter import Meter
from glowpy.measuring.peaks import Peaks
from glowpy.support.cores import processor_name

__all__ = ["figures_of", "kernel_text", "layer_figures", "machine_figures", "why"]

_GIGA = 1e9


def machine_figures(meter: Meter, peaks: Peaks, plan: Plan) -> dict[str, Any]:
    """Returns the circumstances that figures depend on besides the models: processor, system, cores."""
    return {
        "processor": processor_name(),
        "llvm": meter.processor,
        "variant": meter.variant,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "core": plan.core,
        "clock": plan.clock,
        "threads": plan.threads,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: text for name in ("glowpy", *PEERS) if (text := _version(name))},
        "peak_threads": peaks.threads,
        "gflops": peaks.flops / _GIGA,
        "read_gbytes": {str(size): rate / _GIGA for size, rate in peaks.read},
        "write_gbytes": {str(size): rate / _GIGA for size, rate in peaks.write},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def figures_of(result: Measured) -> dict[str, Any]:
    """All that was measured of a model. Seconds are seconds, shares are between 0 and 1."""
    tuning = (
        {} if result.tuned is None else {"tuning": [product.figures for product in result.tuned]}
    )
    return {
        "model": result.path,
        "seconds": {"median": result.median, "p95": result.p95, "runs": len(result.samples())},
        "macs": result.macs,
        "direct_macs": result.direct_macs,
        "bytes": sum(effort.bytes for effort in result.efforts),
        "gflops": result.flops / _GIGA,
        "direct_gflops": result.direct_flops / _GIGA,
        "gbytes": result.bandwidth / _GIGA,
        "roof_seconds": result.least,
        "roof": result.share_of_roof,
        "busy": result.busy,
        "vs": {
            name: {"seconds": seconds, "ratio": result.ratio(name)}
            for name, seconds in result.peers.items()
        },
        "missing": result.missing,
        **tuning,
        "instrumented_seconds": result.instrumented,
        "layers": [layer_figures(layer) for layer in result.layers],
    }


def layer_figures(layer: Layer) -> dict[str, Any]:
    """All that was measured of a run of instructions."""
    return {
        "name": layer.name,
        "origin": layer.origin,
        "kernel": layer.kernel,
        "fused": layer.fused,
        "start": layer.start,
        "seconds": layer.seconds,
        "macs": layer.effort.macs,
        "direct_macs": layer.effort.direct_macs,
        "bytes": layer.effort.bytes,
        "gflops": layer.flops / _GIGA,
        "direct_gflops": layer.direct_flops / _GIGA,
        "gbytes": layer.bandwidth / _GIGA,
        "roof_seconds": layer.least,
        "roof": layer.share_of_roof,
        "bound": layer.bound,
        "decision": {} if layer.decision is None else dict(layer.decision.decision),
        "declined": dict(layer.declined),
        "why": why(layer),
    }


def why(layer: Layer) -> str:
    """Explains a layer: what was decided, what its inner loop waits for, and why other algorithms were declined."""
    declined = [f"not by {name}: {reason}" for name, reason in layer.declined.items()]
    decided = [] if layer.decision is None else [layer.decision.summary]
    return "; ".join([*decided, *declined])


def kernel_text(layer: Layer) -> str:
    """The kernel of a layer, and what is computed in the same loop: each once, with how often it is there."""
    counts = Counter(layer.fused)
    others = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    return " + ".join([layer.kernel, *others])
