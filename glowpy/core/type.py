"""`Type`: element kind, shape and quantization parameters, and their text form.

```
f32[1x28x28x16]        a tensor of rank 4
f32[1 x seq+1 x 16]    one of the extents depends on the symbol `seq`
i64[]                  a scalar (rank 0)
i8[4](s=0.02,o=-3)     quantized: real = s * (q - o)
i8[4x3](s=[0.1,0.2,0.3,0.4],o=[0,0,0,0],axis=0)    quantized per channel
```
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from glowpy.core.elemkind import ElemKind
from glowpy.support.errors import UserError
from glowpy.support.symbolic import (
    Dim,
    Expr,
    UndecidedError,
    depends_on_symbols,
    highest,
    likely_extent,
    lowest,
    product,
    static,
)
from glowpy.support.text import Lexer, print_attr

__all__ = ["MAX_BYTES", "MAX_RANK", "Quant", "Shape", "Type", "parse_type", "read_type", "spelled"]

Shape = tuple[Dim, ...]

MAX_RANK = 8
MAX_BYTES = 1 << 40
"""The largest size of a tensor; a shape beyond this is refused before anything is allocated."""

_QUANTIZABLE = frozenset({ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.I32})


@dataclass(frozen=True, slots=True)
class Quant:
    """Quantization parameters: real = scale * (q - offset), for the whole tensor or for each index along `axis`.

    Raises UserError if there are not as many scales as offsets, if there is no axis but not one scale, or if a
    scale is not a positive finite number.
    """

    scales: tuple[float, ...]
    offsets: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.offsets):
            raise UserError(
                f"expected as many scales as offsets, got {len(self.scales)} and {len(self.offsets)}"
            )
        if self.axis is None and len(self.scales) != 1:
            raise UserError(f"expected one scale without an axis, got {len(self.scales)}")
        wrong = (scale for scale in self.scales if not (scale > 0 and math.isfinite(scale)))
        if (first := next(wrong, None)) is not None:
            raise UserError(f"expected positive finite scales, got {print_attr(first)}")

    def __str__(self) -> str:
        if self.axis is None:
            return f"(s={print_attr(self.scales[0])},o={self.offsets[0]})"
        return f"(s={print_attr(self.scales)},o={print_attr(self.offsets)},axis={self.axis})"


@dataclass(frozen=True, slots=True)
class Type:
    """The static type of a value: element kind, shape, and quantization parameters if it is quantized.

    Equal channels are the whole tensor: they become one scale and offset without an axis. So two types of elements
    that mean the same are equal.

    Raises UserError where the shape is negative, of a rank above 8, or larger than 2**40 bytes, and
    where the quantization parameters do not fit the kind or the shape.
    """

    kind: ElemKind
    shape: Shape
    quant: Quant | None = None
    count: Dim = field(init=False, repr=False, compare=False)
    """Number of elements."""
    size: Dim = field(init=False, repr=False, compare=False)
    """Bytes of all elements."""

    @property
    def room(self) -> int:
        """Bytes of all elements where there are most of them."""
        return highest(self.size)

    def __repr__(self) -> str:
        return f"parse_type({str(self)!r})"

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_RANK:
            raise UserError(
                f"expected a rank of at most {MAX_RANK}, got {len(self.shape)} in {self}"
            )
        numbers = [dim for dim in self.shape if isinstance(dim, int)]
        is_static = len(numbers) == len(self.shape)
        lows = numbers if is_static else [lowest(dim) for dim in self.shape]
        if min(lows, default=0) < 0:
            if min(map(highest, self.shape)) < 0:
                raise UserError(f"expected dimensions of at least 0, got {self}")
            raise UndecidedError(f"expected dimensions of at least 0, got {self}", self.shape)
        if math.prod(low or 1 for low in lows) * self.kind.size > MAX_BYTES:
            raise UserError(f"shape overflows: {self} is larger than {MAX_BYTES} bytes")
        count = math.prod(numbers) if is_static else product(self.shape)
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "size", count * self.kind.size)
        if self.quant is not None:
            self._check_quant(self.quant)

    def _check_quant(self, quant: Quant) -> None:
        if self.kind not in _QUANTIZABLE:
            raise UserError(
                f"expected a quantizable element kind (i8, u8, i16, i32), got {self.kind.value}"
            )
        low, high = self.kind.limits
        if not all(low <= offset <= high for offset in quant.offsets):
            raise UserError(
                f"expected offsets from {low} to {high}, as {self.kind.value} holds, got {print_attr(quant.offsets)}"
            )
        if quant.axis is None:
            return
        if not 0 <= quant.axis < self.rank:
            raise UserError(f"expected a quantization axis below {self.rank}, got {quant.axis}")
        if len(quant.scales) != self.shape[quant.axis]:
            raise UserError(f"expected {self.shape[quant.axis]} scales, got {len(quant.scales)}")
        if len(set(zip(quant.scales, quant.offsets, strict=True))) == 1:
            object.__setattr__(self, "quant", Quant(quant.scales[:1], quant.offsets[:1]))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def likely(self) -> tuple[int, ...]:
        """The shape for the likely extents of symbols."""
        return tuple(map(likely_extent, self.shape))

    @property
    def is_empty(self) -> bool:
        """Whether it is known that there are no elements."""
        return 0 in self.shape

    @property
    def is_static(self) -> bool:
        """Whether no dimension is symbolic."""
        return not any(isinstance(dim, Expr) for dim in self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of a type without symbols, such as that of a constant."""
        return static(self.shape)

    def extent(self, axis: int) -> int:
        """One of the extents, where the others may be symbols. Raises UndecidedError for one that is."""
        return static(self.shape[axis:][:1])[0]

    def with_shape(self, shape: Iterable[Dim]) -> Type:
        """Returns a type of the same kind and parameters in another shape.

        Raises UserError if there are parameters for each channel: `channel_axis` knows where these go.
        """
        if self.quant is not None and self.quant.axis is not None:
            raise UserError(f"expected a type quantized as a whole, got {self}")
        return replace(self, shape=tuple(shape))

    def with_kind(self, kind: ElemKind) -> Type:
        """Returns a type of the same shape and another kind, not quantized."""
        return Type(kind, self.shape)

    def __str__(self) -> str:
        return f"{self.kind.value}{spelled(self.shape)}{self.quant or ''}"


def spelled(shape: Shape) -> str:
    """A shape as types spell it: `[2x3]`, `[batch x 3]`."""
    between = " x " if depends_on_symbols(shape) else "x"
    return f"[{between.join(map(str, shape))}]"


def parse_type(text: str, symbols: Mapping[str, Dim] | None = None) -> Type:
    """The type that `text` spells, and nothing after it, with `symbols` by name.

    Raises UserError with line and caret.
    """
    lexer = Lexer(text, "<type>")
    lexer.symbols.update(symbols or {})
    type = read_type(lexer)
    if lexer.peek.kind != "end":
        raise lexer.error(f"unexpected '{lexer.peek.text}' after a type")
    return type


def read_type(lexer: Lexer) -> Type:
    """Consumes a type."""
    token = lexer.peek
    try:
        kind = ElemKind(lexer.take("word"))
    except ValueError:
        raise lexer.error(f"expected an element kind, got '{token.text}'", token) from None
    lexer.expect("[")
    shape = _read_dims(lexer)
    lexer.expect("]")
    quant = _read_quant(lexer) if lexer.at("(") else None
    try:
        return Type(kind, shape, quant)
    except UserError as error:
        raise lexer.error(error.diagnostics[0].message, token) from None


def _read_dims(lexer: Lexer) -> Shape:
    """`1x28x28`, where the lexer sees the number 1 and the word x28x28, or `1 x seq x 64`."""
    if lexer.at("]"):
        return ()
    dims = [lexer.dim()]
    while lexer.peek.kind == "word":
        token = lexer.next()
        numbers = token.text.split("x")
        if numbers == ["", ""] and not lexer.at("]"):
            dims.append(lexer.dim())
        elif numbers[0] == "" and all(number.isdigit() for number in numbers[1:]):
            dims += [lexer.integer_of(number, token) for number in numbers[1:]]
        else:
            text = "x".join(map(str, dims)) + token.text
            raise lexer.error(f"expected dimensions such as 1x28x28, got '{text}'", token)
    return tuple(dims)


def _read_quant(lexer: Lexer) -> Quant:
    token = lexer.expect("(")
    fields: dict[str, object] = {}
    while not lexer.at(")"):
        name = lexer.take("word")
        lexer.expect("=")
        fields[name] = lexer.attr()
        if not lexer.accept(","):
            break
    lexer.expect(")")
    scales, offsets, axis = fields.pop("s", None), fields.pop("o", None), fields.pop("axis", None)
    if fields or scales is None or offsets is None or not (axis is None or isinstance(axis, int)):
        raise lexer.error("expected quantization parameters such as (s=0.02,o=-3)", token)
    try:
        return Quant(_floats(scales), _ints(offsets), axis)
    except (TypeError, ValueError, UserError) as error:
        raise lexer.error(f"bad quantization parameters: {error}", token) from None


def _floats(value: object) -> tuple[float, ...]:
    return (
        tuple(float(item) for item in value) if isinstance(value, tuple) else (float(str(value)),)
    )


def _ints(value: object) -> tuple[int, ...]:
    return tuple(int(item) for item in value) if isinstance(value, tuple) else (int(str(value)),)
