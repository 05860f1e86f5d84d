"""What the attributes of the CPU backend's own products have to keep to, so that a text with others is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glowpy.backend import Operation
from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuDepthwiseConvInst, CpuMatmulInst
from glowpy.backends.cpu.nodes_gen import CpuConvNode, CpuDepthwiseConvNode, CpuMatmulNode
from glowpy.backends.cpu.strategy.depthwise import MAX_DEPTHWISE_PIXELS
from glowpy.backends.cpu.strategy.product import MAX_PIXELS, MAX_SUMS, MAX_VECTORS
from glowpy.backends.cpu.variant import Variant
from glowpy.core.type import Shape
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst

__all__ = ["misfit"]


@verify(CpuConvNode)
@verify_inst(CpuConvInst)
def _conv(n: CpuConvNode | CpuConvInst) -> Iterator[str]:
    yield from _tile(n)
    result, filter = n.result.type.shape, n.filter.type.shape
    if n.line not in (result[2], n.tile_pixels):
        yield (
            f"expected a line of {result[2]} pixels (a row of the result) or {n.tile_pixels} (tile_pixels), "
            f"got {n.line}"
        )
    elif n.tile_pixels > n.line:
        yield f"expected tile_pixels of at most a line, {n.line}, got {n.tile_pixels}"
    depth, channels = n.input.type.shape[3] // n.group, result[3] // n.group
    yield from _packed("filter", filter, (n.group,), channels, (*n.kernels, depth))
    if any(n.pads) and n.zeros.type.count < depth:
        yield f"expected {depth} zeros for what lies outside the image, got {n.zeros.type.count}"


@verify(CpuMatmulNode)
@verify_inst(CpuMatmulInst)
def _matmul(n: CpuMatmulNode | CpuMatmulInst) -> Iterator[str]:
    yield from _tile(n)
    rhs, depth = n.rhs.type.shape, n.lhs.type.shape[-1]
    yield from _packed("rhs", rhs, rhs[:-3], n.result.type.shape[-1], (depth,))


@verify(CpuDepthwiseConvNode)
@verify_inst(CpuDepthwiseConvInst)
def _depthwise(n: CpuDepthwiseConvNode | CpuDepthwiseConvInst) -> Iterator[str]:
    if not 1 <= n.tile_pixels <= MAX_DEPTHWISE_PIXELS:
        yield f"expected tile_pixels from 1 to {MAX_DEPTHWISE_PIXELS}, got {n.tile_pixels}"


def _tile(n: CpuConvNode | CpuConvInst | CpuMatmulNode | CpuMatmulInst) -> Iterator[str]:
    for name, number, most in (
        ("tile_pixels", n.tile_pixels, MAX_PIXELS),
        ("tile_vectors", n.tile_vectors, MAX_VECTORS),
    ):
        if not 1 <= number <= most:
            yield f"expected {name} from 1 to {most}, got {number}"
    sums = n.tile_pixels * n.tile_vectors
    if sums > MAX_SUMS:
        yield f"expected a tile of at most {MAX_SUMS} sums, got {n.tile_pixels} x {n.tile_vectors} = {sums}"
    if n.slab < 1:
        yield f"expected a slab of at least 1 line, got {n.slab}"
    if n.fetch < 0:
        yield f"expected at least 0 elements to fetch, got {n.fetch}"


def _packed(
    name: str, shape: Shape, before: Sequence[int], columns: int, inside: Sequence[int]
) -> Iterator[str]:
    """Weights for so many columns in blocks, as long as the last dimension says."""
    block = shape[-1]
    if not block:
        yield f"expected a {name} packed in blocks, got {list(shape)}"
        return
    expected = (*before, -(-columns // block), *inside, block)
    if shape != expected:
        yield f"expected a {name} packed to {list(expected)}, got {list(shape)}"


def misfit(operation: Operation, variant: Variant) -> str:
    """Why a product cannot use its weights, packed for other vectors or other tiles; empty if it can."""
    vectors = operation.attrs.get("tile_vectors")
    if not isinstance(vectors, int):
        return ""
    packed = next(name for name in ("filter", "rhs") if name in operation.types)
    type = operation.types[packed]
    lanes, block = variant.machine_for(type.kind).lanes, type.shape[-1]
    if block and block % lanes == 0 and vectors * lanes % block == 0:
        return ""
    return (
        f"{packed}: expected blocks whose multiple {vectors} x {lanes} = {vectors * lanes} numbers are "
        f"(tile_vectors, and the vectors of {variant.name}), got {block}: lower the model for this processor"
    )
