"""The inputs and outputs of a model: names, element kinds, and shapes with the symbolic dimensions bound."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import defs, helper, shape_inference

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape, Type
from glowpy.graph.state import Declared
from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.narrow import NARROW, Narrow
from glowpy.importer.onnx.order import subgraphs
from glowpy.importer.onnx.source import domain_of
from glowpy.importer.onnx.tensor import elem_type_of, kind_of, type_name
from glowpy.support.errors import UnsupportedError, UserError, expect_type
from glowpy.support.symbolic import Dim, Expr
from glowpy.support.text import parse_dim

__all__ = [
    "DeclaredDim",
    "ValueInfo",
    "bind",
    "check_names",
    "computed_dims",
    "declared",
    "declared_names",
    "declared_shape",
    "inferred_outputs",
    "is_typed",
    "resized_info",
    "spelled_shape",
    "typed_outputs",
    "unsized",
    "value_info",
]

DeclaredDim = int | str | None
"""A size, the name of a symbolic dimension, or nothing at all."""


_MAX_RANK = 32
"""More sizes than any shape has."""

_SESSION = (
    "glowpy.InferenceSession and glowpy run take strings, sequences, optionals and maps;"
    " machine code does not"
)


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


def declared(infos: Iterable[ValueInfo]) -> dict[str, Declared]:
    """The declared kinds and shapes of inputs or outputs, by name."""
    return {info.name: Declared(info.kind, info.shape) for info in infos}


def value_info(proto: onnx.ValueInfoProto) -> ValueInfo:
    """The declaration of an input or output.

    Raises UnsupportedError for anything but a dense tensor of a supported element type.
    """
    which = proto.type.WhichOneof("value")
    if which != "tensor_type":
        raise UnsupportedError(
            f"'{proto.name}': expected a dense tensor, got {(which or 'no type').removesuffix('_type')}",
            note=_SESSION,
        )
    tensor = proto.type.tensor_type
    try:
        kind = kind_of(tensor.elem_type)
    except UnsupportedError as error:
        first = error.diagnostics[0]
        note = _SESSION if tensor.elem_type == onnx.TensorProto.STRING else first.note
        raise UnsupportedError(f"'{proto.name}': {first.message}", note=note) from None
    narrow = NARROW.get(tensor.elem_type)
    names = declared_names(tensor)
    return ValueInfo(proto.name, kind, declared_shape(tensor), narrow, names)


def resized_info(
    info: ValueInfo, shape: Sequence[Dim | DeclaredDim], taken: Collection[str]
) -> ValueInfo:
    """The declaration of another shape: open dimensions have the names of their symbols, unless these are taken."""
    if len(shape) != len(info.shape or ()):
        raise UserError(
            f"input '{info.name}': expected the shape {spelled_shape(info.shape or ())}, got {spelled_shape(shape)}",
            note=_shapes_advice([info]),
        )
    dims: list[DeclaredDim] = []
    for dim, old in zip(shape, info.shape or (), strict=True):
        is_free = str(dim) not in taken or str(dim) == old
        name = str(dim) if dim is not None and is_free else None
        dims.append(name if isinstance(dim, str | Expr | None) else int(dim))
    return replace(info, shape=dims, names=None)


def unsized(info: ValueInfo) -> ValueInfo:
    """The declaration of an output whose sizes may be others."""
    dims = info.shape and [None if isinstance(dim, int) else dim for dim in info.shape]
    return replace(info, shape=dims, names=None)


_SAYS_NOTHING = re.compile(r"\s*(\?*|unk(__\d+)?|None|-1)\s*")
"""Names that exporters give to dimensions of which they know nothing: two that are called so need not be equal."""


def declared_shape(tensor: onnx.TypeProto.Tensor) -> list[DeclaredDim] | None:
    """The shape that a type declares, with None for names that say nothing; None without a rank."""
    names = declared_names(tensor)
    return names and [
        None if isinstance(dim, str) and _SAYS_NOTHING.fullmatch(dim) else dim for dim in names
    ]


def declared_names(tensor: onnx.TypeProto.Tensor) -> list[DeclaredDim] | None:
    """The shape that a type declares with all its names; None without a rank."""
    return [_dim(dim) for dim in tensor.shape.dim] if tensor.HasField("shape") else None


def is_typed(proto: onnx.ValueInfoProto) -> bool:
    """Whether the model declares the type of an output; a shape it may leave out."""
    type = proto.type
    return type.WhichOneof("value") is not None and (
        not type.HasField("tensor_type") or type.tensor_type.elem_type != 0
    )


def typed_outputs(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]
) -> list[onnx.ValueInfoProto]:
    """The outputs of a model, with the types that ONNX infers where the model declares none.

    `nodes` are those of the model, each after those it needs. Raises UserError where no type is inferred.
    """
    inferred = _inferred(model, nodes)
    typed = []
    for proto in model.graph.output:
        declaration = proto if is_typed(proto) else inferred.get(proto.name)
        if declaration is None:
            raise UserError(
                f"output '{proto.name}' has no type, and ONNX infers none",
                note="declare its type in the model",
            )
        typed.append(declaration)
    return typed


def inferred_outputs(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]
) -> list[list[DeclaredDim] | None]:
    """The shapes of the outputs as far as ONNX infers them, with what is declared of the rest; None without a rank.

    `nodes` are those of the model, each after those it needs.
    """
    graph = model.graph
    open_outputs = [_unshaped(proto) for proto in graph.output]
    values = [*graph.input, *graph.output, *graph.value_info]
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    inferred = _inferred(model, nodes, open_outputs)
    shapes = []
    for output in graph.output:
        declaration = inferred.get(output.name)
        found = None if declaration is None else declared_shape(declaration.type.tensor_type)
        if found is not None:  # ONNX makes up names for what it does not know
            found = [dim if isinstance(dim, int) or dim in names else None for dim in found]
        shapes.append(_merged(found, declared_shape(output.type.tensor_type)))
    return shapes


def _is_shape(proto: onnx.TensorProto) -> bool:
    """Whether a tensor may be a shape or a part of one, and is in the parsed model."""
    few = len(proto.dims) < 2 and all(size <= _MAX_RANK for size in proto.dims)
    return few and proto.data_type == onnx.TensorProto.INT64 and not proto.external_data


def _unshaped(proto: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """An output with its element type alone."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(proto)
    if copy.type.HasField("tensor_type"):
        copy.type.tensor_type.ClearField("shape")
    return copy


def _merged(
    inferred: list[DeclaredDim] | None, declared: list[DeclaredDim] | None
) -> list[DeclaredDim] | None:
    """Sizes that are inferred, then those declared, then names that are declared, then other names."""
    if inferred is None or declared is None or len(inferred) != len(declared):
        return declared if inferred is None else inferred
    return [
        next((dim for dim in dims if isinstance(dim, int)), dims[1] or dims[0])
        for dims in zip(inferred, declared, strict=True)
    ]


def _inferred(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
) -> dict[str, onnx.ValueInfoProto]:
    """Infers the types of values, by name; large weights take part without their elements.

    `outputs` stand for those of the model, if they are given.
    """
    graph = model.graph
    opsets = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    ends = graph.output if outputs is None else outputs
    bare.graph.CopyFrom(onnx.GraphProto(name="types", node=nodes, output=ends))
    inputs = {proto.name: proto for proto in graph.input}
    for name, elem_type, dims in [
        *((proto.name, proto.data_type, proto.dims) for proto in graph.initializer),
        *((p.values.name, p.values.data_type, p.dims) for p in graph.sparse_initializer),
    ]:
        inputs.setdefault(name, helper.make_tensor_value_info(name, elem_type, list(dims)))
    bare.graph.input.extend(inputs.values())
    if outputs is not None:
        bare.graph.initializer.extend(filter(_is_shape, graph.initializer))
    bare.graph.value_info.extend(graph.value_info)
    result = bare.graph
    # ONNX's inference of some operators reads a null pointer where an input is missing. The build says what is wrong.
    if all(_has_inputs(node, opsets) for node in nodes):
        with suppress(shape_inference.InferenceError, RuntimeError, ValueError):
            result = shape_inference.infer_shapes(bare, data_prop=outputs is not None).graph
    values = [*result.input, *result.value_info, *result.output]
    types = {proto.name: proto for proto in values if is_typed(proto)}
    for node in nodes:
        for proto in _by_schema(node, opsets, types):
            types.setdefault(proto.name, proto)
    return types


def _has_inputs(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether a node and those of its graphs have every input that their operators must have."""
    schema = schema_of(node, opsets.get(domain_of(node.domain), 0))
    formals = schema.inputs if schema is not None else ()
    names = [*node.input, *[""] * len(formals)]
    single = defs.OpSchema.FormalParameterOption.Single
    return all(
        name or formal.option is not single for name, formal in zip(names, formals, strict=False)
    ) and all(_has_inputs(inner, opsets) for graph in subgraphs(node) for inner in graph.node)


def _by_schema(
    node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.ValueInfoProto]
) -> Iterator[onnx.ValueInfoProto]:
    """The outputs of one type, or of that of an input or attribute, for operators without an inference of their own."""
    schema = schema_of(node, opsets.get(domain_of(node.domain), 0))
    if schema is None:
        return
    elem_types = {type_name(kind): elem_type_of(kind) for kind in ElemKind}
    stash = (attribute.i for attribute in node.attribute if attribute.name == "stash_type")
    elem_types["stash"] = next(stash, onnx.TensorProto.FLOAT)
    for index, name in enumerate(node.input):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if name in types and types[name].type.HasField("tensor_type"):
            elem_types.setdefault(formal.type_str, types[name].type.tensor_type.elem_type)
    for index, name in enumerate(node.output):
        formal = schema.outputs[min(index, len(schema.outputs) - 1)]
        if name and formal.type_str in elem_types:
            yield helper.make_tensor_value_info(name, elem_types[formal.type_str], None)


def _dim(proto: onnx.TensorShapeProto.Dimension) -> DeclaredDim:
    """Exporters write -1, too, for a size that is not known."""
    if proto.HasField("dim_value"):
        return proto.dim_value if proto.dim_value >= 0 else None
    return proto.dim_param or None


def bind(
    infos: Sequence[ValueInfo], shapes: Mapping[str, Shape], dims: Mapping[str, Dim]
) -> list[Type]:
    """The type of every input, with symbols where the dimensions given have some.

    Args:
        infos: The inputs.
        shapes: Whole shapes by input; a shape also binds the symbolic dimensions of its input.
        dims: Sizes by symbolic dimension. One whose name is an expression of others need not be given.

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
            _match(info, shapes[info.name], bound)
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
    declared: Mapping[str, Sequence[DeclaredDim] | None], shapes: Iterable[str], dims: Iterable[str]
) -> list[str]:
    """The symbolic dimensions of inputs. Raises UserError for a shape or dimension of another name."""
    _check_names("input", shapes, list(declared))
    symbols = [dim for shape in declared.values() for dim in shape or () if isinstance(dim, str)]
    _check_names("symbolic dimension", dims, symbols)
    return symbols


def _check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            expected = ", ".join(f"'{choice}'" for choice in dict.fromkeys(known)) or "none"
            raise UserError(f"the model has no {what} '{name}', expected one of: {expected}")


def _check_size(what: str, name: str, size: object) -> None:
    if not isinstance(size, int | np.integer | Expr) or isinstance(size, bool):
        raise UserError(
            f"{what}: expected a number or a symbol, got {size!r}",
            note=f"glowpy.support.symbolic.symbol('{name}', LOW, HIGH) makes a symbol",
        )


def _match(info: ValueInfo, shape: Shape, bound: dict[str, Dim]) -> None:
    """Checks a given shape against the declared one, and binds symbols by it."""
    if not info.admits(shape):
        raise UserError(
            f"input '{info.name}': expected the shape {spelled_shape(info.shape or ())}, got {spelled_shape(shape)}",
            note=_resizing_advice(info, shape),
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
