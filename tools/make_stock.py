"""Makes the stock of machine code that an installation brings: `python -m tools.make_stock FOLDER`.

The build hook runs it. `--bitcode FOLDER` has the kernels of this machine's family, as the wheel carries them: there is
a stock for each variant of them. Without it there is one for this machine's own variant, and beside it that variant's
kernels: as a checkout takes them, whose kernels may change. `--variants` leaves out the stock of those that it does not
name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.strategy.machine import Machine as ProductMachine
from glowpy.backends.cpu.target import CpuTarget, portable_machine, resolve_target
from glowpy.backends.cpu.variant import VARIANTS, Variant, machines_of
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.machine import declarations, needed_pieces
from glowpy.llvm.objects import compile_objects
from glowpy.llvm.stock import write_stock
from tools.common_functions import common_texts

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files into the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bitcode", type=Path, help="a folder with VARIANT.bc")
    parser.add_argument("--variants", help="their names, with commas between them")
    options = parser.parse_args(arguments)
    asked = None if options.variants is None else options.variants.split(",")
    variants = [variant for variant in VARIANTS if asked is None or variant.name in asked]
    host = resolve_target(CpuOptions())
    if options.bitcode is None and host.variant not in variants:
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for old in options.folder.glob("*-*"):
        old.unlink(missing_ok=True)
    if options.bitcode is None:
        LIBJIT.write_content(host.variant, options.folder)
        _write(host, (host.variant.machine,), LIBJIT, options.folder, [])
        return 0
    library = replace(LIBJIT, packaged=options.bitcode, _contents={}, _identities={})
    CpuBackend.libraries = (library,)  # so that no kernels are compiled again, for the texts
    made: list[_Made] = []
    for variant in variants:
        if (options.bitcode / f"{variant.name}.bc").is_file():
            target = replace(host, variant=variant)
            made.append(_write(target, machines_of(variant), library, options.folder, made))
    return 0


@dataclass(frozen=True, slots=True)
class _Made:
    """The objects of one variant, and the kernels that they were compiled with."""

    variant: Variant
    kernels: bytes
    objects: Mapping[str, bytes]

    def fitting(self, variant: Variant, kernels: bytes) -> Iterator[tuple[str, bytes]]:
        """Yields the objects that are for a later variant as well: its kernels that they call are the same."""
        if self.variant.cpu == variant.cpu and self.variant.requires <= variant.requires:
            for text, code in self.objects.items():
                called = declarations([text])
                if needed_pieces([self.kernels], called) == needed_pieces([kernels], called):
                    yield text, code


def _write(
    target: CpuTarget,
    machines: Sequence[ProductMachine],
    library: KernelLibrary,
    folder: Path,
    made: Sequence[_Made],
) -> _Made:
    """Writes the stock of one variant, with the tiles that these models of its processors choose from."""
    variant, machine = target.variant, portable_machine(target)
    kernels = library.bitcode(variant)
    texts = common_texts(variant, machines, machine.triple)
    known = {text: code for one in made for text, code in one.fitting(variant, kernels)}
    others = [text for text in texts if text not in known]
    compiled = compile_objects(others, machine, [kernels], use_cache=False)
    known |= zip(others, compiled, strict=True)
    objects = {text: known[text] for text in texts}
    write_stock(folder, variant.name, machine, [kernels], objects)
    return _Made(variant, kernels, objects)


if __name__ == "__main__":
    sys.exit(main())
