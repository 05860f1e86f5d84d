"""The drawings of `glowpy bench --html`, as SVG: the roofline, where the time goes, and which memory is in use when."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from glowpy.benchmark.measured import Layer, Measured
from glowpy.support.html_page import element
from glowpy.support.svg import drawing, label, line

__all__ = ["bar", "memory", "roofline"]

_WIDTH, _HEIGHT = 900, 420
_LEFT, _BOTTOM, _RIGHT = 60, 40, 20
"""Room for what the axes say."""

_LEVELS = (1 << 14, 1 << 18, 1 << 22, 1 << 27)
"""The bytes of memory whose bandwidths are drawn as roofs."""

_GIGA = 1e9


_STEPS = (1, 2, 5)


class _Logarithmic:
    """An axis from about one number to about another, on so many pixels; it begins and ends with a tick."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        ticks = [step * 10.0**power for power in powers for step in _STEPS]
        first = max(index for index, tick in enumerate(ticks) if tick <= low)
        last = min(index for index, tick in enumerate(ticks) if tick >= high)
        self.ticks = ticks[first : max(last, first + 1) + 1]
        self.low, self.high = self.ticks[0], self.ticks[-1]
        self._start, self._end = start, end

    def __call__(self, number: float) -> float:
        share = math.log(number / self.low) / math.log(self.high / self.low)
        return self._start + min(max(share, 0.0), 1.0) * (self._end - self._start)


def roofline(result: Measured) -> Element:
    """Layers with products as circles: operations for each byte, and in a second; under what the machine can do.

    The area of a circle is the time of its layer.
    """
    layers = [layer for layer in result.layers if layer.effort.macs and layer.effort.bytes]
    depths = [layer.effort.flops / layer.effort.bytes for layer in layers]
    rates = [layer.flops / _GIGA for layer in layers]
    tops = [rate / _GIGA for rate in result.roofs.values()]
    bandwidths = [rate for _, rate in _bandwidths(result)]
    left, right = min(tops) / max(bandwidths), max(tops) / min(bandwidths)
    x = _Logarithmic(min([left / 2, *depths]), max([10.0, right, *depths]), _LEFT, _WIDTH - _RIGHT)
    y = _Logarithmic(min([min(tops) / 20, *rates]), max(tops + rates), _HEIGHT - _BOTTOM, 10)
    shapes = [*_axes(x, y, "operations for each byte", "GFLOP/s"), *_roofs(result, x, y)]
    longest = max((layer.seconds for layer in layers), default=1.0)
    for layer, depth, rate in zip(layers, depths, rates, strict=True):
        radius = 2 + 12 * math.sqrt(layer.seconds / longest)
        title = f"{layer.name}: {rate:.1f} GFLOP/s, {layer.share_of_roof:.0%} of its roof"
        place = {"cx": f"{x(depth):.1f}", "cy": f"{y(rate):.1f}", "r": f"{radius:.1f}"}
        shapes.append(element("circle", element("title", title), class_="layer", **place))
    return drawing(_WIDTH, _HEIGHT, *shapes)


def _bandwidths(result: Measured) -> list[tuple[int, float]]:
    """Returns for each level its bytes, and the billions of bytes a second that are read there."""
    peaks = result.peaks
    return [(size, peaks.bandwidth("read", size * peaks.threads) / _GIGA) for size in _LEVELS]


def _axes(x: _Logarithmic, y: _Logarithmic, below: str, beside: str) -> Iterator[Element]:
    bottom = _HEIGHT - _BOTTOM
    for tick in x.ticks:
        yield line((x(tick), bottom), (x(tick), 10), "grid")
        yield label(f"{tick:g}", x(tick), bottom + 16, "middle")
    for tick in y.ticks:
        yield line((_LEFT, y(tick)), (_WIDTH - _RIGHT, y(tick)), "grid")
        yield label(f"{tick:g}", _LEFT - 6, y(tick) + 4, "end")
    yield label(below, (_LEFT + _WIDTH) / 2, _HEIGHT - 6, "middle")
    yield label(beside, _LEFT + 6, 22)


def _roofs(result: Measured, x: _Logarithmic, y: _Logarithmic) -> Iterator[Element]:
    """The peak of multiply-adds of each kind of number, and a slope for the bandwidth of each level."""
    tops = {name: rate / _GIGA for name, rate in result.roofs.items()}
    bandwidths = _bandwidths(result)
    knee = min(tops.values()) / max(rate for _, rate in bandwidths)
    for name, top in tops.items():
        yield line((x(knee), y(top)), (x(x.high), y(top)), "roof")
        yield label(f"{name}: {top:.0f} GFLOP/s", x(knee) + 4, y(top) - 4)
    highest = max(tops.values())
    for _, rate in bandwidths:
        left, right = max(x.low, y.low / rate), highest / rate
        yield line((x(left), y(left * rate)), (x(right), y(highest)), "roof")
    texts = [f"{_bytes(size)} {rate:.0f}" for size, rate in bandwidths]
    caption = f"slopes: GB/s read again from {', '.join(texts)}"
    yield label(caption, x(x.high) - 4, y(y.low) - 8, "end")


def _bytes(size: int) -> str:
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def bar(layer: Layer, longest: float) -> Element:
    """How long a layer takes, and in another colour how long it takes at least."""
    width, height = 240, 14
    title = f"{layer.seconds * 1e6:.1f} us, at least {layer.least * 1e6:.1f} us"
    bars = [
        element(
            "rect",
            class_=class_,
            width=f"{min(seconds / longest, 1.0) * width:.1f}",
            height=str(height),
        )
        for class_, seconds in (("time", layer.seconds), ("least", min(layer.least, layer.seconds)))
    ]
    return drawing(width, height, element("title", title), *bars)


def memory(result: Measured) -> Element:
    """The activations by time: each buffer from its first use to its last, at its place in the arena."""
    slots = [slot for slot in result.program.plan.activations.slots if slot.live is not None]
    total = result.layers[-1].end if result.layers else 1.0
    peak = max(result.program.plan.peak, 1)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - 10
    shapes: list[Element] = []
    for slot in slots:
        assert slot.live is not None
        start, end = (result.moment(index) for index in slot.live)
        title = f"%{slot.name}: {slot.size:,} bytes at {slot.start:,}"
        box = {
            "x": _LEFT + start / total * wide,
            "y": 10 + (1 - slot.end / peak) * high,
            "width": max((end - start) / total * wide, 0.5),
            "height": max(slot.size / peak * high, 0.5),
        }
        sizes = {name: f"{number:.1f}" for name, number in box.items()}
        shapes.append(element("rect", element("title", title), class_="buffer", **sizes))
    bottom = _HEIGHT - _BOTTOM
    shapes += [
        line((_LEFT, bottom), (_WIDTH - _RIGHT, bottom), "axis"),
        line((_LEFT, bottom), (_LEFT, 10), "axis"),
        label(f"{peak / 1e6:.2f} MB", _LEFT - 6, 18, "end"),
        label("0", _LEFT - 6, bottom, "end"),
        label(f"{total * 1e3:.3f} ms", _WIDTH - _RIGHT, bottom + 16, "end"),
    ]
    return drawing(_WIDTH, _HEIGHT, *shapes)
