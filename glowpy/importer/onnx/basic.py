"""Basic optimizations of an ONNX file: what is known before a run is computed, and what does nothing goes.

Operators and names stay, for tools that look for patterns and names in the file: onnxruntime's own do so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glowpy.core.tensor import Array
from glowpy.importer.onnx.host.graph import constant_of, free_names, graphs_of
from glowpy.importer.onnx.source import domain_of
from glowpy.support.errors import GlowError

__all__ = ["Compute", "basic"]

Compute = Callable[[ModelProto], Sequence[Any]]
"""Computes the outputs of a model without inputs. Raises GlowError where that is impossible."""

_NOT_KNOWN = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"),
    *("RandomUniformLike", "Dropout", "QuantizeLinear", "DequantizeLinear"),
}
"""Operators that give other elements each time, and those that runtimes look for around products."""

_SMALL = 1 << 20
"""So many bytes may be stored in place of what computes them; more only if that takes as much."""


def basic(content: bytes, compute: Compute) -> bytes:
    """The bytes of a model with all its elements inside, with basic optimizations; `compute` finds what is known."""
    model = ModelProto()
    model.ParseFromString(content)
    graph = _Graph(model, compute)
    graph.store_constants()
    graph.fold()
    graph.drop_copies()
    graph.fold_normalizations()
    graph.sweep()
    return bytes(model.SerializeToString())


@dataclass
class _Graph:
    """The graph of a model, which the optimizations change.

    Attributes:
        model: The model.
        compute: Computes what follows from constants.
        stored: Its constants, by name: initializers that no call overrides.
    """

    model: ModelProto
    compute: Compute
    stored: dict[str, TensorProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._graph = self.model.graph
        inputs = {info.name for info in self._graph.input}
        self.stored = {t.name: t for t in self._graph.initializer if t.name not in inputs}
        self._outputs = {info.name for info in self._graph.output}
        self._names = inputs | self._outputs | {*self.stored}
        self._names.update(name for node in self._graph.node for name in node.output)

    def _replace(self, nodes: list[NodeProto]) -> None:
        """Puts other nodes in the place of those that there are."""
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self._graph.node[:]
        self._graph.node.extend(copies)

    def _reads(self) -> Counter[str]:
        """How often each value is read, by nodes, by graphs of nodes, and as an output."""
        reads = Counter(self._outputs)
        for node in self._graph.node:
            reads.update(node.input)
            reads.update(_inner(node))
        return reads

    def _store(self, name: str, array: Array) -> None:
        """Stores an array as a constant."""
        self._names.add(name)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        self.stored[name] = self._graph.initializer[-1]

    def _store_apart(self, name: str, array: Array) -> str:
        """Stores an array under a name of its own, and returns that."""
        while name in self._names:
            name += "_"
        self._store(name, array)
        return name

    def store_constants(self) -> None:
        """Makes initializers of `Constant` nodes."""
        nodes = []
        for node in self._graph.node:
            tensor = constant_of(node)
            if not isinstance(tensor, TensorProto) or tensor.name in self._outputs:
                nodes.append(node)
                continue
            self._graph.initializer.append(tensor)
            self.stored[tensor.name] = self._graph.initializer[-1]
        self._replace(nodes)

    # What is known.

    def fold(self) -> None:
        """Stores what follows from constants, as far as it takes no more memory than these."""
        known = {*self.stored}
        nodes, others = [], []
        for node in self._graph.node:
            if self._is_known(node, known):
                nodes.append(node)
                known.update(node.output)
            else:
                others.append(node)
        results = {name for node in nodes for name in node.output if name}
        wanted = {n: None for node in others for n in (*node.input, *_inner(node)) if n in results}
        values = self._computed(nodes, [*wanted])
        needed = {name for name in wanted if name not in values}
        staying = []
        for node in reversed(nodes):  # these compute what is not stored
            if not needed.isdisjoint(node.output):
                staying.append(node)
                needed.update(node.input)
        for name, array in values.items():
            if name not in {output for node in staying for output in node.output}:
                self._store(name, array)
        self._replace([*staying[::-1], *others])

    def _is_known(self, node: NodeProto, known: set[str]) -> bool:
        if domain_of(node.domain) or node.op_type in _NOT_KNOWN or graphs_of(node):
            return False
        is_output = not self._outputs.isdisjoint(node.output)
        return bool(node.input) and not is_output and all(n in known for n in node.input if n)

    def _computed(self, nodes: list[NodeProto], names: list[str]) -> dict[str, Array]:
        """The elements of some values that nodes compute; none where they cannot be computed."""
        if not names:
            return {}
        reads = {name for node in nodes for name in node.input}
        tensors = [tensor for name, tensor in self.stored.items() if name in reads]
        outputs = [helper.make_tensor_value_info(name, 0, None) for name in names]
        part = helper.make_graph(nodes, "known", [], outputs, tensors)
        imports = self.model.opset_import
        proto = helper.make_model(part, opset_imports=imports, ir_version=self.model.ir_version)
        try:
            arrays = self.compute(proto)
        except GlowError:
            return {}  # whoever opens the file hears of it
        most = max(_SMALL, sum(tensor.ByteSize() for tensor in tensors))
        pairs = zip(names, arrays, strict=True)
        return {
            name: value
            for name, value in pairs
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.nbytes <= most
        }

    # What does nothing.

    def drop_copies(self) -> None:
        """Drops nodes that give what they take, and lets others read that."""
        names: dict[str, str] = {}
        nodes = []
        inner = {name for node in self._graph.node for name in _inner(node)}
        types = self._types()
        for node in self._graph.node:
            for place, name in enumerate(node.input):
                node.input[place] = names.get(name, name)
            result = node.output[0] if node.output else ""
            if self._copies(node, types) and result not in self._outputs | inner:
                names[result] = node.input[0]
            else:
                nodes.append(node)
        self._replace(nodes)

    def _types(self) -> dict[str, int]:
        """The element types of values, as far as the file or a conversion says them."""
        infos = [*self._graph.input, *self._graph.value_info]
        types = {info.name: info.type.tensor_type.elem_type for info in infos}
        types |= {name: tensor.data_type for name, tensor in self.stored.items()}
        for node in self._graph.node:
            to = [attribute.i for attribute in node.attribute if attribute.name == "to"]
            if node.op_type == "Cast" and not domain_of(node.domain) and to:
                types[node.output[0]] = to[0]
        return types

    def _copies(self, node: NodeProto, types: dict[str, int]) -> bool:
        if domain_of(node.domain) or not node.input or any(node.output[1:]):
            return False
        match node.op_type:
            case "Identity":
                return True
            case "Cast":
                given = types.get(node.input[0], 0)
                return bool(given) and given == types.get(node.output[0])
            case "Dropout":
                version = next((o.version for o in self.model.opset_import if not o.domain), 0)
                training = [*node.input, "", ""][2]
                return version >= 7 and (not training or not self._is_true(training))
            case _:
                return False

    def _is_true(self, name: str) -> bool:
        """Whether a value may be true."""
        tensor = self.stored.get(name)
        return tensor is None or bool(numpy_helper.to_array(tensor).any())

    # Normalizations.

    def fold_normalizations(self) -> None:
        """Lets convolutions compute what normalizations by constants make of their results."""
        reads = self._reads()
        makers = {name: node for node in self._graph.node for name in node.output}
        nodes = []
        for node in self._graph.node:
            before = makers.get(node.input[0]) if node.input else None
            if before is not None and self._normalizes(node, before, reads):
                self._merge(before, node)
            else:
                nodes.append(node)
        self._replace(nodes)

    def _normalizes(self, node: NodeProto, before: NodeProto, reads: Counter[str]) -> bool:
        """Whether a node normalizes what a convolution gives to it alone, and all is constant."""
        if (node.op_type, before.op_type) != ("BatchNormalization", "Conv"):
            return False
        if domain_of(node.domain) or domain_of(before.domain) or any(node.output[1:]):
            return False
        if len(node.input) != 5 or len(before.input) < 2:
            return False
        values = {attribute.name: attribute.i for attribute in node.attribute}
        if values.get("training_mode", 0) or not values.get("spatial", 1):
            return False
        constants = [*node.input[1:], *before.input[1:]]
        kinds = {self.stored[n].data_type if n in self.stored else 0 for n in constants if n}
        return reads[before.output[0]] == 1 and kinds == {TensorProto.FLOAT}

    def _merge(self, convolution: NodeProto, node: NodeProto) -> None:
        """Gives a convolution the weights with which it computes what the normalization gives."""
        scale, shift, mean, variance = (self._numbers(name) for name in node.input[1:5])
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        factors = scale / np.sqrt(variance + epsilon)
        weights = self._numbers(convolution.input[1])
        bias = [*convolution.input, ""][2]
        sums = self._numbers(bias) if bias else np.zeros(len(weights))
        weights = weights * factors.reshape(-1, *[1] * (weights.ndim - 1))
        arrays = {"weights": weights, "bias": (sums - mean) * factors + shift}
        name = node.output[0]
        inputs = [
            self._store_apart(f"{name}_{what}", array.astype(np.float32))
            for what, array in arrays.items()
        ]
        del convolution.input[1:]
        convolution.input.extend(inputs)
        convolution.output[0] = name

    def _numbers(self, name: str) -> Array:
        array: Array = numpy_helper.to_array(self.stored[name]).astype(np.float64)
        return array

    # What nobody reads.

    def sweep(self) -> None:
        """Drops nodes and constants that nothing depends on."""
        needed = {*self._outputs}
        nodes = []
        for node in reversed(self._graph.node):
            if not needed.isdisjoint(node.output):
                nodes.append(node)
                needed.update((*node.input, *_inner(node)))
        self._replace(nodes[::-1])
        tensors = [
            t for t in self._graph.initializer if t.name in needed or t.name not in self.stored
        ]
        copies = [TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
        del self._graph.initializer[:]
        self._graph.initializer.extend(copies)


def _inner(node: NodeProto) -> Iterator[str]:
    """Yields what the graphs of a node read of the graph around them."""
    for graph in graphs_of(node).values():
        yield from free_names(graph)
