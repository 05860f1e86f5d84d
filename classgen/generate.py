"""Renders the templates over the registered specs into the files that the project commits."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import itertools
import math
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import classgen.specs
from classgen import dsl
from classgen.dsl import CODES, HALVES, Attr, Library, Operator, SpecError, kind_class

__all__ = ["ROOT", "render_all", "render_package"]

ROOT = Path(__file__).resolve().parent.parent

View = dict[str, object]
Job = tuple[str, Path, View]
"""A template, the file that is made of it, and what the template sees."""

_C_TYPES = {
    "f32": "float", "f64": "double", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "b": "bool",
    "f16": "f16_t", "bf16": "bf16_t", **{code: f"{code}_t" for code in CODES},
    "x8": "uint8_t", "x16": "uint16_t", "x32": "uint32_t", "x64": "uint64_t",
}  # fmt: skip
_PY_TYPES = {
    "int": "int",
    "ints": "tuple[int, ...]",
    "dim": "Dim",
    "dims": "tuple[Dim, ...]",
    "float": "float",
    "flag": "bool",
    "text": "str",
    "function": "str",
}
_LAST_ARGUMENTS = {
    "units": ("dim_t first_unit", "dim_t last_unit"),
    "epilogue": ("const tiles_t *tiles", "epilogue_t epilogue", "const void *env"),
}
"""The last parameters of the kernels of instructions with a trait."""
_C_ATTRS = {
    "int": "dim_t {}", "ints": "const ints_t *{}", "dim": "dim_t {}", "dims": "const ints_t *{}",
    "float": "float {}", "flag": "bool {}",
}  # fmt: skip


def render_all() -> dict[Path, str]:
    """The text of every generated file of this tree by its path, formatted.

    Raises SpecError if a spec is wrong, RuntimeError if ruff is not installed.
    """
    operators = _load_specs()
    core = [op for op in operators if not op.backend]
    jobs = [*_core_jobs(operators)]
    for backend in dict.fromkeys(op.backend for op in operators if op.backend):
        operators_of_backend = [op for op in operators if op.backend == backend]
        jobs += _backend_jobs(operators_of_backend, ROOT / "glowpy" / "backends" / backend, core)
    return _rendered(jobs)


def render_package(folder: Path) -> dict[Path, str]:
    """The same for the backend of another package, whose operators `folder/specs.py` declares."""
    return _rendered(_backend_jobs(_load_package(folder), folder, ()))


def _rendered(jobs: Iterable[Job]) -> dict[Path, str]:
    env = _environment()
    texts = {
        path: env.get_template(template).render(**view).rstrip() + "\n"
        for template, path, view in jobs
    }
    return {
        path: _format(path, text) if path.suffix == ".py" else text for path, text in texts.items()
    }


def _core_jobs(operators: Sequence[Operator]) -> Iterator[Job]:
    """The files that serve every backend. The scalar kernels are C that any of them may compile."""
    core = [op for op in operators if not op.backend]
    stems = itertools.groupby(operators, lambda op: Path(op.source).stem)
    view: View = {
        "backend": "",
        "library": "libjit",
        "nodes": [op for op in core if op.node],
        "insts": [op for op in core if op.inst],
        "scalars": [op for op in core if op.elementwise and op.inst],
        "onnx": [op for op in core if op.onnx],
        "stems": [(stem, list(group)) for stem, group in stems],
    }
    for template, target in (
        ("nodes_gen.py.j2", "glowpy/graph/nodes_gen.py"),
        ("graph_builder_gen.py.j2", "glowpy/graph/builder_gen.py"),
        ("insts_gen.py.j2", "glowpy/ir/insts_gen.py"),
        ("ir_builder_gen.py.j2", "glowpy/ir/builder_gen.py"),
        ("elementwise_gen.py.j2", "glowpy/ops/elementwise_gen.py"),
        ("scalars_gen.py.j2", "glowpy/llvm/scalars_gen.py"),
        ("elementwise_gen.c.j2", "libjit/src/elementwise_gen.c"),
        ("ops.md.j2", "docs/reference/ops.md"),
    ):
        yield template, ROOT / target, view


def _backend_jobs(own: Sequence[Operator], folder: Path, core: Sequence[Operator]) -> Iterator[Job]:
    """The classes of a backend in its folder, and the table and the prototypes of its library's kernels."""
    backend = own[0].backend
    library = dsl.LIBRARIES.get(backend) or Library(
        backend, backend, str(folder.resolve() / "kernels")
    )
    shared = core if library.core else ()
    kernels = [op for op in (*shared, *own) if op.kernel]
    view: View = {
        "backend": backend,
        "library": library.name,
        "nodes": [op for op in own if op.node],
        "insts": [op for op in own if op.inst],
        "kernels": kernels,
        "scalars": [op for op in shared if op.elementwise and op.inst],
    }
    yield "nodes_gen.py.j2", folder / "nodes_gen.py", view
    yield "insts_gen.py.j2", folder / "insts_gen.py", view
    if kernels:
        yield "kernels_gen.py.j2", folder / "kernels_gen.py", view
        yield "kernels_gen.h.j2", ROOT / library.folder / "include" / "kernels_gen.h", view


def _load_specs() -> list[Operator]:
    """Every operator, those of backends last. Raises ValueError for one that is not of its file's backend."""
    if not dsl.REGISTRY:
        names = sorted(module.name for module in pkgutil.iter_modules(classgen.specs.__path__))
        names.sort(key=lambda name: name.startswith("backend_"))
        for name in names:
            importlib.import_module(f"classgen.specs.{name}")
    for op in dsl.REGISTRY:
        _, is_backend, backend = Path(op.source).stem.partition("backend_")
        if op.backend != (backend if is_backend else ""):
            expected = f'expected backend="{backend}"' if is_backend else "expected no backend"
            raise SpecError(f'{op.source}: {op.name}: {expected}, got "{op.backend}"')
    return list(dsl.REGISTRY)


def _load_package(folder: Path) -> list[Operator]:
    """The operators of another package. Raises SpecError unless all are of one backend, and new."""
    ours = {op.backend for op in _load_specs()}
    file, first = folder.resolve() / "specs.py", len(dsl.REGISTRY)
    spec = importlib.util.spec_from_file_location(f"{folder.name}_specs", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise SpecError(f"expected the declarations of the package in {file}")
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        loaded = dsl.REGISTRY[first:]
    finally:
        del dsl.REGISTRY[first:]
    backends = sorted({op.backend for op in loaded})
    if len(backends) != 1 or backends[0] in ours:
        listed = ", ".join(f'"{backend}"' for backend in backends) or "no operators"
        raise SpecError(
            f"{file}: expected operators of one backend of the package's own, got {listed}"
        )
    return loaded


def _format(path: Path, text: str) -> str:
    """`text` as ruff fixes imports and formats it, under the project's settings."""
    ruff = shutil.which("ruff") or str(Path(sys.executable).with_name("ruff"))
    for arguments in (
        ["check", "--quiet", "--select", "I,F401,PIE790", "--fix-only"],
        ["format", "--quiet"],
    ):
        done = subprocess.run(
            [ruff, *arguments, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"ruff cannot format {path}: {done.stderr}")
        text = done.stdout
    return text


def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        autoescape=False,
    )
    env.filters.update(
        sentence=lambda text: text if text.endswith(".") else text + ".",
        facts=_facts,
        node_schema=_node_schema,
        inst_schema=_inst_schema,
        py_type=lambda attr: _PY_TYPES[attr.kind],
        parameters=_parameters,
        to_attr=_to_attr,
        kernel_spec=_kernel_spec,
        prototypes=lambda op, library: list(_prototypes(op, library)),
        scalar_kernels=lambda op: list(_scalar_kernels(op)),
        graph_expression=_graph_expression,
        derivative=_derivative,
        kernel_names=_kernel_names,
    )
    return env


def _parameters(attrs: Sequence[Attr]) -> list[str]:
    """The parameters of a node's `create_x` for its attributes.

    Flags after which there are only flags are False by default.
    """
    required = max((i for i, attr in enumerate(attrs, 1) if attr.kind != "flag"), default=0)
    return [
        f"{attr.name}: {_PY_TYPES[attr.kind]}{' = False' if index >= required else ''}"
        for index, attr in enumerate(attrs)
    ]


def _to_attr(attr: Attr) -> str:
    """Attributes are stored as exactly the Python type their kind says, so that 1 and 1.0 print alike."""
    return {
        "ints": f"tuple({attr.name})",
        "dims": f"tuple({attr.name})",
        "float": f"float({attr.name})",
        "flag": f"bool({attr.name})",
    }.get(attr.kind, attr.name)


def _tuple(items: Iterable[str]) -> str:
    """A tuple's source; without a comma after the last item, so that the formatter may keep it on one line."""
    texts = list(items)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _names(names: tuple[str, ...]) -> str:
    return _tuple(f'"{name}"' for name in names)


def _traits(op: Operator) -> str:
    return (
        "frozenset({" + ", ".join(f"Trait.{trait.upper()}" for trait in op.traits) + "})"
        if op.traits
        else "frozenset()"
    )


def _attrs(op: Operator) -> str:
    return _tuple(
        f'AttrSpec("{a.name}", "{a.kind}"{", dimensions=True" if a.dimensions else ""}'
        f"{', optional=True' if a.optional else ''})"
        for a in op.attrs
    )


def _quant(op: Operator, *, inst: bool = False) -> list[str]:
    """The arguments of a schema about quantized operands, where they are not the default.

    Element-wise arithmetic on the numbers they stand for is never an instruction: `lower-quantized` writes it out.
    """
    refused = op.quant == "refused" or (inst and op.elementwise and op.quant == "numbers")
    parts = [] if refused else [f"quant=Quantized.{op.quant.upper()}"]
    names = ", ".join(f'"{name}"' for name in sorted(op.plain))
    return [*parts, f"plain=frozenset({{{names}}})"] if op.plain else parts


def _facts(op: Operator) -> dict[str, str]:
    """The algebraic facts of an operator, as Python expressions; those that say nothing are left out."""
    facts = {
        part.name: _spelled(getattr(op.algebra, part.name))
        for part in dataclasses.fields(op.algebra)
        if getattr(op.algebra, part.name) not in (None, False, (), {})
    }
    function, _, arguments = op.numpy.partition("(")
    if "associative" in facts:
        if not function.startswith("np.") or arguments != "lhs, rhs)":
            raise SpecError(f"{op.name} is associative: expected a numpy function, got {op.numpy}")
        facts["combine"] = function
    return facts


def _spelled(value: object) -> str:
    """Python source of a fact; there is no literal for infinity."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}": {_spelled(item)}' for key, item in value.items()) + "}"
    return f'float("{value}")' if isinstance(value, float) and math.isinf(value) else repr(value)


def _algebra(op: Operator) -> list[str]:
    """The arguments of a schema about algebra, where there is any."""
    facts = ", ".join(f"{name}={value}" for name, value in _facts(op).items())
    parts = [f"algebra=Algebra({facts})"] if facts else []
    return [*parts, f"channels=Channels{op.channels!r}"] if op.channels else parts


def _node_schema(op: Operator) -> str:
    parts = [f'"{op.mnemonic}"', _names(op.inputs), _attrs(op), _names(op.results), _traits(op)]
    if op.variadic:
        parts.append("variadic=True")
    if op.many_results:
        parts.append("many_results=True")
    if op.no_derivative:
        parts.append(f"no_derivative={op.no_derivative!r}")
    return f"NodeSchema({', '.join([*parts, *_quant(op), *_algebra(op)])})"


def _inst_schema(op: Operator) -> str:
    layouts = {name: f", Layout.{layout.upper()}" for name, layout in op.layouts.items()}
    layouts |= {name: f', times="{times}"' for name, times in op.times.items()}
    operands = _tuple(
        f'OperandSpec("{name}", Access.{access}{layouts.get(name, "")})'
        for name, access in op.operands
    )
    parts = [f'"{op.mnemonic}"', operands, _attrs(op), _traits(op)]
    return f"InstSchema({', '.join([*parts, *_quant(op, inst=True)])})"


def _kernel_spec(op: Operator, library: str) -> str:
    """An element-wise kernel is named by the kind of its last input, and of its result where it may have several."""
    named = dict(op.kernel or {op.inputs[-1]: op.kinds})
    if op.elementwise and op.result_kinds:
        named["result"] = op.result_kinds
    kinds = _tuple(
        f'("{name}", {_tuple(repr(kind) for kind in kinds_of_operand)})'
        for name, kinds_of_operand in named.items()
    )
    return f'KernelSpec("{op.mnemonic}", "{_stem(op, library)}", {kinds}, "{op.source}")'


def _stem(op: Operator, library: str) -> str:
    """The prefix of the kernels' symbols: library and mnemonic, or the mnemonic if that names the library."""
    return op.mnemonic if op.mnemonic.startswith(f"{library}_") else f"{library}_{op.mnemonic}"


def _prototypes(op: Operator, library: str) -> Iterator[str]:
    """`void libjit_gather_x32_i64(...);` for every combination of kinds."""
    kernel = op.kernel or {}
    for kinds in itertools.product(*kernel.values()):
        kind_of = dict(zip(kernel, kinds, strict=True))
        kind_of |= op.mixed.get(kinds[0], {})
        buffers = []
        for name, access in op.operands:
            c_type = _C_TYPES[kind_of.get(name, kinds[0])]
            buffers.append(f"{'const ' if access == 'IN' else ''}{c_type} *{name}")
        shapes = [f"const ints_t *{name}_shape" for name, _ in op.operands]
        shapes += [f"const ints_t *{name}_strides" for name, _ in op.operands if name in op.layouts]
        attrs = [_C_ATTRS[attr.kind].format(attr.name) for attr in op.attrs]
        tail = [
            argument
            for trait, last in _LAST_ARGUMENTS.items()
            if trait in op.traits
            for argument in last
        ]
        arguments = ", ".join([*buffers, *shapes, *attrs, *tail])
        yield f"void {_stem(op, library)}_{'_'.join(kinds)}({arguments});"


def _scalar_kernels(op: Operator) -> Iterator[str]:
    """`KERNEL f32_t libjit_add_f32(f32_t lhs, f32_t rhs) { return lhs + rhs; }` for every kind."""
    if op.scalar.get("any") == "":
        yield from _conversions(op.kinds)
        return
    for kind, given in itertools.product(op.kinds, op.result_kinds or ("",)):
        body = op.scalar.get("any") or op.scalar[kind_class(kind)]
        result = "b_t" if "bool_result" in op.traits else f"{given or kind}_t"
        arguments = ", ".join(
            f"{'b_t' if name == 'condition' else f'{kind}_t'} {name}" for name in op.inputs
        )
        expression = body.replace("{s}", kind).replace("{r}", given)
        symbol = "_".join(filter(None, ("libjit", op.mnemonic, kind, given)))
        yield f"KERNEL {result} {symbol}({arguments}) {{ return ({result})({expression}); }}"


def _conversions(kinds: tuple[str, ...]) -> Iterator[str]:
    """One function for each pair. Floats saturate when they become integers, because C leaves that undefined."""
    for source, target in itertools.product(kinds, kinds):
        expression = _converted(source, target, "input")
        yield f"KERNEL {target}_t libjit_convert_{source}_{target}({source}_t input) {{ return {expression}; }}"


def _converted(source: str, target: str, value: str) -> str:
    """`value` of one kind as another. Halves go by way of f32, except from f64 to f16, which numpy rounds once."""
    if source in HALVES and source != target:
        return _converted("f32", target, f"f32_of_{source}({value})")
    if target in HALVES and source != target:
        once = source == "f32" or (source, target) == ("f64", "f16")
        return f"{target}_of_{source}({value})" if once else f"{target}_of_f32((float){value})"
    if target == "b":
        return f"{value} != 0"
    if source[0] == "f" and source not in HALVES and target[0] in "iu":
        bits, signed = int(target[1:]), target[0] == "i"
        low, high = (f"-0x1p{bits - 1}", f"0x1p{bits - 1}") if signed else ("0.0", f"0x1p{bits}")
        least = f"INT{bits}_MIN" if signed else "0"
        most = f"{'INT' if signed else 'UINT'}{bits}_MAX"
        return (
            f"{value} != {value} ? 0 : {value} <= {low} ? {least} : {value} >= {high} ? {most} : "
            f"({target}_t){value}"
        )
    return f"({target}_t){value}"


def _graph_expression(expression: str, op: Operator) -> str:
    """`mul(g, rhs)` -> `f.create_mul(n.name, g, n.rhs)`; 0 alone means that no gradient flows."""
    if expression == "0":
        return "None"

    def translate(tree: ast.expr) -> str:
        match tree:
            case ast.Name(id="g"):
                return "g"
            case ast.Name(id="y"):
                return "n.result"
            case ast.Name(id=name) if name in op.inputs:
                return f"n.{name}"
            case ast.Constant(value=int() | float() as number):
                return (
                    f'f.create_splat(f"{{n.name}}_scalar", g.type.with_shape(()), {float(number)})'
                )
            case ast.Call(func=ast.Name(id="convert"), args=[arg]):
                return f"f.create_convert(n.name, n.input.type, {translate(arg)})"
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                _check_call(op, name, len(args))
                return f"f.create_{name}(n.name, {', '.join(translate(arg) for arg in args)})"
            case _:
                raise SpecError(f"{op.name}: cannot read the derivative '{expression}'")

    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError:
        raise SpecError(f"{op.name}: cannot read the derivative '{expression}'") from None
    return translate(tree.body)


def _check_call(op: Operator, name: str, arity: int) -> None:
    """Raises SpecError unless a derivative calls an element-wise node by its mnemonic, with all its inputs."""
    callables = {
        other.mnemonic: len(other.inputs)
        for other in dsl.REGISTRY
        if other.node and other.elementwise and not (other.backend or other.attrs or other.typed)
    }
    if name not in callables:
        raise SpecError(
            f"{op.name}: expected the mnemonic of an element-wise operator in a derivative, got {name}"
        )
    if arity != callables[name]:
        raise SpecError(
            f"{op.name}: expected {callables[name]} arguments of {name} in a derivative, got {arity}"
        )


def _derivative(op: Operator) -> str:
    """The reference's text about the derivative; empty for operators through which no gradient passes."""
    if op.no_derivative:
        return f"none: {op.no_derivative}"
    if op.derivative:
        return ", ".join(f"`{expression}`" for expression in op.derivative)
    differentiable = op.node and not op.backend and op.inputs and op.results
    return "a rule in `glowpy/ops/`" if differentiable else ""


def _kernel_names(op: Operator) -> str:
    if op.kernel:
        return "; ".join(f"`{name}`: {', '.join(kinds)}" for name, kinds in op.kernel.items())
    return f"scalar: {', '.join(op.kinds)}" if op.kinds else ""
