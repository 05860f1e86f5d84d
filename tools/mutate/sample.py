"""Random mutants: so many in each area, drawn by a seed from all that can be changed there."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools.mutate.areas import area_files
from tools.mutate.c_changes import c_changes
from tools.mutate.mutant import Change, Mutant
from tools.mutate.python_changes import python_changes
from tools.mutate.tree import Workshop

__all__ = ["Checker", "Judge", "draw"]

_CHANGES: dict[str, Callable[[str], list[list[Change]]]] = {
    ".py": python_changes,
    ".c": c_changes,
    ".h": c_changes,
}


Judge = Callable[[Path, str, str], bool]
"""Whether a file's change, from one text to another, is worth a trial."""


def draw(root: Path, areas: Sequence[str], count: int, seed: int, judge: Judge) -> Iterator[Mutant]:
    """`count` mutants in all, the same number in each area, give or take one.

    A place in the text is drawn first and then one of the changes that it allows, lest an operator that can be replaced
    in many ways be drawn more often. No place is drawn twice.
    """
    rng = random.Random(seed)
    order = list(areas)
    rng.shuffle(order)
    shares = {area: count // len(order) + (n < count % len(order)) for n, area in enumerate(order)}
    for area in areas:
        left = shares[area]
        sources = {
            file: (root / file).read_text(encoding="utf-8") for file in area_files(root, area)
        }
        places = [
            (file, changes)
            for file, source in sources.items()
            for changes in _CHANGES[file.suffix](source)
        ]
        rng.shuffle(places)
        for file, changes in places:
            if not left:
                break
            change = rng.choice(changes)
            mutated = change.apply()
            if judge(file, sources[file], mutated):
                left -= 1
                name = f"{area.replace(' ', '-')}-{shares[area] - left}"
                yield Mutant(name, area, file, change.line, change.about, sources[file], mutated)


class Checker:
    """Judges changes with the compilers, in a copy of the tree of its own."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._tree = workshop.copy("checker")
        self._bitcode: bytes | None = None

    def __call__(self, file: Path, original: str, mutated: str) -> bool:
        """Whether a changed module can be imported, or a changed C file gives other bitcode.

        A module that cannot be imported is no test of the tests: all of them would fail.
        """
        if file.suffix == ".py":
            try:
                compile(mutated, file.name, "exec")
            except SyntaxError:
                return False
        elif self._bitcode is None:
            self._bitcode = self._compiled()
        self._tree.write(file, mutated)
        try:
            return self._imports(file) if file.suffix == ".py" else self._differs()
        finally:
            self._tree.write(file, original)

    def _imports(self, file: Path) -> bool:
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        try:
            return not self._workshop.run(self._tree, ["-c", f"import {module}"], 60).returncode
        except subprocess.TimeoutExpired:
            return False

    def _differs(self) -> bool:
        bitcode = self._compiled()
        return bitcode is not None and bitcode != self._bitcode

    def _compiled(self) -> bytes | None:
        """The bitcode of one variant; None if the library does not compile."""
        output = self._tree.scratch / "library.bc"
        command = ["libjit/compile.py", "--variant", "x86_64_v3", "--output", str(output)]
        done = self._workshop.run(self._tree, command)
        return None if done.returncode else output.read_bytes()
