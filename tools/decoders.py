"""Random Llamas with weights of few bits, as ONNX and as GGUF: what `tools/bench_decoders.py` times.

The ONNX file has the operators that exporters of decoders write for onnxruntime: MatMulNBits with a scale for each 32
weights, GroupQueryAttention with a cache, and SimplifiedLayerNormalization. The GGUF file has the same shapes, and
weights in q4_0 or q8_0; what they are differs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from glowpy.core.tensor import Array
from glowpy.support.errors import UserError

__all__ = ["LARGE", "SMALL", "Shape", "feeds", "write_gguf", "write_onnx"]

BLOCK = 32
"""Weights with one scale."""
_PLACES = 2048


@dataclass(frozen=True)
class Shape:
    """The extents of a Llama: layers, its width and that inside, heads of queries and of keys, and words."""

    layers: int = 8
    width: int = 2048
    inside: int = 5632
    heads: int = 32
    groups: int = 4
    words: int = 32000

    @property
    def size(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads

    @property
    def products(self) -> Iterator[tuple[str, int, int]]:
        """The products of a layer: name, depth and columns."""
        kept = self.groups * self.size
        yield from (("q", self.width, self.width), ("k", self.width, kept), ("v", self.width, kept))
        yield from (("o", self.width, self.width), ("gate", self.width, self.inside))
        yield from (("up", self.width, self.inside), ("down", self.inside, self.width))

    def bytes_of_weights(self, bits: int) -> float:
        """Bytes of the ONNX file's weights, with scales of f32, that every token reads."""
        count = sum(depth * columns for _, depth, columns in self.products)
        return (self.layers * count + self.width * self.words) * (bits / 8 + 4 / BLOCK)


LARGE = Shape()
SMALL = Shape(layers=1, width=64, inside=96, heads=4, groups=2, words=70)


@dataclass
class _Graph:
    """The ONNX graph under construction."""

    shape: Shape
    bits: int
    level: int
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        domain = "com.microsoft" if op_type in ("MatMulNBits", "GroupQueryAttention") else ""
        self.nodes.append(helper.make_node(op_type, inputs, [name], domain=domain, **attributes))
        return name

    def product(self, x: str, name: str, depth: int, columns: int) -> str:
        size = (columns, depth // BLOCK, BLOCK * self.bits // 8)
        integers = self.rng.integers(0, 256, size, np.uint8)
        largest = 0.16 / (1 << self.bits)
        scales = (self.rng.random(columns * depth // BLOCK) * largest).astype(np.float32)
        inputs = [x, self.constant(f"{name}_w", integers), self.constant(f"{name}_s", scales)]
        sizes = {"K": depth, "N": columns, "bits": self.bits, "block_size": BLOCK}
        return self.add("MatMulNBits", inputs, name, **sizes, accuracy_level=self.level)

    def norm(self, x: str, name: str) -> str:
        weights = self.constant(f"{name}_w", np.ones(self.shape.width, np.float32))
        epsilon = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
        return self.add("SimplifiedLayerNormalization", [x, weights], name, **epsilon)

    def layer(self, x: str, index: int) -> str:
        shape, sizes = self.shape, {name: (k, n) for name, k, n in self.shape.products}

        def product(x: str, name: str) -> str:
            return self.product(x, f"{name}{index}", *sizes[name])

        y = self.norm(x, f"before{index}")
        inputs = [
            *(product(y, name) for name in "qkv"),
            f"pk{index}",
            f"pv{index}",
            "last",
            "total",
        ]
        results = [f"mixed{index}", f"ok{index}", f"ov{index}"]
        heads: dict[str, Any] = {
            "num_heads": shape.heads,
            "kv_num_heads": shape.groups,
            "do_rotary": 1,
        }
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*inputs, "cos", "sin"],
                results,
                domain="com.microsoft",
                **heads,
            )
        )
        x = self.add("Add", [x, product(results[0], "o")], f"attended{index}")
        y = self.norm(x, f"between{index}")
        gate, up = product(y, "gate"), product(y, "up")
        silu = self.add("Mul", [gate, self.add("Sigmoid", [gate], f"open{index}")], f"silu{index}")
        down = product(self.add("Mul", [silu, up], f"inside{index}"), "down")
        return self.add("Add", [x, down], f"x{index + 1}")


def write_onnx(path: Path, shape: Shape, bits: int = 4, level: int = 0) -> None:
    """Writes the network with the `accuracy_level` that its products have."""
    g = _Graph(shape, bits, level, np.random.default_rng(0))
    table = g.rng.standard_normal((shape.words, shape.width)).astype(np.float32) * np.float32(0.02)
    x = g.add("Gather", [g.constant("table", table), "ids"], "x0")
    half = shape.size // 2
    angles = np.outer(np.arange(_PLACES), 1 / 10000 ** (np.arange(half) / half))
    g.constant("cos", np.cos(angles).astype(np.float32))
    g.constant("sin", np.sin(angles).astype(np.float32))
    for index in range(shape.layers):
        x = g.layer(x, index)
    g.product(g.norm(x, "last_norm"), "logits", shape.width, shape.words)
    caches = [f"{kind}{index}" for index in range(shape.layers) for kind in "kv"]
    info = helper.make_tensor_value_info

    def cache(name: str, length: str) -> onnx.ValueInfoProto:
        return info(name, TensorProto.FLOAT, [1, shape.groups, length, shape.size])

    inputs = [
        info("ids", TensorProto.INT64, [1, "new"]),
        info("last", TensorProto.INT32, [1]),
        info("total", TensorProto.INT32, [1]),
        *(cache(f"p{name}", "past") for name in caches),
    ]
    outputs = [
        info("logits", TensorProto.FLOAT, [1, "new", shape.words]),
        *(cache(f"o{name}", "all") for name in caches),
    ]
    graph = helper.make_graph(g.nodes, "llama", inputs, outputs, g.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def feeds(shape: Shape, past: int, new: int) -> dict[str, Array]:
    """Inputs for so many new tokens after `past` others."""
    rng = np.random.default_rng(1)
    arrays: dict[str, Array] = {
        "ids": rng.integers(0, shape.words, (1, new)),
        "last": np.array([past + new - 1], np.int32),
        "total": np.array([past + new], np.int32),
    }
    for index in range(shape.layers):
        for kind in "kv":
            size = 1, shape.groups, past, shape.size
            arrays[f"p{kind}{index}"] = rng.standard_normal(size).astype(np.float32)
    return arrays


def write_gguf(path: Path, shape: Shape, bits: int = 4) -> None:
    """Writes a network of the same shape for llama.cpp. Raises UserError where the package gguf is not installed."""
    try:  # it is not always there
        gguf: Any = importlib.import_module("gguf")
    except ModuleNotFoundError:
        raise UserError("gguf is not installed", note="pip install gguf llama-cpp-python") from None
    kind = {4: gguf.GGMLQuantizationType.Q4_0, 8: gguf.GGMLQuantizationType.Q8_0}[bits]
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(str(path), "llama")
    for method, value in (
        ("context_length", _PLACES), ("embedding_length", shape.width), ("block_count", shape.layers),
        ("feed_forward_length", shape.inside), ("head_count", shape.heads),
        ("head_count_kv", shape.groups), ("layer_norm_rms_eps", 1e-5),
        ("rope_dimension_count", shape.size), ("vocab_size", shape.words), ("tokenizer_model", "no_vocab"),
    ):  # fmt: skip
        getattr(writer, f"add_{method}")(value)

    def weights(name: str, rows: int, columns: int) -> None:
        array = rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(0.02)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(array, kind), raw_dtype=kind)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, np.float32))

    weights("token_embd", shape.words, shape.width)
    weights("output", shape.words, shape.width)
    ones("output_norm")
    names = {"o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    for index in range(shape.layers):
        ones(f"blk.{index}.attn_norm")
        ones(f"blk.{index}.ffn_norm")
        for name, depth, columns in shape.products:
            weights(f"blk.{index}.{names.get(name, f'attn_{name}')}", columns, depth)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
