"""GELU in the forms that exporters write: found, and as exact as when it is written out in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node

X = np.linspace(-14, 14, 4001, dtype=np.float32)
Form = Callable[["Numbers", Any], Any]


class Numbers:
    """Arithmetic of a function; numbers become splats."""

    def __init__(self, f: Function, kind: ElemKind) -> None:
        self.f, self.kind = f, kind

    def _value(self, x: Any) -> Any:
        if isinstance(x, float):
            return self.f.create_splat("number", Type(self.kind, (1,)), x)
        return x

    def __call__(self, operation: str, *operands: Any) -> Any:
        create = getattr(self.f, f"create_{operation}")
        return create(operation, *map(self._value, operands))


def _inner(n: Numbers, x: Any, cube: Any) -> Any:
    return n("tanh", n("mul", 0.7978845608028654, n("add", x, n("mul", 0.044715, cube))))


def _power(n: Numbers, x: Any) -> Any:
    """As GPT-2 has it."""
    gate = n("add", 1.0, _inner(n, x, n("pow", x, 3.0)))
    return n("mul", n("mul", 0.5, x), gate)


def _products(n: Numbers, x: Any) -> Any:
    gate = n("add", _inner(n, x, n("mul", n("mul", x, x), x)), 1.0)
    return n("mul", x, n("mul", gate, 0.5))


def _brackets(n: Numbers, x: Any) -> Any:
    """As in transformers' `gelu_fast`."""
    cubic = n("add", 1.0, n("mul", n("mul", 0.044715, x), x))
    gate = n("add", 1.0, n("tanh", n("mul", n("mul", x, 0.7978845608), cubic)))
    return n("mul", n("mul", 0.5, x), gate)


def _divided(n: Numbers, x: Any) -> Any:
    """As torch.onnx writes `nn.GELU`."""
    gate = n("add", n("erf", n("div", x, math.sqrt(2))), 1.0)
    return n("mul", n("mul", x, gate), 0.5)


def _multiplied(n: Numbers, x: Any) -> Any:
    gate = n("add", n("erf", n("mul", x, math.sqrt(0.5))), 1.0)
    return n("mul", n("div", x, 2.0), gate)


def network(form: Form, kind: ElemKind = ElemKind.F32) -> Module:
    module = Module()
    f, type = module.create_function("main"), Type(kind, X.shape)
    x = module.create_placeholder("x", type)
    f.create_save("save", form(Numbers(f, kind), x), module.create_placeholder("y", type))
    return module


def names(module: Module) -> set[str]:
    return {node.SCHEMA.mnemonic for node in compilation(module, "interpreter").optimized.nodes}


def tanh_form(x: np.ndarray[Any, Any]) -> Any:
    wide = x.astype(np.float64)
    return wide / (1 + np.exp(-math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3)))


def erf_form(x: np.ndarray[Any, Any]) -> Any:
    return np.array([0.5 * float(one) * math.erfc(-float(one) / math.sqrt(2)) for one in x])


@pytest.mark.parametrize("form", [_power, _products, _brackets])
def test_with_tanh(form: Form) -> None:
    module = network(form)
    assert names(module) == {"mul", "add", "sigmoid", "save"}
    result = glowpy.compile(module, "cpu")({"x": X})["y"]
    np.testing.assert_allclose(result, tanh_form(X), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("form", [_divided, _multiplied])
def test_with_erf(form: Form) -> None:
    module = network(form)
    assert names(module) == {"mul", "add", "erf", "save"}
    nodes = compilation(module, "interpreter").optimized.nodes
    assert len([node for node in nodes if node.SCHEMA.mnemonic in ("mul", "add")]) == 4
    result = glowpy.compile(module, "cpu")({"x": X})["y"]
    np.testing.assert_allclose(result, erf_form(X), rtol=2e-6, atol=4e-7)


@pytest.mark.parametrize("form", [_power, _products, _brackets, _divided, _multiplied])
def test_special_values(form: Form) -> None:
    with np.errstate(invalid="ignore"):
        x = np.resize(
            np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30], np.float32), X.size
        )
        y = glowpy.compile(network(form), "cpu")({"x": x})["y"]
    assert np.isnan(y[[0, 2]]).all()
    assert y[1] == np.inf
    assert (y[3:5] == 0).all()
    np.testing.assert_allclose(y[5:7], [1e30, 0])


def _other_number(n: Numbers, x: Any) -> Any:
    gate = n("add", n("erf", n("div", x, 1.5)), 1.0)
    return n("mul", n("mul", x, gate), 0.5)


def _other_factor(n: Numbers, x: Any) -> Any:
    gate = n("add", n("erf", n("div", x, math.sqrt(2))), 1.0)
    return n("mul", n("mul", n("exp", x), gate), 0.5)


def _other_power(n: Numbers, x: Any) -> Any:
    gate = n("add", 1.0, _inner(n, x, n("pow", x, 2.0)))
    return n("mul", n("mul", 0.5, x), gate)


@pytest.mark.parametrize("form", [_other_number, _other_factor, _other_power])
def test_what_only_looks_like_it_stays(form: Form) -> None:
    before = network(form)
    count = len([node for node in before.main.nodes if _computes(node)])
    after = compilation(before, "interpreter").optimized
    assert len([node for node in after.nodes if _computes(node)]) == count


def _computes(node: Node) -> bool:
    return node.SCHEMA.mnemonic in ("mul", "add", "div", "tanh", "erf", "exp", "pow")


def test_f64_stays_as_it_is_written() -> None:
    assert "tanh" in names(network(_power, ElemKind.F64))
