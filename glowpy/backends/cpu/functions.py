"""Functions of libjit that are no kernels, under visible names: for machine code in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from glowpy.llvm.code_image import Functions, LinkedCode, is_loadable, joined, load_code
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import UserError

if TYPE_CHECKING:
    from glowpy.backends.cpu.target import CpuTarget
    from glowpy.llvm.machine import Machine

__all__ = ["load_functions"]


def load_functions(
    prefix: str,
    functions: Mapping[str, str],
    external: Mapping[str, str],
    identity: str,
    target: Callable[[], CpuTarget],
    *,
    use_cache: bool,
) -> Functions:
    """Code with the functions PREFIX_NAME, which are libjit_PREFIX_NAME; compiled if the cache does not have it.

    Args:
        prefix: The beginning of the names.
        functions: The types of the results and the arguments of each, in which `{dim}` is an integer as wide as a
            pointer.
        external: The same of functions of this process that they call.
        identity: Everything that code depends on: the processor, LLVM, and the kernels.
        target: Gives the processor, where something has to be compiled.
        use_cache: Whether code is looked for in the cache, and kept there.

    Raises UserError where libjit does not have the functions for the system.
    """

    def machine() -> Machine:
        return target().machine

    key = Key.of("program", prefix, identity)
    if use_cache and (image := _cached(key)) is not None:
        return load_code(image, machine)
    objects = _objects(
        prefix, functions, external, target(), use_cache=use_cache and not is_loadable()
    )
    code = joined(objects)
    if use_cache and isinstance(code, LinkedCode):
        write(key, code.payload())
    return load_code(code, machine)


def _cached(key: Key) -> LinkedCode | None:
    """The image in the cache, if it is there and not damaged."""
    payload = read(key)
    try:
        return None if payload is None else LinkedCode.parse(payload)
    except ValueError:
        return None


def _objects(
    prefix: str,
    functions: Mapping[str, str],
    external: Mapping[str, str],
    target: CpuTarget,
    *,
    use_cache: bool,
) -> list[bytes]:
    """The object files of the functions."""
    from glowpy.backends.cpu.libjit import LIBJIT  # noqa: PLC0415 - the compiler
    from glowpy.llvm.objects import compile_objects  # noqa: PLC0415 - LLVM

    missing = {f"libjit_{prefix}_{name}" for name in functions} - LIBJIT.symbols(target.variant)
    if missing:
        raise UserError(f"libjit has no {prefix} for '{target.machine.triple}'")
    text = _module_text(prefix, functions, external, f"i{target.pointer_bits}")
    libraries = [LIBJIT.bitcode(target.variant)]
    return compile_objects([text], target.machine, libraries, use_cache=use_cache)


def _module_text(
    prefix: str, functions: Mapping[str, str], external: Mapping[str, str], dim: str
) -> str:
    """A module that has the functions under visible names."""
    from glowpy.llvm.machine import EXTERNAL  # noqa: PLC0415 - LLVM

    lines = []
    for name, types in external.items():
        result, _, arguments = types.format(dim=dim).partition(" ")
        lines.append(f"declare {result} @{name}{arguments} {EXTERNAL}")
    for name, types in functions.items():
        result, _, arguments = types.format(dim=dim).partition(" ")
        names = [f"{type} %{index}" for index, type in enumerate(arguments.strip("()").split(", "))]
        call = f"call {result} @libjit_{prefix}_{name}({', '.join(names)})"
        lines += [
            f"declare {result} @libjit_{prefix}_{name}{arguments}",
            f"define {result} @{prefix}_{name}({', '.join(names)}) nounwind {{",
            *(
                [f"  {call}", "  ret void"]
                if result == "void"
                else [f"  %result = {call}", f"  ret {result} %result"]
            ),
            "}",
        ]
    return "\n".join(lines) + "\n"
