"""Kernels that instructions of many sizes share: sizes are arguments where code for one of them alone is no faster.

Such a function is called as products' walks are, and needs not be compiled for a network if an installation brings it.
What decides which code there is stays constant: ranks, attributes, small sizes, channels of pools, and whether a line
of elements is made of whole vectors, or of which part of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    AvgPoolInst,
    LocalResponseNormalizationInst,
    MaxPoolInst,
    SoftmaxInst,
    SumPoolInst,
)
from glowpy.llvm.writer import Body
from glowpy.support.symbolic import depends_on_symbols, static

__all__ = ["Sizes", "is_shared", "shared_kernel"]

_LEAST: Mapping[type[Instruction], int] = {
    MaxPoolInst: 5,
    AvgPoolInst: 5,
    SumPoolInst: 5,
    LocalResponseNormalizationInst: 2,
    SoftmaxInst: 513,
}
"""The least size that is an argument, for each kind of instruction. A softmax adds few elements up in another order."""

_POOLS = MaxPoolInst | AvgPoolInst | SumPoolInst

_WITH_CHANNELS = LocalResponseNormalizationInst | _POOLS
"""Instructions whose channels are constant: places of a window's taps follow from them, and how long loops are."""

Sizes = Sequence[Shape]
"""Shapes, then strides, of operands, as a kernel takes them."""


def is_shared(inst: Instruction, sizes: Sizes) -> bool:
    """Whether a kernel takes sizes as arguments: those of a network without symbols.

    A pool with a single window in a row is all about its extents.
    """
    if type(inst) not in _LEAST or (isinstance(inst, _POOLS) and inst.result.type.shape[-2] == 1):
        return False
    return not depends_on_symbols(tuple(size for one in sizes for size in one))


def shared_kernel(
    caller: Body, inst: Instruction, symbol: str, arguments: Sequence[str], sizes: Sizes
) -> str:
    """The name of a function that takes a kernel's arguments; `sizes` are those that follow the operands."""
    module, count = caller.module, len(inst.operands)
    types = [argument.partition(" ")[0] for argument in arguments]
    names = [f"%a{index}" for index in range(len(arguments))]
    parameters = [f"{type} {name}" for type, name in zip(types, names, strict=True)]
    if len(set(arguments[:count])) == count == len({ref.value.base for ref in inst.operands}):
        parameters[:count] = [f"ptr noalias {name}" for name in names[:count]]
    network = caller.name.partition(".")[0]
    body = Body(module, f"{network}.{inst.SCHEMA.mnemonic}", caller.lines, parameters)
    body.follow(caller)
    passed = [f"{type} {name}" for type, name in zip(types, names, strict=True)]
    for index, one in enumerate(sizes):
        constant = (1 if index < count else 2) if isinstance(inst, _WITH_CHANNELS) else 0
        array = _array(body, names[count + index], static(one), _LEAST[type(inst)], constant)
        passed[count + index] = f"ptr {array}"
    for index in range(count + len(sizes), len(arguments)):
        if not arguments[index].partition(" ")[2].startswith("%"):
            passed[index] = arguments[index]
    body.module.declare(symbol, "void", types)
    body.line(f"call void @{symbol}({', '.join(passed)})")
    return module.function(body, inline=False)


def _array(body: Body, given: str, sizes: tuple[int, ...], least: int, constant: int) -> str:
    """An `ints_t` with these sizes, the larger ones as they are `given`; what is known of these LLVM is told.

    As many of the last as are asked for stay `constant`: channels, and how far apart these and pixels are.
    """
    module = body.module
    open_sizes = sizes[: len(sizes) - constant]
    if all(size < least for size in open_sizes):
        return module.ints(sizes)
    array, dim = body.alloca("%ints_t"), module.dim
    for index, size in enumerate((len(sizes), *sizes)):
        number = str(size)
        if 0 < index <= len(open_sizes) and size >= least:
            place = body.let(f"getelementptr inbounds {dim}, ptr {given}, {dim} {index}")
            number = body.let(f"load {dim}, ptr {place}")
            _assume(body, body.let(f"icmp sge {dim} {number}, {least}"))
            divisor = gcd(size, module.vector_bytes // 4) if index == len(sizes) else 1
            if divisor > 1:
                rest = body.let(f"and {dim} {number}, {divisor - 1}")
                _assume(body, body.let(f"icmp eq {dim} {rest}, 0"))
        place = body.let(f"getelementptr inbounds {dim}, ptr {array}, {dim} {index}")
        body.line(f"store {dim} {number}, ptr {place}")
    return array


def _assume(body: Body, condition: str) -> None:
    body.module.declare("llvm.assume", "void", ["i1"])
    body.line(f"call void @llvm.assume(i1 {condition})")
