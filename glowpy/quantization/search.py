"""Which layers have to stay in floats so that a network meets a budget of accuracy.

The user's metric is computed of the network in floats and of the one that is quantized entirely. If that loses too
much, layers go back into floats, the most sensitive ones first, until the loss is within the budget. Then each of them,
the least sensitive first, becomes integer again if the budget allows it.

Everything that was measured is in the state, so that a search which was interrupted does not measure it again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from glowpy.core.tensor import Array
from glowpy.graph.function import Function, Module
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.fidelity import Model, decibels_text, runner, sensitivity
from glowpy.quantization.method import Method, expect_method
from glowpy.quantization.optimized import optimized
from glowpy.quantization.profiling import Sample
from glowpy.support.errors import LoadError, UserError
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc
from glowpy.support.output_files import write_output_file
from glowpy.support.progress import report

__all__ = ["SAMPLES", "Decision", "Metric", "SearchState", "Searched", "digest_of", "search"]

Metric = Callable[[Model], float]
"""How good a network is; higher is better. It runs the network as often as it likes: arrays in, arrays out, by name."""

SAMPLES = 32
"""Inputs that layers are compared on."""


@dataclass(frozen=True)
class Decision:
    """A step of the search.

    Attributes:
        layer: The layer that it is about; empty for the whole network.
        keeps: Whether the layer stays in floats.
        score: The metric's score after the step.
        reason: Why.
    """

    layer: str
    keeps: bool
    score: float
    reason: str


@dataclass(frozen=True)
class Searched:
    """The result of a search.

    Attributes:
        conversion: The quantized network.
        method: How it was quantized: with `layers` in floats.
        layers: The layers that the search keeps in floats, the most sensitive first.
        in_floats: The score of the network in floats.
        score: The score of the quantized one.
        sensitivity: The decibels of the outputs if a layer alone is on integers; the most sensitive first. Empty if no
            layer had to go back.
        decisions: The steps that were tried, in order.
    """

    conversion: Conversion
    method: Method
    layers: tuple[str, ...]
    in_floats: float
    score: float
    sensitivity: dict[str, float]
    decisions: tuple[Decision, ...]


@dataclass
class SearchState:
    """The measurements of a search: in memory, and in a file if one is named.

    Attributes:
        path: The file; None for none.
        search: Names everything the figures depend on.
        others: The state of other searches in the file, by their names.
        scores: The scores by the layers in floats, joined by spaces; `floats` for all of the network.
        sensitivity: By layer.
    """

    path: Path | None = None
    search: str = ""
    others: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    sensitivity: dict[str, float] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path, search: str) -> SearchState:
        """Reads the state of a search from a file that may be missing. Raises LoadError for one of another form."""
        file = Path(path)
        if not file.exists():
            return cls(file, search)
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            searches = {
                str(name): {key: _numbers(figures[key]) for key in ("scores", "sensitivity")}
                for name, figures in content["searches"].items()
            }
        except OSError as error:
            raise LoadError(f"cannot read the file: {error.strerror}", loc=Loc(str(path))) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LoadError("not the state of a search", loc=Loc(str(path))) from None
        figures_of_search = searches.pop(search, {"scores": {}, "sensitivity": {}})
        return cls(file, search, searches, **figures_of_search)

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        if self.path is not None:
            figures = {"scores": self.scores, "sensitivity": self.sensitivity}
            text = json.dumps({"searches": {**self.others, self.search: figures}}, indent=1) + "\n"
            write_output_file(self.path, lambda file: file.write(text.encode()))

    def note(self, layer: str, decibels: float) -> None:
        """Remembers what a layer costs."""
        self.sensitivity[layer] = decibels
        self.save()


def _numbers(figures: dict[str, float]) -> dict[str, float]:
    return {str(name): float(figure) for name, figure in figures.items()}


def digest_of(*texts: str) -> str:
    """Names a search by what its figures depend on."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@within_limits
def search(
    model: Module | Function,
    method: Method,
    metric: Metric,
    max_drop: float,
    *,
    inputs: Sequence[Sample] = (),
    state: SearchState | None = None,
) -> Searched:
    """Quantizes as many layers as a budget of accuracy allows.

    Args:
        model: The network in floats.
        method: How it is quantized; what it keeps in floats stays so.
        metric: How good a network is; higher is better.
        max_drop: How much worse than in floats the quantized network may be, in the unit of the metric; infinity to
            have it measured, and nothing searched.
        inputs: Inputs to compare layers on, to rank them; the first SAMPLES that the metric runs if there are none.
        state: The measurements so far, to which new ones are added.

    Raises as `Method.convert` does, and UserError for a negative budget and for a metric that is no number.
    """
    expect_method(method)
    if not max_drop >= 0:
        raise UserError(f"expected a drop of 0 or more, got {max_drop}")
    work = _Search(optimized(model), method, metric, state or SearchState())
    return work.run(max_drop, inputs)


class _Search:
    def __init__(
        self,
        original: Function,
        method: Method,
        metric: Metric,
        state: SearchState,
    ) -> None:
        self._original = original
        self._method = method
        self._metric = metric
        self._state = state
        self._names = [p.original for p in original.parameters]
        self._tried = 0

    def run(self, max_drop: float, inputs: Sequence[Sample]) -> Searched:
        """Searches."""
        in_floats = self._score_in_floats()
        everything = self._converted(())
        score = self._score(())
        decisions = [Decision("", False, score, _budget(in_floats - score, max_drop))]
        float_layers: list[str] = []
        ranking: dict[str, float] = {}
        if in_floats - score > max_drop:
            ranking = self._ranking(everything, inputs)
        for layer, decibels in ranking.items():
            float_layers.append(layer)
            score = self._score(float_layers)
            reason = f"alone on integers it leaves {decibels_text(decibels)}: {_budget(in_floats - score, max_drop)}"
            decisions.append(Decision(layer, True, score, reason))
            if in_floats - score <= max_drop:
                break
        for layer in float_layers[-2::-1]:
            fewer_layers = [other for other in float_layers if other != layer]
            less = self._score(fewer_layers)
            fits = in_floats - less <= max_drop
            verdict = "integer again" if fits else "needed in floats"
            reason = f"{verdict}: without it {_budget(in_floats - less, max_drop)}"
            decisions.append(Decision(layer, not fits, less if fits else score, reason))
            if fits:
                float_layers, score = fewer_layers, less
        final = self._final(float_layers)
        conversion = final.convert(self._original)
        return Searched(
            *(conversion, final, tuple(float_layers), in_floats, score),
            *(ranking, tuple(decisions)),
        )

    def _final(self, kept: Collection[str]) -> Method:
        """The method that keeps these layers in floats too."""
        return self._method.keeping([f"%{layer}" for layer in kept])

    def _converted(self, kept: Collection[str]) -> Conversion:
        return self._final(kept).convert(self._original)

    def _ranking(self, everything: Conversion, inputs: Sequence[Sample]) -> dict[str, float]:
        state = self._state
        samples = inputs
        if not samples and not set(self._method.layers(everything)) <= state.sensitivity.keys():
            samples = self._recorded()
        return sensitivity(
            *(self._original, self._method, samples),
            *(state.sensitivity, state.note),
        )

    def _recorded(self) -> list[Sample]:
        """Records the first samples that the metric runs. Raises UserError if it runs nothing."""
        samples: list[Sample] = []
        model = runner(self._original, self._method.backend, self._names)

        def record(sample: Sample) -> dict[str, Array]:
            if len(samples) < SAMPLES:
                samples.append({name: np.array(array) for name, array in sample.items()})
            return dict(model(sample))

        self._metric(record)
        if not samples:
            raise UserError("expected a metric that runs the network, got one that never does")
        return samples

    def _score_in_floats(self) -> float:
        return self._remembered("floats", lambda: self._original)

    def _score(self, kept: Collection[str]) -> float:
        key = " ".join(["integer", *sorted(kept)])
        return self._remembered(key, lambda: self._converted(kept).module.main)

    def _remembered(self, key: str, network: Callable[[], Function]) -> float:
        """Scores a network by the metric, once for each key."""
        scores = self._state.scores
        if key not in scores:
            self._tried += 1
            report("networks scored", self._tried, 0)
            score = self._metric(runner(network(), self._method.backend, self._names))
            scores[key] = _finite(score)
            self._state.save()
        return scores[key]


def _finite(score: object) -> float:
    """Returns a metric's score as a number. Raises UserError if it is none."""
    try:
        number = math.nan if isinstance(score, str | bytes) else float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"expected a finite number from the metric, got {score!r}")
    return number


def _budget(drop: float, max_drop: float) -> str:
    """How a drop compares with what is allowed."""
    if max_drop == math.inf:
        return f"the drop is {drop:.6g}"
    relation = "within" if drop <= max_drop else "more than"
    return f"the drop is {drop:.6g}, {relation} {max_drop:.6g}"
