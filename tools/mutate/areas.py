"""The parts of the compiler that random mutants are drawn from."""

from __future__ import annotations

from pathlib import Path

from tools.mutate.mutant import MutationError

__all__ = ["AREAS", "area_files"]

AREAS: dict[str, tuple[str, ...]] = {
    "graph passes": ("glowpy/opt/graph/*.py", "glowpy/graph/rewrite.py", "glowpy/passes.py"),
    "IR passes": ("glowpy/opt/ir/*.py", "glowpy/opt/boxes.py"),
    "stages": ("glowpy/lower.py", "glowpy/schedule.py", "glowpy/irgen.py", "glowpy/recipe.py"),
    "memory": (
        "glowpy/memory.py",
        "glowpy/memory_check.py",
        "glowpy/ir/liveness.py",
        "glowpy/ir/plan.py",
    ),
    "cpu": (
        "glowpy/backends/cpu/*.py",
        "glowpy/backends/cpu/passes/*.py",
        "glowpy/backends/cpu/measuring/*.py",
        "glowpy/llvm/*.py",
        "glowpy/measuring/*.py",
    ),
    "onnx": ("glowpy/importer/onnx/*.py", "glowpy/onnx_package/*.py"),
    "ops": ("glowpy/ops/*.py",),
    "core": ("glowpy/core/*.py",),
    "bundle": ("glowpy/bundling/*.py",),
    "session": ("glowpy/session/*.py", "glowpy/engine.py", "glowpy/backend.py"),
    "cli": ("glowpy/cli/*.py", "glowpy/benchmark/*.py", "glowpy/debugging/*.py"),
    "program": ("glowpy/frontends/python/*.py",),
    "libjit": ("libjit/src/*.c", "libjit/include/*.h"),
}
"""The patterns of the files of each area."""


def area_files(root: Path, area: str) -> list[Path]:
    """The files of an area, relative to the root, without generated ones; MutationError if a pattern matches none."""
    files: list[Path] = []
    for pattern in AREAS[area]:
        matches = sorted(path.relative_to(root) for path in root.glob(pattern))
        if not matches:
            raise MutationError(f"area {area}: no file matches {pattern}")
        files += [path for path in matches if not path.stem.endswith("_gen")]
    return files
