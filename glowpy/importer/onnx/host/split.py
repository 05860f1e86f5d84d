"""Splits a graph into segments for machine code and steps that a session computes itself.

- A node is the session's if it has a value that is no tensor of numbers, or if it generates text. There are two
  exceptions: operators that only move or compare elements take strings in machine code, as numbers in their order
  (`_moves`), and sequences that the importer resolves do not exist when the model runs (`_is_resolved`).
- The other nodes form as few segments as possible. A segment ends before a node that reads a value of a step of the
  session's which itself depends on the segment. Nodes that depend on constants alone are repeated where needed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx
from onnx import TensorProto, helper

from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.host.generation import generates_text, graph_inputs
from glowpy.importer.onnx.host.graph import (
    body_inputs,
    constant_of,
    differing_types,
    free_names,
    graph_outputs,
    graphs_of,
    initializers,
    stored_type,
    takes_strings,
)
from glowpy.importer.onnx.host.rewrites import LOOKUP_OPSET, ML, length_before, rewritten
from glowpy.importer.onnx.host.steps import HostNode, Part, SplitGraph
from glowpy.importer.onnx.host.types import (
    holds_strings,
    is_numeric,
    is_strings,
    node_types,
)
from glowpy.importer.onnx.order import in_order, place_of
from glowpy.importer.onnx.source import Source, domain_of
from glowpy.importer.onnx.string_tensors import Stored, decoded
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["split"]


def split(
    source: Source,
    graph: onnx.GraphProto,
    types: Mapping[str, onnx.TypeProto],
    outer: Mapping[str, Stored],
    around: Collection[str] = (),
    forced: Collection[int] = (),
    within: str = "",
    shaped: Collection[str] = (),
) -> SplitGraph:
    """The plan of a graph.

    Args:
        source: The model it is in.
        graph: The graph of the model, or of a node.
        types: The types of the inputs, and of values around the graph.
        outer: Constants around the graph.
        around: All that the graph reads of those around it.
        forced: Positions of nodes with graphs that are the session's whatever they have.
        within: The graph of a node that it is, such as `loop/body`; empty for that of the source.
        shaped: Inputs of a graph of a node whose types say their shapes.

    Raises UserError for nodes that cannot be put in order, and for constants that are wrong in themselves.
    """
    place = within or source.within
    return _Split(source, graph, types, outer, around, forced, place, shaped).plan


_EITHER = {"tensor(string)", "tensor(int64)"}
"""Operand types of operators that move or compare strings: they compute nothing of their operands."""

_MOVERS_NOT = {
    "Cast",
    "CastLike",
    "Col2Im",
    "Resize",
    "Upsample",
    "If",
    "Loop",
    "Scan",
    "GridSample",
}
"""Operators that the standard allows for strings and numbers, and that do more than to move, or are the session's."""

_RESOLVED = {
    "SequenceEmpty",
    "SequenceConstruct",
    "SequenceInsert",
    "SequenceErase",
    "SequenceAt",
    "SequenceLength",
    "ConcatFromSequence",
    "SplitToSequence",
}
"""Operators on sequences that the importer resolves, where the numbers they need are known."""

_POSITIONS = {"SequenceInsert": 2, "SequenceErase": 1, "SequenceAt": 1, "SplitToSequence": 1}
"""Which input says where, or how long."""

_OF_SHAPES = {"Shape", "Size", "SequenceLength"}
"""Operators whose results are known where shapes are."""


@dataclass
class _Split:
    source: Source
    graph: onnx.GraphProto
    known: Mapping[str, onnx.TypeProto]
    outer: Mapping[str, Stored]
    around: Collection[str]
    forced: Collection[int]
    within: str
    shaped: Collection[str]
    bodies: dict[int, dict[str, SplitGraph]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.opsets = self.source.opsets
        self.opsets[ML] = max(self.opsets.get(ML, 0), LOOKUP_OPSET)
        self.stored = dict(self.outer) | initializers(self.graph)
        names = {*self.around, *self.stored, *(info.name for info in self.graph.input)}
        self.nodes: list[onnx.NodeProto] = []
        self.places: list[int] = []
        places = self.source.places if self.graph is self.source.proto.graph else ()
        order, errors = in_order(self.graph, names, self.source.file, self.within)
        for error in errors:
            raise error
        for place, node in order:
            stored = constant_of(node)
            if stored is not None:
                self.stored[node.output[0]] = stored
                continue
            for inner in rewritten(node):
                self.nodes.append(inner)
                self.places.append(places[place] if places else place)
        if self.graph is not self.source.proto.graph:
            self._count_in_graphs()
        self.reads = [self._reads(node) for node in self.nodes]
        self.makers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self._check_reads(names | set(self.stored))
        self.types = self._typed()
        self.hosted = self._hosted()
        self.phases = self._phases()

    def _count_in_graphs(self) -> None:
        """Counts the elements of a list that the graph takes before it appends to it: a round is one network then."""
        inputs = {info.name for info in self.graph.input}
        makers = {node.output[0]: node for node in self.nodes if node.op_type == "SequenceInsert"}
        for index in reversed(range(len(self.nodes))):
            sequence, more = self.nodes[index].input[0] if self.nodes[index].input else "", 0
            while (maker := makers.get(sequence)) is not None:
                sequence, more = maker.input[0], more + 1
            if self.nodes[index].op_type == "SequenceLength" and more and sequence in inputs:
                nodes, number = length_before(self.nodes[index], sequence, more)
                self.nodes[index : index + 1] = nodes
                self.places.insert(index, self.places[index])
                self.stored[number.name] = number

    def opset(self, node: onnx.NodeProto) -> int:
        """The opset of its domain; 0 if the model has none. That of a lookup is its own."""
        if any(attribute.name.startswith("keys_") for attribute in node.attribute):
            return self.opsets[ML]
        return self.source.opsets.get(domain_of(node.domain), 0)

    def _reads(self, node: onnx.NodeProto) -> list[str]:
        inner = [name for graph in graphs_of(node).values() for name in free_names(graph)]
        return list(dict.fromkeys(name for name in (*node.input, *inner) if name))

    def _check_reads(self, names: set[str]) -> None:
        """Raises UserError for what a graph of a node reads, and nothing before the node computes."""
        for index, reads in enumerate(self.reads):
            for name in reads:
                if self.makers.get(name, index) >= index and name not in names:
                    node = self.nodes[index]
                    raise UserError(
                        f"{node.op_type}: '{name}' is computed by no node before this one",
                        loc=self._loc(index),
                    )

    def _loc(self, index: int) -> Loc:
        """Where a node is."""
        return place_of(self.nodes[index], self.places[index], self.source.file, self.within)

    def _typed(self) -> dict[str, onnx.TypeProto]:
        """The types of all values, as far as they are known; the graphs of nodes are split for it."""
        types = {name: stored_type(stored) for name, stored in self.stored.items()}
        types.update(self.known)
        infos = [*self.graph.value_info, *self.graph.output]
        declared = {info.name: info.type for info in infos if info.type.WhichOneof("value")}
        for index, node in enumerate(self.nodes):
            outputs = {name: declared[name] for name in node.output if name in declared}
            if graphs_of(node):
                self.bodies[index] = self._plans(index, types)
            if graphs_of(node) and not generates_text(node):
                results = {name: plan.output_types for name, plan in self.bodies[index].items()}
                self._check_graphs(index, types)
                types |= outputs | graph_outputs(node, results)
            else:
                types |= outputs | node_types(node, self.opsets, types)
        return types

    def _check_graphs(self, index: int, types: Mapping[str, onnx.TypeProto]) -> None:
        """Raises UserError for graphs of a node that give other types than are expected of them."""
        node, plans = self.nodes[index], [*self.bodies[index].values()]
        inputs = [plans[0].types.get(name) for name in plans[0].inputs]
        results = [plan.output_types for plan in plans]
        for got, expected in differing_types(node, inputs, results, types):
            raise UserError(
                f"{node.op_type}: expected graphs of {expected}, got {got}", loc=self._loc(index)
            )

    # Who computes what.

    def _hosted(self) -> set[int]:
        """The nodes that the session computes."""
        hosted = {i for i in range(len(self.nodes)) if self._is_hosts(i)}
        structured = [self._sequences(i) for i in range(len(self.nodes))]
        ports = {info.name for info in (*self.graph.input, *self.graph.output)} | set(self.known)
        fixed = self._fixed()
        grown = True
        while grown:  # a sequence is the session's as a whole, with all those that are made of it
            values = {name for i in hosted for name in structured[i]} | ports
            more = {
                i
                for i, names in enumerate(structured)
                if i not in hosted and names and (values & names or not self._is_resolved(i, fixed))
            }
            hosted |= more
            grown = bool(more)
            if not grown:
                crossing = self._crossing(hosted, structured)
                hosted |= crossing
                grown = bool(crossing)
        return hosted | self._copies(hosted) if hosted else hosted

    def _copies(self, hosted: set[int]) -> set[int]:
        """Values of the session's that are given on, or a part of each: that is not worth calling machine code for."""
        copies: set[int] = set()
        for index in reversed(range(len(self.nodes))):
            node = self.nodes[index]
            if not self._gives_on(node) or self._sequences(index):
                continue
            if not self.readers[index] <= hosted | copies:
                continue
            source = node.input[0]
            while (maker := self.makers.get(source)) is not None and maker not in hosted:
                if not self._gives_on(self.nodes[maker]):
                    break
                source = self.nodes[maker].input[0]
            type = self.types.get(node.input[0])
            is_hosts = source not in self.stored if maker is None else maker in hosted
            if is_hosts or (type is not None and is_strings(type)):
                copies.add(index)
        return copies

    def _gives_on(self, node: onnx.NodeProto) -> bool:
        """Whether a node gives what it takes, or strings of it at places that are known to be there."""
        if node.op_type == "Identity" and not domain_of(node.domain):
            return True
        if len(node.input) != 2:
            return False
        type, places = self.types.get(node.input[0]), self.stored.get(node.input[1])
        return takes_strings(node, type, places, self.source.stores)

    def _is_hosts(self, index: int) -> bool:
        """Whether a node has values that are no numbers, and no sequences of such, or generates text."""
        node = self.nodes[index]
        if generates_text(node):
            return True
        if self.places[index] in self.forced and graphs_of(node):
            return True
        types = [self.types.get(name) for name in (*self.reads[index], *node.output)]
        kinds = [type for type in types if not is_numeric(type)]
        if any(
            t is not None and not t.HasField("sequence_type") and not is_strings(t) for t in kinds
        ):
            return True
        if any(t is not None and t.HasField("sequence_type") and holds_strings(t) for t in kinds):
            return True
        if any(t is not None and is_strings(t) for t in kinds) and not self._moves(node):
            return True
        plans = self.bodies.get(index, {})
        return bool(plans) and (bool(kinds) or any(plan.host_nodes for plan in plans.values()))

    def _moves(self, node: onnx.NodeProto) -> bool:
        """Whether an operator does with strings what it would do with integers in the same order."""
        schema = schema_of(node, self.opset(node))
        if schema is None or node.op_type in _MOVERS_NOT:
            return False
        if schema.domain and node.op_type != "ArrayFeatureExtractor":
            return False
        if any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute):
            return False
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        operands = [(schema.inputs, node.input), (schema.outputs, node.output)]
        for formals, names in operands:
            for position, name in enumerate(names):
                formal = formals[min(position, len(formals) - 1)].type_str
                type = self.types.get(name)
                texts = type is not None and is_strings(type)
                if texts and not {*allowed.get(formal, ())} >= _EITHER:
                    return False
        return True

    def _plans(self, index: int, types: Mapping[str, onnx.TypeProto]) -> dict[str, SplitGraph]:
        """The graphs of a node, split."""
        node = self.nodes[index]
        plans = {}
        for name, graph in graphs_of(node).items():
            free = free_names(graph)
            types_by_name = {name: types[name] for name in free if name in types}
            stored = {name: self.stored[name] for name in free if name in self.stored}
            shaped = graph_inputs(node, name) if generates_text(node) else {}
            types_by_name |= shaped or body_inputs(node, graph, types)
            within = f"{self._loc(index).node}/{name}"
            plans[name] = split(
                self.source, graph, types_by_name, stored, free, within=within, shaped={*shaped}
            )
        return plans

    def _sequences(self, index: int) -> set[str]:
        """The sequences that a node reads or makes."""
        names = (*self.reads[index], *self.nodes[index].output)
        return {
            name
            for name in names
            if name and not is_numeric(self.types.get(name)) and not is_strings(self.types[name])
        }

    def _is_resolved(self, index: int, fixed: set[str]) -> bool:
        """Whether the importer knows all that it has to know of an operator on sequences."""
        node = self.nodes[index]
        if node.op_type not in _RESOLVED or domain_of(node.domain):
            return False
        position = _POSITIONS.get(node.op_type, len(node.input))
        return all(name in fixed for name in node.input[position : position + 1] if name)

    def _fixed(self) -> set[str]:
        """The values that follow from constants and shapes."""
        fixed = set(self.stored)
        for node, reads in zip(self.nodes, self.reads, strict=True):
            if node.op_type in _OF_SHAPES or (reads and all(name in fixed for name in reads)):
                fixed.update(node.output)
        return fixed

    def _crossing(self, hosted: set[int], structured: Sequence[set[str]]) -> set[int]:
        """The nodes whose sequences would have to go from one segment to another one."""
        phases = self._phases_of(hosted)
        crossing = set()
        for index, names in enumerate(structured):
            for name in names if index not in hosted else ():
                maker = self.makers.get(name)
                if maker is not None and phases[maker] != phases[index]:
                    crossing.add(index)
        return crossing

    # When.

    def _phases(self) -> list[int]:
        return self._phases_of(self.hosted)

    def _phases_of(self, hosted: set[int]) -> list[int]:
        """When each node is computed: nodes of machine code in even phases, those of the session in odd ones."""
        phases: list[int] = []
        for index, reads in enumerate(self.reads):
            makers = [self.makers[name] for name in reads if name in self.makers]
            phase = max([phases[maker] for maker in makers], default=0)
            phases.append(phase | 1 if index in hosted else phase + phase % 2)
        self._delay(phases, hosted)
        return phases

    def _delay(self, phases: list[int], hosted: set[int]) -> None:
        """Lets a phase wait for the next one of machine code where the session needs nothing of it before that.

        What the session computes waits as well, each node for itself: until something reads it, or to the end.
        """
        last = max((phase for phase in phases if not phase % 2), default=0)
        for phase in range(max(phases, default=0) // 2 * 2, -1, -2):
            for index in reversed(range(len(phases))):
                if phases[index] == phase + 1:
                    limits = [phases[r] - (r not in hosted) for r in self.readers[index]]
                    phases[index] = max(phase + 1, min(limits, default=last + 1))
            members = {index for index, other_phase in enumerate(phases) if other_phase == phase}
            readers = {reader for index in members for reader in self.readers[index]} - members
            next_phase = min([phases[reader] & ~1 for reader in readers], default=last)
            for index in members if next_phase > phase else ():
                phases[index] = next_phase

    @cached_property
    def readers(self) -> list[set[int]]:
        """The nodes that read something of each node's."""
        readers: list[set[int]] = [set() for _ in self.nodes]
        for index, reads in enumerate(self.reads):
            for name in reads:
                if name in self.makers:
                    readers[self.makers[name]].add(index)
        return readers

    @cached_property
    def _repeated(self) -> set[int]:
        """Nodes that depend on constants alone: every segment has those it needs."""
        repeated: set[int] = set()
        for index, (node, reads) in enumerate(zip(self.nodes, self.reads, strict=True)):
            constant = all(
                self.makers[name] in repeated
                if name in self.makers
                else name in self.stored and is_numeric(self.types.get(name))
                for name in reads
            )
            if constant and reads and index not in self.hosted and not graphs_of(node):
                repeated.add(index)
        return repeated

    # The plan.

    @property
    def plan(self) -> SplitGraph:
        """All steps, with what they read."""
        segments: dict[int, list[int]] = defaultdict(list)
        keyed: list[tuple[int, int, HostNode | None]] = []
        for index, phase in enumerate(self.phases):
            if index in self.hosted:
                keyed.append((phase, index, self._step(index)))
            else:
                segments[phase].append(index)
        outputs = [info.name for info in self.graph.output]
        hosted_reads = set(outputs) | {name for i in self.hosted for name in self.reads[i]}
        steps: list[tuple[int, int, Part | HostNode]] = [
            (phase, index, step) for phase, index, step in keyed if step is not None
        ]
        for phase, members in segments.items():
            segment = self._segment(phase, members, hosted_reads)
            if segment is not None:
                steps.append((phase, -1, segment))
        ordered = tuple(step for _, _, step in sorted(steps, key=lambda item: item[:2]))
        return self._planned(outputs, ordered)

    def _planned(self, outputs: list[str], steps: tuple[Part | HostNode, ...]) -> SplitGraph:
        stored = initializers(self.graph)
        inputs = [info.name for info in self.graph.input if info.name not in stored]
        read = [
            name
            for step in steps
            for name in (step.inputs if isinstance(step, Part) else (*step.node.input, *step.outer))
        ]
        read = [name for name in dict.fromkeys([*read, *outputs]) if name]
        outer = [
            n for n in read if n not in inputs and n not in self.makers and n not in self.stored
        ]
        stores = self.source.stores
        constants = {n: decoded(n, self.stored[n], stores) for n in read if n in self.stored}
        return SplitGraph(tuple(inputs), tuple(outputs), tuple(outer), constants, steps, self.types)

    def _step(self, index: int) -> HostNode:
        node = self.nodes[index]
        opset = self.opset(node)
        bodies = self.bodies.get(index, {})
        return HostNode(node, self.places[index], self.within, opset, bodies)

    def _segment(self, phase: int, members: list[int], hosted_reads: set[str]) -> Part | None:
        """The model of a phase; None if it computes nothing that others read."""
        results = {name for i in members for name in self.nodes[i].output if name}
        read = hosted_reads | {
            name
            for i, reads in enumerate(self.reads)
            if i not in self.hosted and self.phases[i] != phase and i not in self._repeated
            for name in reads
        }
        outputs = [
            name
            for name, maker in self.makers.items()
            if name in results
            and (name in hosted_reads or (name in read and maker not in self._repeated))
        ]
        indices = self._needed(outputs, members)
        if not indices:
            return None
        inside = {name for i in indices for name in self.nodes[i].output if name}
        outside = [n for i in indices for n in self.reads[i] if n not in inside]
        outside = list(dict.fromkeys(outside))
        inputs = [n for n in outside if n not in self.stored or is_strings(self.types[n])]
        stored = [self.stored[name] for name in outside if name not in inputs]
        numbers = {n for n in (*inputs, *outputs) if n in self.types and is_strings(self.types[n])}
        proto = self._model(indices, inputs, outputs, stored)
        part = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
        places = tuple(self.places[i] for i in indices)
        source = Source(proto, self.source.file, self.source.stores, part, places, self.within)
        return Part(source, tuple(inputs), tuple(outputs), frozenset(numbers))

    def _needed(self, outputs: Iterable[str], members: list[int]) -> list[int]:
        """The nodes of a phase that outputs need, and those of others that are repeated, in order."""
        indices = set(members)
        needed: set[int] = set()
        work = [self.makers[name] for name in outputs]
        while work:
            index = work.pop()
            if index not in needed and (index in indices or index in self._repeated):
                needed.add(index)
                work += [self.makers[name] for name in self.reads[index] if name in self.makers]
        return sorted(needed)

    def _model(
        self, indices: list[int], inputs: list[str], outputs: list[str], stored: list[Stored]
    ) -> onnx.ModelProto:
        proto = onnx.ModelProto()
        proto.ir_version = self.source.proto.ir_version
        proto.opset_import.extend(self.source.proto.opset_import)
        declared = {info.name: info for info in self.source.proto.graph.input}
        nodes = [self.nodes[index] for index in indices]
        graph = helper.make_graph(nodes, self.graph.name or "part", [], [])
        for name in inputs:
            graph.input.append(self._info(name, declared))
        for name in outputs:
            graph.output.append(self._info(name, {}))
        for tensor in stored:
            if isinstance(tensor, TensorProto):
                graph.initializer.append(tensor)
            else:
                graph.sparse_initializer.append(tensor)
        proto.graph.CopyFrom(graph)
        return proto

    def _info(self, name: str, declared: Mapping[str, onnx.ValueInfoProto]) -> onnx.ValueInfoProto:
        """An input or output of a segment: with a shape where that is known of an input whatever a call has."""
        if name in self.shaped:
            return helper.make_value_info(name, self.types[name])
        if name in declared and self.graph is self.source.proto.graph:
            info = onnx.ValueInfoProto()
            info.CopyFrom(declared[name])
            if is_strings(info.type):
                info.type.tensor_type.elem_type = TensorProto.INT64
            return info
        type = self.types.get(name)
        elem_type = 0 if type is None else type.tensor_type.elem_type
        if elem_type == TensorProto.STRING:
            elem_type = TensorProto.INT64
        return helper.make_tensor_value_info(name, elem_type, None)
