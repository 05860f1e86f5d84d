"""From a network in floats and its profile to one that computes with integers.

What is written here is the form that files have, too: floats that are quantized and dequantized again around each node
that is to be integer, and weights that are stored integers, dequantized. What follows from it is the same for both: the
optimizer makes nodes on integers of it (`fold-quantize`).

Each value has one type, and all that read it read the same integers. What a ReLU, a limit, or a sum with what is
there already takes from a product is not rounded in between: these become part of the product's loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import offsets_of, parameters, scales_of
from glowpy.core.schema import Quantized, Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Type
from glowpy.engine import backend_of, unsupported
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    ClipNode,
    ConcatNode,
    ConvolutionNode,
    ReluNode,
    SaveNode,
)
from glowpy.opt.graph.lower_quantized import is_exact
from glowpy.opt.known import is_known, known_tensor
from glowpy.opt.products import BYTES, Product
from glowpy.quantization.blocks import BlockForm, stored_in_blocks
from glowpy.quantization.conversion import Conversion, bytes_of_constants, outcome_of
from glowpy.quantization.instrument import unprofiled
from glowpy.quantization.islands import Islands, data_of, islands, moves
from glowpy.quantization.optimized import optimize, optimized
from glowpy.quantization.options import Options
from glowpy.quantization.profile import Profile
from glowpy.quantization.schema import quant_of_bias, quant_of_range, quant_of_weights
from glowpy.support.errors import Diagnostic, UserError, expect_type
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc

__all__ = ["WATCHED", "convert", "integers_of", "quantize"]

WATCHED = "value "
"""The prefix of the name of an output that shows a value; the value's name follows."""

_IN_BODY = "it is in @{}, which a node calls, and profiles have none of its values"
"""Why nodes of such a function stay in floats."""

_TABLE_BLOCK = 32
"""Neighbours of a table of 4 bits that have a scale in common."""


@within_limits
def quantize(model: Module | Function, profile: Profile, options: Options | None = None) -> Module:
    """A network that computes on integers where it can, and gives nearly what the one in floats does.

    Args:
        model: The function, or a module with one; not changed.
        profile: The profile of its values.
        options: The options: what is quantized, and how.

    Raises as `convert` does, which also says what became of each node.
    """
    return convert(model, profile, options).module


def convert(
    model: Module | Function,
    profile: Profile,
    options: Options | None = None,
    *,
    watched: bool = False,
) -> Conversion:
    """The same as `quantize`, and what became of each node.

    If `watched`, the network has outputs that show its values in floats, named after them with `WATCHED`: those that
    are rounded to integers, and those that are computed in floats. The integers are the same with them and without.

    Raises UserError for a profile of another model, for options that name what is not there, and for nodes that stay in
    floats if there are to be none.
    """
    settings = Options() if options is None else options
    expect_type("profile", profile, Profile, "a Profile, such as Profile.load(path) gives")
    expect_type("options", settings, Options, "Options")
    original = optimized(model)
    profile = profile.fitted(original)
    for name in settings.calibrations:
        profile[name]  # one to calibrate in another way, which has to be there
    backend = (
        backend_of(settings.backend) if isinstance(settings.backend, str) else settings.backend
    )
    refused: dict[Loc, str] = {}
    while True:
        f = original.module.clone().function(original.name)
        choice = islands(f, profile, settings, refused)
        bodies = {node: (g, _IN_BODY.format(g.name)) for g, node in unprofiled(f)}
        computing = {n: why for n, why in choice.reasons.items() if not n.has(Trait.SHAPE_ONLY)}
        if settings.assert_all:
            _expect_no_floats(computing | {node: reason for node, (_, reason) in bodies.items()})
        nodes = [outcome_of(node, reason) for node, reason in computing.items()]
        nodes += [outcome_of(node, reason, g) for node, (g, reason) in bodies.items()]
        places = {node.loc for node, reason in choice.reasons.items() if not reason}
        converter = _Converter(f, profile, settings, choice)
        converter.run()
        if watched:
            converter.watch()
        optimize(f)
        new = {loc: why for loc, why in _refusals(f, backend) if loc in places}
        if not new:
            sizes = bytes_of_constants(original), bytes_of_constants(f)
            return Conversion(f.module, tuple(nodes), *sizes, converter.types)
        refused |= new


def _refusals(f: Function, backend: Backend) -> Iterator[tuple[Loc, str]]:
    """Where the nodes on integers are from that a backend cannot run, and why."""
    for node in f.nodes:
        values = (*node.inputs, *node.results)
        if isinstance(node, SaveNode) or all(value.type.quant is None for value in values):
            continue
        if reasons := unsupported(node, backend):
            yield node.loc, f"the {backend.name} backend: {reasons[0]}"


def _expect_no_floats(reasons: Mapping[Node, str]) -> None:
    """Raises UserError that names all nodes that stay in floats."""
    floats = [
        Diagnostic(f"%{node.name} stays in floats: {reason}", node.loc)
        for node, reason in reasons.items()
        if reason
    ]
    if floats:
        raise UserError.of(floats)


class _Converter:
    """Chooses the types of values, and puts conversions around the nodes that become integer."""

    def __init__(self, f: Function, profile: Profile, options: Options, choice: Islands) -> None:
        self._f = f
        self._profile = profile
        self._options = options
        self._gathers = choice.gathers
        self._integer = {n for n, why in choice.reasons.items() if not why} - self._gathers
        self._joined = choice.joined
        self._order = [node for node in f.topological() if node in self._integer]
        self._types: dict[NodeValue, Type] = {}
        self._weights: dict[tuple[NodeValue, Quant], NodeValue] = {}
        self._originals = list(f.topological())
        self._numbers: dict[str, NodeValue] = {}

    @property
    def types(self) -> dict[str, Type]:
        """The types of the values that are stored integers, by name."""
        return {value.name: type for value, type in self._types.items()}

    def run(self) -> None:
        """Converts."""
        self._choose_types()
        for node in self._order:
            with self._f.replacing(node):
                if isinstance(node, Product):
                    self._convert_weights(node)
                elif node not in self._joined:
                    self._convert_numbers(node)
        for value, type in self._types.items():
            self._convert_value(value, type)
        self._convert_tables()

    # -------------------------------------------------------------------------------------------- types

    def _choose_types(self) -> None:
        """The type of every value that is quantized.

        Parts of a concatenation that nothing else reads have its type at once, or that of what limits it, and so have
        those that others read, as in a chain of these, if it costs them at most a bit; what only moves elements keeps
        its type.
        """
        quants: dict[NodeValue, Quant] = {}
        for node in reversed(self._order):
            if isinstance(node, ConcatNode):
                limit = self._limit_of(node)
                last = node.result if limit is None else limit.result
                quant = quants.setdefault(last, self._quant_of(last))
            elif moves(node) and node.result in quants:
                quant = quants[node.result]
            else:
                continue
            for _, value in data_of(node):
                if value.node in self._integer and self._joins(value, quant):
                    quants[value] = quant
        for node in self._order:
            for _, value in data_of(node):
                if value not in self._types and value.node not in self._integer:
                    self._choose(value, quants)
            if node.result.type.kind.is_float and not self._flows_on(node):
                self._choose(node.result, quants)

    def _limit_of(self, node: Node) -> ReluNode | ClipNode | None:
        """Returns the ReLU or clip that limits the result of a node, if nothing else reads it."""
        user = node.result.users[0] if node.result.num_users == 1 else None
        alone = user in self._integer and user not in self._joined
        return user if alone and isinstance(user, ReluNode | ClipNode) else None

    def _joins(self, value: NodeValue, quant: Quant) -> bool:
        """Whether a part of a concatenation gets its scale, instead of a rescale."""
        return value.num_users == 1 or quant.scales[0] <= 2 * self._quant_of(value).scales[0]

    def _choose(self, value: NodeValue, quants: Mapping[NodeValue, Quant]) -> None:
        if is_known(value):
            return
        node = value.node
        if node is not None and node in self._integer and moves(node):
            ((_, source),) = data_of(node)
            is_constant = is_known(source)
            quant = self._constant(source) if is_constant else parameters(self._types[source])
        else:
            quant = quants.get(value) or self._quant_of(value)
        self._types[value] = Type(self._options.activations, value.type.shape, quant)

    def _quant_of(self, value: NodeValue) -> Quant:
        """Chooses scale and offset from the range of a value, or of its function, unless it is calibrated by itself."""
        options = self._options
        calibration = options.calibrations.get(value.name, options.calibration)
        low, high = calibration.range(self._profile[value.name])
        bounds = value.node.SCHEMA.algebra.bounds if value.node is not None else None
        if bounds is not None and value.name not in options.calibrations:
            low, high = bounds
        return quant_of_range(low, high, options.activations, options.schema)

    def _constant(self, value: NodeValue) -> Quant:
        """Chooses scale and offset from the elements of a constant of which some are gathered."""
        array = _elements(value)
        low, high = float(array.min(initial=0)), float(array.max(initial=0))
        return quant_of_range(low, high, self._options.activations, self._options.schema)

    def _flows_on(self, node: Node) -> bool:
        """Whether what a node computes is not rounded: sums of which floats are made, or that one other node takes.

        Nor is anything within what becomes one node. Products of i16 are summed in floats: those that leave the network
        are rounded, so that what comes out may be integers.
        """
        users = node.result.users
        if isinstance(node, Product) and self._integer.isdisjoint(users):
            leaves = all(isinstance(user, SaveNode) for user in users)
            return self._options.activations in BYTES or not leaves
        if self._joined.get(node, node) is not node:
            return True
        if any(user in self._joined for user in users):
            return False
        if self._limit_of(node) is not None:
            return node.SCHEMA.quant is Quantized.NUMBERS or isinstance(node, ConcatNode)
        if node.result.num_users != 1 or users[0] not in self._integer or not is_exact(users[0]):
            return False
        values = [value for value in users[0].inputs if value is not node.result]
        rounded = all(v in self._types or v.node not in self._integer for v in values)
        return isinstance(node, Product) and rounded

    # -------------------------------------------------------------------------------------------- nodes

    def _convert_value(self, value: NodeValue, type: Type) -> None:
        """Puts a conversion and its inverse after a value: for all that read it, if it is computed on integers."""
        f = self._f
        uses = [
            (user, index)
            for user, index in value.uses
            if value.node in self._integer or user in self._integer
        ]
        with f.at(value.producer.loc):
            stored = f.create_quantize(f"{value.name}_quantized", type, value)
            numbers = f.create_dequantize(f"{value.name}_numbers", value.type, stored)
        for user, index in uses:
            user.set_input(index, numbers.result)
        self._numbers[value.name] = numbers.result

    def _convert_tables(self) -> None:
        """Stores the tables that rows are gathered from as integers."""
        bits, tables = self._options.tables, dict[NodeValue, NodeValue]()
        for node in self._f.topological():
            if bits is None or node not in self._gathers:
                continue
            value = node.inputs[0]
            if value not in tables:
                form = BlockForm(
                    bits, value.type.extents[1] if bits == 8 else _TABLE_BLOCK, symmetric=True
                )
                tables[value] = stored_in_blocks(self._f, value, 1, form)
            node.set_input(0, tables[value])

    def watch(self) -> None:
        """Gives the function outputs that show its values; not those that flow on, which nothing would compute."""
        shown = dict(self._numbers)
        for node in self._originals:
            if node not in self._integer or self._integer.isdisjoint(node.result.users):
                for value in node.results:
                    if value.type.kind is ElemKind.F32:
                        shown.setdefault(value.name, value)
        for name, value in shown.items():
            output = self._f.module.create_placeholder(WATCHED + name, value.type)
            self._f.create_save("save", value, output)

    def _convert_weights(self, node: Node) -> None:
        """Makes stored integers of weights and bias."""
        options, data = self._options, node.inputs[0]
        axis = 0 if isinstance(node, ConvolutionNode) else node.inputs[1].type.rank - 1
        if is_known(data):
            self._store(node, 0, self._types_of_weights(data, None))
        weights = node.inputs[1]
        if not is_known(weights):
            return
        quant = self._types_of_weights(weights, axis if options.per_channel else None)
        bias = node.inputs[2] if len(node.inputs) == 3 else None
        if bias is None or is_known(data):
            self._store(node, 1, quant)
            return
        input = parameters(self._types[data])
        if options.bias is ElemKind.F32:
            self._store(node, 1, quant)
            self._add_bias(node, bias)
            return
        steps, quant = quant_of_bias(_elements(bias), input, quant, options.bias)
        self._store(node, 1, quant)
        self._store(node, 2, steps, options.bias)

    def _types_of_weights(self, weights: NodeValue, axis: int | None) -> Quant:
        return quant_of_weights(_elements(weights), ElemKind.I8, self._options.weights_schema, axis)

    def _add_bias(self, node: Node, bias: NodeValue) -> None:
        """Adds the bias to the sums, in floats."""
        f = self._f
        nothing = f.create_splat(f"{node.name}_nothing", bias.type, 0.0)
        node.set_input(2, nothing.result)
        uses = node.result.uses
        total = f.create_add(f"{node.name}_biased", node, bias)
        for user, index in uses:
            user.set_input(index, total.result)
        self._integer.add(total)
        if node.result in self._types:
            self._types[total.result] = self._types.pop(node.result)

    def _convert_numbers(self, node: Node) -> None:
        """Makes stored integers of the known operands of another node.

        Those of element-wise nodes are numbers in the program, so i16 costs nothing.
        """
        for index, value in data_of(node):
            if not is_known(value):
                continue
            if moves(node) or isinstance(node, ConcatNode):
                self._store(node, index, self._constant(value), self._options.activations)
            else:
                quant = quant_of_weights(_elements(value), ElemKind.I16)
                self._store(node, index, quant, ElemKind.I16)

    def _store(self, node: Node, index: int, quant: Quant, kind: ElemKind = ElemKind.I8) -> None:
        """Makes stored integers of a known operand."""
        f, value = self._f, node.inputs[index]
        if (value, quant) not in self._weights:
            type = Type(kind, value.type.shape, quant)
            tensor = Tensor.derived(
                type, "quantize", [_tensor(value)], lambda numbers: integers_of(type, numbers)
            )
            constant = f.module.create_constant(f"{value.name}_{kind.value}", tensor)
            numbers = f.create_dequantize(value.name, value.type, constant)
            self._weights[value, quant] = numbers.result
        node.set_input(index, self._weights[value, quant])


def _tensor(value: NodeValue) -> Tensor:
    """The elements of a value that is known."""
    tensor = known_tensor(value)
    assert tensor is not None
    return tensor


def _elements(value: NodeValue) -> Array:
    return _tensor(value).array


def integers_of(type: Type, numbers: Array) -> Array:
    """The nearest stored integers, divided in f32 as ONNX does."""
    with np.errstate(over="ignore"):
        steps = np.rint(numbers.astype(np.float32) / scales_of(type).astype(np.float32))
    steps = np.clip(steps + offsets_of(type).astype(np.float32), *type.kind.limits)
    return np.asarray(steps, type.kind.dtype)
