"""The backends of other packages.

A package names each in its metadata, by an entry point of the group `glowpy.backends`:

```toml
[project.entry-points."glowpy.backends"]
fused = "glowpy_fused.backend:FusedBackend"
```

Nothing of it is imported before somebody asks for the backend by its name; a package that is broken is an error that
names it, for whoever asks for its backend, and for nobody else.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from glowpy.backend import Backend
from glowpy.backends.builtin import BACKENDS, PLACES
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.schema import AttrSpec, Trait
from glowpy.graph.infer import infer
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import NODES
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import INSTS
from glowpy.irgen import irgen
from glowpy.llvm.library import KernelLibrary
from glowpy.lower import lower
from glowpy.operators import OperatorSet, add_operators, operator_sets
from glowpy.ops.instructions import verify_as_declared
from glowpy.support.errors import UserError

__all__ = [
    "GROUP",
    "OPERATORS_GROUP",
    "Plugin",
    "installed_operators",
    "load_operators",
    "load_plugin",
    "missing_pieces",
    "missing_rules",
    "name_fault",
    "operator_packages",
    "plugins",
    "register_operators",
]

GROUP = "glowpy.backends"
"""The group of entry points."""

OPERATORS_GROUP = "glowpy.operators"
"""The group of entry points of `OperatorSet`s, each named after its domain."""


@dataclass(frozen=True)
class Plugin:
    """A backend that a package says it has: its name, the package with its version, and where the class is."""

    name: str
    package: str
    entry: EntryPoint


@cache
def plugins() -> tuple[Plugin, ...]:
    """All that the installed packages name, in order of names; not glowpy itself, whose own are known without."""
    others = (e for e in entry_points(group=GROUP) if PLACES.get(e.name) != e.value)
    plugins = [Plugin(entry.name, _package(entry), entry) for entry in others]
    return tuple(sorted(plugins, key=lambda plugin: (plugin.name, plugin.package)))


def _package(entry: EntryPoint) -> str:
    dist = entry.dist
    return f"{dist.name} {dist.version}" if dist is not None else entry.module


@cache
def load_plugin(plugin: Plugin) -> type[Backend]:
    """The class of a backend of another package.

    Raises UserError that names the package if it cannot be imported, and if what it names is no backend of that name,
    lacks rules, or takes a name or a mnemonic that glowpy has. Two packages may use the same mnemonic: no network has
    nodes of both.
    """
    where = f"the backend '{plugin.name}' of the package {plugin.package}"
    try:
        loaded: object = plugin.entry.load()
    except Exception as error:  # whatever it is, it is the package's
        raise UserError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}",
            note="update or uninstall the package",
        ) from error
    if not (inspect.isclass(loaded) and issubclass(loaded, Backend)):
        raise UserError(f"{where}: expected a class that derives from Backend, got {loaded!r}")
    if faults := _faults(plugin.name, loaded):
        note = _what_to_write(loaded.nodes, loaded.instructions)
        raise UserError(f"{where}: {'; '.join(faults)}", note=note)
    verify_as_declared(loaded.nodes, loaded.instructions)
    return loaded


def _faults(name: str, cls: type[Backend]) -> list[str]:
    """Why a class cannot be the backend of that name."""
    if abstract := sorted(cls.__abstractmethods__):
        return [f"{cls.__name__} lacks {', '.join(abstract)}"]
    cls_name = getattr(cls, "name", "")
    faults = [] if cls_name == name else [f"{cls.__name__} calls itself '{cls_name}'"]
    nodes = [*NODES, *(node for backend in BACKENDS.values() for node in backend.nodes)]
    insts = [*INSTS, *(inst for backend in BACKENDS.values() for inst in backend.instructions)]
    clashes = [*_clashes(nodes, cls.nodes), *_clashes(insts, cls.instructions)]
    pieces = [*_no_libraries(cls), *_unlisted(cls), *missing_rules(cls.nodes, cls.instructions)]
    return [*filter(None, [name_fault(name)]), *faults, *clashes, *pieces]


def _no_libraries(cls: type[Backend]) -> list[str]:
    """Says if `libraries` is no tuple of libraries, as one in parentheses without a comma is not."""
    libraries: object = cls.libraries
    if isinstance(libraries, tuple) and all(
        isinstance(library, KernelLibrary) for library in libraries
    ):
        return []
    got = type(libraries).__name__
    hint = "; a comma after the only one makes a tuple" if got == "KernelLibrary" else ""
    return [f"{cls.__name__}.libraries: expected a tuple of KernelLibrary, got {got}{hint}"]


def _unlisted(cls: type[Backend]) -> list[str]:
    """The classes that classgen wrote for the backend, and that its `nodes` or `instructions` do not list."""
    name = getattr(cls, "name", None)
    classes: list[type] = [node for node in Node.__subclasses__() if name == node.BACKEND]
    classes += [inst for inst in Instruction.__subclasses__() if name == inst.BACKEND]
    listed = {*cls.nodes, *cls.instructions}
    return [
        f"{cls.__name__}.{'nodes' if issubclass(missing, Node) else 'instructions'} does not list "
        f"{missing.__name__}"
        for missing in classes
        if missing not in listed
    ]


def name_fault(name: str) -> str:
    """Why no package's backend can have a name; empty if one can."""
    return f"'{name}' is the name of a backend of glowpy's own" if name in BACKENDS else ""


def _clashes(
    known: Sequence[type[Node] | type[Instruction]], own: Sequence[type[Node] | type[Instruction]]
) -> list[str]:
    """The mnemonics of a backend's own classes that another class has; a class that it shares is no clash."""
    owners: dict[str, type] = {cls.SCHEMA.mnemonic: cls for cls in known}
    faults = []
    for cls in own:
        owner = owners.setdefault(cls.SCHEMA.mnemonic, cls)
        if owner is not cls:
            where = f"{owner.__module__}.{owner.__name__}"
            faults.append(f"{cls.__name__}: the mnemonic {cls.SCHEMA.mnemonic} is taken by {where}")
    return faults


def missing_pieces(backend: Backend) -> list[str]:
    """Lists the rules that a backend lacks, its device, and kernels that are declared but not defined for its target.

    Raises UserError if the kernels have to be compiled, and the compiler is not installed.
    """
    kernels, without = backend.kernels, []
    if kernels is not None:
        instructions = [inst for inst in backend.instructions if backend.name == inst.BACKEND]
        without = [*kernels.undeclared(instructions), *kernels.missing()]
    rules = missing_rules(backend.nodes, backend.instructions)
    cls, has_device = type(backend), hasattr(backend, "device")
    lacking = [] if has_device else [f"{cls.__name__} has no device that loads what it compiles"]
    return [*lacking, *_unlisted(cls), *rules, *without]


def missing_rules(
    nodes: Sequence[type[Node]], instructions: Sequence[type[Instruction]]
) -> list[str]:
    """The rules that nodes and instructions which are not the core's lack."""
    mnemonics = {inst.SCHEMA.mnemonic for inst in (*INSTS, *instructions)}
    missing = []
    for node in nodes:
        traits, name = node.SCHEMA.traits, node.__name__
        if (
            node.SCHEMA.results
            and not {Trait.ELEMENTWISE, Trait.TYPED} & traits
            and node not in infer
        ):
            missing.append(f"{name} has no 'infer' rule")
        if node not in lower and node not in irgen and node.SCHEMA.mnemonic not in mnemonics:
            missing.append(f"{name} has neither an instruction nor a 'lower' or 'irgen' rule")
    missing += [
        f"{inst.__name__} has no 'interpret' rule" for inst in interpret.missing(instructions)
    ]
    return missing


_KINDS = {
    "ints": "tuple[int, ...]",
    "dim": "Dim",
    "dims": "tuple[Dim, ...]",
    "flag": "bool",
    "text": "str",
    "function": "str",
}
"""The kinds of attributes that Python calls otherwise."""


def _what_to_write(nodes: Sequence[type[Node]], instructions: Sequence[type[Instruction]]) -> str:
    """Suggests the next step to the author of a package: the first missing rule, with its arguments."""
    other = "update or uninstall the package, or mend it if it is yours: docs/backends.md"
    for node in nodes:
        schema = node.SCHEMA
        if (
            schema.results
            and not {Trait.ELEMENTWISE, Trait.TYPED} & schema.traits
            and node not in infer
        ):
            arguments = [f"{name}: Type" for name in schema.inputs]
            return _rule("infer", node.__name__, arguments, schema.attrs, "Type")
    missing = interpret.missing(instructions)
    for inst in (inst for inst in instructions if inst in missing):
        arguments = [f"{operand.name}: Tensor" for operand in inst.SCHEMA.operands]
        return _rule("interpret", inst.__name__, arguments, inst.SCHEMA.attrs, "None")
    return other


def _rule(
    table: str, cls: str, arguments: Sequence[str], attrs: Sequence[AttrSpec], result: str
) -> str:
    """A rule as its author begins to write it."""
    keywords = ["*", *(f"{attr.name}: {_KINDS.get(attr.kind, attr.kind)}" for attr in attrs)]
    shown = ", ".join([*arguments, *(keywords if attrs else [])])
    return f"write it in a module that the package imports: @{table}({cls}) above def rule({shown}) -> {result}"


def register_operators(operators: OperatorSet) -> None:
    """Makes importer and backends know operators of the caller's own, as an installed package would.

    Raises UserError for a domain that is taken, classes that lack rules or take a mnemonic that there is, and libraries
    that are none.
    """
    if any(other is operators for other in operator_sets()):
        return
    if faults := _operator_faults(operators):
        raise UserError(
            f"the operators of '{operators.domain}': {'; '.join(faults)}",
            note=_what_to_write(operators.nodes, operators.instructions),
        )
    verify_as_declared(operators.nodes, operators.instructions)
    add_operators(operators)


def load_operators(domain: str) -> None:
    """Registers the operators of a domain, if an installed package has some and they are not known yet.

    Raises UserError that names the package if it cannot be imported, or if what it names is not right.
    """
    if any(other.domain == domain for other in operator_sets()):
        return
    named = [entry for entry in _operator_entries() if entry.name == domain]
    if len(named) > 1:
        packages = " and ".join(map(_package, named))
        raise UserError(
            f"{packages} both have operators of '{domain}'", note="uninstall one of them"
        )
    if named:
        _load_operators(named[0])


def installed_operators() -> Sequence[OperatorSet]:
    """All sets that are registered, and those of installed packages; broken ones are for who uses their domain."""
    operator_packages()
    return operator_sets()


def operator_packages() -> dict[str, str]:
    """The package of every domain that an installed one has operators of, or what is wrong with it: `failed: ...`."""
    packages = {}
    for entry in _operator_entries():
        try:
            load_operators(entry.name)
            packages[entry.name] = _package(entry)
        except UserError as error:
            packages[entry.name] = f"failed: {error.diagnostics[0].message}"
    return packages


@cache
def _operator_entries() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=OPERATORS_GROUP))


def _load_operators(entry: EntryPoint) -> None:
    where = f"the operators of '{entry.name}' in the package {_package(entry)}"
    remedy = "update or uninstall the package"
    try:
        loaded: object = entry.load()
    except Exception as error:  # whatever it is, it is the package's
        message = f"{where} cannot be loaded: {type(error).__name__}: {error}"
        raise UserError(message, note=remedy) from error
    if not isinstance(loaded, OperatorSet):
        raise UserError(f"{where}: expected an OperatorSet, got {loaded!r}", note=remedy)
    if loaded.domain != entry.name:
        raise UserError(f"{where}: the set is of the domain '{loaded.domain}'", note=remedy)
    register_operators(loaded)


def _operator_faults(operators: OperatorSet) -> list[str]:
    """Lists the faults of a set of operators."""
    domain, others = operators.domain, [*operator_sets()]
    taken = domain in ("", "ai.onnx") or any(other.domain == domain for other in others)
    nodes = [*NODES, *(node for backend in BACKENDS.values() for node in backend.nodes)]
    nodes += [node for other in others for node in other.nodes]
    insts = [*INSTS, *(inst for backend in BACKENDS.values() for inst in backend.instructions)]
    insts += [inst for other in others for inst in other.instructions]
    wrong = [library for library in operators.libraries if not isinstance(library, KernelLibrary)]
    return [
        *(["the domain is taken"] if taken else []),
        *_clashes(nodes, operators.nodes),
        *_clashes(insts, operators.instructions),
        *missing_rules(operators.nodes, operators.instructions),
        *[f"libraries: expected KernelLibrary, got {library!r}" for library in wrong],
    ]
