"""Networks in f16 or bf16: what computed with f32 computes with halves, but for what is to stay.

Each node that is changed stands between conversions: its operands are rounded, and its result is f32 again for all that
reads it. The optimizer removes what converts there and back, which changes nothing, so that conversions remain where
f32 begins and ends. The steps of one operator stay in f32, and what it reads and gives is rounded; sums, which leave
the range of f16, are widened by the optimizer.

Positions and masks are computed from integers, exactly, and stay in f32 until they meet data. Rounded to halves, the
angles of the 3000th word would be wrong. The lowest f32 in a mask is lower than all halves: it becomes half the lowest
one, so that what is added to it does not make it infinite. Where all is infinite, softmax gives NaNs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import ml_dtypes
import numpy as np

from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array, Tensor, converted
from glowpy.core.type import Type
from glowpy.engine import backend_of, unsupported
from glowpy.graph.calls import operands_of
from glowpy.graph.function import SAVED, Function, Module
from glowpy.graph.node import Constant, Node, NodeValue, Operand, Storage, Variable
from glowpy.graph.nodes_gen import ConvertNode, IfNode, LoopNode, SaveNode, SplatNode
from glowpy.opt.known import is_known
from glowpy.opt.products import Product
from glowpy.quantization.conversion import Conversion, bytes_of_constants, outcome_of
from glowpy.quantization.fidelity import Fidelity, runner
from glowpy.quantization.islands import chosen_to_keep, moves
from glowpy.quantization.optimized import optimize, optimized
from glowpy.quantization.overflow import out_of_range
from glowpy.quantization.profiling import Sample
from glowpy.quantization.steps import operators_of, reads_weights
from glowpy.support.errors import UserError, expect_type
from glowpy.support.limits import within_limits

__all__ = ["halve", "output_fidelities"]


@within_limits
def halve(
    model: Module | Function,
    kind: ElemKind,
    *,
    keep: tuple[str, ...] = (),
    ports: bool = False,
    backend: str | Backend = "cpu",
    samples: Iterable[Sample] = (),
) -> Conversion:
    """A network whose floats are halves: `reason` says of what became of a node why it stays in f32.

    Args:
        model: The function, or a module with one; not changed.
        kind: f16 or bf16.
        keep: Nodes that stay in f32: their names in the optimized graph or in the user's model, or their kinds.
        ports: Whether inputs, outputs and variables in f32 become halves, too.
        backend: The backend that is to run the network; what it cannot run in halves stays in f32.
        samples: Inputs for a run that finds the values outside the range of halves: those stay in f32.

    Raises UserError for other kinds, for names in `keep` that no node has, and for samples that do not fit.
    """
    expect_type("kind", kind, ElemKind, "an ElemKind, such as ElemKind.F16")
    if not kind.is_half:
        raise UserError(f"expected f16 or bf16 to convert to, got {kind.value}")
    original = optimized(model)
    compiler = backend_of(backend) if isinstance(backend, str) else backend
    before = bytes_of_constants(original)
    measured = list(samples)
    refused = out_of_range(original, kind, measured, compiler) if measured else {}
    while True:
        f = original.module.clone().function(original.name)
        functions = (*f.called, f)
        reasons_to_keep = _kept(f, keep)
        constants: dict[NodeValue, Operand] = {}
        exact: set[NodeValue] = set()
        converters = {
            g: _Converter(g, kind, reasons_to_keep, refused, constants, exact) for g in functions
        }
        # Callers go first: what they hand on may be exact.
        reasons = {g: converters[g].run() for g in reversed(functions)}
        new = {n: why for c in converters.values() for n, why in c.refusals(compiler).items()}
        if not new:
            break
        refused |= new
    outcomes = [
        outcome_of(node, reason, g)
        for g in functions
        for node, reason in reasons[g].items()
        if not node.has(Trait.SHAPE_ONLY)
    ]
    if ports:
        _convert_ports(f, kind)
    optimize(f)
    return Conversion(f.module, tuple(outcomes), before, bytes_of_constants(f))


def output_fidelities(
    model: Function, halved: Function, samples: Iterable[Sample], backend: str | Backend = "cpu"
) -> dict[str, Fidelity]:
    """How near the outputs in halves are to those in f32, by name: the ratio of signal to noise over all samples.

    Args:
        model: The network in f32.
        halved: The same in halves.
        samples: The inputs that both are run with: arrays for the inputs of the one in f32.
        backend: The backend that runs them.

    Raises UserError for samples that do not fit, and for none.
    """
    names = [port.original for port in model.parameters]
    expected, got = (runner(f, backend, names) for f in (model, halved))
    kinds = {port.original: port.type.kind.dtype for port in halved.parameters}
    fidelities: dict[str, Fidelity] = {}
    for sample in samples:
        outputs = expected(sample)
        with np.errstate(over="ignore"):
            narrow = {
                name: np.asarray(x).astype(kinds.get(name, x.dtype)) for name, x in sample.items()
            }
        for name, array in got(narrow).items():
            fidelity = fidelities.get(name, Fidelity())
            fidelities[name] = fidelity.plus(outputs[name], array.astype(np.float64), None)
    if not fidelities:
        raise UserError("expected inputs to compare on, got none")
    return fidelities


class _Converter:
    """Puts conversions around the nodes that become halves.

    All functions share the `constants` in halves, and the values that are `exact`: positions and masks.
    """

    def __init__(
        self,
        f: Function,
        kind: ElemKind,
        kept: Mapping[Node, str],
        refused: Mapping[str, str],
        constants: dict[NodeValue, Operand],
        exact: set[NodeValue],
    ) -> None:
        self._f, self._kind, self._kept, self._refused = f, kind, kept, refused
        self._constants, self._exact = constants, exact
        self._new: dict[str, Node] = {}
        self._nodes = [node for node in f.topological() if _has_floats(node)]
        self._operators = operators_of(self._nodes)

    def run(self) -> dict[Node, str]:
        """Converts, and returns for each node why it stays in f32; empty where it does not."""
        reasons: dict[Node, str] = {}
        for node in self._nodes:
            is_step = node in self._operators and not reads_weights(node)
            reasons[node] = self._reason(node) or (self._step if is_step else self._converted)(node)
        self._hand_on()
        return reasons

    def _hand_on(self) -> None:
        """Notes what is exact in functions that are called, because what they are given is."""
        for node in self._f.nodes:
            if isinstance(node, IfNode | LoopNode):
                for index, placeholders in operands_of(self._f, node).items():
                    if node.inputs[index] in self._exact:
                        self._exact.update(placeholder.value for placeholder in placeholders)

    def refusals(self, backend: Backend) -> dict[str, str]:
        """The nodes that a backend cannot run in halves, and why; by name, which copies of a function share."""
        answers = {name: unsupported(node, backend) for name, node in self._new.items()}
        return {
            name: f"the {backend.name} backend: {reasons[0]}"
            for name, reasons in answers.items()
            if reasons
        }

    def _reason(self, node: Node) -> str:
        if node.name in self._refused:
            return self._refused[node.name]
        if any(value.type.quant is not None for value in (*node.inputs, *node.results)):
            return "it reads or gives quantized values"
        if self._is_exact(node):
            self._exact.update(node.results)
            return "it computes positions or masks, from integers"
        if node in self._kept:
            return self._kept[node]
        if (node.has(Trait.SHAPE_ONLY) or moves(node)) and not any(
            self._is_half(value) for value in node.inputs if _is_f32(value)
        ):
            return "what it moves or chooses is f32"
        return ""

    def _is_exact(self, node: Node) -> bool:
        """Whether its floats come from integers, and from constants that are no weights."""
        floats = [value for value in node.inputs if value.type.kind.is_float]
        if not floats:
            return isinstance(node, ConvertNode) and node.input.type.kind.size >= 4
        if isinstance(node, Product) and node.inputs[0].type.shape[-1] != 1:
            return False
        return any(value in self._exact for value in floats) and all(
            value in self._exact or is_known(value) for value in floats
        )

    def _is_half(self, value: NodeValue) -> bool:
        """Whether a value is stored in halves, or can be."""
        node = value.node
        if isinstance(node, ConvertNode):
            return node.input.type.kind is self._kind
        return value.constant is not None or isinstance(node, SplatNode)

    def _converted(self, node: Node) -> str:
        """Puts a node in halves in its place; else, why there is none."""
        f, before = self._f, self._f.num_nodes
        with f.replacing(node):
            inputs = [self._half(value) if _is_f32(value) else value for value in node.inputs]
            type_ = self._type(node.type) if node.has(Trait.TYPED) else None
            try:
                new = f.create(type(node), node.name, inputs, node.attrs, type_, node.loc)
            except UserError:  # from inference: its operands are f32 in every network
                return f"{node.SCHEMA.mnemonic} takes no {self._kind.value}"
            results: list[Operand] = [
                result if result.type == old.type else f.create_convert(node.name, old.type, result)
                for old, result in zip(node.results, new.results, strict=True)
            ]
        name = node.name
        f.replace(node, results, f.newest(f.num_nodes - before))
        self._new[name] = new
        return ""

    def _step(self, node: Node) -> str:
        """Leaves a step of an operator in f32, rounds what the operator reads and gives; why, if it is not the last."""
        f, operator = self._f, self._operators[node]
        with f.replacing(node):
            for index, value in enumerate(node.inputs):
                inside = value.node is not None and self._operators.get(value.node) == operator
                if _is_f32(value) and not (inside or is_known(value) or value in self._exact):
                    node.set_input(index, self._rounded(value))
            is_last = False
            for result in filter(_is_f32, node.results):
                uses = [use for use in result.uses if self._operators.get(use[0]) != operator]
                rounded = self._rounded(result) if uses else result
                for user, index in uses:
                    user.set_input(index, rounded)
                    is_last = True
        return "" if is_last else "it is a step of an operator, which rounds where it ends"

    def _rounded(self, value: NodeValue) -> NodeValue:
        """A value as halves have it, in f32."""
        half = self._f.create_convert(value.name, self._type(value.type), value)
        return self._f.create_convert(value.name, value.type, half).result

    def _type(self, type: Type) -> Type:
        return type.with_kind(self._kind) if type.kind is ElemKind.F32 else type

    def _half(self, value: NodeValue) -> Operand:
        node, f = value.node, self._f
        if isinstance(node, ConvertNode) and node.input.type.kind is self._kind:
            return node.input
        if value in self._constants:
            return self._constants[value]
        if value.constant is not None and value.constant.has_elements:
            tensor = Tensor.derived(
                self._type(value.type),
                f"halves {self._kind.value}",
                [value.constant.tensor],
                _rounded_to(self._kind),
            )
            self._constants[value] = f.module.create_constant(value.name, tensor).value
            return self._constants[value]
        if isinstance(node, SplatNode):
            number = _rounded_to(self._kind)(np.array(node.value, np.float32))
            return f.create_splat(value.name, self._type(value.type), float(number))
        if value in self._exact:
            most, _ = _limits(self._kind)
            value = f.create_clip(value.name, value, -most / 2, most / 2).result
        return f.create_convert(value.name, self._type(value.type), value)


def _kept(f: Function, keep: tuple[str, ...]) -> dict[Node, str]:
    """The nodes that the user wants in f32, and why."""
    floats = [node for _, node in f.all_nodes if _has_floats(node)]
    return chosen_to_keep([node for node in floats if not node.has(Trait.SHAPE_ONLY)], keep)


def _is_f32(value: NodeValue) -> bool:
    return value.type.kind is ElemKind.F32 and value.type.quant is None


def _has_floats(node: Node) -> bool:
    """Whether a node has operands or results that could be halves, and computes them itself."""
    values = (*node.inputs, *node.results)
    ignored = isinstance(node, SaveNode | SplatNode) or node.has(Trait.SIDE_EFFECT) or node.callees
    return not ignored and any(map(_is_f32, values))


def _limits(kind: ElemKind) -> tuple[float, float]:
    """The largest number of a kind, and the smallest above 0."""
    info = ml_dtypes.finfo(kind.dtype)  # type: ignore[no-untyped-call]
    return float(info.max), float(info.smallest_subnormal)


def _rounded_to(kind: ElemKind) -> Callable[[Array], Array]:
    """Rounds what is known: numbers stay finite, and other than 0."""
    most, least = _limits(kind)

    def rounded(array: Array) -> Array:
        finite = np.where(np.isfinite(array), np.clip(array, -most, most), array)
        magnitude = np.where(array == 0, 0, np.maximum(np.abs(finite), least))
        return np.asarray(np.copysign(magnitude, array).astype(kind.dtype))

    return rounded


def _convert_ports(f: Function, kind: ElemKind) -> None:
    """Makes halves of inputs, outputs and variables; those of functions that it calls are their own."""
    storage: list[Storage] = [*f.parameters, *f.outputs, *f.variables]
    for port in dict.fromkeys(storage):
        if not _is_f32(port.value):
            continue
        if isinstance(port, Variable):
            port.memory = port.memory.with_kind(kind)
        uses, wide = port.value.uses, port.value.type
        port.value.type = wide.with_kind(kind)
        if isinstance(port, Variable) and isinstance(port.initial, Constant):
            f.module.begin(port, Tensor(port.type, converted(port.initial.array, kind)))
        with f.at(port.loc):
            reads = []
            for node, index in uses:
                if isinstance(node, SaveNode) and index == SAVED:
                    half = f.create_convert(port.name, port.value.type, node.input)
                    node.set_input(SAVED - 1, half.result)
                else:
                    reads.append((node, index))
            if reads:
                numbers = f.create_convert(port.name, wide, port)
                for node, index in reads:
                    node.set_input(index, numbers.result)
