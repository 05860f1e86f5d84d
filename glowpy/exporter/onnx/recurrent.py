"""Recurrent cells. Ours read the sums of the input's products; those of ONNX multiply, here by the identity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import GruNode, LstmNode, RnnNode
from glowpy.ops.recurrent import ALPHAS, BETAS, FUNCTIONS

__all__: list[str] = []

_Cell = LstmNode | GruNode | RnnNode


@to_onnx(LstmNode)
def _lstm(g: OnnxGraph, n: LstmNode) -> None:
    peepholes = ""
    if not n.peepholes.type.is_empty:
        size = n.peepholes.type.extents[0] * n.peepholes.type.extents[1]
        peepholes = g.add("Reshape", g.operand(n.peepholes), g.ints("shape", (1, size)))
    states = [_with_direction(g, n.initial_h), _with_direction(g, n.initial_c)]
    _write(g, n, "LSTM", "", [*states, peepholes], input_forget=int(n.coupled))


@to_onnx(GruNode)
def _gru(g: OnnxGraph, n: GruNode) -> None:
    bias = ""
    if n.reset_after:
        units = n.initial_h.type.extents[1]
        zeros = g.constant("zeros", np.zeros(5 * units, n.type.kind.dtype))
        bias = g.add("Concat", zeros, g.operand(n.bias), axis=0)
        bias = g.add("Unsqueeze", bias, g.ints("axes", [0]))
    states = [_with_direction(g, n.initial_h)]
    _write(g, n, "GRU", bias, states, linear_before_reset=int(n.reset_after))


@to_onnx(RnnNode)
def _rnn(g: OnnxGraph, n: RnnNode) -> None:
    _write(g, n, "RNN", "", [_with_direction(g, n.initial_h)])


def _with_direction(g: OnnxGraph, value: NodeValue) -> str:
    return g.add("Unsqueeze", g.operand(value), g.ints("axes", [0]))


def _write(
    g: OnnxGraph, n: _Cell, op_type: str, bias: str, others: list[str], **attributes: Any
) -> None:
    """The operator; there is one direction, in front of the sequences."""
    coefficients = n.coefficients.constant
    if coefficients is None:
        g.refuse("expected coefficients that are constant")
        return
    gates, units, _ = n.recurrence.type.extents
    names = [FUNCTIONS[function] for function in n.functions]
    table = coefficients.tensor.array.astype(np.float64).tolist()
    attributes |= {"hidden_size": units, "activations": names}
    for key, taken, column in (("activation_alpha", ALPHAS, 0), ("activation_beta", BETAS, 1)):
        numbers = [row[column] for name, row in zip(names, table, strict=True) if name in taken]
        if numbers:
            attributes[key] = numbers
    if n.reverse:
        attributes["direction"] = "reverse"
    if not math.isinf(n.limit):
        attributes["clip"] = n.limit
    identity = g.constant("identity", np.eye(gates * units, dtype=n.type.kind.dtype)[np.newaxis])
    matrices = g.add("Transpose", g.operand(n.recurrence), perm=(0, 2, 1))
    matrices = g.add("Reshape", matrices, g.ints("shape", (1, gates * units, units)))
    lengths = "" if n.lengths.type.is_empty else g.operand(n.lengths)
    outputs = g.add_all(
        op_type, g.operand(n.gates), identity, matrices, bias, lengths, *others,
        outputs=g.names("all", len(n.results)), **attributes,
    )  # fmt: skip
    for index, output in enumerate(outputs):
        g.result("Squeeze", output, g.ints("axes", [int(index == 0)]), index=index)
