"""Transformers for text in plain torch, with and without a cache."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Bert", "Block", "Cached", "Gpt", "Llama", "Prefill", "Root"]

_LOWEST = torch.finfo(torch.float32).min
_GELU = math.sqrt(2.0 / math.pi)


class Attention(nn.Module):
    """Heads over one projection for queries, keys and values, as in BERT and in a vision transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projection = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        parts = self.projection(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores + mask
        sums = scores.softmax(-1) @ v
        return self.output(sums.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A layer that normalizes after attention, or before it."""

    def __init__(self, width: int, heads: int, *, before: bool) -> None:
        super().__init__()
        self.before = before
        self.attention = Attention(width, heads)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.before:
            x = x + self.attention(self.norms[0](x), mask)
            return x + self.layers(self.norms[1](x))
        x = self.norms[0](x + self.attention(x, mask))
        return self.norms[1](x + self.layers(x))


class Bert(nn.Module):
    """Tokens, their types and a mask of what is padding, to states and a pooled vector."""

    def __init__(
        self, width: int = 32, heads: int = 4, layers: int = 2, most: int = 128, words: int = 50
    ) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(words, width), nn.Embedding(2, width)
        self.places = nn.Embedding(most, width)
        self.register_buffer("numbers", torch.arange(most).expand(1, -1), persistent=False)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([Block(width, heads, before=False) for _ in range(layers)])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        places = self.places(self.numbers[:, : ids.shape[1]])
        x = self.norm(self.words(ids) + self.types(types) + places)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * _LOWEST
        for block in self.blocks:
            x = block(x, hidden)
        return x, self.pooler(x[:, 0]).tanh()


class Gpt(nn.Module):
    """A decoder without a cache, whose attention is torch's own with its causal mask."""

    def __init__(
        self, width: int = 32, heads: int = 4, layers: int = 2, most: int = 128, words: int = 50
    ) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.projections = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.outputs = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(layers + 1)])

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length))
        for projection, output, norm in zip(
            self.projections, self.outputs, self.norms, strict=False
        ):
            q, k, v = (
                part.view(batch, length, self.heads, -1).transpose(1, 2)
                for part in projection(norm(x)).chunk(3, -1)
            )
            sums = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + output(sums.transpose(1, 2).reshape(batch, length, -1))
        return self.norms[-1](x) @ self.words.weight.T


class Cached(nn.Module):
    """A decoder with a cache: its mask is a slice of a triangle, and GELU is spelled out, as in the first GPT-2."""

    def __init__(
        self, width: int = 32, heads: int = 4, layers: int = 2, most: int = 128, words: int = 50
    ) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.projections = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.outputs = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.wide = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(layers)])
        self.narrow = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        triangle = torch.tril(torch.ones(most, most, dtype=torch.bool))
        self.register_buffer("triangle", triangle[None, None], persistent=False)

    def forward(self, ids: Tensor, mask: Tensor, past: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        batch, length = ids.shape
        seen = past[0][0].shape[2]
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, seen:]
        x = self.words(ids) + self.places(places)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * _LOWEST
        present = []
        for index, projection in enumerate(self.projections):
            q, k, v = (
                part.view(batch, length, self.heads, -1).transpose(1, 2)
                for part in projection(self.norms[2 * index](x)).split(x.shape[-1], -1)
            )
            k, v = torch.cat([past[index][0], k], 2), torch.cat([past[index][1], v], 2)
            present += [k, v]
            scores = q @ k.transpose(-1, -2) / v.shape[-1] ** 0.5
            total = k.shape[2]
            causal = self.triangle[:, :, total - length : total, :total]
            scores = torch.where(causal, scores, torch.full([], _LOWEST)) + hidden
            sums = scores.softmax(-1) @ v
            x = x + self.outputs[index](sums.transpose(1, 2).reshape(batch, length, -1))
            y = self.wide[index](self.norms[2 * index + 1](x))
            gelu = 0.5 * y * (1.0 + torch.tanh(_GELU * (y + 0.044715 * torch.pow(y, 3.0))))
            x = x + self.narrow[index](gelu)
        return [self.norms[-1](x) @ self.words.weight.T, *present]


class Prefill(Cached):
    """The same before its first step: it takes no cache, and gives one."""

    def forward(self, ids: Tensor, mask: Tensor) -> list[Tensor]:  # type: ignore[override]
        size = self.words.embedding_dim // self.heads
        none = torch.zeros(ids.shape[0], self.heads, 0, size)
        return super().forward(ids, mask, [(none, none)] * len(self.projections))


class Root(nn.Module):
    """RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def _halves_turned(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def _repeated(x: Tensor, times: int) -> Tensor:
    """Each head of keys or values for several of queries."""
    batch, heads, length, width = x.shape
    wide = x[:, :, None].expand(batch, heads, times, length, width)
    return wide.reshape(batch, heads * times, length, width)


class Llama(nn.Module):
    """A decoder with a cache, grouped queries, rotary positions, RMSNorm, and a mask made from positions."""

    def __init__(
        self, width: int = 32, heads: int = 4, groups: int = 2, layers: int = 2, words: int = 50
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        kept = groups * self.size
        self.words = nn.Embedding(words, width)
        self.queries = nn.ModuleList([nn.Linear(width, width, False) for _ in range(layers)])
        self.keys = nn.ModuleList([nn.Linear(width, kept, False) for _ in range(layers)])
        self.values = nn.ModuleList([nn.Linear(width, kept, False) for _ in range(layers)])
        self.outputs = nn.ModuleList([nn.Linear(width, width, False) for _ in range(layers)])
        self.gates = nn.ModuleList([nn.Linear(width, 2 * width, False) for _ in range(layers)])
        self.ups = nn.ModuleList([nn.Linear(width, 2 * width, False) for _ in range(layers)])
        self.downs = nn.ModuleList([nn.Linear(2 * width, width, False) for _ in range(layers)])
        self.norms = nn.ModuleList([Root(width) for _ in range(2 * layers + 1)])
        steps = torch.arange(0, self.size, 2).float() / self.size
        self.register_buffer("frequencies", 1.0 / 10000.0**steps, persistent=False)

    def _mask(self, mask: Tensor, places: Tensor, length: int) -> Tensor:
        """The mask of the tokens that one must not look at: later ones, and padding."""
        total = mask.shape[-1]
        hidden = torch.full((length, total), _LOWEST)
        hidden = hidden * (torch.arange(total)[None] > places[:, None])
        hidden = hidden[None, None].expand(mask.shape[0], 1, -1, -1)
        padding = hidden + (1.0 - mask[:, None, None, :].float())
        return hidden.masked_fill((mask[:, None, None, :] == 0) & (padding > _LOWEST), _LOWEST)

    def forward(self, ids: Tensor, mask: Tensor, past: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        batch, length = ids.shape
        seen = past[0][0].shape[2]
        places = torch.arange(seen, seen + length)
        angles = places[None, :, None].float() @ self.frequencies[None, None, :]
        angles = torch.cat([angles, angles], -1)[:, None]
        cos, sin = angles.cos(), angles.sin()
        hidden = self._mask(mask, places, length)
        x, present = self.words(ids), []
        for index in range(len(self.queries)):
            y = self.norms[2 * index](x)
            q, k, v = (
                layer(y).view(batch, length, -1, self.size).transpose(1, 2)
                for layer in (self.queries[index], self.keys[index], self.values[index])
            )
            q, k = (part * cos + _halves_turned(part) * sin for part in (q, k))
            k, v = torch.cat([past[index][0], k], 2), torch.cat([past[index][1], v], 2)
            present += [k, v]
            k, v = (_repeated(part, self.heads // self.groups) for part in (k, v))
            sums = functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
            x = x + self.outputs[index](sums.transpose(1, 2).reshape(batch, length, -1))
            y = self.norms[2 * index + 1](x)
            gated = functional.silu(self.gates[index](y)) * self.ups[index](y)
            x = x + self.downs[index](gated)
        return [self.norms[-1](x) @ self.words.weight.T, *present]
