"""Modules that are copied and pickled: flat, however deep their graphs are."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import LARGE, Array, Tensor
from glowpy.core.type import parse_type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Operand
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.support.errors import UserError
from tests.ops.test_control import TEXT
from tests.unit.networks import RandomNetwork, SearchingNetwork, SymbolicNetwork


def pickled(module: Module) -> Module:
    again = pickle.loads(pickle.dumps(module))
    assert isinstance(again, Module)
    return again


COPIES: dict[str, Callable[[Module], Module]] = {
    "pickle": pickled,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
each_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def chain(size: int) -> Function:
    module = Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, parse_type("f32[2]")) for name in "xy")
    value: Operand = x
    for _ in range(size):
        value = f.create_neg("n", value)
    f.create_save("save", value, y)
    return f


@each_copy
def test_ten_thousand_nodes_need_no_recursion(copied: Callable[[Module], Module]) -> None:
    module = chain(10_000).module
    twin = copied(module)
    assert twin.main.num_nodes == 10_001
    assert print_module(twin) == print_module(module)
    assert not {*twin.main.nodes} & {*module.main.nodes}


@each_copy
def test_copies_have_all_that_modules_have(copied: Callable[[Module], Module]) -> None:
    """Functions that call functions, variables, predicates, symbols, found extents."""
    modules = [parse_module(TEXT)]
    for seed in range(9):
        cls = (RandomNetwork, SymbolicNetwork, SearchingNetwork)[seed % 3]
        modules.append(cls(random.Random(seed)).module)
    for module in modules:
        twin = copied(module)
        verify_module(twin)
        assert print_module(twin) == print_module(module)
        assert [(p.original, p.loc) for p in twin.placeholders] == [
            (p.original, p.loc) for p in module.placeholders
        ]
        for f, g in zip(module.functions, twin.functions, strict=True):
            assert [n.loc for n in f.topological()] == [n.loc for n in g.topological()]
        name = f"{module.main.nodes[0].name}"
        assert twin.names.take(name) == module.clone().names.take(name)


def test_nodes_stand_in_the_order_of_their_creation() -> None:
    f = chain(3).module.main
    first, second, third, save = f.nodes
    f.arrange([save, second, third, first])
    assert [node.name for node in pickled(f.module).main.nodes] == ["save", "n_1", "n_2", "n"]


def test_a_function_is_pickled_with_its_module() -> None:
    f = chain(2)
    module, twin, both = pickle.loads(pickle.dumps((f.module, f, [f])))
    assert module.main is twin is both[0]
    assert copy.deepcopy(f).module is not f.module
    for part in (f.nodes[0], f.nodes[0].result, f.module.placeholders[0]):
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(UserError, match=r"cannot copy or pickle .* part of a module"):
                take(part)


@each_copy
def test_elements_of_constants(copied: Callable[[Module], Module]) -> None:
    """What repeats stays as small as it is, what is deferred is computed, and what is a digest stays one."""
    module = Module()
    rows = np.arange(LARGE, dtype=np.float32).reshape(-1, 4)
    spread = np.broadcast_to(rows[0], (100_000, 4))

    def compute() -> Array:
        return rows + 1

    tensors = {
        "dense": Tensor.of(rows),
        "spread": Tensor.of(spread),
        "splat": Tensor.splat(parse_type("bf16[100000]"), 1.5),
        "none": Tensor.of(np.zeros((0, 3), np.int8)),
        "later": Tensor.deferred(parse_type(f"f32[{LARGE // 4}x4]"), "later", compute),
    }
    for name, tensor in tensors.items():
        module.create_constant(name, tensor)
    copies = copied(module).constants
    for constant, tensor in zip(copies, tensors.values(), strict=True):
        assert constant.tensor.equals(tensor)
    assert copies[2].tensor.splat_value == 1.5
    assert len(pickle.dumps(module)) < 2.2 * rows.nbytes
    text = 'module {\n  constant %c : f32[40] = blob "sha256:abc"\n}\n'
    assert print_module(copied(parse_module(text))) == text


def test_a_copy_computes_the_same_in_another_order_of_uses() -> None:
    module = RandomNetwork(random.Random(3), 30).module
    feeds = {p.original: np.ones(p.type.extents, p.type.kind.dtype) for p in module.main.parameters}
    expected = glowpy.compile(module, "interpreter")(feeds)
    for name, output in glowpy.compile(pickled(module), "interpreter")(feeds).items():
        np.testing.assert_array_equal(output, expected[name])
