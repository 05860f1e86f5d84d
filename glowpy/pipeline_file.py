"""The passes of a compilation, in order, as a YAML file: written, changed by hand, and read back.

```yaml
calls: [fold-calls]
graph:
- repeat:                      # round and round until none of them changes anything
  - dce
  - constant-fold: {small: 64} # options that are not the default
  - rewrite: [fold-transpose, fold-clip] # rules that every node is tried with, in this order
- lower
ir: [elide-copy, share-buffers]
```

A pass is what a backend's own pipeline has under the name: bound to the target, where it depends on that.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any, cast

from glowpy.graph.function import Function
from glowpy.ir.irfunction import IRFunction
from glowpy.passes import Pass, Pipeline, RewritePass, Rewrites
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["Recipe", "parse_recipe", "print_recipe"]

_REPEAT = "repeat"
_PARTS = ("calls", "graph", "ir")


@dataclass(frozen=True)
class Recipe:
    """The passes of a compilation, in order.

    Attributes:
        calls: The pipeline of every function that calls others, run before any of them is optimized.
        graph: The pipeline of every function before it is scheduled.
        ir: The pipeline of every function's IR.
    """

    calls: Pipeline[Function]
    graph: Pipeline[Function]
    ir: Pipeline[IRFunction]

    @property
    def passes(self) -> dict[str, Pass[Any]]:
        """Every pass by its name; `rewrite` is those of them that run as one."""
        return {name: step for part in _PARTS for name, step in self.part(part).items()}

    def part(self, name: str) -> dict[str, Pass[Any]]:
        """The passes of one part by their names, in the order in which they are first."""
        passes: dict[str, Pass[Any]] = {}
        for step in _leaves(getattr(self, name)):
            passes.setdefault(step.name, step)
            for member in step.flattened():
                passes.setdefault(member.name, member)
        return passes


def _leaves(pipeline: Pipeline[Any]) -> Iterator[Pass[Any]]:
    """The passes of a pipeline, those of inner pipelines in their place."""
    for step in pipeline.passes:
        if isinstance(step, Pipeline):
            yield from _leaves(step)
        else:
            yield step


def print_recipe(recipe: Recipe) -> str:
    """The YAML of a recipe, which `parse_recipe` reads."""
    import yaml  # noqa: PLC0415 - only who writes or reads one needs it

    entries = {part: [_entry(step) for step in getattr(recipe, part).passes] for part in _PARTS}
    text: str = yaml.safe_dump(entries, sort_keys=False, default_flow_style=None, width=100)
    return text


def _entry(step: Pass[Any]) -> object:
    if isinstance(step, Pipeline):
        return {_REPEAT: [_entry(inner) for inner in step.passes]}
    if isinstance(step, Rewrites):
        return {step.name: [_entry(inner) for inner in step.passes]}
    options = {name: value for name, (value, default) in _options(step).items() if value != default}
    return {step.name: options} if options else step.name


def _options(step: Pass[Any]) -> dict[str, tuple[Any, Any]]:
    """The options of a pass that are numbers, flags or words and have a default: value and default by name."""
    made: Any = step
    options: tuple[Field[Any], ...] = fields(made) if is_dataclass(made) else ()
    pairs = {
        option.name: (getattr(step, option.name), option.default)
        for option in options
        if option.init
    }
    return {
        name: pair
        for name, pair in pairs.items()
        if pair[1] is not MISSING and isinstance(pair[0], bool | int | float | str)
    }


def parse_recipe(text: str, own: Recipe, backend: str, file: str = "") -> Recipe:
    """The recipe that YAML spells, of the passes that a backend's own one has.

    Args:
        text: The YAML.
        own: The backend's recipe.
        backend: The name of the backend.
        file: The name of the file for error messages.

    Raises UserError for what is no such YAML, for a pass that the backend does not have, and where one that is required
    is missing, or comes before one that it has to follow.
    """
    loc = Loc(file)
    parts = _parts(_loaded(text, loc), loc, backend)
    pipelines = {
        part: _Reader(loc, part).pipeline(part, parts[part], own.part(part)) for part in _PARTS
    }
    recipe = Recipe(**pipelines)
    for part in _PARTS:
        _check_required(part, own.part(part), recipe.part(part), loc)
    return recipe


class _Word(str):
    """A word of the file, with the line that it is in, counted from 1."""

    __slots__ = ("line",)
    line: int


def _loaded(text: str, loc: Loc) -> object:
    """Returns what YAML spells, its words as `_Word`. Raises UserError for what is none."""
    import yaml  # noqa: PLC0415

    def word(loader: Any, node: Any) -> _Word:
        word = _Word(loader.construct_scalar(node))
        word.line = node.start_mark.line + 1
        return word

    reader: Any = type("Reader", (yaml.SafeLoader,), {})  # its own, as constructors are of classes
    reader.add_constructor("tag:yaml.org,2002:str", word)
    try:
        return yaml.load(text, reader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise UserError(f"expected a pipeline as YAML: {problem}", loc=loc) from None


def _at(loc: Loc, word: object) -> Loc:
    """The place of a word in the file."""
    return replace(loc, line=word.line) if isinstance(word, _Word) else loc


def _closest(name: object, names: Iterable[str], otherwise: str) -> str:
    """A note that asks whether another name is meant, if one is like this."""
    closest = difflib.get_close_matches(str(name), names, 1)
    return f"did you mean {closest[0]}?" if closest else otherwise


def _parts(loaded: object, loc: Loc, backend: str) -> Mapping[str, object]:
    """Raises UserError for anything but the parts of a pipeline."""
    expected = f"expected the parts {', '.join(_PARTS)} of a pipeline"
    note = f"glowpy opt --list --yaml --backend {backend} writes the one that there is"
    if not isinstance(loaded, dict):
        kind = "nothing" if loaded is None else f"a {type(loaded).__name__}"
        kind = f"'{loaded}'" if isinstance(loaded, str) else kind
        raise UserError(f"{expected}, got {kind}", loc=loc, note=note)
    for name in loaded:
        if name not in _PARTS:
            hint = _closest(name, _PARTS, note)
            raise UserError(f"{expected}, got {name!r}", loc=_at(loc, name), note=hint)
    missing = [part for part in _PARTS if part not in loaded]
    if missing:
        raise UserError(f"{expected}, got none called '{missing[0]}'", loc=loc, note=note)
    return loaded


def _named(entry: object) -> tuple[object, object]:
    """The name of an entry, and what it has beside that: options or other entries."""
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, value),) = entry.items()
        return name, value
    return entry, None


@dataclass(frozen=True)
class _Reader:
    """Reads entries of a part as passes, and locates errors in them."""

    loc: Loc
    part: str

    def pipeline(
        self, title: str, entries: object, known: Mapping[str, Pass[Any]], *, fixpoint: bool = False
    ) -> Pipeline[Any]:
        """The pipeline of a list of entries."""
        passes = tuple(self.step(entry, known) for entry in self.listed(title, entries))
        return Pipeline(title, passes, fixpoint=fixpoint)

    def listed(self, title: str, entries: object) -> Sequence[object]:
        """Raises UserError for anything but a list; nothing stands for one without entries."""
        if not isinstance(entries, list | None):
            raise UserError(
                f"{title}: expected a list of passes, got {entries!r}", loc=_at(self.loc, entries)
            )
        return entries or []

    def step(self, entry: object, known: Mapping[str, Pass[Any]]) -> Pass[Any]:
        """A pass by its name, perhaps with options; or several that run together or round and round."""
        name, value = _named(entry)
        if name == _REPEAT:
            if any(_named(inner)[0] == _REPEAT for inner in self.listed("optimize", value)):
                raise UserError(
                    f"{self.part}: expected passes to repeat, got another 'repeat'",
                    loc=_at(self.loc, name),
                )
            return self.pipeline("optimize", value, known, fixpoint=True)
        step = known.get(name) if isinstance(name, str) else None
        if step is None:
            raise UserError(
                f"{self.part}: expected a pass of this part, got {name!r}",
                loc=_at(self.loc, name),
                note=_closest(name, known, f"it has {', '.join(known)}"),
            )
        if isinstance(step, Rewrites):
            members = self.listed(step.name, value)
            return Rewrites(tuple(self.rewrite(member, known) for member in members))
        return step if value is None else self.with_options(step, value, name)

    def rewrite(self, entry: object, known: Mapping[str, Pass[Any]]) -> RewritePass:
        """Raises UserError for a pass that is not made of rules."""
        name, _ = _named(entry)
        step = None if isinstance(name, str) and name == Rewrites.name else self.step(entry, known)
        if not isinstance(step, RewritePass):
            raise UserError(
                f"rewrite: expected passes that are made of rules, got {name!r}",
                loc=_at(self.loc, name),
            )
        return step

    def with_options(self, step: Pass[Any], values: object, word: object) -> Pass[Any]:
        """Raises UserError for options that the pass does not have, or of another type; `word` names the pass."""
        options = _options(step)
        if not isinstance(values, dict):
            raise UserError(
                f"{step.name}: expected options, got {values!r}", loc=_at(self.loc, word)
            )
        given = {
            name: str(value) if isinstance(value, str) else value for name, value in values.items()
        }
        for name, value in given.items():
            if name not in options:
                raise UserError(
                    f"{step.name} has no option {name!r}",
                    loc=_at(self.loc, name),
                    note=_closest(name, options, f"it has {', '.join(options) or 'none'}"),
                )
            if type(value) is not type(options[name][0]):
                kind = type(options[name][0]).__name__
                raise UserError(
                    f"{step.name}: expected {name} of type {kind}, got {value!r}",
                    loc=_at(self.loc, name),
                )
        changed: Any = step
        return cast("Pass[Any]", replace(changed, **given)) if given else step


def _check_required(
    part: str, own: Mapping[str, Pass[Any]], given: Mapping[str, Pass[Any]], loc: Loc
) -> None:
    """Raises UserError unless what is required is there, in its order."""
    required = [name for name, step in own.items() if step.is_required]
    for name in required:
        if name not in given:
            raise UserError(
                f"{part}: expected the pass {name}: without it networks do not run, or compute other numbers",
                loc=loc,
            )
    order = [name for name in given if name in required]
    for name, expected in zip(order, required, strict=True):
        if name != expected:
            raise UserError(f"{part}: expected the pass {expected} before {name}", loc=loc)
