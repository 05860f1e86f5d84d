"""Decisions about products are explained, may be edited in a text, and are refused where they cannot be kept to."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions, Module, UserError
from glowpy.backend import Operation
from glowpy.backends.cpu.insts_gen import CpuConvInst
from glowpy.backends.cpu.variant import variant_named
from glowpy.backends.cpu.verify import mismatch
from glowpy.benchmark.figures import why
from glowpy.benchmark.measured import Layer
from glowpy.core.tensor import Tensor
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.node import Constant
from glowpy.graph.printer import print_module
from glowpy.recipe import Compilation
from glowpy.support.symbolic import symbol
from tests.bundles.networks import glow
from tests.unit.backends.lowered_text import edited


def network() -> Module:
    """A padded convolution, a depthwise one, and a product."""
    module = Module()
    generator = np.random.default_rng(3)

    def weights(name: str, *shape: int) -> Constant:
        numbers = generator.standard_normal(shape, dtype=np.float32)
        return module.create_constant(name, Tensor.of(numbers))

    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1x9x9x16]"))
    lists = (3, 3), (1, 1), (1,) * 4, (1, 1)
    filters = weights("w", 32, 3, 3, 16), weights("dw", 32, 3, 3, 1)
    conv = f.create_convolution("conv", x, filters[0], weights("b", 32), *lists, 1)
    deep = f.create_convolution("deep", conv, filters[1], weights("db", 32), *lists, 32)
    rows = f.create_reshape("rows", parse_type("f32[9x288]"), deep)
    product = f.create_mat_mul("product", rows, weights("p", 288, 40))
    f.create_save("save", product, module.create_placeholder("y", product.result.type))
    return module


@pytest.fixture(scope="module")
def stages() -> Compilation:
    """By the direct algorithms, whichever processor this is."""
    return compilation(network(), CpuBackend(CpuOptions(exact=True)))


def test_what_was_decided_is_explained(stages: Compilation) -> None:
    text = stages.text("strategy")
    conv, deep, product = text.split("\n\n")
    assert conv.startswith("%conv = cpu_conv: height 9, width 9, channels 32, taps 9, depth 16,")
    assert re.search(
        r"^  tile_pixels=\d+, tile_vectors=\d+, line=\d+, slab=\d+, fetch=\d+$", conv, re.M
    )
    assert re.search(r"^  \d+ units, inner loops: .*scattered \d+x\d+", conv, re.M)
    assert re.search(
        r"^  \*  \d+x\d+ .* \+0\.0 %  (multiplications|loads|latency|instructions)$", conv, re.M
    )
    assert re.match(
        r"%deep = cpu_depthwise_conv: height \d+, width 9, channels \d+\n  tile_pixels=\d, slab=\d+, vectors=\d+\n",
        deep,
    )
    assert product.startswith("%product = cpu_matmul: height 1, width 9, channels 40,")
    assert "overridden" not in text


def test_the_explanation_as_json(stages: Compilation) -> None:
    explained = json.loads(stages.backend.emit(stages.program, "strategy-json"))
    conv = explained[0]
    assert [product["name"] for product in explained] == ["conv", "deep", "product"]
    best = conv["rows"][0]
    assert best["in_use"]
    assert best["pixels"] == conv["decision"]["tile_pixels"]
    assert [row["cycles"] for row in conv["rows"]] == sorted(row["cycles"] for row in conv["rows"])
    assert sum(row["in_use"] for row in conv["rows"]) == 1


def test_the_command_line_explains(tmp_path: Path) -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[2x1]"))
    f = module.create_function("main")
    weights = module.create_constant("w", Tensor.of(np.ones((1, 3), np.float32)))
    product = f.create_mat_mul("product", x, weights)
    f.create_save("save", product, module.create_placeholder("y", product.result.type))
    (tmp_path / "net.glow").write_text(print_module(module))
    dump = "dump", tmp_path / "net.glow", "--target", "rpi4", "--format", "json"
    status, printed, _ = glow(*dump, "--stage", "strategy")
    assert status == 0
    assert {product["mnemonic"] for product in json.loads(printed)} == {"cpu_matmul"}
    status, _, errors = glow(*dump)
    assert status == 1
    assert "expected the stage strategy for --format json, got 'graph'" in errors


def test_decisions_for_open_extents_are_explained() -> None:
    """A line is a row, however long, and what is fetched ahead depends on the rows; neither is made by hand."""
    module = Module()
    symbols = {"n": symbol("n", 1, 64, 9)}
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1 x n x n x 16]", symbols))
    w = module.create_constant("w", np.ones((32, 3, 3, 16), np.float32))
    b = module.create_constant("b", np.ones(32, np.float32))
    conv = f.create_convolution("conv", x, w, b, (3, 3), (1, 1), (1,) * 4, (1, 1), 1)
    y = module.create_placeholder("y", parse_type("f32[n x 512]", symbols))
    square = module.create_constant("square", np.ones((512, 512), np.float32))
    product = f.create_mat_mul("product", y, square)
    columns = f.create_transpose("columns", product, (1, 0))
    again = f.create_mat_mul("again", product, columns)
    for name, value in (("conv_out", conv), ("out", again)):
        f.create_save("save", value, module.create_placeholder(name, value.result.type))
    target = CpuBackend(CpuOptions(target="x86_64-linux-gnu", cpu="x86-64-v4"))
    stages = compilation(module, target)
    explained = {e["name"]: e for e in json.loads(target.emit(stages.program, "strategy-json"))}
    assert "n" in str(explained["product"]["decision"]["fetch"])
    assert not any(e["overridden"] for e in explained.values())
    assert all(sum(row["in_use"] for row in e["rows"]) == 1 for e in explained.values())
    assert "overridden" not in stages.text("strategy")


def test_networks_without_products() -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[3]"))
    f = module.create_function("main")
    f.create_save("save", f.create_abs("a", x), module.create_placeholder("y", x.type))
    assert compilation(module, "cpu").text("strategy") == "no products\n"


def other_decisions(stages: Compilation, name: str, **attributes: int) -> Module:
    """The lowered module with other attributes of one product."""
    return edited(
        stages,
        {rf"(%{name} = cpu_.*\b{key}=)\d+": rf"\g<1>{value}" for key, value in attributes.items()},
    )


def test_edited_attributes_are_kept_to(stages: Compilation) -> None:
    x = np.random.default_rng(1).standard_normal((1, 9, 9, 16), dtype=np.float32)
    expected = glowpy.compile(network(), backend="interpreter")({"x": x})["y"]
    module = other_decisions(stages, "conv", tile_pixels=2, line=9, slab=4)
    text = compilation(module, "cpu").text("strategy")
    assert "tile_pixels=2" in text
    assert "line=9, slab=4, fetch=0 (overridden)" in text
    assert re.search(r"^  \*  2x\d+ +9 ", text, re.M)
    result = glowpy.compile(module, backend="cpu")({"x": x})["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attributes", [{"slab": 2}, {"fetch": 3}])
def test_every_decision_shows_that_it_was_made_by_hand(
    stages: Compilation, attributes: dict[str, int]
) -> None:
    assert "(overridden)" not in stages.text("strategy")
    module = other_decisions(stages, "conv", **attributes)
    assert "(overridden)" in compilation(module, "cpu").text("strategy")


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        ("conv", {"line": 7, "tile_pixels": 3}, r"expected a line of 9 pixels \(a row of the result\) or 3"),
        ("conv", {"line": 9, "tile_pixels": 10}, "expected tile_pixels of at most a line, 9, got 10"),
        ("conv", {"tile_pixels": 33, "line": 33}, "expected tile_pixels from 1 to 32, got 33"),
        ("conv", {"tile_pixels": 0}, "expected tile_pixels from 1 to 32, got 0"),
        ("conv", {"tile_pixels": 9, "tile_vectors": 8, "line": 9}, "at most 32 sums, got 9 x 8 = 72"),
        ("conv", {"slab": 0}, "expected a slab of at least 1 line, got 0"),
        ("conv", {"fetch": -1}, "at least 0 elements"),
        ("product", {"tile_vectors": 9}, "expected tile_vectors from 1 to 8, got 9"),
        ("deep", {"tile_pixels": 9}, "expected tile_pixels from 1 to 8, got 9"),
    ],
)  # fmt: skip
def test_decisions_that_cannot_be_kept_to_are_refused(
    stages: Compilation, name: str, attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        _ = compilation(other_decisions(stages, name, **attributes), "cpu").program


def test_weights_packed_for_other_vectors_are_refused(stages: Compilation) -> None:
    """A lowered text is for one kind of processor."""
    inst = next(i for i in stages.program.ir.instructions if isinstance(i, CpuConvInst))
    operation = Operation.of_inst(inst)
    variants = [variant_named(f"x86_64_v{version}") for version in (2, 3, 4)]
    reasons = [mismatch(operation, variant) for variant in variants]
    assert reasons.count("") <= 1
    assert all(not reason or "lower the model for this processor" in reason for reason in reasons)
    assert not mismatch(Operation("abs", {}, {}), variants[0])


def test_weights_of_every_instruction_with_tiles_are_checked() -> None:
    """Operands that none of the checks looks for would be read as if they were packed for these vectors."""
    operands = {"filter": "f32[1x1x1x1x1x5]", "rhs": "f32[1x1x5]", "recurrence": "f32[1x1x1x5]"}
    types = {name: parse_type(text) for name, text in operands.items()}
    schemas = [inst.SCHEMA for inst in CpuBackend.instructions]
    tiled = [s.mnemonic for s in schemas if "tile_vectors" in (attr.name for attr in s.attrs)]
    assert len(tiled) >= 7
    for mnemonic in tiled:
        operation = Operation(mnemonic, types, {"tile_vectors": 1})
        assert "lower the model" in mismatch(operation, variant_named("x86_64_v3"))


@pytest.mark.parametrize(
    ("size", "depth", "stride", "option", "reason"),
    [
        (56, 32, 2, "", "not by Winograd: it has strides or dilation"),
        (56, 3, 1, "", "not by Winograd: a vector holds 16 channels, and a sum is over 3"),
        (56, 32, 1, "exact", "not by Winograd: products are to be exact"),
        (56, 32, 1, "low_memory", "not by Winograd: weights are to take little memory"),
        (
            3,
            32,
            1,
            "",
            r"not by Winograd: [\d,]+ cycles with patches of \dx\d, more than [\d,]+ directly",
        ),
    ],
)
def test_other_algorithms_are_declined_for_a_reason(
    size: int, depth: int, stride: int, option: str, reason: str
) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type(f"f32[1x{size}x{size}x{depth}]"))
    filter = np.random.default_rng(0).normal(size=(32, 3, 3, depth)).astype(np.float32)
    lists = (3, 3), (stride, stride), (1,) * 4, (1, 1)
    bias = module.create_constant("b", Tensor.of(np.zeros(32, np.float32)))
    weights = module.create_constant("w", Tensor.of(filter))
    conv = f.create_convolution("conv", x, weights, bias, *lists, 1)
    f.create_save("save", conv, module.create_placeholder("y", conv.result.type))
    options = CpuOptions(target="x86_64-linux-gnu", cpu="x86-64-v4")
    options = replace(options, exact=option == "exact", low_memory=option == "low_memory")
    text = compilation(module, CpuBackend(options)).text("strategy")
    assert re.search(rf"\n  {reason}\n", text)


def test_half_vectors_are_shown_as_such() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[784x96]"))
    product = f.create_mat_mul(
        "product", x, module.create_constant("w", np.ones((96, 24), np.float32))
    )
    f.create_save("save", product, module.create_placeholder("y", product.result.type))
    backend = CpuBackend(CpuOptions(target="x86_64-linux-gnu", cpu="znver4"))
    stages = compilation(module, backend)
    (explanation,) = backend.explained(stages.program)
    tile = f"{explanation.decision['tile_pixels']}x1.5"
    assert explanation.tile == tile
    assert f"regular {tile}" in explanation.loops
    assert re.search(rf"\n  \*  {re.escape(tile)} ", stages.text("strategy"))
    layer = cast(Layer, SimpleNamespace(decision=explanation, declined={}))
    assert why(layer).startswith(f"{tile}, ")
