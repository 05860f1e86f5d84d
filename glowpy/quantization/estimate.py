"""Whether a network will be faster on integers, and how much smaller: measured here, before there is a profile.

Ranges are those of one input, which may be random, because how long integers take does not depend on them. Each layer
is a network of its own, once in floats and once on integers from end to end; networks run by turns. The whole network
is measured in the same way, with all conversions that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from glowpy.backend import Backend
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compile
from glowpy.graph.alone import alone
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, Placeholder
from glowpy.graph.nodes_gen import DequantizeNode, QuantizeNode
from glowpy.opt.known import is_known, known_tensor
from glowpy.quantization.convert import convert
from glowpy.quantization.fidelity import runner
from glowpy.quantization.method import ByProfile, Method, WithoutProfile
from glowpy.quantization.optimized import optimized
from glowpy.quantization.options import Options
from glowpy.quantization.profiling import Sample, profile
from glowpy.quantization.schema import quant_of_range
from glowpy.support.limits import within_limits
from glowpy.support.progress import report
from glowpy.support.text import print_attrs
from glowpy.support.timing import fastest

__all__ = ["Estimate", "LayerEstimate", "estimate"]

_SECONDS_OF_LAYER = 0.05
_SECONDS = 0.5
"""Seconds that are spent on timing a form of a layer, and of the network."""

_NOTICEABLE = 0.05
"""Networks that differ by less are equally fast: as much do two measurements of one differ."""


@dataclass(frozen=True)
class LayerEstimate:
    """A matrix product or convolution.

    Attributes:
        name: In the optimized graph.
        kind: Its mnemonic.
        origin: Where it is from in the user's model; empty if that is not known.
        result: The type of its result.
        floats: Its seconds in floats.
        integers: Its seconds if it is quantized; None if it stays in floats.
        reason: Why it stays so.
    """

    name: str
    kind: str
    origin: str
    result: str
    floats: float
    integers: float | None
    reason: str


@dataclass(frozen=True)
class Estimate:
    """The gain in speed and size by quantization on this machine.

    Attributes:
        layers: The matrix products and convolutions, in the order in which they are computed.
        floats: The seconds of the network in floats.
        integers: The seconds of the quantized one.
        bytes_before: The bytes of all constants in floats.
        bytes_after: The bytes of those of the quantized network.
    """

    layers: tuple[LayerEstimate, ...]
    floats: float
    integers: float
    bytes_before: int
    bytes_after: int

    @property
    def ratio(self) -> float:
        """The time on integers, in parts of that in floats."""
        return self.integers / self.floats

    @property
    def verdict(self) -> str:
        """A sentence on whether it is worth it."""
        if all(layer.integers is None for layer in self.layers):
            return "no layer becomes integer: quantization brings nothing"
        parts = (
            f"{self.ratio:.2f} of the time in floats, "
            f"{self.bytes_after / max(self.bytes_before, 1):.2f} of the bytes"
        )
        if self.ratio < 1 - _NOTICEABLE:
            return f"integers are faster on this machine: {parts}"
        if self.ratio <= 1 + _NOTICEABLE:
            return f"integers are as fast as floats on this machine, and only smaller: {parts}"
        return f"integers are slower on this machine: {parts}"


@within_limits
def estimate(
    model: Module | Function, sample: Sample, how: Options | Method | None = None
) -> Estimate:
    """Measures a network in floats and quantized, as a whole and layer by layer.

    Args:
        model: The network in floats; not changed.
        sample: An array for each input. Any will do that the network accepts.
        how: How it is quantized, and for which backend. Options mean integers everywhere, without a profile.

    Raises as `profile` and `Method.convert` do.
    """
    original = optimized(model)
    if isinstance(how, Method):
        method = how
    else:
        options = how or Options()
        method = ByProfile(profile(original, [sample], backend=options.backend), options)
    conversion = method.convert(original)
    outcomes = {node.name: node for node in conversion.nodes}
    layers = [node for _, node in original.all_nodes if node.SCHEMA.mnemonic in method.kinds]
    measurements: dict[Hashable, tuple[float, float | None]] = {}
    estimates = []
    for index, node in enumerate(layers):
        report("layers", index, len(layers))
        outcome = outcomes.get(node.name)
        if outcome is None:  # it is quantized already, or nothing that this method is for
            continue
        integer = not outcome.reason
        values = tuple((value.type, is_known(value)) for value in node.inputs)
        key = type(node), print_attrs(node.attrs), values, integer
        if key not in measurements:
            measurements[key] = _measured(node, method, integer=integer)
        place = (node.name, outcome.kind, outcome.origin, str(node.result.type))
        estimates.append(LayerEstimate(*place, *measurements[key], outcome.reason))
    report("the whole network", 0, 0)
    names = [p.original for p in original.parameters]
    networks = {"floats": original, "integers": conversion.module.main}
    models = {name: runner(f, method.backend, names) for name, f in networks.items()}
    seconds = fastest({name: partial(model, sample) for name, model in models.items()}, _SECONDS)
    return Estimate(
        *(tuple(estimates), seconds["floats"], seconds["integers"]),
        *(conversion.bytes_before, conversion.bytes_after),
    )


def _measured(node: Node, method: Method, *, integer: bool) -> tuple[float, float | None]:
    """The seconds of a layer alone in floats, and quantized if it becomes so."""
    f = _layer(node)
    networks = {"floats": f}
    if integer:
        networks["integers"] = _quantized(f, method)
    runs = {name: _run(network, method.backend) for name, network in networks.items()}
    seconds = fastest(runs, _SECONDS_OF_LAYER)
    return seconds["floats"], seconds.get("integers")


def _quantized(f: Function, method: Method) -> Function:
    """A layer that is a network of its own: on integers from end to end if it is so within the network."""
    if not isinstance(method, ByProfile):
        simple = replace(method, keep=()) if isinstance(method, WithoutProfile) else method
        return simple.convert(f).module.main
    random_profile = profile(f, [_random(f)], backend=method.backend)
    options = replace(method.options, keep=(), skip_first=False, skip_last=False, calibrations={})
    result = f.saves[0].input
    low, high = options.calibration.range(random_profile[result.name])
    quant = quant_of_range(low, high, options.activations, options.schema)
    type = Type(options.activations, result.type.shape, quant)
    return _from_end_to_end(convert(f, random_profile, options).module.main, type)


def _layer(node: Node) -> Function:
    """A network of this layer alone at likely extents, with all that is known of its operands."""
    module = alone(node, likely=True)
    for index, value in enumerate(node.inputs):
        storage = module.storage(f"input{index}")
        if isinstance(storage, Placeholder) and is_known(value):
            tensor = known_tensor(value)
            assert tensor is not None
            constant = module.create_constant(f"known{index}", tensor)
            storage.value.replace_all_uses_with(constant.value)
            module.erase(storage)
    return optimized(module)


def _from_end_to_end(f: Function, type: Type) -> Function:
    """A quantized layer whose inputs and result are stored integers, as they are within a network."""
    module = f.module
    for node in f.nodes:
        if isinstance(node, QuantizeNode) and isinstance(node.input.producer, Placeholder):
            name = f"{node.input.producer.name}_stored"
            stored = module.create_placeholder(name, node.result.type)
            node.result.replace_all_uses_with(stored.value)
    (save,) = f.saves
    if isinstance(save.input.node, DequantizeNode):
        rescaled = f.create_rescale("rescaled", type, save.input.node.input)
        f.create_save("save", rescaled, module.create_placeholder("result", type))
        f.erase(save)
    f.erase_dead()
    for placeholder in module.placeholders:
        if not placeholder.value.num_users:
            module.erase(placeholder)
    return f


def _run(f: Function, backend: str | Backend) -> Callable[[], object]:
    """Runs a network on random elements."""
    function, sample = compile(f, backend), _random(f)
    return lambda: function(sample)


def _random(f: Function) -> dict[str, Array]:
    """An array for each input."""
    rng = np.random.default_rng(0)
    return {p.original: _array(p.type, rng) for p in f.parameters}


def _array(type: Type, rng: np.random.Generator) -> Array:
    if type.kind.is_float:
        return np.asarray(rng.normal(size=type.extents), type.kind.dtype)
    lowest, highest = type.kind.limits
    return rng.integers(lowest, highest + 1, type.extents).astype(type.kind.dtype)
