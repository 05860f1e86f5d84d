"""Observers of every instruction of a network for `glowpy run`: print it, or write its operands to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from glowpy.core.array_file import write_array
from glowpy.core.tensor import Array
from glowpy.ir.inst import Instruction
from glowpy.runtime.compiled import Observer
from glowpy.support.names import file_stem, legal_name
from glowpy.support.output_files import make_output_folder

__all__ = ["DumpObserver", "Observers", "PrintObserver"]


class PrintObserver:
    """Prints a line after every instruction: its name, and the range of each operand."""

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Nothing yet."""

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Prints the line."""
        ranges = ", ".join(f"{name} {_range(array)}" for name, array in operands.items())
        click.echo(f"{inst.SCHEMA.mnemonic} {inst.name}: {ranges}")


class DumpObserver:
    """Writes what every instruction reads and writes to INDEX.MNEMONIC.NAME.OPERAND.before|after.npy."""

    def __init__(self, folder: Path) -> None:
        self._folder = make_output_folder(folder)
        self._step = 0

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Writes the operands the instruction reads."""
        read = {ref.name for ref in inst.operands if ref.access.reads}
        self._write(
            inst, {name: array for name, array in operands.items() if name in read}, "before"
        )

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Writes the operands the instruction has written."""
        written = {ref.name for ref in inst.operands if ref.access.writes}
        self._write(
            inst, {name: array for name, array in operands.items() if name in written}, "after"
        )
        self._step += 1

    def _write(self, inst: Instruction, operands: Mapping[str, Array], moment: str) -> None:
        for name, array in operands.items():
            stem = file_stem(legal_name(inst.name))
            file = f"{self._step:04d}.{inst.SCHEMA.mnemonic}.{stem}.{name}.{moment}.npy"
            write_array(self._folder / file, array)


class Observers:
    """Several observers as one."""

    def __init__(self, all: Sequence[Observer]) -> None:
        self._all = all

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Tells each observer."""
        for observer in self._all:
            observer.before(inst, operands)

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Tells each observer."""
        for observer in self._all:
            observer.after(inst, operands)


def _range(array: Array) -> str:
    """`[min, max]`; says so where nothing is there or something is no number."""
    if not array.size:
        return "empty"
    if not np.isfinite(array).all():
        return "not finite"
    return (
        f"[{array.min():g}, {array.max():g}]"
        if array.dtype.kind != "b"
        else f"[{array.min()}, {array.max()}]"
    )
