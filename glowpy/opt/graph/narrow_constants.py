"""Constants in the memory of what is repeated in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.core.shape import broadcast_shapes
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import ConcatNode, LoopNode, SaveNode
from glowpy.passes import GraphPass, PassContext
from glowpy.support.errors import UserError

__all__ = ["NarrowConstantsPass"]

_Copying = ConcatNode | LoopNode | SaveNode


@dataclass(frozen=True)
class NarrowConstantsPass(GraphPass):
    """Has constants hold once what is the same along dimensions, where nodes repeat it themselves or only copy it.

    Element-wise nodes broadcast it; what would be copied is written in its place by a broadcast. Products read
    constants many times, in a layout of their own, and keep them.

    Before:
        %x : f32[32x32]
        %o : f32[64x32]
        %a : f32[32x32] = splat 2.0
        %y = mul(%x, %a) : f32[32x32]
        %z = concat(%y, %a) {axis=0} : f32[64x32]
        save(%z, %o)
    After:
        %x : f32[32x32]
        %o : f32[64x32]
        %a : f32[32x32] = splat 2.0
        %a_1 : f32[1x1] = splat 2.0
        %a_2 : f32[1x1] = splat 2.0
        %y = mul(%x, %a_1) : f32[32x32]
        %a_3 = broadcast(%a_2) : f32[32x32]
        %z = concat(%y, %a_3) {axis=0} : f32[64x32]
        save(%z, %o)
    """

    small: int = 1024
    """Constants of so many bytes stay as they are."""
    name: ClassVar[str] = "narrow-constants"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Looks at the constants of every node once."""
        del ctx
        changed = False
        for node in list(f.topological()):
            for index, value in enumerate(node.inputs):
                if not self._is_large(value):
                    continue
                narrow = None
                if node.has(Trait.ELEMENTWISE):
                    narrow = _operand(f, node, index)
                elif isinstance(node, _Copying):
                    narrow = _repeated(f, value)
                if narrow is not None:
                    node.set_input(index, narrow)
                    changed = True
        return changed

    def _is_large(self, value: NodeValue) -> bool:
        constant, quant = value.constant, value.type.quant
        alike = quant is None or quant.axis is None
        return (
            alike
            and constant is not None
            and constant.has_elements
            and value.type.size > self.small
        )


def _operand(f: Function, node: Node, index: int) -> NodeValue | None:
    """An operand of an element-wise node with extents of 1 where that changes nothing."""
    value = node.inputs[index]
    shape = list(value.type.extents)
    tensor = _tensor(value)
    for axis, repeats in enumerate(tensor.repeats):
        if not repeats or shape[axis] == 1:
            continue
        narrow = [*shape[:axis], 1, *shape[axis + 1 :]]
        shapes = [other.type.shape for other in node.inputs]
        shapes[index] = tuple(narrow)
        try:
            fits = broadcast_shapes(*shapes) == node.type.shape
        except UserError:  # among these, what bounds of symbols leave open
            fits = False
        shape = narrow if fits else shape
    return _narrowed(f, value, shape) if tuple(shape) != value.type.shape else None


def _repeated(f: Function, value: NodeValue) -> NodeValue | None:
    """The broadcast of what is repeated in a constant, if that is little."""
    extents = value.type.extents
    repeats = _tensor(value).repeats
    shape = [1 if same else size for size, same in zip(extents, repeats, strict=True)]
    if 2 * value.type.with_shape(tuple(shape)).size >= value.type.size:
        return None  # constant folding would make a constant of the broadcast again
    rows = _narrowed(f, value, shape)
    return f.create_broadcast(value.name, value.type, rows).result


def _narrowed(f: Function, value: NodeValue, shape: list[int]) -> NodeValue:
    """The first elements of a constant along the dimensions in which `shape` has an extent of 1."""
    tensor = _tensor(value)
    array = tensor.array[tuple(slice(size) for size in shape)]
    constant = value.constant
    assert constant is not None
    narrow = Tensor(value.type.with_shape(array.shape), array.copy())
    return f.module.create_constant(constant.name, narrow, loc=constant.loc).value


def _tensor(value: NodeValue) -> Tensor:
    assert value.constant is not None
    return value.constant.tensor
