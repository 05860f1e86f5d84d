"""One import: the environment that nodes go into, one import function called for each, and what went wrong.

- Every node that is wrong in itself is found before anything is reported. Nodes that depend on such a node are passed
  over.
- A node whose inputs are all known is computed at once by the interpreter, so that shape computations leave
  no nodes; results too large to keep are left to run time.
- Placeholders stand in the order of the model: its inputs without initializers, then its outputs.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import onnx

from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.graph.nodes_gen import DequantizeBlocksNode, DequantizeNode
from glowpy.graph.verifier import verify_module, verify_nodes
from glowpy.importer.added_outputs import count_output
from glowpy.importer.declared import Narrow, ValueInfo
from glowpy.importer.elements import NARROW
from glowpy.importer.kit.found import Found
from glowpy.importer.kit.needs import value_needed
from glowpy.importer.kit.targets import Targets
from glowpy.importer.kit.values import SymbolicTensor
from glowpy.importer.needs import ValueNeededError
from glowpy.importer.onnx.check import (
    KNOWN_DOMAINS,
    check_types,
    refusal_verdict,
    unsupported_reason,
)
from glowpy.importer.onnx.definition import definition_of, schema_of
from glowpy.importer.onnx.extents import computed_extents
from glowpy.importer.onnx.indices import save_checks
from glowpy.importer.onnx.known_operands import settled_results
from glowpy.importer.onnx.narrow import narrow_results
from glowpy.importer.onnx.node import (
    Item,
    OnnxNode,
    OnnxScope,
    SubgraphError,
    TensorSequence,
    holds_nodes,
    item_of,
)
from glowpy.importer.onnx.order import in_order, names_read, place_of, subgraphs
from glowpy.importer.onnx.registry import handler_of
from glowpy.importer.onnx.rounding import rounded_results
from glowpy.importer.onnx.source import MAX_NODES, domain_of
from glowpy.importer.onnx.subgraph import undone_on_error
from glowpy.importer.onnx.tensor import decode_all
from glowpy.importer.reports import located, raise_all
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc
from glowpy.support.progress import report
from glowpy.support.symbolic import Dim, UndecidedError

if TYPE_CHECKING:
    from glowpy.importer.onnx.model import OnnxModel

__all__ = ["Build"]

_MOST_IN_SESSIONS = 256
"""A loop that a session can run by rounds is written out if its rounds have at most so many nodes: more take longer to
compile than they save."""
FOLD_BYTES = 1 << 26
"""Known results of more bytes than this are computed at run time; they would only make the program large."""


@dataclass
class Build:
    """One import: the environment that nodes are imported into, and what went wrong so far."""

    model: OnnxModel
    types: list[Type]
    values: Mapping[str, Array]
    supposed: Mapping[str, Dim] = field(default_factory=dict)
    targets: Targets | None = None
    module: Module = field(default_factory=Module)
    environment: dict[str, Item] = field(default_factory=dict)
    errors: list[UserError] = field(default_factory=list)
    narrow: dict[str, Narrow] = field(default_factory=dict)
    num_defined: int = 0
    """Nodes that stand for others by definition, and those of subgraphs, as often as they were imported."""

    def __post_init__(self) -> None:
        placeholders = self._inputs()
        self.scope = OnnxScope(
            self.module.create_function("main"),
            self.model.source.stores,
            self.environment,
            self.model.block,
            self.narrow,
            found=Found(self.module.symbols, self.supposed),
            checks=[] if self.model.checked else None,
            shares_caches=self.model.shares_caches,
            targets=self.targets,
            most_written=_MOST_IN_SESSIONS if self.model.runs_rounds else OnnxScope.most_written,
            is_round=bool(self.model.source.within),
            import_graph=self.import_graph,
        )
        try:
            self._nodes()
            self._report()
            self._outputs(placeholders)
        finally:
            del self.scope  # holds a method of this object: a circle, and with it all of the model
        verify_module(self.module)

    def _nodes(self) -> None:
        order = self.model.order
        for done, (index, node) in enumerate(order):
            report("import", done, len(order))
            self._node(index, node, self.scope)
        report("import", len(order), len(order))

    def _inputs(self) -> dict[str, Placeholder]:
        self.environment.update(self.model.initializers)
        graph = self.model.source.proto.graph
        stored = [*graph.initializer, *(proto.values for proto in graph.sparse_initializer)]
        self.narrow |= {p.name: NARROW[p.data_type] for p in stored if p.data_type in NARROW}
        self.narrow |= {info.name: info.narrow for info in self.model.inputs if info.narrow}
        placeholders = {}
        for info, type in zip(self.model.inputs, self.types, strict=True):
            loc = Loc(self.model.file)
            placeholder = self.module.create_placeholder(info.name, type, loc=loc)
            placeholders[info.name] = placeholder
            self.environment[info.name] = placeholder.value
            if info.name in self.values:
                array = self.values[info.name]
                if array.dtype != type.kind.dtype:
                    raise UserError(
                        f"value of '{info.name}': expected {type}, got {array.dtype}", loc=loc
                    )
                self.environment[info.name] = Tensor(type, array)
        return placeholders

    def import_graph(self, graph: onnx.GraphProto, scope: OnnxScope, loc: Loc) -> list[Item]:
        """Imports the nodes of a subgraph in a scope. Raises SubgraphError where that is impossible."""
        self._count(1 + len(graph.node))
        problems = len(self.errors)
        tensors, wrong = decode_all(graph, self.model.source.stores)
        environment = scope.environment
        raise_all([located(e, loc, f"initializer '{name}': ") for name, e in wrong.items()])
        environment.update(tensors)
        order, wrong_names = in_order(graph, environment, self.model.file, scope.within)
        self.errors += wrong_names
        for index, node in order:
            self._node(index, node, scope)
        outputs = [info.name for info in graph.output]
        errors = self.errors[problems:]
        if errors or not all(name in environment for name in outputs):
            del self.errors[problems:]
            raise SubgraphError(errors)
        return [environment[name] for name in outputs]

    def _node(self, index: int, node: onnx.NodeProto, scope: OnnxScope) -> None:
        """Imports a node, or notes why that is impossible."""
        within, file = scope.within, self.model.file
        loc = place_of(node, index, file, within) if within else self.model.loc(index, node)
        if loc in self.model.faulty or not self._has_inputs(node, scope):
            return  # depends on a node that is reported already
        if loc in self.model.deferred:
            self.errors += self.model.deferred[loc]
            return
        inputs = [scope.environment[name] if name else None for name in node.input]
        opset = self.model.source.opsets[domain_of(node.domain)]
        try:
            with undone_on_error(self.module, node):
                before = scope.f.num_nodes
                results = self._results(node, loc, opset, inputs, scope)
                results |= rounded_results(node, scope.f, before, results)
        except SubgraphError as error:
            self.errors += error.errors
        except ValueNeededError as error:
            self.errors.append(error)
        except UndecidedError as error:
            counts = self.scope.found.counts
            if found := [name for name in counts if name in error.symbols]:
                what = f"{node.op_type}: {error.diagnostics[0].message}; this"
                asked = error.asked_of(found)
                self.errors.append(value_needed(what, counts[found[0]], loc, scope.origins, asked))
                return
            self.errors.append(located(error, loc, f"{node.op_type}: "))
        except UserError as error:
            self.errors.append(located(error, loc, f"{node.op_type}: "))
        else:
            scope.environment.update(results)

    def _results(
        self,
        node: onnx.NodeProto,
        loc: Loc,
        opset: int,
        inputs: list[Item | None],
        scope: OnnxScope,
    ) -> dict[str, Item]:
        """Imports a node; returns its results by the names of its outputs."""
        types = [None if v is None or isinstance(v, TensorSequence) else v.type for v in inputs]
        check_types(node, opset, types)
        self.narrow |= narrow_results(node, schema_of(node, opset), self.narrow)
        handler = handler_of(domain_of(node.domain), node.op_type, opset)
        if handler is None:
            return self._defined(node, loc, opset, inputs, scope)

        def imported(scope: OnnxScope) -> list[Item]:
            n = OnnxNode(node, loc, opset, inputs, scope)
            with scope.f.at(loc):
                result = handler(n)
            if domain_of(node.domain) not in KNOWN_DOMAINS:
                n.expect_asked()  # of others the onnx package knows the attributes
            results = result if isinstance(result, tuple) else (result,)
            if len(results) < sum(1 for name in node.output if name):
                raise UnsupportedError(
                    f"expected {len(results)} outputs with these attributes, got {len(node.output)}"
                )
            return [item_of(result) for result in results]

        if any(isinstance(value, SymbolicTensor) for value in inputs):
            numbers = computed_extents(OnnxNode(node, loc, opset, inputs, scope))
            if numbers is not None:
                return {node.output[0]: numbers}
        folded = None
        has_no_graphs = (
            next(subgraphs(node), None) is None
        )  # what is in a subgraph is folded by itself
        if has_no_graphs and all(value is None or isinstance(value, Tensor) for value in inputs):
            folded = self._folded(imported)
        results = folded
        if results is None:
            results = imported(scope)
            results = settled_results(scope, inputs, results) if has_no_graphs else results
        return {name: item for name, item in zip(node.output, results, strict=False) if name}

    def _defined(
        self,
        node: onnx.NodeProto,
        loc: Loc,
        opset: int,
        inputs: list[Item | None],
        scope: OnnxScope,
    ) -> dict[str, Item]:
        """Imports the nodes by which ONNX defines an operator. Their errors begin with their operators."""
        definition = definition_of(node, opset, inputs)
        self._count(len(definition.nodes))
        items: dict[str, Item | None] = dict(zip(node.input, inputs, strict=True))
        environment: dict[str, Item] = {
            name: item for name, item in items.items() if item is not None
        }
        inside = replace(scope, environment=ChainMap(environment, scope.environment))
        results: dict[str, Item] = {}
        opsets = self.model.source.opsets | definition.opsets
        for inner in definition.nodes:
            operands = [items[name] if name else None for name in inner.input]
            opset_of = opsets.get(domain_of(inner.domain))
            reason = unsupported_reason(inner, opset_of)
            if reason or opset_of is None:
                raise UnsupportedError(reason, verdict=refusal_verdict(inner, opset_of))
            try:
                computed = self._results(inner, loc, opset_of, operands, inside)
            except (ValueNeededError, UndecidedError, SubgraphError):
                raise
            except UserError as error:
                raise located(error, Loc(), f"{inner.op_type}: ") from None
            items |= computed
            environment |= computed
            results |= computed
        return {name: results[name] for name in node.output if name}

    def _count(self, nodes: int) -> None:
        """Raises UserError for more nodes than any graph may have."""
        self.num_defined += nodes
        if self.num_defined > MAX_NODES:
            what = "definitions in place of operators, and loops written out"
            raise UserError(f"expected at most {MAX_NODES} nodes, with {what}")

    def _folded(self, imported: Callable[[OnnxScope], list[Item]]) -> list[Item] | None:
        """Computes a node with known inputs; None if the result is too large to keep."""
        f = Module().create_function("fold")
        try:
            return self._computed(f, imported)
        finally:
            f.module.forget()

    def _computed(
        self, f: Function, imported: Callable[[OnnxScope], list[Item]]
    ) -> list[Item] | None:
        stores, block = self.model.source.stores, self.model.block
        results = imported(OnnxScope(f, stores, block=block, narrow=self.narrow, folding=True))
        computed = [value for value in results if isinstance(value, NodeValue)]
        if not computed:
            return None if any(holds_nodes(value) for value in results) else results
        if any(isinstance(value.node, DequantizeNode | DequantizeBlocksNode) for value in computed):
            return None  # products take the stored integers
        size = sum(result.type.room for node in f.nodes for result in node.results)
        read = sum(constant.type.room for constant in f.module.constants)
        if size > FOLD_BYTES or read > 4 * FOLD_BYTES:
            return None
        verify_nodes(f, f.nodes)
        tensors = iter(evaluate(computed))
        return [next(tensors) if isinstance(v, NodeValue) else v for v in results]

    def _has_inputs(self, node: onnx.NodeProto, scope: OnnxScope) -> bool:
        return all(name in scope.environment for name in names_read(node) if name)

    def _report(self) -> None:
        """Raises one error for everything that was noted."""
        if self.model.noted is not None:
            self.model.note(self.errors)
            return
        needed = [error for error in self.errors if isinstance(error, ValueNeededError)]
        undecided = [error for error in self.errors if isinstance(error, UndecidedError)]
        raise_all([error for error in self.errors if error not in (*needed, *undecided)])
        if undecided:
            raise undecided[0]  # the caller may know what the others ask then
        if needed:
            raise ValueNeededError.of_all(needed)

    def _outputs(self, inputs: Mapping[str, Placeholder]) -> None:
        partial = self.model.noted is not None
        for name, count in self.scope.found.to_check.items():
            target = self.module.create_placeholder(count_output(name), count.type)
            self.scope.f.create_save(f"save_{name}", count, target)
        for info in {info.name: info for info in self.model.outputs}.values():
            if partial and info.name not in self.environment:
                continue  # depends on what is noted already
            try:
                self._output(info, inputs)
            except UserError as error:
                self.model.note([located(error, Loc(self.model.file))])
        save_checks(self.scope)

    def _output(self, info: ValueInfo, inputs: Mapping[str, Placeholder]) -> None:
        value, loc = self.environment.get(info.name), Loc(self.model.file)
        if value is None or isinstance(value, TensorSequence):
            got = "nothing that computes it" if value is None else "a sequence"
            raise UserError(f"output '{info.name}': expected a tensor, got {got}")
        narrow = self.narrow.get(info.name)
        if value.type.kind is not info.kind or narrow != info.narrow:
            declared = info.kind.value if value.type.kind is not info.kind else info.type
            raise UserError(
                f"output '{info.name}' is declared as {declared}, but computed as "
                f"{narrow.name if narrow else value.type.kind.value}"
            )
        target = inputs.get(info.name) or self.module.create_placeholder(
            info.name, value.type, loc=loc
        )
        operand = self.scope.materialize(value, info.name)
        self.scope.f.create_save(f"save_{info.name}", operand, target, loc=loc)
