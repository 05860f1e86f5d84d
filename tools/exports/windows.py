"""Vision transformers in plain torch: over all of an image, and over windows of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.exports.transformers import Block

__all__ = ["Swin", "Vit"]


class Vit(nn.Module):
    """Patches of an image to classes; with `sizes`, positions are interpolated to the image."""

    def __init__(
        self,
        *,
        sizes: bool = False,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        patch: int = 8,
        grid: int = 4,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.sizes, self.grid = sizes, grid
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.places = nn.Parameter(torch.randn(1, grid * grid + 1, width) * 0.1)
        self.blocks = nn.ModuleList([Block(width, heads, before=True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)
        batch, width, height, breadth = x.shape
        x = x.flatten(2).transpose(1, 2)
        places = self.places
        if self.sizes:
            grid = places[:, 1:].reshape(1, self.grid, self.grid, width).permute(0, 3, 1, 2)
            grid = functional.interpolate(
                grid, size=(height, breadth), mode="bicubic", align_corners=False
            )
            places = torch.cat([places[:, :1], grid.permute(0, 2, 3, 1).reshape(1, -1, width)], 1)
        x = torch.cat([self.first.expand(batch, -1, -1), x], 1) + places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def _split(x: Tensor, window: int) -> Tensor:
    """Windows f32[m x window^2 x c] of f32[n x h x w x c]."""
    batch, height, breadth, width = x.shape
    x = x.view(batch, height // window, window, breadth // window, window, width)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, width)


def _joined(x: Tensor, window: int, height: int, breadth: int) -> Tensor:
    """The images that the windows were."""
    x = x.view(-1, height // window, breadth // window, window, window, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, breadth, x.shape[-1])


class Windows(nn.Module):
    """Attention inside windows, with a bias for each distance; with `shift`, of the image rolled by that much."""

    def __init__(self, width: int, heads: int, window: int, shift: int, size: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.projection, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.2)
        place = torch.arange(window)
        rows, columns = torch.meshgrid(place, place, indexing="ij")
        places = torch.stack([rows.flatten(), columns.flatten()])
        apart = places[:, :, None] - places[:, None] + window - 1
        self.register_buffer("apart", apart[0] * (2 * window - 1) + apart[1])
        self.register_buffer("mask", self._mask(size) if shift else None)

    def _mask(self, size: int) -> Tensor:
        """Which pixels of a window are neighbours in the image."""
        parts = torch.zeros(1, size, size, 1)
        ends = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for number, (row, column) in enumerate((a, b) for a in ends for b in ends):
            parts[:, row, column] = number
        names = _split(parts, self.window)[..., 0]
        return torch.where(names[:, None] == names[:, :, None], 0.0, -100.0)

    def forward(self, x: Tensor) -> Tensor:
        _, height, breadth, width = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = _split(x, self.window)
        count, length, _ = x.shape
        parts = self.projection(x).reshape(count, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.apart.view(-1)].view(length, length, -1)
        scores = scores + bias.permute(2, 0, 1).unsqueeze(0)
        if self.shift:
            mask, number = self.mask, self.mask.shape[0]
            scores = scores.view(count // number, number, self.heads, length, length)
            scores = (scores + mask[:, None].unsqueeze(0)).view(-1, self.heads, length, length)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(count, length, width)
        x = _joined(self.output(x), self.window, height, breadth)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class Merge(nn.Module):
    """Four neighbours to one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.layer = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.layer(self.norm(torch.cat(parts, -1)))


class Layer(nn.Module):
    """Attention inside windows, then two layers."""

    def __init__(self, width: int, heads: int, window: int, shift: int, size: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Windows(width, heads, window, shift, size)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.layers(self.norms[1](x))


class Swin(nn.Module):
    """Swin-T (Liu et al., 2021) with `width` 96, `size` 224, `window` 7 and `depths` (2, 2, 6, 2)."""

    def __init__(
        self,
        width: int = 16,
        size: int = 32,
        window: int = 4,
        depths: Sequence[int] = (2, 2),
        head: int = 8,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.patches, size = nn.Conv2d(3, width, 4, 4), size // 4
        self.first = nn.LayerNorm(width)
        parts: list[nn.Module] = []
        for index, depth in enumerate(depths):
            if index:
                parts.append(Merge(width))
                width, size = 2 * width, size // 2
            for place in range(depth):
                shift = window // 2 if place % 2 and size > window else 0
                parts.append(Layer(width, width // head, window, shift, size))
        self.parts = nn.Sequential(*parts)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first(self.patches(image).permute(0, 2, 3, 1))
        return self.head(self.norm(self.parts(x)).mean([1, 2]))
