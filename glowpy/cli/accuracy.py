"""How accurate a quantized network is, as options of the command line: reports, and searches for a budget."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import click

from glowpy.cli.files import write_text
from glowpy.cli.gathered import gathered
from glowpy.cli.model import Source
from glowpy.cli.samples import read_samples
from glowpy.cli.users_code import users_code, users_object
from glowpy.cli.verb import OutputFile
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.fidelity import Model, decibels_text
from glowpy.quantization.method import ByProfile, Method
from glowpy.quantization.optimized import optimized
from glowpy.quantization.profiling import Sample, sample_digest
from glowpy.quantization.report import Report, decisions_of, report
from glowpy.quantization.report_page import report_page
from glowpy.quantization.search import SAMPLES, Searched, SearchState, digest_of, search
from glowpy.quantization.signature import Signature
from glowpy.support.errors import UserError

__all__ = ["Accuracy", "Quantized", "accuracy_options"]

_RANKED = 3
"""The most sensitive layers: as many are named on a terminal."""


@dataclass(frozen=True)
class Quantized:
    """A quantized network, and what was found out about it.

    Attributes:
        conversion: The network.
        searched: How a search for a budget went; None if there was none.
        report: How it compares with the network in floats; None if it was not compared.
    """

    conversion: Conversion
    searched: Searched | None = None
    report: Report | None = None

    @property
    def figures(self) -> dict[str, object]:
        """For JSON."""
        figures: dict[str, object] = {}
        if self.searched is not None:
            figures["search"] = decisions_of(self.searched)
        if self.report is not None:
            figures["accuracy"] = self.report.figures
        return figures


@dataclass(frozen=True)
class Accuracy:
    """Options about accuracy: reports, comparison, and a search with a metric.

    Attributes:
        page: The file for a report; None for none.
        inputs: The inputs to compare on, as for `glowpy profile`; empty for no comparison.
        max_drop: How much worse the network may be, in the unit of the metric; None for no limit, and no search.
        metric: `module:function`; empty for none.
        search_file: The file for the measurements of a search; empty for a file beside the profile.
    """

    page: str | None
    inputs: str
    max_drop: float | None
    metric: str
    search_file: str

    def __post_init__(self) -> None:
        """Raises UserError for options that lack others."""
        if self.page is not None and not self.inputs:
            raise UserError("--report: expected --inputs to compare the networks on")
        if self.max_drop is not None and not self.metric:
            raise UserError("--max-drop: expected --metric MODULE:FUNCTION with it")
        if self.search_file and not self.metric:
            raise UserError("--search-file: expected --metric with it")

    def refuse(self, reason: str, others: Mapping[str, str | None] | None = None) -> None:
        """Raises UserError for a reason if networks are to be compared, or if one of the other options is given."""
        given = {**(others or {}), "--inputs": self.inputs, "--metric": self.metric}
        for option, value in given.items():
            if value:
                raise UserError(f"{option}: {reason}")

    def quantized(self, source: Source, method: Method, beside: str) -> Quantized:
        """Converts; searches and compares if that is asked for. Raises as these do.

        Args:
            source: The model.
            method: How it is quantized.
            beside: The file next to which a search keeps what it measured.
        """
        samples = _some_samples(self.inputs, source) if self.inputs else []
        if not self.metric:
            searched, conversion = None, method.convert(source.function)
        else:
            searched = self._searched(source, method, samples, beside)
            conversion = searched.conversion
        if not samples:
            return Quantized(conversion, searched)
        written = report(source.function, method, samples, searched)
        return Quantized(conversion, searched, written)

    def _searched(
        self, source: Source, method: Method, samples: Sequence[Sample], beside: str
    ) -> Searched:
        function = users_object(self.metric, "--metric")
        if not callable(function):
            raise UserError(f"--metric: expected a function, got {type(function).__name__}")
        texts = [*_texts_of(method, source), self.metric, _source_of(function)]
        file = Path(self.search_file or Path(beside).with_suffix(".search.json"))
        state = SearchState.open(file, digest_of(*texts, *map(sample_digest, samples)))
        name = self.metric.partition(":")[2]

        def metric(network: Model) -> float:
            with users_code(name, "--metric"):
                score: float = function(network)
                return score

        limit = math.inf if self.max_drop is None else self.max_drop
        try:
            return search(*(source.function, method, metric, limit), inputs=samples, state=state)
        except KeyboardInterrupt:
            click.echo(f"{file} has what was measured: run it again to go on", err=True)
            raise

    def write_page(self, quantized: Quantized, title: str) -> None:
        """Writes the report, if one is wanted."""
        if self.page is not None and quantized.report is not None:
            write_text(self.page, report_page(title, quantized.report))

    def print(self, quantized: Quantized) -> None:
        """Prints the most important for people."""
        if (searched := quantized.searched) is not None:
            click.echo(f"the metric is {searched.score:.6g}, {searched.in_floats:.6g} in floats")
            for decision in searched.decisions:
                layer = f"%{decision.layer}" if decision.layer else "all layers"
                click.echo(
                    f"{layer} {'in floats' if decision.keeps else 'on integers'}: {decision.reason}"
                )
        if (written := quantized.report) is None:
            return
        for name, fidelity in written.outputs.items():
            click.echo(f"output '{name}': {decibels_text(fidelity.decibels)}")
        for layer, decibels in list(written.ranking.items())[:_RANKED]:
            click.echo(f"%{layer} alone on integers: {decibels_text(decibels)}")
        if self.page is not None:
            click.echo(f"{self.page}: {len(written.rows)} values over {written.samples} inputs")


def accuracy_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that compares networks. It gets them as `accuracy`."""
    decorated = gathered(Accuracy, "accuracy")(command)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.option("--inputs", default="", help="The inputs to compare on, as for glowpy profile."),
    click.option(
        "--report",
        "page",
        type=OutputFile(binary=True),
        help="Write a page about the accuracy to this HTML file.",
    ),
    click.option(
        "--max-drop", type=float, help="The most by which the metric may be lower than in floats."
    ),
    click.option(
        "--metric",
        default="",
        help="MODULE:FUNCTION, the metric: it scores a network, in floats and quantized.",
    ),
    click.option(
        "--search-file",
        default="",
        help="The file for the measurements of a search; one beside the profile, or the model, if not given.",
    ),
)


def _some_samples(inputs: str, source: Source) -> list[Sample]:
    """The first SAMPLES of --inputs. Raises as `read_samples` does, and UserError if there are none."""
    read = read_samples(inputs, source.ports, source.advice)
    samples = [sample for _, sample in islice(read.all, SAMPLES)]
    if not samples:
        raise UserError("--inputs: expected at least one input to compare on, got none")
    return samples


def _texts_of(method: Method, source: Source) -> list[str]:
    """The model and how it is quantized, as text; the backend by its name."""
    if isinstance(method, ByProfile):
        options = replace(method.options, backend=source.backend)
        return [method.profile.text(), repr(options)]
    signature = Signature.of(optimized(source.function))
    return [signature.digest, repr(method), source.backend]


def _source_of(function: object) -> str:
    """The file that a function is written in: another text is another metric."""
    try:
        file = inspect.getsourcefile(function)  # type: ignore[arg-type] # it says so with an error
    except TypeError:
        return ""
    return Path(file).read_text(encoding="utf-8") if file and Path(file).exists() else ""
