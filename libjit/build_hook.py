"""The wheel's build hook: compiles libjit for the family of the building machine and packs it, with its sources.

The wheel gets a stock as well, machine code of functions that many networks have (`glowpy/llvm/stock.py`): a network
that is compiled for the first time then takes half as long.

An editable install gets the compiler in place of the kernels: a checkout compiles a variant when it is first used, and
again when a kernel was edited (see `glowpy/llvm/library.py`). What this machine needs as long as none is edited is
made at once, in `build/stock`.

`GLOWPY_STOCK` names the variants, with commas between them, that a stock is made for: all of the family where it is not
set, none where it is empty. It is for who builds often, as tests do: a stock takes longer than its kernels.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKED = ("README.md", "compile.py", "include", "src", "variants.toml")
_PLACE = "glowpy/llvm"


class LibjitBuildHook(BuildHookInterface[Any]):
    """Adds `bitcode/` and `libjit/` to glowpy/llvm of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the kernels and names the wheel after the platform they are for."""
        if version == "editable":
            compilers = self.metadata.core.optional_dependencies["cross"]
            build_data["dependencies"] = [*build_data.get("dependencies", ()), *compilers]
            self._make_stock(Path(self.root, "build", "stock"))
            return
        library = Path(self.root) / "libjit"
        self._folder = tempfile.TemporaryDirectory(prefix="glowpy-bitcode-")
        bitcode = Path(self._folder.name)
        command = [
            sys.executable,
            str(library / "compile.py"),
            "--host",
            "--directory",
            str(bitcode),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self._folder.cleanup()
            raise RuntimeError(f"libjit does not compile:\n{done.stderr}")
        stock = bitcode / "stock"
        self._make_stock(stock, "--bitcode", str(bitcode))
        packed = {
            str(file): f"{_PLACE}/bitcode/{file.name}" for file in sorted(bitcode.glob("*.*"))
        }
        packed |= {str(file): f"{_PLACE}/stock/{file.name}" for file in sorted(stock.iterdir())}
        packed |= {str(library / name): f"{_PLACE}/libjit/{name}" for name in _PACKED}
        build_data["force_include"].update(packed)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def _make_stock(self, folder: Path, *arguments: str) -> None:
        """Has the package that is built, and not installed yet, make the stock."""
        named = os.environ.get("GLOWPY_STOCK")
        if named is not None:
            arguments = *arguments, "--variants", named
        command = [sys.executable, "-m", "tools.make_stock", str(folder), *arguments]
        # What a build requires may be found by this variable alone.
        paths = os.pathsep.join(filter(None, (self.root, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths, "GLOWPY_CACHE_DIR": "off"}
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the stock cannot be made:\n{done.stderr}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Deletes what was compiled, now that it is in the wheel."""
        if version != "editable":
            self._folder.cleanup()


def platform_tag() -> str:
    """The platforms a wheel with this machine's bitcode runs on.

    Bitcode is linked against nothing, so on Linux any C library will do.
    """
    machine = platform.machine().lower()
    system = platform.system()
    if system == "Linux":
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    if system == "Darwin":
        return f"macosx_11_0_{machine}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
