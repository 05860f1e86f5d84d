"""Networks for text in plain torch beside the decoders: encoders, translation, and taggers with recurrence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.exports.transformers import Root

__all__ = ["ClipText", "DistilBert", "T5Decoder", "T5Encoder", "Tagger"]


class Heads(nn.Module):
    """Attention with a projection each for queries, keys and values; these may come from elsewhere."""

    def __init__(self, width: int, heads: int, *, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias)
        self.key, self.value = nn.Linear(width, width, bias), nn.Linear(width, width, bias)
        self.output = nn.Linear(width, width, bias)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def joined(self, x: Tensor) -> Tensor:
        return self.output(x.transpose(1, 2).reshape(x.shape[0], -1, x.shape[1] * x.shape[3]))


class Dense(Heads):
    """Attention as DistilBERT writes it: what is padding is filled with -inf."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3)
        hidden = (mask == 0).view(mask.shape[0], 1, 1, mask.shape[1]).expand_as(scores)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return self.joined(weights @ v)


class DistilBert(nn.Module):
    """DistilBERT (Sanh et al., 2019) with a head for classes: words and a mask of what is padding."""

    def __init__(
        self,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        words: int = 50,
        most: int = 64,
        classes: int = 2,
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.register_buffer("numbers", torch.arange(most).expand(1, -1), persistent=False)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.attention = nn.ModuleList([Dense(width, heads) for _ in range(layers)])
        self.layers = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(layers)
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width, eps=1e-12) for _ in range(2 * layers)])
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.words(ids) + self.places(self.numbers[:, : ids.shape[1]]))
        for index, (attention, layers) in enumerate(zip(self.attention, self.layers, strict=True)):
            x = self.norms[2 * index](attention(x, mask) + x)
            x = self.norms[2 * index + 1](layers(x) + x)
        return self.head(x[:, 0])


class Relative(Heads):
    """T5's attention: no scale, and a bias for each bucket of distances."""

    def __init__(
        self, width: int, heads: int, *, buckets: int = 32, far: int = 128, both: bool = True
    ) -> None:
        super().__init__(width, heads, bias=False)
        self.buckets, self.far, self.both = buckets, far, both
        self.table = nn.Embedding(buckets, heads)

    def bias(self, queries: int, keys: int) -> Tensor:
        """f32[1 x heads x queries x keys]; queries are the last places."""
        table = self.table.weight
        start = keys - queries
        query = torch.arange(start, keys, device=table.device)[:, None]
        apart = torch.arange(keys, device=table.device)[None] - query
        count, offset = self.buckets, torch.zeros_like(apart)
        if self.both:
            count //= 2
            offset = (apart > 0).to(torch.long) * count
            apart = apart.abs()
        else:
            apart = -torch.minimum(apart, torch.zeros_like(apart))
        exact = count // 2
        share = torch.log(apart.float() / exact) / math.log(self.far / exact)
        large = exact + (share * (count - exact)).to(torch.long)
        large = torch.minimum(large, torch.full_like(large, count - 1))
        return self.table(offset + torch.where(apart < exact, apart, large)).permute(2, 0, 1)[None]

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(3, 2) + bias
        return self.joined(functional.softmax(scores.float(), dim=-1) @ v)

    def step(self, x: Tensor, bias: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attends to keys and values that are known."""
        scores = self.split(self.query(x)) @ keys.transpose(3, 2) + bias
        return self.joined(functional.softmax(scores.float(), dim=-1) @ values)


class Feed(nn.Module):
    """Two layers after a normalization, added."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = Root(width)
        self.wide, self.narrow = nn.Linear(width, inner, False), nn.Linear(inner, width, False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(functional.relu(self.wide(self.norm(x))))


class T5Encoder(nn.Module):
    """The encoder of T5 (Raffel et al., 2019): words and a mask to states."""

    def __init__(
        self,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        words: int = 50,
        buckets: int = 8,
        far: int = 16,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.attention = nn.ModuleList(
            [Relative(width, heads, buckets=buckets, far=far) for _ in range(layers)]
        )
        self.feed = nn.ModuleList([Feed(width, 4 * width) for _ in range(layers)])
        self.norms = nn.ModuleList([Root(width) for _ in range(layers + 1)])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        bias = self.attention[0].bias(ids.shape[1], ids.shape[1]) + hidden
        for attention, feed, norm in zip(self.attention, self.feed, self.norms, strict=False):
            x = feed(x + attention(norm(x), bias))
        return self.norms[-1](x)


class T5Decoder(nn.Module):
    """The decoder of T5 with a cache: one word after those before, over the states of an encoder."""

    def __init__(
        self,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        words: int = 50,
        buckets: int = 8,
        far: int = 16,
    ) -> None:
        super().__init__()
        self.width, self.words = width, nn.Embedding(words, width)
        self.attention = nn.ModuleList(
            [Relative(width, heads, buckets=buckets, far=far, both=False) for _ in range(layers)]
        )
        self.across = nn.ModuleList([Heads(width, heads, bias=False) for _ in range(layers)])
        self.feed = nn.ModuleList([Feed(width, 4 * width) for _ in range(layers)])
        self.norms = nn.ModuleList([Root(width) for _ in range(2 * layers + 1)])

    def forward(
        self, ids: Tensor, states: Tensor, mask: Tensor, past: list[tuple[Tensor, Tensor]]
    ) -> list[Tensor]:
        x, length, seen = self.words(ids), ids.shape[1], past[0][0].shape[2]
        lowest = torch.finfo(x.dtype).min
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * lowest
        bias = self.attention[0].bias(length, seen + length)
        later = torch.ones(length, seen + length, dtype=torch.bool, device=x.device).triu(seen + 1)
        bias = bias.masked_fill(later, lowest)
        present: list[Tensor] = []
        for index, (attention, across) in enumerate(zip(self.attention, self.across, strict=True)):
            y = self.norms[2 * index](x)
            keys = torch.cat([past[index][0], attention.split(attention.key(y))], 2)
            values = torch.cat([past[index][1], attention.split(attention.value(y))], 2)
            present += [keys, values]
            x = x + attention.step(y, bias, keys, values)
            q = across.split(across.query(self.norms[2 * index + 1](x)))
            scores = q @ across.split(across.key(states)).transpose(3, 2) + hidden
            x = x + across.joined(scores.softmax(-1) @ across.split(across.value(states)))
            x = self.feed[index](x)
        x = self.norms[-1](x) * self.width**-0.5
        return [x @ self.words.weight.T, *present]


class ClipText(nn.Module):
    """CLIP's encoder of text (Radford et al., 2021): the state of the word with the highest number, projected."""

    def __init__(
        self,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        words: int = 50,
        most: int = 77,
        outputs: int = 16,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(most, width) * 0.1)
        self.attention = nn.ModuleList([Heads(width, heads) for _ in range(layers)])
        self.wide = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(layers)])
        self.narrow = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.projection = nn.Parameter(torch.randn(width, outputs) * width**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.words(ids) + self.places[:length]
        hidden = torch.full((length, length), -math.inf, device=x.device).triu(1)
        for index, attention in enumerate(self.attention):
            y = self.norms[2 * index](x)
            q, k, v = (
                attention.split(part(y))
                for part in (attention.query, attention.key, attention.value)
            )
            sums = functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
            x = x + attention.joined(sums)
            y = self.wide[index](self.norms[2 * index + 1](x))
            x = x + self.narrow[index](y * torch.sigmoid(1.702 * y))
        x = self.norms[-1](x)
        x = x[torch.arange(x.shape[0], device=x.device), ids.argmax(-1)] @ self.projection
        return x / x.norm(dim=-1, keepdim=True)


class Tagger(nn.Module):
    """A class for each word, by recurrence in both directions."""

    def __init__(
        self,
        kind: str = "LSTM",
        width: int = 16,
        inner: int = 12,
        layers: int = 2,
        words: int = 50,
        tags: int = 5,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = {"LSTM": nn.LSTM, "GRU": nn.GRU}[kind]
        self.recurrent = layer(
            width, inner, num_layers=layers, batch_first=True, bidirectional=True
        )
        self.head = nn.Linear(2 * inner, tags)

    def forward(self, ids: Tensor) -> Tensor:
        x, _ = self.recurrent(self.words(ids))
        return self.head(x).log_softmax(-1)
