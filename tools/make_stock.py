"""Makes the stock of machine code that an installation brings: `python -m tools.make_stock FOLDER`.

The build hook runs it. `--bitcode FOLDER` has the kernels of this machine's family, as the wheel carries them: there is
a stock for each variant of them. Without it there is one for this machine's own variant, and beside it that variant's
kernels: as a checkout takes them, whose kernels may change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.strategy.machine import Machine as ProductMachine
from glowpy.backends.cpu.target import CpuTarget, portable_machine, resolve_target
from glowpy.backends.cpu.variant import VARIANTS, machines_of
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.objects import compile_objects
from glowpy.llvm.stock import write_stock
from tools.common_functions import common_texts

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files into the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bitcode", type=Path, help="a folder with VARIANT.bc")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for old in options.folder.glob("*-*"):
        old.unlink(missing_ok=True)
    host = resolve_target(CpuOptions())
    if options.bitcode is None:
        LIBJIT.write_content(host.variant, options.folder)
        _write(host, (host.variant.machine,), LIBJIT, options.folder)
        return 0
    library = replace(LIBJIT, packaged=options.bitcode, _contents={}, _identities={})
    for variant in VARIANTS:
        if (options.bitcode / f"{variant.name}.bc").is_file():
            target = replace(host, variant=variant)
            _write(target, machines_of(variant), library, options.folder)
    return 0


def _write(
    target: CpuTarget, machines: Sequence[ProductMachine], library: KernelLibrary, folder: Path
) -> None:
    """Writes the stock of one variant, with the tiles that these models of its processors choose from."""
    machine, libraries = portable_machine(target), [library.bitcode(target.variant)]
    texts = common_texts(target.variant, machines, machine.triple)
    objects = compile_objects(texts, machine, libraries, use_cache=False)
    made = dict(zip(texts, objects, strict=True))
    write_stock(folder, target.variant.name, machine, libraries, made)


if __name__ == "__main__":
    sys.exit(main())
