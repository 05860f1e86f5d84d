"""How near a quantized network is to the one in floats, on inputs of users: value by value, and layer by layer.

Both are compiled and run side by side, so memory does not grow with the inputs. What is said of a value is the ratio of
signal to noise in decibels, 10 * log10(sum of squares / sum of squared differences): 20 dB is an error of a tenth,
40 dB of a hundredth. Elements that are no finite number in floats do not count.

Noise comes from everything before a value. What a layer itself costs shows when it is the only one on integers: the
fewer decibels the network's outputs then have, the more sensitive the layer is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from glowpy.backend import Backend
from glowpy.core.quantized import range_of
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compile
from glowpy.graph.function import Function, Module
from glowpy.quantization.convert import WATCHED
from glowpy.quantization.method import Method
from glowpy.quantization.optimized import optimized
from glowpy.quantization.profiling import Sample, located
from glowpy.support.errors import UserError
from glowpy.support.progress import report

__all__ = [
    "Fidelity",
    "Model",
    "decibels_text",
    "fidelities",
    "runner",
    "sensitivity",
    "worst",
]

Model = Callable[[Sample], Mapping[str, Array]]
"""Runs a network: gives an array for each output."""


@dataclass(frozen=True)
class Fidelity:
    """How near a value is to what it is in floats.

    Attributes:
        count: How many elements were compared.
        signal: The sum of their squares.
        noise: The sum of the squares of the differences.
        outside: How many lay outside the range of their integers, by more than half a step, and were limited to it.
    """

    count: int = 0
    signal: float = 0.0
    noise: float = 0.0
    outside: int = 0

    @property
    def decibels(self) -> float:
        """Signal to noise; infinite if there is no noise, minus infinity if there is nothing else, or it has no end."""
        if not self.noise:
            return math.inf
        ratio = self.signal / self.noise
        return 10 * math.log10(ratio) if ratio > 0 else -math.inf

    @property
    def saturation(self) -> float:
        """The share of the elements that were limited, from 0 to 1."""
        return self.outside / self.count if self.count else 0.0

    def plus(self, expected: Array, got: Array, type: Type | None) -> Fidelity:
        """Adds the elements of one more run, which are stored as `type` if there is one."""
        finite = np.isfinite(expected)
        if not finite.all():
            expected, got = expected[finite], got[finite]
        numbers = expected.astype(np.float64)
        outside = 0
        if type is not None:
            low, high, step = range_of(type)
            limited = (numbers < low - step / 2) | (numbers > high + step / 2)
            outside = int(np.count_nonzero(limited))
        return Fidelity(
            self.count + numbers.size,
            self.signal + float(np.sum(numbers**2)),
            self.noise + float(np.sum((got - numbers) ** 2)),
            self.outside + outside,
        )


def decibels_text(decibels: float) -> str:
    """Decibels for people."""
    if math.isinf(decibels):
        return "exact" if decibels > 0 else "nothing but noise"
    return f"{decibels:.1f} dB"


def runner(model: Function, backend: str | Backend, names: Sequence[str]) -> Model:
    """The compiled function, which takes an array for each of `names`, whether it reads it or not.

    Every sample finds variables as they are before the first run.
    """
    function = compile(model, backend)
    unread = set(names) - set(function.inputs)

    def run(sample: Sample) -> Mapping[str, Array]:
        state = function.state() if function.state_ports else None
        return function({k: v for k, v in sample.items() if k not in unread}, state=state)

    return run


def fidelities(
    model: Module | Function, method: Method, samples: Sequence[Sample]
) -> dict[str, Fidelity]:
    """How near each value of the quantized network is to what it is in floats; the outputs, by `output NAME`.

    Args:
        model: The network in floats.
        method: How it is quantized.
        samples: The inputs that both are run with.

    Raises as `Method.convert` does, and UserError for samples that do not fit.
    """
    original = optimized(model)
    shown = method.shown(original)
    outputs = {p.original for p in original.outputs}
    names = [p.original for p in original.parameters]
    expected, got = (runner(f, method.backend, names) for f in (shown.floats, shown.quantized))
    state = _Comparison({p.original: shown.types.get(p.original) for p in shown.quantized.outputs})
    for index, sample in enumerate(samples):
        report("inputs compared", index, len(samples))
        try:
            state.add(expected(sample), got(sample))
        except UserError as error:
            raise located(error, f"input {index}") from None
    return {
        f"output {name}" if name in outputs else name.removeprefix(WATCHED): fidelity
        for name, fidelity in state.fidelities.items()
    }


@dataclass
class _Comparison:
    """The fidelity of each output that is a number, after some runs."""

    types: Mapping[str, Type | None]
    fidelities: dict[str, Fidelity] = field(default_factory=dict)

    def add(self, expected: Mapping[str, Array], got: Mapping[str, Array]) -> None:
        """Compares one run more."""
        for name, type in self.types.items():
            if np.issubdtype(expected[name].dtype, np.floating):
                fidelity = self.fidelities.get(name, Fidelity())
                self.fidelities[name] = fidelity.plus(expected[name], got[name], type)


def sensitivity(
    model: Module | Function,
    method: Method,
    samples: Sequence[Sample],
    known: Mapping[str, float] | None = None,
    note: Callable[[str, float], None] = lambda layer, decibels: None,
) -> dict[str, float]:
    """For each layer that is quantized: the decibels of the worst output if it alone is; the lowest first.

    Args:
        model: The network in floats.
        method: How it is quantized.
        samples: The inputs that it is run with.
        known: The results of earlier calls.
        note: Is told of each layer that was not known.

    Raises as `fidelities` does.
    """
    original = optimized(model)
    names = [p.original for p in original.parameters]
    layers = method.layers(method.convert(original))
    decibels = dict(known or {})
    missing = [layer for layer in layers if layer not in decibels]
    expected = runner(original, method.backend, names) if missing else None
    for index, layer in enumerate(missing):
        report("layers alone", index, len(missing))
        assert expected is not None
        other_layers = [f"%{other}" for other in layers if other != layer]
        single = method.keeping(other_layers, trial=True).convert(original)
        got = runner(single.module.main, method.backend, names)
        state = _Comparison({p.original: None for p in original.outputs})
        for sample in samples:
            state.add(expected(sample), got(sample))
        decibels[layer] = worst(state.fidelities.values())
        note(layer, decibels[layer])
    return dict(sorted(((layer, decibels[layer]) for layer in layers), key=lambda pair: pair[1]))


def worst(fidelities: Iterable[Fidelity]) -> float:
    """The lowest decibels. Raises UserError if nothing was compared."""
    decibels = [fidelity.decibels for fidelity in fidelities if fidelity.count]
    if not decibels:
        raise UserError(
            "expected an output of floats, and inputs for which it is finite, to compare"
        )
    return min(decibels)
