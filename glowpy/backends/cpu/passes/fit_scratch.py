"""Less scratch memory where it would make the arena larger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from glowpy.backends.cpu.insts_gen import CpuByteWinogradInst, CpuStrassenInst, CpuWinogradInst
from glowpy.backends.cpu.strategy.winograd import fewer_units
from glowpy.core.schema import Access
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Lifetime, lifetimes
from glowpy.ir.plan import aligned
from glowpy.ir.value import Value, WeightVar
from glowpy.passes import IRPass, PassContext
from glowpy.support.symbolic import ceil_div

__all__ = ["FitScratchPass"]

_Product = CpuWinogradInst | CpuByteWinogradInst | CpuStrassenInst

_LEAST = 2
"""Units that an instruction keeps: as many threads can share it, whatever memory that takes."""


@dataclass(frozen=True)
class FitScratchPass(IRPass):
    """Takes fewer units of products whose scratch memory would be where the arena is largest.

    Each unit has memory of its own, and there are more of them than most machines have threads. The arena is as large
    as the network needs at any instruction without such memory, or with that of two units where that is more; others
    get as many units as find room in it.

    Before:
        %x, %out = weight f32[1x32x32x16] mutable
        %w = weight f32[1x36x16x16] constant
        %b = weight f32[16] constant
        %work = alloc f32[4x22336]
        cpu_winograd @out %out, @in %x, @in %w, @in %b, @scratch %work {bands=4, blocks=1, group=1, kernels=[3,3], pads=[1,1,1,1], patch=[6,6], pool=[1,1], slab=18, tile_pixels=6, tile_vectors=2}
        dealloc @out %work
    After:
        %x, %out = weight f32[1x32x32x16] mutable
        %w = weight f32[1x36x16x16] constant
        %b = weight f32[16] constant
        %work = alloc f32[2x22336]
        cpu_winograd @out %out, @in %x, @in %w, @in %b, @scratch %work {bands=2, blocks=1, group=1, kernels=[3,3], pads=[1,1,1,1], patch=[6,6], pool=[1,1], slab=18, tile_pixels=6, tile_vectors=2}
        dealloc @out %work
    """  # noqa: E501

    name: ClassVar[str] = "fit-scratch"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Linear time."""
        del ctx
        lives = lifetimes(f)
        owners = list(_owners(f, lives))
        if not owners:
            return False
        scratch = {owner.scratch for owner in owners}
        alive = _alive(lives, scratch, len(f.instructions))
        rests = [max(alive[owner.life.start : owner.life.end + 1]) for owner in owners]
        needs = [rest + owner.bytes(_LEAST) for owner, rest in zip(owners, rests, strict=True)]
        room = max(*alive, *needs)
        program = list(f.instructions)
        for owner, rest in zip(owners, rests, strict=True):
            units = next(
                n for n in range(owner.units, 0, -1) if rest + owner.bytes(n) <= room or n <= _LEAST
            )
            if units < owner.units:
                owner.reduce(units, program)
        changed = program != f.instructions
        if changed:
            f.replace_instructions(program)
        return changed


@dataclass(frozen=True)
class _Owner:
    """A product with scratch memory of its own, and its life."""

    inst: _Product
    scratch: Value
    life: Lifetime

    @property
    def units(self) -> int:
        """How many parts of its scratch memory there are."""
        return self.scratch.type.extents[0]

    def bytes(self, units: int) -> int:
        """The room of so many units, or of as many as there are."""
        return aligned(self.scratch.type.room // self.units * min(units, self.units))

    def reduce(self, most: int, program: list[Instruction]) -> None:
        """Makes the product one of so many units at most, and its memory as small, in a program that is given."""
        inst, old = self.inst, self.scratch
        name, total = (
            ("pairs", inst.rhs.type.extents[0] // 2)
            if isinstance(inst, CpuStrassenInst)
            else ("blocks", inst.filter.type.extents[0] // inst.group)
        )
        bands, share = fewer_units(inst.bands, inst.attrs[name], total, most)
        inst.attrs |= {"bands": bands, name: share}
        type = old.type.with_shape((bands * ceil_div(total, share), *old.type.shape[1:]))
        program[self.life.start] = alloc = AllocInst((), {}, name=old.name, type=type)
        for user in program[self.life.start : self.life.end + 1]:
            user.replace_value(old, alloc.value)


def _owners(f: IRFunction, lives: dict[Value, Lifetime]) -> Iterator[_Owner]:
    """The products whose scratch memory nothing else uses."""
    for inst in f.instructions:
        if isinstance(inst, _Product):
            (scratch,) = inst.those(Access.SCRATCH)
            life = lives[scratch.base]
            if isinstance(scratch.definition, AllocInst) and len(life.accesses) <= 1:
                yield _Owner(inst, scratch, life)


def _alive(lives: dict[Value, Lifetime], besides: set[Value], count: int) -> list[int]:
    """The bytes of buffers that are alive at each of so many instructions, besides some."""
    changes = [0] * (count + 2)
    for value, life in lives.items():
        if not isinstance(value, WeightVar) and value not in besides:
            changes[life.start] += aligned(value.type.room)
            changes[life.end + 1] -= aligned(value.type.room)
    return list(accumulate(changes))
