"""The loss of accuracy by quantization: in numbers for programs, and as a page for people (`report_page`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from glowpy.core.quantized import range_of
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.fidelity import Fidelity, fidelities, sensitivity
from glowpy.quantization.method import ByProfile, Method, expect_method
from glowpy.quantization.optimized import optimized
from glowpy.quantization.profile import ProfiledValue
from glowpy.quantization.profiling import Sample
from glowpy.quantization.search import Searched
from glowpy.quantization.statistics import Statistics
from glowpy.support.limits import within_limits

__all__ = ["Report", "Row", "decisions_of", "report"]


@dataclass(frozen=True)
class Row:
    """A value of the network: an input, or what a node gives.

    Attributes:
        name: As the profile has it.
        kind: The mnemonic of its node, or `input`.
        origin: Where it is from in the user's model; empty if that is not known.
        reason: Why its node stays in floats; empty if that became integer.
        type: The type of its integers; None if it is not rounded to any.
        fidelity: How near it is to what it is in floats; None for what flows into the next node as it is.
        sensitivity: The decibels of the network's outputs if its node is the only layer on integers; None for what is
            no layer.
        statistics: From the profile; None for what it does not have.
    """

    name: str
    kind: str
    origin: str
    reason: str
    type: Type | None
    fidelity: Fidelity | None
    sensitivity: float | None
    statistics: Statistics | None

    @property
    def figures(self) -> dict[str, object]:
        """For JSON; what is not known is left out."""
        figures: dict[str, object] = {
            "name": self.name,
            "kind": self.kind,
            "origin": self.origin,
            "reason": self.reason,
        }
        if self.type is not None and self.type.quant is not None:
            low, high, step = range_of(self.type)
            figures |= {"type": self.type.kind.value, "scale": step, "low": low, "high": high}
            figures["offset"] = self.type.quant.offsets[0]
        if self.fidelity is not None:
            figures["decibels"] = self.fidelity.decibels
            figures["saturation"] = self.fidelity.saturation
        if self.sensitivity is not None:
            figures["sensitivity"] = self.sensitivity
        return figures


@dataclass(frozen=True)
class Report:
    """The accuracy of a quantized network: of its outputs, values and layers.

    Attributes:
        conversion: The quantized network.
        samples: On how many inputs it was compared with the one in floats.
        outputs: How near each output is to what it is in floats.
        rows: The values, in the order in which they are computed.
        ranking: Layers with the decibels of the outputs if a layer alone is on integers, the most sensitive first;
            those that a search keeps in floats as well.
        searched: How a search for a budget of accuracy went; None if there was none.
    """

    conversion: Conversion
    samples: int
    outputs: Mapping[str, Fidelity]
    rows: tuple[Row, ...]
    ranking: Mapping[str, float]
    searched: Searched | None

    @property
    def figures(self) -> dict[str, object]:
        """For JSON."""
        return {
            "samples": self.samples,
            "outputs": {name: fidelity.decibels for name, fidelity in self.outputs.items()},
            "ranking": [
                {"name": name, "sensitivity": decibels} for name, decibels in self.ranking.items()
            ],
            "values": [row.figures for row in self.rows],
        }


@within_limits
def report(
    model: Module | Function,
    method: Method,
    samples: Sequence[Sample],
    searched: Searched | None = None,
) -> Report:
    """Compares a quantized network with the one in floats.

    Args:
        model: The network in floats.
        method: How it is quantized.
        samples: The inputs that both are run with.
        searched: How a search with this method went, whose result is reported on.

    Raises as `fidelities` and `sensitivity` do.
    """
    expect_method(method)
    original = optimized(model)
    final = method if searched is None else searched.method
    conversion = final.convert(original) if searched is None else searched.conversion
    by_output = fidelities(original, final, samples)
    alone = searched.sensitivity if searched is not None else {}
    ranking = sensitivity(original, method, samples, alone)
    values = method.profile.values if isinstance(method, ByProfile) else {}
    outputs = {
        name.removeprefix("output "): fidelity
        for name, fidelity in by_output.items()
        if name.startswith("output ")
    }
    inputs = [placeholder.name for placeholder in original.inputs]
    rows = _rows(inputs, conversion, values, by_output, ranking)
    return Report(conversion, len(samples), outputs, rows, ranking, searched)


def _rows(
    inputs: Sequence[str],
    conversion: Conversion,
    values: Mapping[str, ProfiledValue],
    known: Mapping[str, Fidelity],
    ranking: Mapping[str, float],
) -> tuple[Row, ...]:
    nodes = {node.name: node for node in conversion.nodes}
    rows = []
    for name in (*(name for name in inputs if name in conversion.types), *nodes):
        node, value = nodes.get(name), values.get(name)
        origin = node.origin if node is not None else value.origin if value is not None else ""
        rows.append(
            Row(
                *(name, node.kind if node is not None else "input", origin),
                node.reason if node is not None else "",
                *(conversion.types.get(name), known.get(name), ranking.get(name)),
                value.statistics if value is not None else None,
            )
        )
    return tuple(rows)


def decisions_of(searched: Searched) -> dict[str, object]:
    """How a search went, for JSON."""
    return {
        "in_floats": searched.in_floats,
        "score": searched.score,
        "layers_in_floats": list(searched.layers),
        "decisions": [asdict(decision) for decision in searched.decisions],
    }
