"""`OnnxModel`: a model that is read and checked, from which modules are built for different shapes.

Every operator, opset, attribute and element type that cannot be imported is found before anything is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from glowpy.core.state_pairs import StatePairs
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Module
from glowpy.graph.state import keep_state
from glowpy.importer.added_outputs import count_output
from glowpy.importer.declared import DeclaredDim, ValueInfo, resized_infos, unsized
from glowpy.importer.kit.targets import Factor, Targets
from glowpy.importer.model import Content, HostedModel, Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.importer.onnx.build import Build
from glowpy.importer.onnx.check import node_problems
from glowpy.importer.onnx.content import content_digest, content_of
from glowpy.importer.onnx.contrib.nchwc import channel_block
from glowpy.importer.onnx.dumped import dumped_module, dumped_state
from glowpy.importer.onnx.host.model import in_parts
from glowpy.importer.onnx.initial import set_initial_values
from glowpy.importer.onnx.order import fixed_names, in_order, place_of
from glowpy.importer.onnx.signature import is_typed, typed_outputs, value_info
from glowpy.importer.onnx.source import Source, read_source
from glowpy.importer.onnx.tensor import decode_all
from glowpy.importer.onnx.trainable import running_averages, trainable_names
from glowpy.importer.reports import located, raise_all
from glowpy.support.errors import UserError
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc
from glowpy.support.remedies import advice, remedied
from glowpy.support.symbolic import Dim, Expr, UndecidedError

__all__ = ["OnnxModel", "build_known", "checked_model", "read_model"]


@within_limits
def read_model(model: str | Path | bytes | onnx.ModelProto) -> OnnxModel:
    """Reads and checks a model, without shapes. Raises what `load` raises."""
    return checked_model(read_source(model))


def checked_model(source: Source) -> OnnxModel:
    """The model of a source. Raises UserError that lists everything that is wrong whatever the shapes are."""
    model = OnnxModel(source)
    model.check()
    return model


_ASKING = ValueNeededError, UndecidedError, RoundsError
"""Errors that ask for something to be known."""


@dataclass
class OnnxModel(Model):
    """A checked ONNX model, from which modules are built for different shapes. Safe to build from several threads.

    Attributes:
        source: The parsed model.
        noted: Where what is wrong is noted in place of raising it, if it is to be: the rest is read without that part.
        checked: Whether networks check indices as they run, and give what `indices.raise_wrong` reads.
        shares_caches: Whether what attention keeps goes where its past is, whose tail then stays.
        runs_rounds: Whether who runs it can run a loop round by round that would be long if it were written out.
        faulty: Where nodes are wrong whatever the shapes are. Nowhere but in a model that notes them.
        deferred: The errors of nodes of a branch, whatever the shapes are, where the other branch can be taken.
        written: The shapes that inputs are declared with which are given others, by name: see `resized`.
        weights: The initializers that become variables, by name. They are inputs until a module is built.
        named: Those of them that were asked for by their own names, not by a pattern.
        running: Averages among them that each run moves, and the names of what it moves them to.
    """

    source: Source
    noted: list[UserError] | None = None
    checked: bool = False
    shares_caches: bool = False
    runs_rounds: bool = False
    faulty: set[Loc] = field(default_factory=set)
    deferred: dict[Loc, list[UserError]] = field(default_factory=dict)
    written: dict[str, list[DeclaredDim]] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    running: dict[str, str] = field(default_factory=dict)

    def note(self, errors: list[UserError]) -> None:
        """Raises one error for all, or notes them."""
        if self.noted is None:
            raise_all(errors)
        else:
            self.noted.extend(errors)

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return self.source.file

    @property
    def is_dump(self) -> bool:
        """Whether it is a graph that `glowpy dump` wrote."""
        return self.source.is_dump

    @property
    def is_resizable(self) -> bool:
        """Whether it is no dump, whose shapes are written in it."""
        return not self.is_dump

    @cached_property
    def kept(self) -> StatePairs:
        """The variables of a dump. Raises UserError for one that was damaged."""
        return dumped_state(self.source, self.initializers) if self.is_dump else {}

    @property
    def keeps_caches(self) -> bool:
        """Whether it has operators that put keys and values after those of the past."""
        return self.source.keeps_caches

    @property
    def digest(self) -> str:
        """The same for models with the same bytes, those of their external data among them, that are read alike."""
        own = f"{content_digest(self.source, self.block)}{self.ways}"
        return f"{own} written as {self.written}" if self.written else own

    @property
    def content(self) -> Content | None:
        """Names the bytes that the model is made of; None for a dump, and where packages define operators."""
        return content_of(self.source, self.block)

    @cached_property
    def initializers(self) -> dict[str, Tensor]:
        """The tensors stored in the model, by name."""
        tensors, wrong = decode_all(self.source.proto.graph, self.source.stores)
        loc = Loc(self.file)
        self.note([located(e, loc, f"initializer '{name}': ") for name, e in wrong.items()])
        return tensors

    @cached_property
    def inputs(self) -> list[ValueInfo]:
        """The inputs without initializers, in the order of the model."""
        graph = self.source.proto.graph
        stored = {proto.name for proto in graph.initializer}
        stored |= {proto.values.name for proto in graph.sparse_initializer}
        infos = self._infos([proto for proto in graph.input if proto.name not in stored])
        counts = Counter(info.name for info in infos)
        self.note(
            [
                UserError(f"'{name}' is declared twice", loc=Loc(self.file))
                for name, count in counts.items()
                if count > 1
            ]
        )
        return infos

    @cached_property
    def outputs(self) -> list[ValueInfo]:
        """The outputs, in the order of the model, which may list one twice."""
        protos = list(self.source.proto.graph.output)
        if not all(is_typed(proto) for proto in protos):
            nodes = [node for _, node in self.order]
            try:
                protos = typed_outputs(self.source.proto, nodes)
            except UserError as error:
                raise located(error, Loc(self.file)) from None
        return self._infos(protos)

    def _infos(self, protos: list[onnx.ValueInfoProto]) -> list[ValueInfo]:
        infos: list[ValueInfo] = []
        errors: list[UserError] = []
        for proto in protos:
            try:
                infos.append(value_info(proto))
            except UserError as error:
                errors.append(located(error, Loc(self.file)))
        self.note(errors)
        return infos

    @cached_property
    def order(self) -> list[tuple[int, onnx.NodeProto]]:
        """The nodes with their position in the file, each after what it needs."""
        graph = self.source.proto.graph
        names = {proto.name for proto in (*graph.input, *graph.initializer)}
        names |= {proto.values.name for proto in graph.sparse_initializer}
        order, errors = in_order(graph, names, self.file)
        self.note(errors)
        return order

    @cached_property
    def block(self) -> int:
        """How many channels are a block in the NCHWc operators of onnxruntime; 0 if there are none."""
        return channel_block(self.source.proto.graph)

    def loc(self, index: int, node: onnx.NodeProto) -> Loc:
        """Where a node of the graph is."""
        place = self.source.places[index] if self.source.places else index
        return place_of(node, place, self.file, self.source.within)

    def check(self) -> None:
        """Raises an error that lists everything that is wrong whatever the shapes are."""
        errors: list[UserError] = []
        for index, node in enumerate(self.source.proto.graph.node):
            if not self.source.is_dump:
                deferred = self.deferred if self.noted is None else None
                errors += node_problems(node, self.loc(index, node), self.source.opsets, deferred)
        self.faulty |= {diagnostic.loc for error in errors for diagnostic in error.diagnostics}
        readers: list[Callable[[], object]] = [lambda: self.inputs, lambda: self.initializers]
        if all(is_typed(proto) for proto in self.source.proto.graph.output):
            readers.append(lambda: self.outputs)
        for read in readers:
            try:
                read()
            except UserError as error:
                errors.append(error)
        self.note(errors)
        _ = self.order, self.outputs  # types that are not declared follow from all the others

    def build(
        self,
        *,
        shapes: Mapping[str, Shape] | None = None,
        dims: Mapping[str, Dim] | None = None,
        values: Mapping[str, Array] | None = None,
        state: StatePairs | None = None,
        supposed: Mapping[str, Dim] | None = None,
    ) -> Module:
        """A module for these shapes. The arguments and errors are those of `load`.

        What is `supposed` of extents that elements decide, by name, is no more than that: the output `count_output`
        says what they are.
        """
        self.check_state(state or {})
        if self.source.is_dump:
            other_shapes = bool(shapes or dims)
            return dumped_module(self.source, self.initializers, state, other_shapes=other_shapes)
        arrays = {name: np.array(array) for name, array in (values or {}).items()}
        bounds = self._bounds(dims or {})
        sizes = {name: dim for name, dim in (dims or {}).items() if name not in bounds}
        try:
            types = self.types(shapes, sizes, arrays)
            module = self.module(types, arrays, {**bounds, **(supposed or {})})
        except UndecidedError as error:
            if changes := remedied(error, dims or {}):
                note = advice(changes, dims or {})
                error.diagnostics = [replace(d, note=note) for d in error.diagnostics]
            raise
        counts = {placeholder.original for placeholder in module.placeholders}
        unknown = {name: dim for name, dim in bounds.items() if count_output(name) not in counts}
        if unknown:
            self.types(shapes, {**sizes, **unknown}, arrays)  # says that there is no such dimension
        keep_state(module.main, {**(state or {}), **self.running})
        for placeholder in module.main.parameters:  # not what functions that it calls take
            if (weight := self.weights.get(placeholder.original)) is not None:
                module.begin(module.make_variable(placeholder), weight)
        for variable in module.variables:
            if variable.original in self.running:
                module.begin(variable, self.weights[variable.original])
        set_initial_values(module, self.source.proto.graph, self.initializers, self.file)
        return module

    def with_trainable(self, names: str | Sequence[str]) -> OnnxModel:
        """The model with initializers that become variables, of the types and with the elements that they have.

        Raises UserError for a name of none, and for a dump, whose constants are not the user's weights.
        """
        if self.is_dump:
            super().with_trainable(names)
        graph, stored = self.source.proto.graph, self.initializers
        chosen = trainable_names(graph, stored, names, self.file)
        by_name = {names} if isinstance(names, str) else set(names)
        model = copy(self)
        model.running = running_averages(graph, stored)
        outputs = {info.name for info in self.outputs}
        moved = ((a, stored[b].type) for b, a in model.running.items() if a not in outputs)
        infos = [ValueInfo(name, type.kind, [*type.extents]) for name, type in moved]
        model.outputs = [*self.outputs, *infos]
        weights = {name: stored[name] for name in dict.fromkeys((*chosen, *model.running))}
        return model._with_weights(weights, by_name & set(chosen))

    def without_trainable(self, error: ValueNeededError) -> OnnxModel:
        """The model with weights as constants whose elements are needed, unless they were asked for by name."""
        needed = self.weights.keys() & set(error.inputs)
        if named := sorted(needed & self.named):
            raise UserError(
                f"trainable: '{named[0]}' cannot be changed by training: {error.diagnostics[0].message}",
                loc=error.diagnostics[0].loc,
            ) from None
        if not needed:
            raise error
        rest = {name: weight for name, weight in self.weights.items() if name not in needed}
        return self._with_weights(rest, self.named)

    def _with_weights(self, weights: dict[str, Tensor], named: Set[str]) -> OnnxModel:
        model = copy(self)
        model.weights, model.named = weights, frozenset(named)
        model.initializers = {**self.initializers, **self.weights}
        for name in weights:
            del model.initializers[name]
        inputs = [info for info in self.inputs if info.name not in self.weights]
        infos = [ValueInfo(n, t.type.kind, [*t.type.extents]) for n, t in weights.items()]
        model.inputs = [*inputs, *infos]
        return model

    def _bounds(self, dims: Mapping[str, Dim]) -> dict[str, Dim]:
        """Bounds of extents that elements decide, among the sizes of dimensions: no input declares these."""
        texts = {dim for info in self.inputs for dim in info.shape or () if isinstance(dim, str)}
        declared = texts.union(*(re.findall(r"\w+", text) for text in texts))  # `past + seq`
        return {
            name: dim
            for name, dim in dims.items()
            if name not in declared and isinstance(dim, Expr) and dim.symbols.keys() == {name}
        }

    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """Imports the graph for inputs of these types."""
        targets = self.targets(types, values, supposed) if self.written else None
        return Build(self, list(types), values, supposed, targets).module

    def resized(self, shapes: Mapping[str, Sequence[Dim | DeclaredDim]]) -> OnnxModel:
        """The model with inputs of these shapes, where they contradict sizes that it declares.

        Numbers that it writes elsewhere follow as far as that is clear: see `kit.targets`; building says where it is
        not. Raises UserError for a name that is no input's, and an input of another rank.
        """
        if self.is_dump:
            super().resized(shapes)  # which are its own
            return self
        try:
            written, inputs = resized_infos(self.inputs, shapes)
        except UserError as error:
            raise located(error, Loc(self.file)) from None
        if not written:
            return self
        model = copy(self)
        model.written, model.inputs = written | self.written, inputs
        model.outputs = [unsized(info) for info in self.outputs]
        return model

    def in_parts(self, error: RoundsError | ValueNeededError) -> HostedModel | None:
        """The same model, whose session computes what an error is about itself: see `host.model.in_parts`."""
        return in_parts(self, error, checked_model)

    def asks_for_rounds(self, error: ValueNeededError) -> bool:
        """Whether an error asks how often a loop of the model runs, rather than for what its body needs."""
        locations = {diagnostic.loc for diagnostic in error.diagnostics}
        return any(
            node.op_type == "Loop" and self.loc(index, node) in locations
            for index, node in enumerate(self.source.proto.graph.node)
        )

    def targets(
        self,
        types: Sequence[Type],
        values: Mapping[str, Array],
        supposed: Mapping[str, Dim] | None = None,
    ) -> Targets:
        """Notes the targets of reshapes for the sizes that the model was written for."""
        targets = Targets(fixed=fixed_names(self.source.proto.graph))
        elements = {name: array for name, array in values.items() if name not in self.written}
        written: list[Type] = []
        for info, type in zip(self.inputs, types, strict=True):
            pairs = zip(self.written.get(info.name, type.shape), type.shape, strict=True)
            sizes = [old if isinstance(old, int) else new for old, new in pairs]
            written.append(type.with_shape(sizes))
            changed = zip(sizes, type.shape, strict=True)
            targets.merged |= {
                (a, b): [Factor(a, b)] for a, b in changed if isinstance(a, int) and a != b
            }
        try:
            Build(self, written, elements, supposed or {}, targets)
        except _ASKING:
            raise
        except UserError:
            if not elements:
                raise
            targets = (
                targets.begun_again()
            )  # they may be for the new sizes: what can be read without them is noted
            partial = copy(self)
            partial.noted = []
            Build(partial, written, elements, supposed or {}, targets)
        targets.follow()
        return targets


def build_known(model: OnnxModel, types: Mapping[str, Type], values: Mapping[str, Array]) -> Module:
    """Builds what it can of a model, with the inputs whose types are given, and notes what is wrong."""
    if model.source.is_dump:
        return dumped_module(model.source, model.initializers)
    model.inputs = [info for info in model.inputs if info.name in types]
    ordered = [types[info.name] for info in model.inputs]
    targets = None
    if model.written:
        sound = copy(model)
        sound.noted = None
        with suppress(UserError):
            targets = sound.targets(ordered, values)
    return Build(model, ordered, values, targets=targets).module
