"""The inner loops of products as functions of their own: kernels of libjit that are called with sizes as constants."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.backends.cpu.strategy.work import PatchFunction, TileFunction
from glowpy.core.elemkind import ElemKind
from glowpy.llvm.writer import Body

__all__ = ["TILED_WORK", "call_kernel", "call_tile", "patch_function", "tile_function"]

TILED_WORK = 8
"""LLVM takes so many times longer for a kernel that may run an epilogue than for a loop: it is unrolled into tiles."""


def call_kernel(body: Body, symbol: str, arguments: Sequence[str]) -> None:
    """The call of a kernel, which is declared."""
    body.module.declare(symbol, "void", [argument.split(" ", 1)[0] for argument in arguments])
    body.line(f"call void @{symbol}({', '.join(arguments)})")


def _suffix(tile: TileFunction, kind: ElemKind) -> str:
    return f"{kind.suffix}_half" if tile.halves else kind.suffix


def call_tile(
    body: Body, tile: TileFunction, kind: ElemKind, arguments: Sequence[str], loop: str = ""
) -> None:
    """The call of an inner loop whose sizes are constants; it takes the pointers of a `tile_t` and what `loop` adds."""
    constants = [
        f"{body.module.dim} {number}" for number in (tile.pixels, tile.vectors, tile.block)
    ]
    symbol = f"libjit_tile_{loop or tile.kind}_{_suffix(tile, kind)}"
    call_kernel(body, symbol, [*arguments, *constants])


def tile_function(caller: Body, tile: TileFunction | None, kind: ElemKind) -> str:
    """The name of an inner loop for a kind, a `tile_t` of libjit with its sizes as constants; empty without a tile."""
    if tile is None:
        return ""
    module = caller.module
    dim, pointers = module.dim, ["sums", "start", "input", "weights", "reach"]
    network = caller.name.partition(".")[0]
    sizes = f"{tile.pixels}{'open' * tile.open_pixels}x{tile.vectors}{'open' * tile.open_vectors}"
    sizes += "_half" * tile.halves
    parameters = [*(f"ptr %{p}" for p in pointers), f"{dim} %pixels", f"{dim} %vectors"]
    body = Body(module, f"{network}.{tile.kind}_{sizes}", caller.lines, parameters)
    body.follow(caller)
    if tile.open_pixels or tile.open_vectors:
        constants = [f"{dim} {number}" for number in (tile.pixels, tile.vectors, tile.block)]
        flags = [f"i1 {str(flag).lower()}" for flag in (tile.open_pixels, tile.open_vectors)]
        symbol = f"libjit_open_{tile.kind}_{_suffix(tile, kind)}"
        call_kernel(body, symbol, [*parameters, *constants, *flags])
    else:
        call_tile(body, tile, kind, parameters[:5])
    return module.function(body, inline=module.has_debug_info, work=TILED_WORK)


_PATCH_PARAMETERS = {
    "spread": (["to", "image", "w"], ["first", "count"]),
    "collect": (["to", "start", "sums", "w"], ["count", "vectors"]),
}
"""Pointers and numbers that the functions of patches take."""


def patch_function(caller: Body, function: PatchFunction, kind: ElemKind) -> str:
    """The name of a function of patches for a kind, with the sizes of patch and kernel as constants."""
    module = caller.module
    pointers, numbers = _PATCH_PARAMETERS[function.kind]
    network = caller.name.partition(".")[0]
    numbers_of_patch = (*function.patch, *function.kernels, *function.pool)
    told = numbers_of_patch if max(function.pool, default=1) > 1 else numbers_of_patch[:4]
    sizes = "_".join(map(str, told))
    parameters = [*(f"ptr %{p}" for p in pointers), *(f"{module.dim} %{n}" for n in numbers)]
    body = Body(module, f"{network}.{function.kind}_{sizes}", caller.lines, parameters)
    body.follow(caller)
    constants = [f"{module.dim} {number}" for number in numbers_of_patch]
    symbol = f"libjit_winograd_{function.kind}_{kind.suffix}"
    call_kernel(body, symbol, [*parameters, *constants])
    return module.function(body, inline=module.has_debug_info, work=TILED_WORK)
