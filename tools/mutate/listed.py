"""Reads the mutants that a reviewer wrote down: tools/mutants/*.toml.

A file is a list of tables `[[mutant]]` with these keys, all of them text but the last:

* `id`: unique over all files, and `file`: the file to change;
* `old`: text that occurs in it once, and `new`: what takes its place;
* `about`: what the wrong program does;
* `tests`: pytest paths, of which at least one test notices it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tools.mutate.mutant import Mutant, MutationError

__all__ = ["FOLDER", "read_listed"]

FOLDER = Path("tools/mutants")

_TEXTS = ("id", "file", "old", "new", "about")


def read_listed(root: Path, only: Collection[str] = ()) -> list[Mutant]:
    """The listed mutants of a tree, or those of the names in `only`.

    Raises:
        MutationError: one of them is malformed or stale (its `old` is not in the file exactly once), or a name is
            unknown. The message has a line for each such entry.
    """
    faults: list[str] = []
    mutants: dict[str, Mutant] = {}
    for path in sorted((root / FOLDER).glob("*.toml")):
        for entry in _entries(path):
            if only and entry.get("id") not in only:
                continue
            try:
                mutant = _mutant(root, path.stem, entry)
                if mutant.name in mutants:
                    raise MutationError(f"{path.name}: {mutant.name}: second mutant of this id")
            except MutationError as error:
                faults.append(str(error))
            else:
                mutants[mutant.name] = mutant
    if faults:
        raise MutationError("\n".join(faults))
    if unknown := sorted(set(only) - mutants.keys()):
        raise MutationError(f"no listed mutant {', '.join(unknown)}")
    if not mutants:
        raise MutationError(f"no listed mutants in {FOLDER}")
    return list(mutants.values())


def _entries(path: Path) -> Iterator[Mapping[str, object]]:
    try:
        document: Mapping[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise MutationError(f"{path.name}: {error}") from error
    entries = document.get("mutant", [])
    if document.keys() - {"mutant"} or not isinstance(entries, list):
        raise MutationError(f"{path.name}: expected [[mutant]] tables and nothing else")
    yield from entries


def _mutant(root: Path, area: str, entry: Mapping[str, object]) -> Mutant:
    where = f"{area}.toml: {entry.get('id', 'a mutant without an id')}"
    if entry.keys() != {*_TEXTS, "tests"}:
        raise MutationError(f"{where}: expected the keys {', '.join(_TEXTS)}, tests")
    name, file, old, new, about = (_text(where, key, entry[key]) for key in _TEXTS)
    tests = entry["tests"]
    if not isinstance(tests, list) or not tests:
        raise MutationError(f"{where}: expected tests to be a list of pytest paths")
    paths = tuple(_text(where, "tests", test) for test in tests)
    if missing := [test for test in paths if not (root / test.partition("::")[0]).exists()]:
        raise MutationError(f"{where}: no test file {missing[0]}")
    if not (root / file).is_file():
        raise MutationError(f"{where}: stale: no file {file}")
    original = (root / file).read_text(encoding="utf-8")
    if (count := original.count(old)) != 1:
        raise MutationError(f"{where}: stale: expected `old` once in {file}, got {count} times")
    if old == new:
        raise MutationError(f"{where}: `old` and `new` are the same")
    at = original.index(old)
    mutated = original[:at] + new + original[at + len(old) :]
    if file.endswith(".py"):
        try:
            compile(mutated, file, "exec")
        except SyntaxError as error:
            raise MutationError(f"{where}: not Python any more: {error}") from error
    line = original.count("\n", 0, at) + 1
    return Mutant(name, area, Path(file), line, about, original, mutated, paths)


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str) or (not value and key != "new"):
        raise MutationError(f"{where}: expected {key} to be text")
    return value
