"""Copies of the tree, and commands that run in one: nothing else is ever written to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutate.mutant import MutationError
from tools.mutate.plugin import CONTEXT_VARIABLE

__all__ = ["Tree", "Workshop", "tree_files"]


_OURS = ("COVERAGE_PROCESS_START", "GLOWPY_CACHE_DIR", CONTEXT_VARIABLE)


def tree_files(root: Path) -> list[Path]:
    """The files of a checkout, relative to its root: those that git tracks, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MutationError(f"{root}: expected a git checkout: {done.stderr.strip()}")
    names = sorted(set(done.stdout.split("\0")) - {""})
    return [Path(name) for name in names if (root / name).is_file()]


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy of the tree with a cache and a temporary folder of its own."""

    folder: Path

    @property
    def root(self) -> Path:
        """The root of the copied tree."""
        return self.folder / "tree"

    @property
    def cache(self) -> Path:
        """The folder that its processes take for the user's cache."""
        return self.folder / "cache"

    @property
    def scratch(self) -> Path:
        """Where its processes put temporary files, and we the files that go with a run."""
        return self.folder / "tmp"

    def write(self, file: Path, text: str) -> None:
        """Replaces a file of the copy.

        Its time becomes one that no earlier content had, for Python goes by size and time (to the second) when it
        decides whether compiled code is out of date.
        """
        path = self.root / file
        before = int(path.stat().st_mtime)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (before + 2, before + 2))


class Workshop:
    """A temporary folder with copies of the tree, and the processes that run in them."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self.base = self._empty("base")
        """The unchanged tree."""
        for file in tree_files(root):
            target = self.base.root / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, target, follow_symlinks=False)

    def copy(self, name: str) -> Tree:
        """A fresh copy of the unchanged tree.

        It knows the kernel library's bitcode, which is named after the sources, but no machine code of networks: a
        mutant that compiles differently must not find what the unchanged tree compiled.
        """
        tree = self._empty(name)
        shutil.copytree(self.base.root, tree.root, symlinks=True, dirs_exist_ok=True)
        folder = tree.cache / "glowpy"
        folder.mkdir()
        for entry in (self.base.cache / "glowpy").glob("bitcode-*"):
            shutil.copy2(entry, folder)
        return tree

    def discard(self, tree: Tree) -> None:
        """Deletes a copy."""
        shutil.rmtree(tree.folder, ignore_errors=True)

    def run(
        self,
        tree: Tree,
        command: Sequence[str],
        seconds: float | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs Python with the arguments `command` in a copy; its output is what it wrote to either stream.

        Raises:
            subprocess.TimeoutExpired: it took longer than `seconds`; it and its children were killed.
        """
        output = tree.scratch / "output"
        with output.open("w", encoding="utf-8") as stream, self._lock:
            if self._stopped:
                raise MutationError("stopped")
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=tree.root,
                env={**self._environment(tree), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            status = process.wait(seconds)
        finally:
            with self._lock:
                self._running.discard(process)
                _kill(process)
        text = output.read_text(encoding="utf-8", errors="replace")
        return subprocess.CompletedProcess(command, status, text)

    def stop(self) -> None:
        """Kills what runs; nothing is started any more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def _empty(self, name: str) -> Tree:
        tree = Tree(self._folder / name)
        for folder in (tree.root, tree.cache, tree.scratch):
            folder.mkdir(parents=True)
        return tree

    def _environment(self, tree: Tree) -> dict[str, str]:
        zig_cache = str(self._folder / "zig")
        # A run of mutants may be a test of a run that measures.
        inherited = {name: value for name, value in os.environ.items() if name not in _OURS}
        return {
            **inherited,
            "PYTHONPATH": str(tree.root),
            "PYTHONHASHSEED": "0",
            "TMPDIR": str(tree.scratch),
            "XDG_CACHE_HOME": str(tree.cache),
            # Zig's cache is keyed by contents and shared: it holds the C library, compiled for each target.
            "ZIG_GLOBAL_CACHE_DIR": zig_cache,
            "ZIG_LOCAL_CACHE_DIR": zig_cache,
        }


def _kill(process: subprocess.Popen[str]) -> None:
    """Ends a process and what it started and left behind: all are in the session that it leads."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
