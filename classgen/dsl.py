"""The language of the specs: `Op`, `NodeOnly`, `InstOnly` and `Elementwise`.

| form | node | instruction | meaning |
|---|---|---|---|
| `Op` | yes | yes | both levels, with the same operand names; IRGen is automatic unless `ops/` has a rule |
| `Elementwise` | yes | yes | an `Op` with a scalar kernel and a numpy function, one line each |
| `NodeOnly` | yes | no | always lowered, or translated by an IRGen rule |
| `InstOnly` | no | yes | what only the address level has: alloc, view, copy, insert |

A spec file is `specs/<stem>.py`; every module-level call registers one operator, in order.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec

FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16")
"""Kinds that are stored and converted; nothing else has kernels for them."""
CODES = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f6e2m3", "f6e3m2", "f4e2m1")
"""Floats of at most 8 bits, which are encoded and decoded."""
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, "b")
BOOL = ("b",)
_FAMILIES = ("float", "int", "unsigned", "bool")
WIDTHS = ("x8", "x16", "x32", "x64")
INDICES = ("i32", "i64")

DISCRETE = "its result is no floating-point number"
"""Why an operator has no derivative whose result is bool, an integer or an index."""
QUANTIZED = ("refused", "same", "numbers", "rule")
TRAITS = (
    "elementwise", "commutative", "bool_result", "inplace", "side_effect", "typed", "shape_only", "axes",
    "dimensionwise", "memory", "codes", "units", "epilogue",
)  # fmt: skip
"""Those of `Trait` in glowpy/core/schema.py, which is not imported here; a test compares them."""

Declared = ParamSpec("Declared")


class SpecError(ValueError):
    """A declaration is wrong, or lacks something; names the operator."""


@dataclass(frozen=True)
class Attr:
    """An attribute: its name, its kind (see below), whether it has a number for each dimension.

    Kinds are int, ints, dim, dims, float, flag, text and function, where a dim may be symbolic.

    A list that is `optional` is empty unless it is given.
    """

    name: str
    kind: str
    dimensions: bool = False
    optional: bool = False


def integer(name: str) -> Attr:
    """An integer attribute."""
    return Attr(name, "int")


def ints(name: str, *, optional: bool = False) -> Attr:
    """A list of integers."""
    return Attr(name, "ints", optional=optional)


def dim(name: str) -> Attr:
    """A number that may depend on symbolic extents."""
    return Attr(name, "dim")


def dims(name: str, *, optional: bool = False) -> Attr:
    """A list of numbers that may depend on symbolic extents."""
    return Attr(name, "dims", optional=optional)


def dimensions(name: str, *, symbolic: bool = False) -> Attr:
    """A number for each dimension of the input, or several lists of these."""
    return Attr(name, "dims" if symbolic else "ints", dimensions=True)


def real(name: str) -> Attr:
    """A float attribute."""
    return Attr(name, "float")


def flag(name: str) -> Attr:
    """A boolean attribute."""
    return Attr(name, "flag")


def function(name: str) -> Attr:
    """The name of a function that the operator calls."""
    return Attr(name, "function")


@dataclass(frozen=True)
class Algebra:
    """Algebraic facts, as glowpy/core/algebra.py names them; `combine` comes from the operator's numpy expression."""

    neutral: Mapping[str, float] = field(default_factory=dict)
    absorbing: Mapping[str, float] = field(default_factory=dict)
    associative: tuple[str, ...] = ()
    involution: bool = False
    idempotent: bool = False
    affine: tuple[int, int] | None = None
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Operator:
    """One declaration, as the templates see it."""

    name: str
    doc: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    attrs: tuple[Attr, ...]
    traits: tuple[str, ...]
    node: bool
    inst: bool
    source: str
    backend: str = ""
    variadic: bool = False
    inouts: tuple[str, ...] = ()
    scratches: tuple[str, ...] = ()
    kernel: Mapping[str, Sequence[str]] | None = None
    """Operand name -> the kinds (or widths) the kernel exists for; None: no kernel of its own.

    The first operand's kind is that of all operands that are not named."""
    mixed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kind of a kernel -> operand name -> another kind than the kernel's that this operand then has."""
    scalar: Mapping[str, str] = field(default_factory=dict)
    """Kind class (`float`, `int`, `unsigned`, `bool`, `any`) -> C expression of the scalar kernel."""
    numpy: str = ""
    kinds: tuple[str, ...] = ()
    result_kinds: tuple[str, ...] = ()
    """Kinds that the result of a typed element-wise operator may have, whatever its inputs are; empty: `kinds`."""
    derivative: tuple[str, ...] = ()
    """The gradient of each input, as an expression; other operators have a rule in `ops/`."""
    no_derivative: str = ""
    """Why no gradient can be taken: each operator states either this or its derivative."""
    onnx: str = ""
    """The ONNX operator that means the same, with the same inputs in order, from opset `onnx_since` on."""
    onnx_since: int = 1
    quant: str = "refused"
    """Role of quantized operands: `refused`, `same`, `numbers` or `rule`, as `Quantized` in glowpy/core/schema.py."""
    algebra: Algebra = field(default_factory=Algebra)
    """Algebraic facts, all but `bounds` about element-wise operators."""
    channels: tuple[str, int, str] | tuple[str, int, str, str] | None = None
    """See `Channels` in glowpy/core/algebra.py: weights, axis and bias."""
    many_results: bool = False
    """Whether a node has as many results as inference says."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Operand of an instruction -> the attribute that says how often it occurs, or `rest`."""
    plain: tuple[str, ...] = ()
    """Operands that hold no data (indices, conditions) and are never quantized, for `same` and `rule`."""
    strided: tuple[str, ...] = ()
    """Operands of the instruction that may have gaps between their elements; their kernel is told the strides."""
    rows: tuple[str, ...] = ()
    """Those that may have gaps only between their rows."""
    transposed: tuple[str, ...] = ()
    """Those whose rows may as well lie apart element by element."""

    @property
    def layouts(self) -> dict[str, str]:
        """Operands that may have gaps, each with the name of its `Layout` in glowpy/core/schema.py."""
        named = {"strided": self.strided, "rows": self.rows, "transposed": self.transposed}
        return {name: layout for layout, names in named.items() for name in names}

    @property
    def mnemonic(self) -> str:
        """`MaxPool` -> `max_pool`; a backend's operators start with the backend's name, lest others take it later."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()

    @property
    def node_class(self) -> str:
        """The name of the node's class."""
        return f"{self.name}Node"

    @property
    def inst_class(self) -> str:
        """The name of the instruction's class."""
        return f"{self.name}Inst"

    @property
    def elementwise(self) -> bool:
        """Whether the operator has a scalar kernel."""
        return "elementwise" in self.traits

    @property
    def typed(self) -> bool:
        """Whether the result type is given by the caller."""
        return "typed" in self.traits

    @property
    def operands(self) -> list[tuple[str, str]]:
        """(name, access) of the instruction's operands, in ABI order."""
        return (
            [(name, "OUT") for name in self.results]
            + [(name, "INOUT") for name in self.inouts]
            + [(name, "IN") for name in self.inputs]
            + [(name, "SCRATCH") for name in self.scratches]
        )


REGISTRY: list[Operator] = []


@dataclass(frozen=True)
class Library:
    """The kernels of a backend. A backend that declares none has them in `kernels/` in its own folder, by its own name.

    Attributes:
        backend: Whose they are.
        name: The prefix of the symbols.
        folder: Where `src/` and `include/` are, from the root of the repository.
        core: Whether there are kernels of the operators that every backend knows as well.
    """

    backend: str
    name: str
    folder: str
    core: bool = False


LIBRARIES: dict[str, Library] = {}


def library(backend: str, name: str, folder: str, *, core: bool = False) -> None:
    """Declares where a backend's kernels are. Raises SpecError for a second one."""
    if backend in LIBRARIES:
        raise SpecError(f"the library of the {backend} backend is declared twice")
    LIBRARIES[backend] = Library(backend, name, folder, core)


def kind_class(kind: str) -> str:
    """`bool`, `float`, `int` or `unsigned`, as the C expressions of an element-wise operator call it."""
    if kind in ("b", *HALVES):
        return "bool" if kind == "b" else "float"
    return {"f": "float", "i": "int", "u": "unsigned"}[kind[0]]


def _register(operator: Operator) -> None:
    if not operator.doc:
        raise SpecError(f"{operator.name}: a doc string is required")
    if operator.onnx and ("elementwise" not in operator.traits or operator.attrs):
        raise SpecError(
            f"{operator.name}: onnx names element-wise operators without attributes; "
            "others need a function in glowpy/importer/onnx/"
        )
    if operator.backend and operator.elementwise:
        raise SpecError(f"{operator.name}: element-wise operators belong to every backend")
    # A backend's instruction may be that of a node that every backend knows, and others lower.
    for other in REGISTRY:
        both = (other.node and operator.node) or (other.inst and operator.inst)
        if other.name == operator.name and both:
            raise SpecError(f"{operator.name} is declared twice: {other.source}, {operator.source}")
    _check_words(operator)
    _check_kinds(operator)
    _check_derivative(operator)
    REGISTRY.append(operator)


def _expect(operator: str, what: str, known: Iterable[str], got: Iterable[str]) -> None:
    """Raises SpecError for the first of `got` that is not known."""
    for word in got:
        if word not in known:
            raise SpecError(f"{operator}: expected {what} of {', '.join(known)}, got {word}")


def _check_words(operator: Operator) -> None:
    """Raises SpecError for a trait, an operand or a meaning of quantized operands that does not exist."""
    operands = [name for name, _ in operator.operands]
    _expect(operator.name, "quant", QUANTIZED, [operator.quant])
    _expect(operator.name, "traits", TRAITS, operator.traits)
    _expect(operator.name, "operands in kernel", operands, operator.kernel or ())
    for kinds in operator.mixed.values():
        _expect(operator.name, "operands in mixed", operands, kinds)
    lists = {
        "plain": operator.plain,
        "strided": operator.strided,
        "rows": operator.rows,
        "transposed": operator.transposed,
    }
    for field_name, names in lists.items():
        unknown = set(names) - set(operands)
        if unknown:
            raise SpecError(
                f"{operator.name}: {field_name} names {', '.join(sorted(unknown))}, which are no operands"
            )


def _check_kinds(operator: Operator) -> None:
    """Raises SpecError for an unknown kind, a kind without C, or an `Op` of a backend without a kernel."""
    kernels = [kind for kinds in (operator.kernel or {}).values() for kind in kinds]
    _expect(operator.name, "kinds of a kernel in mixed", kernels, operator.mixed)
    mixed = [kind for kinds in operator.mixed.values() for kind in kinds.values()]
    for kind in (*kernels, *mixed, *operator.kinds, *operator.result_kinds):
        spelled_kinds = (*ALL, *HALVES, *CODES)
        if kind not in (spelled_kinds if operator.scalar else (*spelled_kinds, *WIDTHS)):
            raise SpecError(f"{operator.name}: expected an element kind, got '{kind}'")
    _expect(operator.name, "C expressions", ("any", *_FAMILIES), operator.scalar)
    for family in map(kind_class, operator.kinds):
        if not {"any", family} & operator.scalar.keys():
            raise SpecError(
                f"{operator.name}: no C expression for {family}, expected one of 'any', '{family}'"
            )
    if operator.backend and operator.node and operator.inst and not operator.kernel:
        raise SpecError(f"{operator.name}: expected kernel=(the kinds of an operand), got none")


def _check_derivative(operator: Operator) -> None:
    """Raises SpecError unless there are as many expressions as inputs, or a reason where no rule can be in `ops/`."""
    if operator.derivative and len(operator.derivative) != len(operator.inputs):
        raise SpecError(
            f"{operator.name}: expected {len(operator.inputs)} derivatives, got {len(operator.derivative)}"
        )
    if operator.derivative and operator.no_derivative:
        raise SpecError(f"{operator.name}: expected a derivative or no_derivative, got both")
    if operator.scalar and not operator.derivative and not operator.no_derivative:
        raise SpecError(
            f"{operator.name}: expected derivative=(one expression for each input) or no_derivative=the reason, "
            "got neither"
        )
    passes = operator.node and operator.inputs and operator.results
    if operator.backend and passes and not operator.no_derivative:
        raise SpecError(
            f"{operator.name}: expected no_derivative=the reason, as of every node of a backend, got none"
        )


def _declaration(form: Callable[Declared, None]) -> Callable[Declared, None]:
    """`form`, but an argument too many or too few is a SpecError that names the operator."""
    signature = inspect.signature(form)

    @functools.wraps(form)
    def declare(*args: Declared.args, **kwargs: Declared.kwargs) -> None:
        name = str(args[0] if args else kwargs.get("name", form.__name__))
        _expect(name, "arguments", signature.parameters, kwargs)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise SpecError(f"{name}: {form.__name__}: {error}") from None
        form(*args, **kwargs)

    return declare


def _source() -> str:
    """`classgen/specs/conv.py`, the file of the declaration; `my_backend/specs.py` in another package.

    Without the line, so that a new operator does not touch what is generated for those below it.
    """
    path = next(Path(f.filename) for f in inspect.stack() if f.filename != __file__)
    return "/".join(path.parts[-3 if path.parent.name == "specs" else -2 :])


@_declaration
def Op(  # noqa: N802 - the specs read as declarations
    name: str,
    doc: str,
    *,
    inputs: Sequence[str],
    results: Sequence[str] = ("result",),
    attrs: Sequence[Attr] = (),
    traits: Sequence[str] = (),
    scratches: Sequence[str] = (),
    kernel: Mapping[str, Sequence[str]] | None = None,
    mixed: Mapping[str, Mapping[str, str]] | None = None,
    backend: str = "",
    quant: str = "refused",
    plain: Sequence[str] = (),
    strided: Sequence[str] = (),
    rows: Sequence[str] = (),
    transposed: Sequence[str] = (),
    algebra: Algebra | None = None,
    channels: tuple[str, int, str] | tuple[str, int, str, str] | None = None,
    no_derivative: str = "",
) -> None:
    """Declares a node and an instruction with the same operand names."""
    _register(
        Operator(
            name, doc, tuple(inputs), tuple(results), tuple(attrs), tuple(traits), True, True, _source(),
            backend=backend, scratches=tuple(scratches), kernel=kernel, quant=quant, plain=tuple(plain),
            algebra=algebra or Algebra(), channels=channels,
            strided=tuple(strided), rows=tuple(rows), transposed=tuple(transposed),
            mixed=mixed or {}, no_derivative=no_derivative,
        )
    )  # fmt: skip


@_declaration
def NodeOnly(  # noqa: N802
    name: str,
    doc: str,
    *,
    inputs: Sequence[str],
    results: Sequence[str] = ("result",),
    attrs: Sequence[Attr] = (),
    traits: Sequence[str] = (),
    variadic: bool = False,
    many_results: bool = False,
    quant: str = "refused",
    plain: Sequence[str] = (),
    backend: str = "",
    onnx: str = "",
    onnx_since: int = 1,
    algebra: Algebra | None = None,
    channels: tuple[str, int, str] | tuple[str, int, str, str] | None = None,
    no_derivative: str = "",
) -> None:
    """Declares a node that is always lowered or translated by an IRGen rule."""
    _register(
        Operator(
            name,
            doc,
            tuple(inputs),
            tuple(results),
            tuple(attrs),
            tuple(traits),
            True,
            False,
            _source(),
            backend=backend,
            variadic=variadic,
            many_results=many_results,
            quant=quant,
            plain=tuple(plain),
            onnx=onnx,
            onnx_since=onnx_since,
            algebra=algebra or Algebra(),
            channels=channels,
            no_derivative=no_derivative,
        )
    )


@_declaration
def InstOnly(  # noqa: N802
    name: str,
    doc: str,
    *,
    results: Sequence[str] = (),
    inouts: Sequence[str] = (),
    inputs: Sequence[str] = (),
    scratches: Sequence[str] = (),
    times: Mapping[str, str] | None = None,
    attrs: Sequence[Attr] = (),
    traits: Sequence[str] = (),
    kernel: Mapping[str, Sequence[str]] | None = None,
    quant: str = "refused",
    strided: Sequence[str] = (),
    backend: str = "",
) -> None:
    """Declares an instruction without a node.

    `times` names the operands that occur as often as an attribute says, or `rest` for as many as there are beside
    others.
    """
    _register(
        Operator(
            name, doc, tuple(inputs), tuple(results), tuple(attrs), tuple(traits), False, True, _source(),
            backend=backend, inouts=tuple(inouts), scratches=tuple(scratches), times=times or {}, kernel=kernel,
            quant=quant, strided=tuple(strided),
        )
    )  # fmt: skip


_ARGUMENTS = {1: ("input",), 2: ("lhs", "rhs"), 3: ("condition", "lhs", "rhs")}


@_declaration
def Elementwise(  # noqa: N802
    name: str,
    arity: int,
    doc: str,
    c: str | Mapping[str, str],
    numpy: str,
    kinds: Sequence[str],
    *,
    result_kinds: Sequence[str] = (),
    derivative: Sequence[str] = (),
    no_derivative: str = "",
    onnx: str = "",
    onnx_since: int = 1,
    traits: Sequence[str] = (),
    quant: str = "refused",
    plain: Sequence[str] = (),
    algebra: Algebra | None = None,
) -> None:
    """Declares an element-wise operator, whose operands may all be strided.

    In `c` (one expression, or one for each of float, int, unsigned, bool) and `numpy` (an
    expression in `np` and `numeric`) the inputs are called as in `_ARGUMENTS`. `{s}` in `c` is the
    kind's suffix, and `{r}` that of the result, which is one of `result_kinds` where these are given.
    `derivative` has one expression for each input, in mnemonics, the inputs, `y` (the result), `g` (its
    gradient) and numbers; "0" says that nothing flows. `no_derivative` says why there
    is none. Raises SpecError if neither is given, or if a kind has no C expression.
    """
    if arity not in _ARGUMENTS:
        raise SpecError(f"{name}: expected 1, 2 or 3 inputs, got {arity}")
    _register(
        Operator(
            name, doc, _ARGUMENTS[arity], ("result",), (), ("elementwise", "inplace", *traits), True, True, _source(),
            scalar={"any": c} if isinstance(c, str) else c, numpy=numpy, kinds=tuple(kinds),
            result_kinds=tuple(result_kinds),
            algebra=algebra or Algebra(),
            derivative=tuple(derivative), no_derivative=no_derivative,
            onnx=onnx, onnx_since=onnx_since, quant=quant, plain=tuple(plain), strided=("result", *_ARGUMENTS[arity]),
        )
    )  # fmt: skip
