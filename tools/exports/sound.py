"""Networks for sound in plain torch: an encoder of speech, and a classifier of samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.exports.text import Heads

__all__ = ["SoundClassifier", "Whisper"]


def _sinusoids(length: int, width: int) -> Tensor:
    steps = torch.exp(-math.log(10000) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.arange(length)[:, None] * steps[None]
    return torch.cat([angles.sin(), angles.cos()], 1)


class Whisper(nn.Module):
    """The encoder of Whisper (Radford et al., 2022): log-mel f32[n x mels x 2*length] to states."""

    def __init__(
        self, width: int = 32, heads: int = 4, layers: int = 2, mels: int = 20, length: int = 24
    ) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("places", _sinusoids(length, width))
        self.attention = nn.ModuleList([Heads(width, heads) for _ in range(layers)])
        self.layers = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(layers)
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])

    def forward(self, mel: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(mel))))
        x = x.permute(0, 2, 1) + self.places
        for index, (attention, layers) in enumerate(zip(self.attention, self.layers, strict=True)):
            y = self.norms[2 * index](x)
            scale = (y.shape[-1] // attention.heads) ** -0.25
            q, k = attention.split(attention.query(y)), attention.split(attention.key(y))
            weights = ((q * scale) @ (k * scale).transpose(-1, -2)).softmax(-1)
            x = x + attention.joined(weights @ attention.split(attention.value(y)))
            x = x + layers(self.norms[2 * index + 1](x))
        return self.norms[-1](x)


def _mel(bins: int, mels: int, rate: int) -> Tensor:
    """f32[bins x mels]: triangles with equal steps between them on the mel scale."""
    highest = 2595 * math.log10(1 + rate / 2 / 700)
    points = 700 * (10 ** (torch.linspace(0, highest, mels + 2) / 2595) - 1)
    hertz = torch.linspace(0, rate / 2, bins)[:, None]
    low, middle, high = points[:-2], points[1:-1], points[2:]
    return torch.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)).clamp(0)


class SoundClassifier(nn.Module):
    """Samples f32[n x length] to classes, through log-mel of their spectrum.

    With `transform` "stft" the spectrum is torch's, with "conv" a convolution with waves.
    """

    def __init__(
        self,
        transform: str = "stft",
        window: int = 64,
        hop: int = 32,
        mels: int = 12,
        width: int = 8,
        classes: int = 6,
    ) -> None:
        super().__init__()
        self.transform, self.window, self.hop = transform, window, hop
        self.register_buffer("hann", torch.hann_window(window))
        bins = window // 2 + 1
        self.register_buffer("mel", _mel(bins, mels, 16000))
        angles = 2 * math.pi * torch.arange(bins)[:, None] * torch.arange(window)[None] / window
        waves = torch.cat([angles.cos(), -angles.sin()]) * torch.hann_window(window)
        self.register_buffer("waves", waves[:, None])
        layers: list[nn.Module] = []
        inputs = 1
        for outputs in (width, 2 * width, 4 * width):
            layers += [
                nn.Conv2d(inputs, outputs, 3, padding=1),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.AvgPool2d(2),
            ]
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def power(self, samples: Tensor) -> Tensor:
        """f32[n x bins x frames]."""
        if self.transform == "stft":
            parts = torch.stft(
                samples,
                self.window,
                self.hop,
                window=self.hann,
                center=True,
                return_complex=False,
                onesided=True,
            )
            return parts.pow(2).sum(-1)
        half = self.window // 2
        samples = functional.pad(samples[:, None], (half, half), mode="reflect")
        real, imaginary = functional.conv1d(samples, self.waves, stride=self.hop).chunk(2, 1)
        return real**2 + imaginary**2

    def forward(self, samples: Tensor) -> Tensor:
        mel = (self.power(samples).transpose(1, 2) @ self.mel).clamp(min=1e-10).log10()
        x = self.layers(mel[:, None])
        return self.head(x.mean(3).amax(2)).softmax(-1)
