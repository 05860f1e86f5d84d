"""Layers that PyTorch computes by a single operator when a model is evaluated, in operators that it can export.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` take such a fast path without gradients. Both functions here
have the parameters of the operator that they stand for, and compute what it computes: masks are true where nothing is
to be attended to, and those of floats wherever they are not 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

__all__ = ["LAYERS"]


def _attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    """Attention over tensors[batch x length x embed_dim], and its weights if they are needed.

    `mask_type` says what a mask is for: 0 for queries and keys, 1 for the keys of each example, 2 for all heads.
    """
    sides = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        functional.linear(x, weight, bias).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for x, weight, bias in sides
    )
    scores = q @ k.transpose(-2, -1) / math.sqrt(embed_dim // num_heads)
    if mask is not None:
        masked = mask[:, None, None, :] if mask_type == 1 else mask
        scores = scores.masked_fill(masked.to(torch.bool), -math.inf)
    weights = scores.softmax(-1)
    result = functional.linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, None
    return result, weights.mean(1) if average_attn_weights else weights


def _encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """Attention and two products, each with what goes in added and normalized."""

    def attend(x: Any) -> Any:
        parameters = embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias
        return _attention(x, x, x, *parameters, mask, need_weights=False, mask_type=mask_type)[0]

    def feed(x: Any) -> Any:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm_1(x: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attend(norm_1(src))
        return src + feed(norm_2(src))
    src = norm_1(src + attend(src))
    return norm_2(src + feed(src))


LAYERS: Mapping[Any, Callable[..., Any]] = {
    torch._native_multi_head_attention: _attention,
    torch._transformer_encoder_layer_fwd: _encoder_layer,
}
"""Replacements of operators in an exported graph."""
