"""`Profile`: the statistics of every value of a network over some inputs, and the YAML file that holds them.

```yaml
format: glowpy profile 1
glowpy: 0.1.0
model:
  digest: 5e0c...
  function: main
  inputs: {x: 'f32[1x3x224x224]'}
  ...
samples: [0b1f..., ...]
values:
- name: conv1
  type: f32[1x112x112x64]
  origin: node 'conv1' (#0)
  part_of: ''
  min: -2.5
  max: 7.25
  ...
  histogram: 0 0 1 5 ...
```

Floats and sums are read back as exactly what was written. Samples are named by digests, so that none counts twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from glowpy.core.histogram import BINS, Histogram, grid_of
from glowpy.graph.function import Function
from glowpy.quantization.signature import Signature, without_extents
from glowpy.quantization.statistics import Statistics
from glowpy.support.errors import Diagnostic, LoadError, UserError
from glowpy.support.html import html_table
from glowpy.support.loc import Loc
from glowpy.support.output_files import write_output_file

__all__ = ["Profile", "ProfiledValue"]

_FORMAT = "glowpy profile 1"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 4
"""How deep in others the values of a profile are."""

_SHOWN = 200
"""Characters of what is not expected that an error shows."""

_SUM = re.compile(r"-?[0-9]{1,200}(/[1-9][0-9]{0,200})?")
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True)
class ProfiledValue:
    """A value of a network.

    Attributes:
        name: As the optimized graph, or what it is lowered to, has it.
        type: Its type, as text; empty for a value that was not profiled, as only other extents have it.
        origin: Where it comes from in the user's model.
        part_of: The node of the optimized graph that it is a step of, if it is only there in the lowered graph.
        statistics: The statistics of its elements.
    """

    name: str
    type: str
    origin: str
    part_of: str
    statistics: Statistics


@dataclass(frozen=True)
class Profile:
    """The ranges and histograms of a network's values over some inputs.

    Attributes:
        signature: Which network.
        samples: Digests of the inputs.
        values: The values by their names, in the order in which they are computed.
    """

    signature: Signature
    samples: frozenset[str]
    values: Mapping[str, ProfiledValue]

    def __getitem__(self, name: str) -> Statistics:
        """The statistics of the value called `name`. Raises UserError if the profile has none."""
        if name not in self.values:
            raise UserError(f"the profile has no value '{name}'", note="profile the model again")
        return self.values[name].statistics

    def __repr__(self) -> str:
        return f"<Profile of {self.signature.function}: {len(self.values)} values over {len(self.samples)} inputs>"

    def _repr_html_(self) -> str:
        """Returns a table of every value with its range, for notebooks."""
        rows = [
            [v.name, v.type, v.origin, f"{v.statistics.low:.6g}", f"{v.statistics.high:.6g}"]
            for v in self.values.values()
        ]
        return html_table(repr(self).strip("<>"), ["value", "type", "origin", "min", "max"], rows)

    def check(self, f: Function) -> None:
        """Raises UserError that says what differs unless this is a profile of the optimized function `f`.

        Inputs may have other extents: what values are like does not depend on how many there are.
        """
        self.check_signature(Signature.of(f))

    def fitted(self, f: Function) -> Profile:
        """This profile for the optimized function `f`, as `check` wants it.

        At other extents, it may have values that this one has not: of these, no run is known.
        """
        self.check(f)
        if self.signature.digest == Signature.of(f).digest:
            return self
        values = dict(self.values)
        results = [value for node in f.nodes for value in node.results]
        for value in (*(port.value for port in (*f.parameters, *f.variables)), *results):
            entry = values.get(value.name)
            if entry is None or without_extents(entry.type) != without_extents(str(value.type)):
                none = Statistics.none()
                values[value.name] = ProfiledValue(value.name, "", "", "", none)
        return replace(self, values=values)

    def check_signature(self, other: Signature, what: str = "the model") -> None:
        """Raises UserError that says what differs unless `other` is the network that was profiled."""
        if differences := self.signature.differences(other):
            notes = [""] * (len(differences) - 1) + ["profile this model"]
            raise UserError.of(
                Diagnostic(f"the profile is not of {what}: {difference}", note=note)
                for difference, note in zip(differences, notes, strict=True)
            )

    def merge(self, other: Profile) -> Profile:
        """The profile of the inputs of both, which is exactly what one run over all of them gives.

        Raises UserError for profiles of different networks, and where some inputs, but not all of one, are in both:
        they cannot be taken out of a histogram again.
        """
        self.check_signature(other.signature, "the same model as the other")
        if self.values.keys() != other.values.keys():
            raise UserError(
                "expected profiles of the same values, and other extents leave others of them",
                note="profile with the same shapes",
            )
        if self.samples <= other.samples or other.samples <= self.samples:
            return max(self, other, key=lambda profile: len(profile.samples))
        if shared := self.samples & other.samples:
            raise UserError(
                f"expected profiles of different inputs, got {len(shared)} inputs that are in both",
                note="glowpy profile --resume adds inputs, and skips those that were seen",
            )
        values = {
            name: ProfiledValue(
                *(name, value.type, value.origin, value.part_of),
                value.statistics.merged(other[name]),
            )
            for name, value in self.values.items()
        }
        return Profile(self.signature, self.samples | other.samples, values)

    def text(self) -> str:
        """The content of the file."""
        content = {
            "format": _FORMAT,
            "glowpy": version("glowpy"),
            "model": {key: _plain(entry) for key, entry in asdict(self.signature).items()},
            "samples": sorted(self.samples),
            "values": [_entry(value) for value in self.values.values()],
        }
        return str(
            yaml.dump(content, Dumper=_DUMPER, sort_keys=False, width=120, allow_unicode=True)
        )

    def save(self, path: str | Path) -> None:
        """Writes the file, whole or not at all. Raises UserError where that is impossible."""
        text = self.text()
        write_output_file(path, lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """The profile in a file. Raises LoadError for a file that cannot be read or is none."""
        place = Loc(str(path))
        try:
            content = _content(Path(path).read_bytes())
        except OSError as error:
            raise LoadError(f"cannot read the file: {error.strerror}", loc=place) from None
        except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise LoadError(f"not a YAML file: {reason}", loc=place) from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            got = content.get("format") if isinstance(content, dict) else type(content).__name__
            raise LoadError(
                f"expected a file of the format '{_FORMAT}', got {str(got)[:_SHOWN]}",
                loc=place,
                note="glowpy profile writes it",
            )
        try:
            return cls._of(content)
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise LoadError(f"not a whole profile: {reason[:_SHOWN]}", loc=place) from None

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Profile:
        model = content["model"]
        signature = Signature(
            *(str(model["digest"]), str(model["function"])),
            *(dict(model["inputs"]), dict(model["outputs"]), dict(model["operators"])),
            *(dict(model.get(key, {})) for key in ("weights", "nodes", "symbols")),
        )
        samples = frozenset(map(str, content["samples"]))
        values: dict[str, ProfiledValue] = {}
        for entry in content["values"]:
            value = _value(entry)
            runs = value.statistics.runs
            if value.name in values:
                raise ValueError(f"'{value.name}': it is there twice")
            if runs > len(samples):
                raise ValueError(f"'{value.name}': of {runs} runs, and {len(samples)} samples")
            values[value.name] = value
        return cls(signature, samples, values)


def _content(data: bytes) -> object:
    """Parses a YAML file. Raises ValueError for what no profile has: aliases, and values deep in others.

    Either can take more memory than there is, however small a file is.
    """
    depth = 0
    for event in yaml.parse(data, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases and nested values are not expected")
    return yaml.load(data, Loader=_LOADER)


def _plain(entry: object) -> object:
    return dict(entry) if isinstance(entry, Mapping) else entry


def _entry(value: ProfiledValue) -> dict[str, object]:
    """As the file has it; infinities stand for no element."""
    statistics, histogram = value.statistics, value.statistics.histogram
    return {
        "name": value.name,
        "type": value.type,
        "origin": value.origin,
        "part_of": value.part_of,
        "min": statistics.low,
        "max": statistics.high,
        "count": statistics.count,
        "nans": statistics.nans,
        "infinities": statistics.infinities,
        "runs": statistics.runs,
        "sum_of_lows": str(statistics.sum_of_lows),
        "sum_of_highs": str(statistics.sum_of_highs),
        "exponent": histogram.exponent,
        "first": histogram.first,
        "histogram": " ".join(map(str, histogram.counts.tolist())),
    }


def _value(entry: dict[str, Any]) -> ProfiledValue:
    """Raises ValueError for what contradicts itself, KeyError for what lacks something."""
    name, low, high = str(entry["name"]), float(entry["min"]), float(entry["max"])
    counts = np.array([int(count) for count in str(entry["histogram"]).split()], np.int64)
    exponent, first = int(entry["exponent"]), int(entry["first"])
    total = entry["count"]
    if counts.shape != (BINS,) or counts.min() < 0 or sum(counts.tolist()) != total:
        raise ValueError(f"'{name}': expected {BINS} counts with the sum {total}")
    is_range = low <= high and math.isfinite(high - low)
    if not (is_range if total else (low, high) == (math.inf, -math.inf)):
        raise ValueError(f"'{name}': a range from {low} to {high}")
    if grid_of(low, high) != (exponent, first):
        raise ValueError(f"'{name}': bins of 2**{exponent} from {first} on")
    nans, infinities, runs = (int(entry[key]) for key in ("nans", "infinities", "runs"))
    if min(nans, infinities, runs) < 0 or bool(runs) != bool(total):
        raise ValueError(f"'{name}': {nans} NaNs and {infinities} infinities in {runs} runs")
    lows, highs = (_sum(str(entry[key])) for key in ("sum_of_lows", "sum_of_highs"))
    means = [total / runs for total in (lows, highs)] if runs else []
    if not all(low <= mean <= high for mean in means) or (not runs and (lows or highs)):
        raise ValueError(f"'{name}': sums of extremes that are beyond the range")
    statistics = Statistics(
        *(low, high, Histogram(exponent, first, counts)),
        *(nans, infinities, runs),
        *(lows, highs),
    )
    type, origin, part_of = (str(entry[key]) for key in ("type", "origin", "part_of"))
    return ProfiledValue(name, type, origin, part_of, statistics)


def _sum(text: str) -> Fraction:
    """An exact sum. Raises ValueError for another text, such as a power of ten that no memory holds."""
    if not _SUM.fullmatch(text):
        raise ValueError(f"expected an exact sum, got '{text[:_SHOWN]}'")
    return Fraction(text)
