"""`save`: a function of a module as an ONNX file.

What is written is a copy, on which some rewrite passes have run: arithmetic on stored integers is put between
conversions, operators on channels are those of ONNX, and transposes meet and vanish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto, helper

from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import context
from glowpy.exporter.onnx.channels_first import ChannelsFirstPass
from glowpy.exporter.onnx.file import LIMIT, write_model
from glowpy.exporter.onnx.graph import OPSETS, OnnxGraph, StoredTensor, elem_type_of, opset_imports
from glowpy.exporter.onnx.initial import initial_values
from glowpy.exporter.onnx.qdq import EncloseMovesPass, QdqPass
from glowpy.exporter.onnx.qoperator import QOperatorPass
from glowpy.exporter.onnx.registry import to_onnx
from glowpy.graph.calls import inline
from glowpy.graph.function import Function, Module
from glowpy.graph.state import release_state
from glowpy.graph.verifier import verify_module
from glowpy.opt.graph.fold_reshape import FoldReshapePass
from glowpy.opt.graph.fold_transpose import FoldTransposePass
from glowpy.opt.graph.sink_transpose import SinkTransposePass
from glowpy.opt.pipelines import GRAPH_DEFAULT
from glowpy.passes import PassContext, Pipeline, Rewrites
from glowpy.recipe import run_on_all
from glowpy.support.dumped import INITIAL
from glowpy.support.errors import (
    Diagnostic,
    InternalError,
    UnsupportedError,
    UserError,
    expect_type,
)
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc
from glowpy.support.output_files import check_output_file

__all__ = ["check_kinds", "check_model", "model_proto", "prepare", "save", "value_info", "written"]

_IR_VERSION = 10
"""The one that came with the opset."""

_TEXT = frozenset({".glow", ".ir"})
"""Endings of files that readers take for text of graphs and of instructions."""

_WITH_BF16 = 22
"""An opset with the same operators, more of which take bf16."""


@within_limits
def save(
    model: Module | Function,
    path: str | Path,
    *,
    optimize: bool = False,
    qoperators: bool = False,
    external_above: int = LIMIT,
) -> None:
    """Writes a network as an ONNX file: of opset 21, or 22 if operators on bf16 need that.

    Inputs and outputs have the names of the user's model. Channels come second, as in ONNX, and quantized arithmetic
    becomes operators on floats between DequantizeLinear and QuantizeLinear, which runtimes compute on the integers.
    Weights stay integers. Inputs and outputs that are quantized are plain integers in ONNX. Symbolic dimensions stay
    open, under the names of their symbols; their bounds are not in the file. A variable is an input, and an
    output that is this input of the next run.

    Args:
        model: The function, or a module with one: as loaded or built, optimized, or quantized. It is not changed.
        path: The file. It is written whole or not at all.
        optimize: Write what the optimizer makes of the function.
        qoperators: Write QLinearConv and QLinearMatMul, which compute on integers, for products of which all operands
            and the result are quantized.
        external_above: A file of more bytes has its large tensors in a second one, `<path>.data`; none can have more
            than 2 GiB.

    Raises UnsupportedError that lists every node that has no form in ONNX, VerifyError for a malformed graph, and
    UserError for a file that cannot be written.
    """
    expect_type("model", model, Module | Function, "a Module or Function, as glowpy.load gives")
    _check_name(path)
    f = model.main if isinstance(model, Module) else model
    work = f.module.clone().function(f.name)
    verify_module(work.module)
    variables = work.variables
    release_state(work)
    ctx = context(CompileOptions())
    biases = {c.tensor.key for c in work.module.constants if c.type.kind is ElemKind.I32}
    operators = QOperatorPass(frozenset(biases)) if qoperators else None
    if optimize:
        run_on_all(Pipeline("optimize", GRAPH_DEFAULT, fixpoint=True), work, ctx)
    for g in (*work.called, work):
        inline(g)
    for g in (*work.called, work):
        prepare(g, ctx, operators)
    graph = written(work)
    ports = (port.original for port in (*work.parameters, *work.outputs))
    taken = {*graph.tensors, *ports, *(name for name, _ in graph.values())}
    initial, tensors = initial_values(variables, taken)
    graph.tensors |= {name: StoredTensor.of(tensor) for name, tensor in tensors.items()}
    large = {name: t for name, t in graph.tensors.items() if graph.is_stored_apart(name)}
    proto = model_proto(work, graph, large)
    if initial:
        helper.set_metadata_props(proto.graph, {INITIAL: initial})
    opset = next(imported for imported in proto.opset_import if not imported.domain)
    opset.version = check_kinds(graph, proto, large, (OPSETS[""], _WITH_BF16))
    check_model(proto, large)
    write_model(path, proto, large, limit=min(external_above, LIMIT))


def _check_name(path: str | Path) -> None:
    """Finds out before the work that a file cannot be written, or would be taken for text. Raises UserError."""
    check_output_file(str(path))
    if Path(path).suffix in _TEXT:
        raise UserError(
            "expected the name of an ONNX file: this is one of text",
            loc=Loc(str(path)),
            note="str(module) is the text of a graph; glowpy dump writes it with its constants",
        )


def prepare(f: Function, ctx: PassContext, operators: QOperatorPass | None = None) -> None:
    """Rewrites a function so that each node has a form of its own in ONNX, some as `operators` on integers."""
    QdqPass().run(f, ctx)
    layout = ChannelsFirstPass(), FoldReshapePass(), FoldTransposePass(), SinkTransposePass()
    Rewrites(layout).run(f, ctx)
    EncloseMovesPass().run(f, ctx)
    if operators is not None:
        operators.run(f, ctx)
    f.erase_dead()


def written(f: Function) -> OnnxGraph:
    """Every node as operators. Raises UnsupportedError for those that have no form in ONNX."""
    graph = OnnxGraph(f)
    for node in f.topological():
        rule = to_onnx.get(type(node))
        if rule is None:
            graph.refuse("ONNX has no operator for it", node)
        else:
            graph.write(node, rule)
    both = set(f.parameters) & set(f.outputs)
    graph.refusals += [
        Diagnostic(f"'{p.original}': expected an input or an output, got both", p.loc) for p in both
    ]
    if graph.refusals:
        raise UnsupportedError.of(graph.refusals)
    return graph


def model_proto(f: Function, graph: OnnxGraph, large: dict[str, StoredTensor]) -> ModelProto:
    """The model without its large tensors, with the types of all values."""
    small = [t.proto(name) for name, t in graph.tensors.items() if name not in large]
    proto = helper.make_graph(
        graph.nodes, f.name,
        [value_info(p.original, p.type) for p in f.parameters],
        [value_info(p.original, p.type) for p in dict.fromkeys(f.outputs)],
        small,
        value_info=[value_info(name, type) for name, type in graph.values()],
    )  # fmt: skip
    return helper.make_model(
        proto, producer_name="glowpy", ir_version=_IR_VERSION,
        opset_imports=opset_imports(graph.nodes),
    )  # fmt: skip


def value_info(name: str, type: Type) -> onnx.ValueInfoProto:
    """A name with a type, in which symbolic dimensions are spelled."""
    dims = [dim if isinstance(dim, int) else str(dim) for dim in type.shape]
    return helper.make_tensor_value_info(name, elem_type_of(type.kind), dims)


def _with_inputs(proto: ModelProto, large: dict[str, StoredTensor]) -> ModelProto:
    """The model with inputs in place of large tensors, for what needs only their types."""
    light = ModelProto()
    light.CopyFrom(proto)
    light.graph.input.extend(
        helper.make_tensor_value_info(name, tensor.elem_type, tensor.dims)
        for name, tensor in large.items()
    )
    return light


def check_kinds(
    graph: OnnxGraph,
    proto: ModelProto,
    large: dict[str, StoredTensor],
    opsets: Sequence[int] = (OPSETS[""],),
) -> int:
    """The first of the opsets that defines every operator for the kinds of its operands.

    Raises UnsupportedError for every operator that the last one does not define for them.
    """
    inferred = onnx.shape_inference.infer_shapes(_with_inputs(proto, large))
    kinds = {t.name: t.data_type for t in inferred.graph.initializer}
    for infos in (inferred.graph.input, inferred.graph.value_info, inferred.graph.output):
        kinds |= {info.name: info.type.tensor_type.elem_type for info in infos}
    refusals: list[Diagnostic] = []
    for opset in opsets:
        refusals = [
            Diagnostic(f"%{node.name} ({node.SCHEMA.mnemonic}): {reason}", node.loc)
            for operator, node in zip(graph.nodes, graph.origins, strict=True)
            for reason in _misfits(operator, kinds, opset)
        ]
        if not refusals:
            return opset
    raise UnsupportedError.of(refusals)


def _misfits(operator: onnx.NodeProto, kinds: dict[str, int], opset: int) -> Iterator[str]:
    version = OPSETS[operator.domain] if operator.domain else opset
    schema = onnx.defs.get_schema(operator.op_type, version, operator.domain)
    for verb, names, formals in (
        ("take", operator.input, schema.inputs),
        ("give", operator.output, schema.outputs),
    ):
        for index, name in enumerate(names):
            formal = formals[min(index, len(formals) - 1)]
            kind = kinds.get(name, 0)
            spelled = f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})"
            if kind and spelled not in formal.types:
                yield f"{operator.op_type} of ONNX does not {verb} {spelled} as {formal.name}"
                return


def check_model(proto: ModelProto, large: dict[str, StoredTensor]) -> None:
    """Raises InternalError for a model that is no valid one, or whose shapes are others than ours."""
    light = _with_inputs(proto, large)
    try:
        onnx.checker.check_model(light, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise InternalError(f"the exported model is not valid: {error}") from error
