"""Bundles of trees, searches and coupled pairs: they need no runtime, and compute what the interpreter does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, bundle
from glowpy.backends.cpu.options import Optimize
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import TreeEnsembleNode
from tests.bundles.networks import on_board
from tests.bundles.test_small import CHECK_ITSELF
from tests.ops.test_ml import grown


def forest(rows: int = 11) -> Module:
    """Trees with features that may be missing, what the first target is among keys, and probabilities of pairs."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (rows, 4)))
    operands: list[NodeValue] = [x.value]
    for index, table in enumerate(grown(np.random.default_rng(2), 9, 4, 4, 3, 2)):
        own = table.astype(np.float32 if index % 2 else np.int32)
        operands.append(module.create_constant(f"table{index}", own).value)
    attrs = {"targets": 3, "greatest": False, "missing": True}
    totals = f.create(TreeEnsembleNode, "trees", operands, attrs)
    keys = module.create_constant("keys", np.arange(-8, 8, dtype=np.float32) / 4)
    pairs = module.create_placeholder("pairs", parse_type("f64[2x3]"))
    chances = f.create_sigmoid("chances", pairs)
    results: dict[str, NodeValue] = {
        "totals": totals.result,
        "places": f.create_find("places", totals, keys).result,
        "coupled": f.create_couple_pairs("coupled", chances).result,
    }
    for name, value in results.items():
        f.create_save(f"save_{name}", value, module.create_placeholder(name, value.type))
    return module


@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m7"])
def test_trees_on_microcontrollers(target: str, optimize: Optimize, tmp_path: Path) -> None:
    """The self-test compares what comes out with what the interpreter computes."""
    backend = CpuBackend(CpuOptions(target, optimize=optimize))
    bundle(forest(), tmp_path, BundleOptions("net", weights="embedded", selftest=2), backend)
    (tmp_path / "main.c").write_text(CHECK_ITSELF)
    done = on_board(tmp_path, target, "main.c", "net.o")
    assert done.returncode == 0, done.stdout + done.stderr
