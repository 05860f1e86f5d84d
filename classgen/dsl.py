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

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FLOATS = ("f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, "b")
BOOL = ("b",)
WIDTHS = ("x8", "x16", "x32", "x64")
INDICES = ("i32", "i64")

DISCRETE = "its result is no floating-point number"
"""Why an operator has no derivative whose result is bool, an integer or an index."""
QUANTIZED = ("refused", "same", "rule")


class SpecError(ValueError):
    """A declaration is wrong, or lacks something; names the operator."""


@dataclass(frozen=True)
class Attr:
    """An attribute: its name, its kind (int, ints, float, flag or text), whether it has a number for each dimension."""

    name: str
    kind: str
    dimensions: bool = False


def integer(name: str) -> Attr:
    """An integer attribute."""
    return Attr(name, "int")


def ints(name: str) -> Attr:
    """A list of integers."""
    return Attr(name, "ints")


def dimensions(name: str) -> Attr:
    """A number for each dimension of the input, or several lists of these."""
    return Attr(name, "ints", dimensions=True)


def real(name: str) -> Attr:
    """A float attribute."""
    return Attr(name, "float")


def flag(name: str) -> Attr:
    """A boolean attribute."""
    return Attr(name, "flag")


@dataclass(frozen=True)
class Algebra:
    """What glowpy/core/algebra.py calls by the same names; `combine` comes from the operator's numpy expression."""

    neutral: Mapping[str, float] = field(default_factory=dict)
    absorbing: Mapping[str, float] = field(default_factory=dict)
    associative: tuple[str, ...] = ()
    involution: bool = False
    idempotent: bool = False
    affine: tuple[int, int] | None = None


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
    scalar: Mapping[str, str] = field(default_factory=dict)
    """Kind class (`float`, `int`, `unsigned`, `bool`, `any`) -> C expression of the scalar kernel."""
    numpy: str = ""
    kinds: tuple[str, ...] = ()
    derivative: tuple[str, ...] = ()
    """What flows into each input, as an expression; of other operators a rule in `ops/` says it."""
    no_derivative: str = ""
    """Why no gradient can be taken: each operator states either this or its derivative."""
    onnx: str = ""
    """The ONNX operator that means the same, with the same inputs in order, from opset `onnx_since` on."""
    onnx_since: int = 1
    quant: str = "refused"
    """What quantized operands mean: `refused`, `same` or `rule` (see `Quantized` in glowpy/core/schema.py)."""
    algebra: Algebra = field(default_factory=Algebra)
    """Algebraic facts about an element-wise operator."""
    channels: tuple[str, int, str] | tuple[str, int, str, str] | None = None
    """See `Channels` in glowpy/core/algebra.py: weights, axis and bias."""
    plain: tuple[str, ...] = ()
    """Operands that hold no data (indices, conditions) and are never quantized, for `same` and `rule`."""

    @property
    def mnemonic(self) -> str:
        """`MaxPool` -> `max_pool`; a backend's operators start with the backend's name, lest others take it later."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()

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
        name: What the symbols begin with.
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


def _register(operator: Operator) -> None:
    if not operator.doc:
        raise SpecError(f"{operator.name}: a doc string is required")
    if operator.quant not in QUANTIZED:
        raise SpecError(
            f"{operator.name}: expected quant of {', '.join(QUANTIZED)}, got {operator.quant}"
        )
    unknown = set(operator.plain) - {name for name, _ in operator.operands}
    if unknown:
        raise SpecError(
            f"{operator.name}: plain names {', '.join(sorted(unknown))}, which are no operands"
        )
    if operator.derivative and len(operator.derivative) != len(operator.inputs):
        raise SpecError(
            f"{operator.name}: expected {len(operator.inputs)} derivatives, got {len(operator.derivative)}"
        )
    if operator.derivative and operator.no_derivative:
        raise SpecError(f"{operator.name}: expected a derivative or no_derivative, got both")
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
    REGISTRY.append(operator)


def _source() -> str:
    """`classgen/specs/conv.py`, the file of the declaration; `my_backend/specs.py` in another package.

    Without the line, so that a new operator does not touch what is generated for those below it.
    """
    path = next(Path(f.filename) for f in inspect.stack() if f.filename != __file__)
    return "/".join(path.parts[-3 if path.parent.name == "specs" else -2 :])


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
    backend: str = "",
    quant: str = "refused",
    plain: Sequence[str] = (),
    channels: tuple[str, int, str] | tuple[str, int, str, str] | None = None,
    no_derivative: str = "",
) -> None:
    """Declares a node and an instruction with the same operand names."""
    _register(
        Operator(
            name, doc, tuple(inputs), tuple(results), tuple(attrs), tuple(traits), True, True, _source(),
            backend=backend, scratches=tuple(scratches), kernel=kernel, quant=quant, plain=tuple(plain),
            channels=channels,
            no_derivative=no_derivative,
        )
    )  # fmt: skip


def NodeOnly(  # noqa: N802
    name: str,
    doc: str,
    *,
    inputs: Sequence[str],
    results: Sequence[str] = ("result",),
    attrs: Sequence[Attr] = (),
    traits: Sequence[str] = (),
    variadic: bool = False,
    quant: str = "refused",
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
            quant=quant,
            onnx=onnx,
            onnx_since=onnx_since,
            algebra=algebra or Algebra(),
            channels=channels,
            no_derivative=no_derivative,
        )
    )


def InstOnly(  # noqa: N802
    name: str,
    doc: str,
    *,
    results: Sequence[str] = (),
    inouts: Sequence[str] = (),
    inputs: Sequence[str] = (),
    attrs: Sequence[Attr] = (),
    traits: Sequence[str] = (),
    kernel: Mapping[str, Sequence[str]] | None = None,
    quant: str = "refused",
    backend: str = "",
) -> None:
    """Declares an instruction without a node."""
    _register(
        Operator(
            name, doc, tuple(inputs), tuple(results), tuple(attrs), tuple(traits), False, True, _source(),
            backend=backend, inouts=tuple(inouts), kernel=kernel, quant=quant,
        )
    )  # fmt: skip


_ARGUMENTS = {1: ("input",), 2: ("lhs", "rhs"), 3: ("condition", "lhs", "rhs")}


def Elementwise(  # noqa: N802
    name: str,
    arity: int,
    doc: str,
    c: str | Mapping[str, str],
    numpy: str,
    kinds: Sequence[str],
    *,
    derivative: Sequence[str] = (),
    no_derivative: str = "",
    onnx: str = "",
    onnx_since: int = 1,
    traits: Sequence[str] = (),
    quant: str = "refused",
    plain: Sequence[str] = (),
    algebra: Algebra | None = None,
) -> None:
    """Declares an element-wise operator.

    In `c` (one expression, or one for each of float, int, unsigned, bool) and `numpy` (an
    expression in `np` and `numeric`) the inputs are called as in `_ARGUMENTS`. `{s}` in `c` is the
    kind's suffix. `derivative` has one expression for each input, in mnemonics, the inputs, `y`
    (the result), `g` (its gradient) and numbers; "0" says that nothing flows. `no_derivative` says why there
    is none. Raises ValueError if neither is given.
    """
    if not derivative and not no_derivative:
        raise SpecError(
            f"{name}: expected derivative=(one expression for each input) or no_derivative=the reason, got neither"
        )
    _register(
        Operator(
            name, doc, _ARGUMENTS[arity], ("result",), (), ("elementwise", "inplace", *traits), True, True, _source(),
            scalar={"any": c} if isinstance(c, str) else c, numpy=numpy, kinds=tuple(kinds),
            algebra=algebra or Algebra(),
            derivative=tuple(derivative), no_derivative=no_derivative,
            onnx=onnx, onnx_since=onnx_since, quant=quant, plain=tuple(plain),
        )
    )  # fmt: skip
