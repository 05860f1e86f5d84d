"""Convolutional networks for images in plain torch: classifiers, segmentation, detection, super-resolution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "ConvNeXt",
    "DeepLab",
    "Detector",
    "EfficientNet",
    "Generator",
    "MobileNet",
    "ResNet",
    "UNet",
    "suppressed",
]


def _conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    dilation: int = 1,
    act: nn.Module | None = None,
) -> nn.Sequential:
    """A convolution without bias, a normalization over the batch, and perhaps an activation."""
    pad = dilation * (kernel - 1) // 2
    layer = nn.Conv2d(inputs, outputs, kernel, stride, pad, dilation, groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), *([act] if act is not None else []))


class Basic(nn.Module):
    """Two 3x3 convolutions beside a way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _conv(inputs, outputs, 3, stride, act=nn.ReLU(inplace=True))
        self.second = _conv(outputs, outputs)
        same = stride == 1 and inputs == outputs
        self.past = nn.Identity() if same else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(self.first(x)) + self.past(x))


class ResNet(nn.Module):
    """ResNet-18 (He et al., 2015) if `width` is 64."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.input = _conv(3, width, 7, 2, act=nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks: list[nn.Module] = []
        for index in range(4):
            blocks.append(Basic(widths[index], widths[index + 1], 1 if index == 0 else 2))
            blocks.append(Basic(widths[index + 1], widths[index + 1], 1))
        self.blocks = nn.Sequential(*blocks)
        self.mean, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8 * width, classes)

    def features(self, image: Tensor) -> Tensor:
        return self.blocks(self.pool(self.input(image)))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.flatten(self.mean(self.features(image)), 1))


class Inverted(nn.Module):
    """A block that is wide inside: 1x1, depthwise, perhaps gates for channels, 1x1."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int,
        times: int,
        act: type[nn.Module],
        *,
        gated: bool,
    ) -> None:
        super().__init__()
        inner = inputs * times
        self.past = stride == 1 and inputs == outputs
        self.widen = _conv(inputs, inner, 1, act=act()) if times > 1 else nn.Identity()
        self.depthwise = _conv(inner, inner, kernel, stride, groups=inner, act=act())
        few = max(inputs // 4, 1)
        gates = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, few, 1), act(), nn.Conv2d(few, inner, 1)]
        self.gates = nn.Sequential(*gates, nn.Sigmoid()) if gated else None
        self.narrow = _conv(inner, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.widen(x))
        if self.gates is not None:
            y = y * self.gates(y)
        y = self.narrow(y)
        return x + y if self.past else y


Stage = tuple[int, int, int, int, int]
"""Factor, channels, blocks, stride, kernel."""


class MobileNet(nn.Module):
    """MobileNetV2 (Sandler et al., 2018) with its own `stages`."""

    stages: Sequence[Stage] = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 32, 3, 2, 3),
        (6, 64, 4, 2, 3),
        (6, 96, 3, 1, 3),
        (6, 160, 3, 2, 3),
        (6, 320, 1, 1, 3),
    )
    gated, act, last = False, nn.ReLU6, 1280

    def __init__(
        self, stages: Sequence[Stage] | None = None, last: int = 0, classes: int = 10
    ) -> None:
        super().__init__()
        width, last = 32 if stages is None else 8, last or self.last
        blocks: list[nn.Module] = [_conv(3, width, 3, 2, act=self.act())]
        for times, outputs, count, stride, kernel in self.stages if stages is None else stages:
            for index in range(count):
                step = stride if index == 0 else 1
                blocks.append(
                    Inverted(width, outputs, kernel, step, times, self.act, gated=self.gated)
                )
                width = outputs
        self.blocks = nn.Sequential(*blocks, _conv(width, last, 1, act=self.act()))
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(last, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.drop(self.blocks(image).mean([2, 3])))


class EfficientNet(MobileNet):
    """EfficientNet-B0 (Tan and Le, 2019) with its own `stages`."""

    stages = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )
    gated, act = True, nn.SiLU


class Channels(nn.LayerNorm):
    """A normalization over channels that come second."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Wide(nn.Module):
    """ConvNeXt's block: depthwise 7x7, and two layers over channels that come last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.layers(y)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt-T (Liu et al., 2022) with `width` 96 and `depths` (3, 3, 9, 3)."""

    def __init__(
        self, width: int = 8, depths: Sequence[int] = (1, 1, 2, 1), classes: int = 10
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), Channels(width, eps=1e-6)]
        for index, depth in enumerate(depths):
            if index:
                parts += [Channels(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            parts += [Wide(width) for _ in range(depth)]
        self.parts = nn.Sequential(*parts)
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.parts(image).mean([-2, -1])))


class DeepLab(nn.Module):
    """Classes for each pixel of an image of any size: DeepLabV3's head (Chen et al., 2017) on a ResNet."""

    def __init__(self, width: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.backbone = ResNet(width)
        inner = 4 * width
        self.branches = nn.ModuleList([_conv(8 * width, inner, 1, act=nn.ReLU())])
        for rate in (2, 4, 6):
            self.branches.append(_conv(8 * width, inner, 3, dilation=rate, act=nn.ReLU()))
        self.whole = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), _conv(8 * width, inner, 1, act=nn.ReLU())
        )
        self.joined = _conv(5 * inner, inner, 1, act=nn.ReLU())
        self.head = nn.Sequential(_conv(inner, inner, act=nn.ReLU()), nn.Conv2d(inner, classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = self.backbone.features(image)
        size = x.shape[-2:]
        whole = functional.interpolate(
            self.whole(x), size=size, mode="bilinear", align_corners=False
        )
        x = self.joined(torch.cat([*(branch(x) for branch in self.branches), whole], 1))
        size = image.shape[-2:]
        return functional.interpolate(self.head(x), size=size, mode="bilinear", align_corners=False)


class Generator(nn.Module):
    """A small image to one of twice or four times its height and width, by pixels from channels."""

    def __init__(self, width: int = 8, blocks: int = 2, steps: int = 2) -> None:
        super().__init__()
        self.input = nn.Sequential(nn.Conv2d(3, width, 9, padding=4), nn.PReLU())
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(_conv(width, width, act=nn.PReLU(width)), _conv(width, width))
                for _ in range(blocks)
            ]
        )
        self.joined = _conv(width, width)
        ups: list[nn.Module] = []
        for _ in range(steps):
            ups += [
                nn.Conv2d(width, 4 * width, 3, padding=1),
                nn.PixelShuffle(2),
                nn.LeakyReLU(0.2),
            ]
        self.ups = nn.Sequential(*ups)
        self.output = nn.Conv2d(width, 3, 9, padding=4)

    def forward(self, image: Tensor) -> Tensor:
        first = x = self.input(image)
        for block in self.blocks:
            x = x + block(x)
        return (torch.tanh(self.output(self.ups(first + self.joined(x)))) + 1) / 2


def _overlap(boxes: Tensor) -> Tensor:
    """The share of their union that each two of f32[n x 4] have in common."""
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return common / (area[:, None] + area[None] - common)


@torch.library.custom_op("glowpy_exports::suppressed", mutates_args=())
def suppressed(boxes: Tensor, scores: Tensor, most: int, overlap: float, score: float) -> Tensor:
    """Computes ONNX's NonMaxSuppression for f32[1 x n x 4] with corners and f32[1 x c x n]: i64[k x 3]."""
    rows = []
    pairs = _overlap(boxes[0])
    for kind, row in enumerate(scores[0]):
        indices: list[int] = []
        for index in row.argsort(descending=True, stable=True).tolist():
            if row[index] <= score or len(indices) == most:
                break
            if all(pairs[index, other] <= overlap for other in indices):
                indices.append(index)
        rows += [[0, kind, index] for index in indices]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)


@suppressed.register_fake
def _(boxes: Tensor, scores: Tensor, most: int, overlap: float, score: float) -> Tensor:
    return boxes.new_empty((torch.library.get_ctx().new_dynamic_size(), 3), dtype=torch.int64)


class Detector(nn.Module):
    """One image to boxes, their classes and scores: two grids of cells with three boxes each, and suppression."""

    anchors = ((10.0, 14.0, 23.0, 27.0, 37.0, 58.0), (81.0, 82.0, 135.0, 169.0, 344.0, 319.0))

    def __init__(self, width: int = 8, classes: int = 3, most: int = 5) -> None:
        super().__init__()
        self.classes, self.most = classes, most
        act = nn.LeakyReLU(0.1)
        self.near = nn.Sequential(
            _conv(3, width, 3, 2, act=act),
            _conv(width, 2 * width, 3, 2, act=act),
            _conv(2 * width, 4 * width, 3, 2, act=act),
            _conv(4 * width, 4 * width, act=act),
        )
        self.far = nn.Sequential(
            _conv(4 * width, 8 * width, 3, 2, act=act), _conv(8 * width, 8 * width, act=act)
        )
        outputs = 3 * (5 + classes)
        self.side = _conv(8 * width, 4 * width, 1, act=act)
        self.heads = nn.ModuleList(
            [nn.Conv2d(8 * width, outputs, 1), nn.Conv2d(8 * width, outputs, 1)]
        )
        for head in self.heads:
            nn.init.normal_(head.weight, std=0.3)  # scores that are far from each other

    def _boxes(self, x: Tensor, index: int, stride: int) -> tuple[Tensor, Tensor]:
        """Corners f32[1 x n x 4] and scores f32[1 x n x classes] of one grid."""
        batch, _, height, breadth = x.shape
        x = x.view(batch, 3, 5 + self.classes, height, breadth).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(
            torch.arange(height, device=x.device),
            torch.arange(breadth, device=x.device),
            indexing="ij",
        )
        cells = torch.stack([columns, rows], -1).to(x.dtype)
        sizes = torch.tensor(self.anchors[index]).view(1, 3, 1, 1, 2)
        centres = (x[..., 0:2] * 2 - 0.5 + cells) * stride
        sizes = (x[..., 2:4] * 2) ** 2 * sizes
        corners = torch.cat([centres - sizes / 2, centres + sizes / 2], -1)
        scores = x[..., 4:5] * x[..., 5:]
        return corners.reshape(batch, -1, 4), scores.reshape(batch, -1, self.classes)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        near = self.near(image)
        far = self.far(near)
        up = functional.interpolate(self.side(far), scale_factor=2.0, mode="nearest")
        joined = torch.cat([near, up], 1)
        parts = [self._boxes(self.heads[0](joined), 0, 8), self._boxes(self.heads[1](far), 1, 16)]
        boxes = torch.cat([part[0] for part in parts], 1)
        scores = torch.cat([part[1] for part in parts], 1).transpose(1, 2)
        rows = suppressed(boxes, scores, self.most, 0.5, 0.2)
        places, kinds = rows[:, 2], rows[:, 1]
        return boxes[0, places], kinds, scores[0, kinds, places]


class UNet(nn.Module):
    """Images of any size down two steps and up again, by interpolation and by a transposed convolution.

    With the mode `doubled`, sizes have to be multiples of 4: nothing is made to fit.
    """

    def __init__(self, mode: str = "bilinear", width: int = 8) -> None:
        super().__init__()
        self.mode = mode
        self.input, self.down = self._layer(3, width), self._layer(width, 2 * width)
        self.bottom = self._layer(2 * width, 4 * width)
        self.up = self._layer(6 * width, 2 * width)
        self.transposed = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = self._layer(2 * width, width)
        self.output = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _layer(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    def forward(self, image: Tensor) -> Tensor:
        first = self.input(image)
        second = self.down(functional.max_pool2d(first, 2))
        x = self.bottom(functional.max_pool2d(second, 2))
        if self.mode == "doubled":
            x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = self.transposed(self.up(torch.cat([second, x], 1)))
            return self.output(self.last(torch.cat([first, x], 1)))
        corners = None if self.mode == "nearest" else self.mode == "aligned"
        mode = "nearest" if self.mode == "nearest" else "bilinear"
        x = functional.interpolate(x, size=second.shape[2:], mode=mode, align_corners=corners)
        x = self.up(torch.cat([second, x], 1))
        x = self.transposed(x)
        rows, columns = first.shape[2] - x.shape[2], first.shape[3] - x.shape[3]
        x = functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return self.output(self.last(torch.cat([first, x], 1)))
