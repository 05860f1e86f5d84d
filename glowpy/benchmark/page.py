"""Page that `glowpy bench --html` writes: self-contained, with tables and drawings of every model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from glowpy.benchmark.figures import kernel_text, why
from glowpy.benchmark.measured import Measured
from glowpy.benchmark.plots import bar, memory, roofline
from glowpy.support.html_page import Content, element, page, table

__all__ = ["bench_page"]

_STYLE = """
svg { font: 11px system-ui, sans-serif; fill: currentColor; display: block; }
.grid { stroke: #8883; }
.axis { stroke: currentColor; }
.roof { stroke: #b45f06; stroke-width: 1.5; }
.layer { fill: #3b82f666; stroke: #3b82f6; }
.buffer { fill: #3b82f655; stroke: #3b82f6; stroke-width: .5; }
.time { fill: #3b82f666; }
.least { fill: #3b82f6; }
"""

_GIGA = 1e9


def bench_page(machine: Mapping[str, Any], results: Sequence[Measured]) -> str:
    """The page.

    Args:
        machine: The circumstances of the figures besides the models, from `machine_figures`.
        results: The results, with layers.
    """
    title = ", ".join(Path(result.path).name for result in results)
    body = [*_machine(machine), *(part for result in results for part in _model(result))]
    return page(f"{title} on {machine['processor']}", _STYLE, body)


def _machine(machine: Mapping[str, Any]) -> Iterator[Element]:
    texts = [f"{name} {text}" for name, text in machine["versions"].items()]
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads at most"
    where = "" if machine["core"] is None else f" on processor {machine['core']}"
    yield element(
        "p",
        f"{machine['system']}, kernels for {machine['variant']}, {threads}{where}; "
        f"{', '.join(texts)}. Peak: {machine['gflops']:.1f} GFLOP/s in f32"
        f"{'' if machine['peak_threads'] == machine['threads'] else ' on all processors'}.",
    )
    rates = [
        (f"{int(size):,}", f"{rate:.1f}", f"{machine['write_gbytes'][size]:.1f}")
        for size, rate in machine["read_gbytes"].items()
    ]
    yield table([">bytes used again", ">read GB/s", ">written GB/s"], rates)


def _model(result: Measured) -> Iterator[Element]:
    yield element("h2", Path(result.path).name)
    yield element(
        "p",
        f"{result.median * 1e3:.3f} ms in the median of {len(result.samples())} runs, {result.p95 * 1e3:.3f} ms "
        f"at the 95th percentile; {result.flops / _GIGA:.1f} GFLOP/s ({result.direct_flops / _GIGA:.1f} if "
        "all products were computed directly, with all their multiplications), "
        f"{result.bandwidth / _GIGA:.1f} GB/s, {result.share_of_roof:.0%} of what the machine can do.",
    )
    others = [
        (name, f"{seconds * 1e3:.3f}", f"{result.ratio(name):.2f}")
        for name, seconds in result.peers.items()
    ]
    others += [(name, reason, "") for name, reason in result.missing.items()]
    if others:
        yield table(["runtime", ">ms", ">glowpy's time in parts of its"], others)
    yield element("h3", "Roofline")
    yield element(
        "p",
        "Layers with products, under what the machine can do: its multiply-adds, and the bytes it reads "
        "again from memory of each size. Larger circles take more time.",
    )
    yield roofline(result)
    yield element("h3", "Layers")
    yield element("p", "Bars are times; what the machine needs at least is the darker part.")
    yield _layers(result)
    yield element("h3", "Memory")
    yield element(
        "p", "The buffers of the activations, from when each is written until it is free again."
    )
    yield memory(result)


def _layers(result: Measured) -> Element:
    longest = max((layer.seconds for layer in result.layers), default=1.0)
    total = sum(layer.seconds for layer in result.layers)
    columns = ["layer", "in the model", "kernel", ">us", ">share", ""]
    columns += [">GFLOP/s", ">if direct", ">GB/s"]
    rows: list[list[Content]] = [
        [
            layer.name,
            layer.origin,
            kernel_text(layer),
            f"{layer.seconds * 1e6:.1f}",
            f"{layer.seconds / total:.1%}",
            bar(layer, longest),
            f"{layer.flops / _GIGA:.1f}" if layer.effort.macs else "",
            f"{layer.direct_flops / _GIGA:.1f}" if layer.effort.macs else "",
            f"{layer.bandwidth / _GIGA:.1f}",
            f"{layer.share_of_roof:.0%}",
            layer.bound,
            why(layer),
        ]
        for layer in result.layers
    ]
    return table([*columns, ">of its roof", "bound by", "decided"], rows)
