"""Instructions that need no kernel: copies, splats, and what moves extents between memory and the program."""

from __future__ import annotations

from collections.abc import Callable

from glowpy.core.tensor import stored
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import CopyInst, DefineInst, ExtentsInst, SplatInst
from glowpy.llvm.element_types import literal
from glowpy.llvm.stack import emit_loops
from glowpy.llvm.writer import Body
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import Expr, static, symbols_of

__all__ = ["BUILTIN", "emit_builtin", "is_builtin"]

BUILTIN = tuple(cls.SCHEMA.mnemonic for cls in (CopyInst, DefineInst, ExtentsInst, SplatInst))
"""The mnemonics of these."""

_COPIED_BYTES = 1 << 16
"""The size of the part of a copy that is one unit of work."""


def is_builtin(inst: Instruction) -> bool:
    """Whether `emit_builtin` writes an instruction."""
    return isinstance(inst, CopyInst | SplatInst | ExtentsInst | DefineInst)


def emit_builtin(body: Body, inst: Instruction) -> None:
    """Writes an instruction that `is_builtin`."""
    match inst:
        case CopyInst():
            _emit_copy(body, inst)
        case SplatInst():
            _emit_splat(body, inst)
        case ExtentsInst():
            _emit_extents(body, inst)
        case DefineInst():
            _emit_define(body, inst)
        case _:
            raise InternalError(f"expected an instruction that needs no kernel, got {inst}")


def _emit_copy(body: Body, inst: CopyInst) -> None:
    result, source = inst.result, inst.input
    if result.same_memory(source):
        return
    kind = result.type.kind
    to, out_of = body.pointer(result), body.pointer(source)
    if not (result.is_contiguous and source.is_contiguous):
        steps = result.strides, source.strides

        def inner(index: Callable[[Shape], str]) -> None:
            element = body.load(kind, out_of, index(steps[1]))
            body.store(kind, element, to, index(steps[0]))

        emit_loops(body, result.type.shape, steps, inner)
        return
    dim, size = body.module.dim, body.number(result.type.size)
    if result.type.room > _COPIED_BYTES:
        start, end = body.split(result.type.size, _COPIED_BYTES)
        size = body.let(f"sub nuw nsw {dim} {end}, {start}")
        to = body.let(f"getelementptr inbounds i8, ptr {to}, {dim} {start}")
        out_of = body.let(f"getelementptr inbounds i8, ptr {out_of}, {dim} {start}")
    symbol = f"llvm.memcpy.p0.p0.{dim}"
    body.module.declare(symbol, "void", ["ptr", "ptr", dim, "i1"])
    body.line(f"call void @{symbol}(ptr {to}, ptr {out_of}, {dim} {size}, i1 false)")


def _emit_splat(body: Body, inst: SplatInst) -> None:
    type, steps = inst.result.type, inst.result.strides
    elements = stored(type, inst.value)
    pointer = body.pointer(inst.result)
    array = ""
    if elements.size > 1:  # one for each channel
        array = body.module.array(type.kind, elements.reshape(-1).tolist())
    channel = tuple(int(axis == type.rank - elements.ndim) for axis in range(type.rank))

    def inner(index: Callable[[Shape], str]) -> None:
        element = (
            body.load(type.kind, array, index(channel))
            if array
            else literal(type.kind, elements.item())
        )
        body.store(type.kind, element, pointer, index(steps))

    emit_loops(body, type.shape, (steps, channel) if array else (steps,), inner)


def _emit_extents(body: Body, inst: ExtentsInst) -> None:
    kind, dim = inst.result.type.kind, body.module.dim
    (stride,) = static(inst.result.strides)
    pointer = body.pointer(inst.result)
    for index, value in enumerate(inst.values):
        number = body.number(value)
        if isinstance(value, Expr) and dim != "i64":
            number = body.let(f"sext {dim} {number} to i64")
        body.store(kind, number, pointer, str(index * stride))


def _emit_define(body: Body, inst: DefineInst) -> None:
    """Writes the elements to the array of extents, which functions that are called after this one read."""
    dim, elements, array = body.module.dim, body.pointer(inst.input), body.extents
    for index, extent in enumerate(symbols_of(inst.symbols).values()):
        number = body.load(inst.input.type.kind, elements, str(index))
        for relation, bound in (("sgt", extent.low), ("slt", extent.high)):
            inside = body.let(f"icmp {relation} i64 {number}, {bound}")
            number = body.let(f"select i1 {inside}, i64 {number}, i64 {bound}")
        if dim != "i64":
            number = body.let(f"trunc i64 {number} to {dim}")
        place = body.place_of(extent.name)
        address = body.let(f"getelementptr inbounds {dim}, ptr {array}, {dim} {place}")
        body.line(f"store {dim} {number}, ptr {address}")
