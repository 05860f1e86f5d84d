"""Functions of libjit that are no kernels, under visible names: for machine code in this process."""

from __future__ import annotations

from collections.abc import Mapping

from glowpy.backends.cpu.library import LIBJIT
from glowpy.backends.cpu.target import CpuTarget
from glowpy.llvm.machine import EXTERNAL, LoadedCode
from glowpy.llvm.objects import compile_objects, load_objects

__all__ = ["load_functions"]


def load_functions(
    prefix: str,
    functions: Mapping[str, str],
    external: Mapping[str, str],
    target: CpuTarget,
    *,
    use_cache: bool,
) -> LoadedCode:
    """Code with the functions PREFIX_NAME, which are libjit_PREFIX_NAME; compiled if the cache does not have it.

    `functions` and those `external` ones of this process that they call have types of results and arguments, in which
    `{dim}` is an integer as wide as a pointer.
    """
    text = _module_text(prefix, functions, external, f"i{target.pointer_bits}")
    libraries = [LIBJIT.bitcode(target.variant)]
    objects = compile_objects([text], target.machine, libraries, use_cache=use_cache)
    return load_objects(target.machine, objects)


def _module_text(
    prefix: str, functions: Mapping[str, str], external: Mapping[str, str], dim: str
) -> str:
    """A module that has the functions under visible names."""
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
