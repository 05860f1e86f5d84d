"""Inputs and outputs of a model, as it declares them: names, element kinds, and shapes with symbolic dimensions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape, Type
from glowpy.support.errors import UserError, expect_type
from glowpy.support.symbolic import Dim, Expr, highest, lowest
from glowpy.support.text import parse_dim

__all__ = [
    "TYPE_NAMES",
    "DeclaredDim",
    "Narrow",
    "ValueInfo",
    "bind",
    "check_admitted",
    "check_names",
    "check_shapes",
    "code_name",
    "computed_dims",
    "meaningful",
    "resized_infos",
    "spelled_shape",
    "type_name",
    "unsized",
]

DeclaredDim = int | str | None
"""A size, the name of a symbolic dimension, or nothing at all."""


_SAYS_NOTHING = re.compile(r"\s*(\?*|unk(__\d+)?|None|-1)\s*")
"""Names that exporters give to dimensions of which they know nothing: two that are called so need not be equal."""


def meaningful(names: Sequence[DeclaredDim] | None) -> list[DeclaredDim] | None:
    """A shape with None for names that say nothing; None without a rank."""
    return (
        None
        if names is None
        else [
            None if isinstance(dim, str) and _SAYS_NOTHING.fullmatch(dim) else dim for dim in names
        ]
    )


def code_name(kind: ElemKind) -> str:
    """How ONNX calls floats of 8 bits: `float8e4m3fn` for f8e4m3fn."""
    return f"float{kind.suffix[1:]}"


TYPE_NAMES = {
    ElemKind.F16: "float16",
    ElemKind.BF16: "bfloat16",
    ElemKind.F32: "float",
    ElemKind.F64: "double",
    ElemKind.I8: "int8",
    ElemKind.I16: "int16",
    ElemKind.I32: "int32",
    ElemKind.I64: "int64",
    ElemKind.U8: "uint8",
    ElemKind.U16: "uint16",
    ElemKind.U32: "uint32",
    ElemKind.U64: "uint64",
    ElemKind.BOOL: "bool",
    **{kind: code_name(kind) for kind in ElemKind if kind.is_code},
}
"""How ONNX calls kinds."""


def type_name(kind: ElemKind) -> str:
    """How ONNX spells the type of a tensor of this kind: `tensor(float)`."""
    return f"tensor({TYPE_NAMES[kind]})"


@dataclass(frozen=True)
class Narrow:
    """An element type of ONNX with fewer bits than a byte.

    Attributes:
        name: How ONNX spells it.
        bits: How many an element has.
        kind: The kind of 8 bits that holds it.
        dtype: What numpy calls it, thanks to ml_dtypes, with an element in each byte.
    """

    name: str
    bits: int
    kind: ElemKind
    dtype: np.dtype[np.generic]

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest element."""
        signed = self.kind.is_signed
        low = -1 << (self.bits - 1) if signed else 0
        return low, low + (1 << self.bits) - 1


@dataclass(frozen=True)
class ValueInfo:
    """An input or output as the model declares it.

    Attributes:
        name: Its name.
        kind: Its element kind.
        shape: Sizes, names of symbolic dimensions, None where a dimension is neither; None without a rank.
        narrow: Which integers of fewer bits than a byte the elements are, if they are any.
        names: The shape with names that say nothing, such as `?`, which are None there.
    """

    name: str
    kind: ElemKind
    shape: list[DeclaredDim] | None
    narrow: Narrow | None = None
    names: list[DeclaredDim] | None = None

    @property
    def type(self) -> str:
        """The type as ONNX spells it, such as `tensor(float)`."""
        return type_name(self.kind) if self.narrow is None else f"tensor({self.narrow.name})"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy dtype of arrays for it; that of narrow integers is of ml_dtypes."""
        return self.kind.dtype if self.narrow is None else self.narrow.dtype

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} {self.kind.value} of any rank"
        return f"{self.name} {self.kind.value}{spelled_shape(self.shape)}"

    def admits(self, shape: Sequence[Dim | DeclaredDim]) -> bool:
        """Whether the declaration leaves room for this shape."""
        if self.shape is None:
            return True
        pairs = zip(self.shape, shape, strict=False)
        fits = all(not isinstance(dim, int) or dim == size for dim, size in pairs)
        return fits and len(self.shape) == len(shape)


def _resized_info(
    info: ValueInfo, shape: Sequence[Dim | DeclaredDim], taken: Collection[str]
) -> ValueInfo:
    """The declaration of another shape: open dimensions have the names of their symbols, unless these are taken."""
    if len(shape) != len(info.shape or ()):
        raise UserError(
            _other_shape(info, shape),
            note=_shapes_advice([info]),
        )
    dims: list[DeclaredDim] = []
    for dim, old in zip(shape, info.shape or (), strict=True):
        is_free = str(dim) not in taken or str(dim) == old
        name = str(dim) if dim is not None and is_free else None
        dims.append(name if isinstance(dim, str | Expr | None) else int(dim))
    return replace(info, shape=dims, names=None)


def resized_infos(
    infos: Sequence[ValueInfo], shapes: Mapping[str, Sequence[Dim | DeclaredDim]]
) -> tuple[dict[str, list[DeclaredDim]], list[ValueInfo]]:
    """The shapes that inputs declare and that are not those given, by name, and the inputs with these in their place.

    Raises UserError for an input that there is not, and one of another rank.
    """
    check_shapes(infos, shapes)
    written = {
        info.name: list(info.shape)
        for info in infos
        if info.name in shapes and info.shape is not None and not info.admits(shapes[info.name])
    }
    names = {dim for info in infos for dim in info.shape or () if isinstance(dim, str)}
    return written, [
        _resized_info(info, shapes[info.name], names) if info.name in written else info
        for info in infos
    ]


def check_shapes(
    infos: Sequence[ValueInfo], shapes: Mapping[str, Sequence[Dim | DeclaredDim]]
) -> None:
    """Raises UserError for a shape of an input that there is not, and for what is no shape."""
    _check_names("input", shapes, [info.name for info in infos])
    for name, shape in shapes.items():
        expect_type(f"input '{name}'", shape, tuple | list, "a tuple of dimensions")


def check_admitted(
    infos: Sequence[ValueInfo], shapes: Mapping[str, Sequence[Dim | DeclaredDim]]
) -> None:
    """Raises UserError for shapes that the inputs of a model that has no other sizes do not leave room for."""
    check_shapes(infos, shapes)
    for info in infos:
        if info.name in shapes and not info.admits(shapes[info.name]):
            raise UserError(_other_shape(info, shapes[info.name]))


def _other_shape(info: ValueInfo, shape: Sequence[Dim | DeclaredDim]) -> str:
    expected = spelled_shape(info.shape or ())
    return f"input '{info.name}': expected the shape {expected}, got {spelled_shape(shape)}"


def unsized(info: ValueInfo) -> ValueInfo:
    """The declaration of an output whose sizes may be others."""
    dims = info.shape and [None if isinstance(dim, int) else dim for dim in info.shape]
    return replace(info, shape=dims, names=None)


def bind(
    infos: Sequence[ValueInfo],
    shapes: Mapping[str, Shape],
    dims: Mapping[str, Dim],
    *,
    resizable: bool = True,
) -> list[Type]:
    """The type of every input, with symbols where the dimensions given have some.

    Args:
        infos: The inputs.
        shapes: Whole shapes by input; a shape also binds the symbolic dimensions of its input.
        dims: Sizes by symbolic dimension. One whose name is an expression of others need not be given.
        resizable: Whether the model can have other sizes than it declares, which is a remedy.

    Raises UserError for a name the model does not have, a shape that contradicts the model or another shape,
    and a dimension that stays unknown.
    """
    symbols = check_names({info.name: info.shape for info in infos}, shapes, dims)
    for name, size in dims.items():
        _check_size(f"symbolic dimension '{name}'", name, size)
    for name, shape in shapes.items():
        expect_type(f"input '{name}'", shape, tuple | list, "a tuple of dimensions")
        for size in shape:
            _check_size(f"input '{name}'", name, size)
    bound = dict(dims)
    for info in infos:
        if info.name in shapes:
            _match(info, shapes[info.name], bound, resizable=resizable)
    bound |= computed_dims([name for name in symbols if name not in bound], bound)
    unbound = [
        dim
        for info in infos
        if info.name not in shapes
        for dim in info.shape or ()
        if isinstance(dim, str) and dim not in bound
    ]
    names = list(dict.fromkeys(unbound))
    unnamed = [
        info for info in infos if info.name not in shapes and info.shape and None in info.shape
    ]
    return [_static(info, shapes.get(info.name), bound, names, unnamed) for info in infos]


def computed_dims(names: Iterable[str], dims: Mapping[str, Dim]) -> dict[str, Dim]:
    """The dimensions whose names say how they follow from others, as exporters write `past + seq`."""
    computed: dict[str, Dim] = {}
    for name in names:
        with suppress(UserError):  # most names are no expressions
            computed[name] = parse_dim(name, dims)
    return computed


def check_names(
    declared: Mapping[str, Sequence[DeclaredDim] | None],
    shapes: Iterable[str],
    dims: Mapping[str, Dim],
) -> list[str]:
    """The symbolic dimensions of inputs. Raises UserError for a shape or dimension of another name."""
    _check_names("input", shapes, list(declared))
    symbols = [dim for shape in declared.values() for dim in shape or () if isinstance(dim, str)]
    for name, dim in dims.items():
        _check_open(name, dim, declared)
    _check_names("symbolic dimension", dims, symbols)
    return symbols


def _check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            expected = ", ".join(f"'{choice}'" for choice in dict.fromkeys(known)) or "none"
            raise UserError(f"the model has no {what} '{name}', expected one of: {expected}")


def _check_open(name: str, dim: Dim, declared: Mapping[str, Sequence[DeclaredDim] | None]) -> None:
    """Raises UserError where `x[0]` is given and the model declares the size or the name of that dimension."""
    place = re.fullmatch(r"(.+)\[(\d+)\]", name)
    if place is None:
        return
    shape, axis = list(declared.get(place[1]) or ()), int(place[2])
    if axis >= len(shape) or shape[axis] is None or name in shape:
        return
    size, low, high = shape[axis], lowest(dim), highest(dim)
    shape[axis] = str(low) if low == high else f"{low}..{high}"
    given = f"{size}={shape[axis]}" if isinstance(size, str) else ""
    option = given or f"{place[1]}={'x'.join(map(str, shape))}"
    what = "name" if given else "size"
    raise UserError(
        f"expected a dimension without a size and a name, got '{name}', which has the {what} {size}",
        note=f"give {'the name' if given else 'the whole shape'}: --shape {shlex.quote(option)}",
    )


def _check_size(what: str, name: str, size: object) -> None:
    if not isinstance(size, int | np.integer | Expr) or isinstance(size, bool):
        raise UserError(
            f"{what}: expected a number or a symbol, got {size!r}",
            note=f"glowpy.support.symbolic.symbol('{name}', LOW, HIGH) makes a symbol",
        )


def _match(info: ValueInfo, shape: Shape, bound: dict[str, Dim], *, resizable: bool) -> None:
    """Checks a given shape against the declared one, and binds symbols by it."""
    if not info.admits(shape):
        raise UserError(
            _other_shape(info, shape),
            note=_resizing_advice(info, shape) if resizable else "",
        )
    for dim, size in zip(info.shape or (), shape, strict=False):
        if isinstance(dim, str) and bound.setdefault(dim, size) != size:
            raise UserError(
                f"input '{info.name}': symbolic dimension '{dim}' is {bound[dim]} elsewhere, got {size}"
            )


def _static(
    info: ValueInfo,
    shape: Shape | None,
    bound: Mapping[str, Dim],
    unbound: Sequence[str],
    unnamed: Sequence[ValueInfo],
) -> Type:
    """The type of an input. The remedy names all that is left to give, so that following it once is enough."""
    if shape is not None:
        return Type(info.kind, tuple(shape))
    if info.shape is None:
        raise UserError(
            f"input '{info.name}' has no declared shape",
            note=f"give it one: --shape {info.name}:1x3x224x224; in Python, shapes={{{info.name!r}: (1, 3, 224, 224)}}",
        )
    sizes: list[Dim] = []
    for index, dim in enumerate(info.shape):
        size = bound.get(dim) if isinstance(dim, str) else dim
        if size is None and dim is not None:
            raise UserError(
                f"input '{info.name}' has the symbolic dimension '{dim}', which must be bound",
                note=f"give {'it' if len(unbound) == 1 else 'each'} a size: "
                + " ".join(f"--shape {shlex.quote(f'{name}=1')}" for name in unbound)
                + "; 1..64 in place of 1 leaves it open; in Python, "
                + f"dims={dict.fromkeys(unbound, 1)}"
                + ("; --help-model says which follow from others" if len(unbound) > 1 else ""),
            )
        if size is None:
            raise UserError(
                f"input '{info.name}' has no size in dimension {index}",
                note=_shapes_advice(unnamed),
            )
        sizes.append(size)
    return Type(info.kind, tuple(sizes))


def _shapes_advice(infos: Sequence[ValueInfo]) -> str:
    """How to give shapes to inputs, with 1 for dimensions that are open."""
    shapes = {
        info.name: tuple(dim if isinstance(dim, int) else 1 for dim in info.shape or ())
        for info in infos
    }
    options = " ".join(
        f"--shape {shlex.quote(f'{name}:' + 'x'.join(map(str, shape)))}"
        for name, shape in shapes.items()
    )
    what = "it a shape" if len(infos) == 1 else "each a shape"
    return f"give {what}: {options}; 1..64 in place of 1 leaves a dimension open; in Python, shapes={shapes}"


def _resizing_advice(info: ValueInfo, shape: Shape) -> str:
    """How to change the sizes that the file declares, where an array has others."""
    if len(shape) != len(info.shape or ()) or not all(isinstance(size, int) for size in shape):
        return _shapes_advice([info])
    option = shlex.quote(f"{info.name}:" + "x".join(map(str, shape)))
    return f"to change the sizes in the file: --shape {option}; in Python, shapes={{{info.name!r}: {tuple(shape)}}}"


def spelled_shape(dims: Sequence[DeclaredDim | Dim]) -> str:
    """A shape for messages: `[1x3]`, `[batch x ?]`."""
    between = "x" if all(isinstance(dim, int) for dim in dims) else " x "
    return f"[{between.join('?' if dim is None else str(dim) for dim in dims)}]"
