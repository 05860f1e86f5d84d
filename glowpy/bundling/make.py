"""Makes bundles of models: networks in, a folder of files out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from glowpy.backend import Backend, CompileOptions, Program
from glowpy.backend_choice import option_names
from glowpy.bundling.c_names import problem_with_network
from glowpy.bundling.manifest import fingerprint
from glowpy.bundling.options import BundleOptions
from glowpy.bundling.read import StoredBundle, read_bundle
from glowpy.bundling.support_code import Golden
from glowpy.bundling.write import Bundle, build_bundle
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import Extents, symbols_of_types, type_at
from glowpy.core.tensor import Array
from glowpy.engine import backend_class, backend_of, compilation, context, package_of
from glowpy.engine import compile as compile_function
from glowpy.graph.channels_last import channels_last, unknown_port
from glowpy.graph.function import Function, Module
from glowpy.graph.printer import print_module
from glowpy.llvm.bundle_compiler import BundleCompiler
from glowpy.passes import PassContext
from glowpy.quantization.integer_ports import integer_ports
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.ports import Port
from glowpy.support.errors import LoadError, UserError
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc
from glowpy.support.symbolic import UNBOUNDED, Symbol

__all__ = [
    "bundle",
    "bundle_compiler",
    "memories",
    "model_fingerprint",
    "outdated",
    "random_inputs",
    "run_in",
]


@within_limits
def bundle(
    model: Module | Mapping[str, Module],
    directory: Path | str,
    options: BundleOptions,
    backend: Backend | None = None,
    *,
    ctx: PassContext | None = None,
    compiling: CompileOptions | None = None,
) -> Bundle:
    """Writes a bundle of one or several networks.

    Args:
        model: A module, or several by name. Every function of every module gets an entry point: the bundle's name for a
            single network, else NAME_FUNCTION or NAME_MODULE_FUNCTION. Functions of one module share its variables.
        directory: Folder to write to.
        options: The options of the bundle.
        backend: For which machine; the CPU backend for this one if absent.
        ctx: Where times go.
        compiling: Which passes and rewrites are left out, if any are; steps are counted over all networks.

    Raises VerifyError, UnsupportedError as `compile` does, UserError for a backend that makes no bundles, for an
    exceeded budget, for channels last of what is no input or output, or of a wrong rank, and for integer ports of a
    model that is not quantized.
    """
    target = backend or backend_of("cpu")
    compiler = bundle_compiler(target)
    chosen_steps = compiling or CompileOptions()
    passes = ctx or context(chosen_steps)
    functions = _entry_points(model, options)
    for f in functions.values():
        _expect_bounds(f)
    how = replace(chosen_steps, instrument=bool(options.instrument))
    programs = {
        name: compilation(f, target, how, ctx=passes).program for name, f in functions.items()
    }
    golden: dict[str, list[Golden]] = {}
    if options.selftest:
        with passes.timed("golden runs"):
            golden = {
                name: _golden(f, programs[name], options.selftest) for name, f in functions.items()
            }
    key = chosen_steps.code_key
    identity = {
        "glowpy": _version(),
        "fingerprint": model_fingerprint(model, options, target, key),
    }
    if key:
        identity["left_out"] = key
    modules = {name: str(id(f.module)) for name, f in functions.items()}
    with passes.timed("bundle"):
        return build_bundle(
            programs,
            Path(directory),
            options,
            target.name,
            compiler,
            identity=identity,
            golden=golden,
            modules=modules,
        )


def model_fingerprint(
    model: Module | Mapping[str, Module],
    options: BundleOptions,
    backend: Backend,
    left_out: str = "",
) -> str:
    """Computes the `fingerprint` in the manifest of an up-to-date bundle of this model.

    `left_out` says which passes and rewrites were, as `CompileOptions.code_key`.
    """
    modules = {"": model} if isinstance(model, Module) else model
    text = "".join(f"{name}\n{print_module(module)}" for name, module in modules.items())
    makers = f"{_version()} {backend.name} {package_of(backend.name)}{left_out}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return fingerprint(digest, options, makers, bundle_compiler(backend))


def bundle_compiler(backend: Backend) -> BundleCompiler:
    """Returns the part of a backend that makes the code of bundles. Raises UserError for one that has none."""
    compiler = backend.bundle_compiler
    if compiler is None:
        raise UserError(f"the {backend.name} backend makes no bundles", note="use the cpu backend")
    return compiler


def outdated(model: Module | Mapping[str, Module], directory: Path | str) -> list[str]:
    """Why the bundle in a folder is not what `bundle` would make of the model; empty if it is.

    Options and machine are those the bundle was made with. Raises LoadError if there is no bundle.
    """
    stored = read_bundle(Path(directory))
    left_out = str(stored.manifest.get("left_out", ""))
    now = model_fingerprint(model, stored.options, _stored_backend(stored), left_out)
    reasons = stored.damage()
    if stored.manifest["fingerprint"] != now:
        maker, here = stored.manifest["glowpy"], _version()
        reasons.insert(
            0,
            f"it was made by glowpy {maker}, this is {here}"
            if maker != here
            else "the model, its shapes, its state, the kernels or this machine are not those it was made of",
        )
    return reasons


def _stored_backend(stored: StoredBundle) -> Backend:
    """Returns a backend like the one that made a bundle. Raises LoadError unless there is one here."""
    cls, where = backend_class(stored.backend), Loc(str(stored.directory))
    others = [name for name in stored.settings if name not in option_names(cls)]
    if others:
        raise LoadError(
            f"it was made by a backend '{stored.backend}' with the option '{others[0]}', which this one does not have",
            loc=where,
        )
    backend = cls() if cls.options_type is None else cls(cls.options_type(**stored.settings))
    if backend.bundle_compiler is None:
        raise LoadError(
            f"it was made by a backend '{stored.backend}' that makes bundles, which this one does not",
            loc=where,
        )
    return backend


def _expect_bounds(f: Function) -> None:
    """Raises UserError for a network with dimensions of any size: a bundle's memory is planned for the largest."""
    ports = (*f.module.placeholders, *f.module.variables)
    symbols = symbols_of_types(port.type for port in ports)
    names = [symbol.name for symbol in symbols.values() if symbol.high == UNBOUNDED]
    if names:
        raise UserError(
            f"@{f.name}: expected dimensions with bounds in a bundle, got {', '.join(names)}",
            note="give each a range: " + " ".join(f"--shape {name}=1..64" for name in names),
        )


def random_inputs(
    ports: tuple[Port, ...], seed: int, extents: Extents | None = None
) -> dict[str, Array]:
    """Reproducible inputs by placeholder, for these extents of symbols: normal floats, small integers."""
    generator = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for port in ports:
        kind, shape = port.type.kind, type_at(port.type, extents or {}).extents
        if kind.has_fractions:
            arrays[port.placeholder] = generator.standard_normal(shape, np.float32).astype(
                kind.dtype
            )
        else:
            high = 2 if kind is ElemKind.BOOL else 16
            arrays[port.placeholder] = generator.integers(0, high, shape).astype(kind.dtype)
    return arrays


def _entry_points(
    model: Module | Mapping[str, Module], options: BundleOptions
) -> dict[str, Function]:
    name, parallel = options.name, options.parallel
    modules = _laid_out({"": model} if isinstance(model, Module) else model, options)
    if options.integer_ports:
        modules = {key: integer_ports(module) for key, module in modules.items()}
    functions: dict[str, Function] = {}
    for prefix, module in modules.items():
        for f in module.networks:
            parts = [prefix, f.name if len(module.networks) > 1 else ""]
            entry = "_".join([name, *filter(None, parts)])
            if problem := problem_with_network(entry, name, functions, parallel=parallel):
                raise UserError(problem)
            functions[entry] = f
    if not functions:
        raise UserError("expected a model with at least one function")
    return {name: next(iter(functions.values()))} if len(functions) == 1 else functions


def _laid_out(modules: Mapping[str, Module], options: BundleOptions) -> dict[str, Module]:
    """The models with channels last where the user wants that. A name means every model that has it."""
    if not options.channels_last:
        return dict(modules)
    ports = {
        key: [port.original for port in module.placeholders] for key, module in modules.items()
    }
    names_of_ports = dict.fromkeys(name for names in ports.values() for name in names)
    for name in options.channels_last:
        if name not in names_of_ports:
            raise unknown_port(name, names_of_ports)
    return {
        key: channels_last(module, [name for name in options.channels_last if name in ports[key]])
        for key, module in modules.items()
    }


def _golden(f: Function, program: Program, count: int) -> list[Golden]:
    """Runs on the interpreter: with the highest extents, the lowest, and then any."""
    reference = compile_function(f, "interpreter")
    generator = np.random.default_rng(0)
    runs = []
    for seed in range(count):
        extents = {
            name: _golden_extent(symbol, seed, generator)
            for name, symbol in reference.symbols.items()
        }
        inputs = random_inputs((*program.ports.inputs, *memories(program)), seed, extents)
        outputs = run_in(inputs, reference, extents)
        runs.append(Golden(inputs, outputs, extents))
    return runs


def memories(program: Program) -> tuple[Port, ...]:
    """The memory of variables, which goes in and comes out where a run is looked at by itself."""
    return tuple(Port(port.name, port.placeholder, port.memory) for port in program.ports.state)


def run_in(
    inputs: Mapping[str, Array], function: CompiledFunction, extents: Extents
) -> dict[str, Array]:
    """Runs a function with these extents; returns outputs and the memory of variables, by placeholder."""
    state = function.state()
    for port in function.state_ports:
        memory, shape = inputs[port.placeholder], type_at(port.type, extents).extents
        state[port.name] = memory[tuple(map(slice, shape))]
        state.buffers[port.placeholder][...] = memory
    arrays = {port.name: inputs[port.placeholder] for port in function.input_ports}
    results = function(arrays, state=state)
    outputs = {port.placeholder: results[port.name] for port in function.output_ports}
    return {**outputs, **state.buffers}


def _golden_extent(symbol: Symbol, run: int, generator: np.random.Generator) -> int:
    if run < 2:
        return symbol.low if run else symbol.high
    return int(generator.integers(symbol.low, symbol.high + 1))


def _version() -> str:
    try:
        return version("glowpy")
    except PackageNotFoundError:
        return "0"
