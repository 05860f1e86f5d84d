"""Operators of onnxruntime with open dimensions: one compilation serves all batches and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.session.preparation import CompileEvent

F, I32, I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
HEADS, SIZE = 4, 8
WIDTH = HEADS * SIZE
SIZES = [
    {"B": 2, "S": 3, "L": 5, "P": 4, "M": 7},
    {"B": 3, "S": 7, "L": 6, "P": 9, "M": 12},
    {"B": 4, "S": 4, "L": 4, "P": 3, "M": 5},
]
Port = tuple[str, int, Sequence[int | str]]
NONE: Port = "", 0, ()
RNG = np.random.default_rng(0)


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def port(name: str, *shape: int | str, kind: int = F) -> Port:
    return name, kind, shape


@dataclass
class Case:
    """A node, with open inputs, constants by name, and arrays that are no random ones."""

    operator: str
    inputs: Sequence[Port]
    kinds: Sequence[int] = (F,)
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    compiled: bool = False

    @property
    def model(self) -> ModelProto:
        constants = [numpy_helper.from_array(array, n) for n, array in self.constants.items()]
        names = [name for name, _, _ in self.inputs]
        ports = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in self.inputs
            if name and name not in self.constants
        ]
        outs = [f"out{index}" for index in range(len(self.kinds))]
        node = helper.make_node(
            self.operator, names, outs, "node", domain="com.microsoft", **self.attrs
        )
        infos = [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(outs, self.kinds, strict=True)
        ]
        graph = helper.make_graph([node], "net", ports, infos, constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self, sizes: dict[str, int]) -> dict[str, Array]:
        arrays = {}
        for name, kind, shape in self.inputs:
            if not name or name in self.constants:
                continue
            extents = [sizes[dim] if isinstance(dim, str) else dim for dim in shape]
            if name in self.given:
                dtype = helper.tensor_dtype_to_np_dtype(kind)
                arrays[name] = np.broadcast_to(self.given[name](sizes), extents).astype(dtype)
            else:
                arrays[name] = weights(*extents)
        return arrays


X = port("x", "B", "S", WIDTH)
QKV = [port("q", "B", "S", WIDTH), port("k", "B", "L", WIDTH), port("v", "B", "L", WIDTH)]
OWN = [port(name, "B", "S", WIDTH) for name in "qkv"]
NUM = {"num_heads": HEADS}
PROJECTION = {"w": weights(WIDTH, 3 * WIDTH), "b": weights(3 * WIDTH)}
PROJECTED = [X, port("w"), port("b")]
NORM = {"g": weights(WIDTH), "b": weights(WIDTH), "c": weights(WIDTH)}
TABLES = {name: weights(16, WIDTH) for name in ("words", "places", "parts")}


def kept(sizes: dict[str, int]) -> Array:
    """A mask that hides the last key."""
    return np.arange(sizes["L"]) < sizes["L"] - 1


GROUPS, DEPTH = 2, 16
SHARED = {"num_heads": HEADS, "kv_num_heads": GROUPS}
TURNS = {name: weights(16, DEPTH // 2) for name in ("cos", "sin")}


def grouped(batch: int | str, new: int | str, past: str = "", **attrs: Any) -> Case:
    """Queries that share keys, of which the last batch lacks the last one if there is a single new one."""
    shape = (batch, GROUPS, past, DEPTH)
    caches = [port(name, *shape) if past else NONE for name in ("pk", "pv")]
    groups = [port(name, batch, new, GROUPS * DEPTH) for name in "kv"]
    turns = [port(name) for name in TURNS] if attrs else []

    def total(sizes: dict[str, int]) -> int:
        return (sizes["P"] if past else 0) + (sizes[new] if isinstance(new, str) else new)

    def ends(sizes: dict[str, int]) -> Array:
        count = sizes[batch] if isinstance(batch, str) else batch
        is_short = (np.arange(count) == count - 1) & (new == 1)
        return np.where(is_short, total(sizes) - 2, total(sizes) - 1)

    return Case(
        "GroupQueryAttention",
        [
            port("q", batch, new, HEADS * DEPTH),
            *groups,
            *caches,
            port("ends", batch, kind=I32),
            port("total", kind=I32),
            *turns,
        ],
        kinds=(F, F, F),
        attrs={**SHARED, **attrs},
        constants=TURNS if attrs else {},
        given={"ends": ends, "total": total},
        compiled=past == "M",
    )


CASES = {
    "Attention": Case("Attention", PROJECTED, attrs=NUM, constants=PROJECTION),
    "Attention, past": Case(
        "Attention",
        [*PROJECTED, NONE, port("past", 2, "B", HEADS, "P", SIZE)],
        kinds=(F, F),
        attrs={**NUM, "unidirectional": 1},
        constants=PROJECTION,
        compiled=True,
    ),
    "Attention, lengths": Case(
        "Attention",
        [*PROJECTED, port("m", "B", kind=I32)],
        attrs=NUM,
        constants=PROJECTION,
        given={"m": lambda sizes: sizes["S"] - 1},
    ),
    "Attention, dummy mask": Case(
        "Attention",
        [*PROJECTED, port("m", 1, 1, kind=I32)],
        attrs=NUM,
        constants=PROJECTION,
        given={"m": lambda sizes: 0},
    ),
    "Attention, bias": Case(
        "Attention",
        [*PROJECTED, NONE, NONE, port("r", "B", HEADS, "S", "S")],
        attrs=NUM,
        constants=PROJECTION,
    ),
    "MultiHeadAttention": Case("MultiHeadAttention", QKV, attrs=NUM),
    "MultiHeadAttention, mask": Case(
        "MultiHeadAttention",
        [*QKV, NONE, port("m", "B", "L", kind=I32)],
        attrs=NUM,
        given={"m": kept},
        compiled=True,
    ),
    "MultiHeadAttention, mask for queries": Case(
        "MultiHeadAttention",
        [*QKV, NONE, port("m", "B", "S", "L", kind=I32)],
        attrs=NUM,
        given={"m": kept},
    ),
    "MultiHeadAttention, bias": Case(
        "MultiHeadAttention",
        [*QKV, NONE, NONE, port("r", 1, HEADS, "S", "L")],
        attrs=NUM,
    ),
    "MultiHeadAttention, heads": Case(
        "MultiHeadAttention",
        [QKV[0], port("k", "B", HEADS, "L", SIZE), port("v", "B", HEADS, "L", SIZE)],
        attrs=NUM,
    ),
    "MultiHeadAttention, past": Case(
        "MultiHeadAttention",
        [*OWN, port("bias"), NONE, NONE]
        + [port(name, "B", HEADS, "P", SIZE) for name in ("pk", "pv")],
        kinds=(F, F, F),
        attrs=NUM,
        constants={"bias": weights(3 * WIDTH)},
    ),
    "DecoderMaskedMultiHeadAttention": Case(
        "DecoderMaskedMultiHeadAttention",
        [*(port(name, "B", 1, WIDTH) for name in "qkv"), NONE, NONE]
        + [port(name, "B", HEADS, "M", SIZE) for name in ("pk", "pv")]
        + [port("past", 1, kind=I32)],
        kinds=(F, F, F),
        attrs={**NUM, "past_present_share_buffer": 1},
        given={"past": lambda sizes: sizes["P"]},
    ),
    "GroupQueryAttention": grouped("B", "S", do_rotary=1),
    "GroupQueryAttention, past": grouped("B", 1, "P", do_rotary=1),
    "GroupQueryAttention, room": grouped("B", 1, "M"),
    "GroupQueryAttention, window": grouped("B", 1, "M", local_window_size=2, do_rotary=1),
    "GroupQueryAttention, new ones": grouped(1, "S", "P", smooth_softmax=1, do_rotary=1),
    "RotaryEmbedding": Case(
        "RotaryEmbedding",
        [X, port("p", "B", "S", kind=I64), port("cos"), port("sin")],
        constants={"cos": weights(16, SIZE // 2), "sin": weights(16, SIZE // 2)},
        given={"p": lambda sizes: np.arange(sizes["S"])},
    ),
    "RotaryEmbedding, first": Case(
        "RotaryEmbedding",
        [X, port("p", 1, kind=I64), port("cos"), port("sin")],
        constants={"cos": weights(16, SIZE // 2), "sin": weights(16, SIZE // 2)},
        given={"p": lambda sizes: sizes["P"] - 3},
    ),
    "SkipLayerNormalization": Case(
        "SkipLayerNormalization",
        [X, port("skip", "B", "S", WIDTH), port("g"), port("b"), port("c")],
        constants=NORM,
        compiled=True,
    ),
    "SkipLayerNormalization, one for all": Case(
        "SkipLayerNormalization",
        [X, port("skip", 1, "S", WIDTH), port("g"), port("b")],
        constants={name: NORM[name] for name in "gb"},
    ),
    "SkipSimplifiedLayerNormalization": Case(
        "SkipSimplifiedLayerNormalization",
        [X, port("skip", "B", "S", WIDTH), port("g")],
        constants={"g": NORM["g"]},
    ),
    "EmbedLayerNormalization": Case(
        "EmbedLayerNormalization",
        [
            port("ids", "B", "S", kind=I32),
            port("segments", "B", "S", kind=I32),
            *(port(name) for name in (*TABLES, "g", "b")),
            port("m", "B", "S", kind=I32),
        ],
        kinds=(F, I32),
        constants={**TABLES, "g": NORM["g"], "b": NORM["b"]},
        given={name: lambda sizes: np.arange(sizes["S"]) for name in ("ids", "segments", "m")},
    ),
    "BiasGelu": Case("BiasGelu", [X, port("b")], constants={"b": NORM["b"]}),
    "FastGelu": Case("FastGelu", [X, port("b")], constants={"b": NORM["b"]}),
    "ExpandDims": Case("ExpandDims", [X, port("a")], constants={"a": np.array(1, np.int32)}),
    "Inverse": Case(
        "Inverse",
        [port("x", "B", "S", 3, 3)],
        given={"x": lambda sizes: np.eye(3) * 2 + np.tri(3)},
    ),
}


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "interpreter") for name in CASES]
    + [(name, "cpu") for name, case in CASES.items() if case.compiled],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_one_compilation_serves_all_extents(name: str, backend: str) -> None:
    case = CASES[name]
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(case.model, backend=backend, on_compile=events.append)
    reference = ort.InferenceSession(case.model.SerializeToString())
    for sizes in SIZES:
        feeds = case.feeds(sizes)
        expected = reference.run(None, feeds)
        for result, array in zip(session.run(None, feeds), expected, strict=True):
            assert result.shape == array.shape
            np.testing.assert_allclose(result, array, 1e-4, 1e-5)
    assert len(events) == 1


def test_dimensions_with_other_names_are_found_to_be_equal() -> None:
    """Exporters give each input names of its own: what has to be equal is learned, and what is not is told."""
    ports = [port("q", "a", "b", WIDTH), port("k", "c", "d", WIDTH), port("v", "e", "f", WIDTH)]
    case = Case("MultiHeadAttention", ports, attrs=NUM)
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(case.model, backend="interpreter", on_compile=events.append)
    reference = ort.InferenceSession(case.model.SerializeToString())
    for batch, length, keys in ((2, 3, 5), (4, 7, 2), (3, 6, 6)):
        shapes = {"q": (batch, length), "k": (batch, keys), "v": (batch, keys)}
        feeds = {name: weights(*shape, WIDTH) for name, shape in shapes.items()}
        (result,), (expected,) = session.run(None, feeds), reference.run(None, feeds)
        np.testing.assert_allclose(result, expected, 1e-4, 1e-5)
    assert len(events) == 1
    feeds["k"] = weights(3, 4, WIDTH)
    with pytest.raises(glowpy.UserError):
        session.run(None, feeds)
