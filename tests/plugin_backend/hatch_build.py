"""The wheel's build hook: packs the bitcode of the kernels, for the variants of the building machine's family."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from glowpy.llvm.library import compile_script


class KernelsBuildHook(BuildHookInterface[Any]):
    """Adds `glowpy_fused/kernels/bitcode/` to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the kernels. An editable install gets nothing: its sources change."""
        if version == "editable":
            return
        kernels = Path(self.root) / "glowpy_fused" / "kernels"
        self._folder = tempfile.TemporaryDirectory(prefix="glowpy-fused-")
        what = ["--root", str(kernels), "--host", "--directory", self._folder.name]
        subprocess.run([sys.executable, str(compile_script()), *what], check=True)
        build_data["force_include"].update(
            {
                str(file): f"glowpy_fused/kernels/bitcode/{file.name}"
                for file in sorted(Path(self._folder.name).iterdir())
            }
        )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Deletes what was compiled, now that it is in the wheel."""
        if version != "editable":
            self._folder.cleanup()
