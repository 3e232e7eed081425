"""ResNet-50 (He et al. 2015, table 1; stride in the 3x3 convolution) in plain PyTorch.

    advise examples/resnet50.py
    advise examples/resnet50.py --mode training --epochs 90 --samples 1281167

`get_model` is a function, not a model made on import, so the advisor can build it without allocating its weights.
"""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution beside a shortcut."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.residual(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Four stages of bottlenecks; each stage after the first halves the image and doubles the width."""

    def __init__(self, block_counts: tuple[int, ...], class_count: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = 64
        for stage, block_count in enumerate(block_counts):
            width = 64 * 2**stage
            for index in range(block_count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(channels, width, stride))
                channels = width * Bottleneck.expansion
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, class_count))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(images)))


def get_model() -> nn.Module:
    return ResNet(block_counts=(3, 4, 6, 3), class_count=1000)


def example_inputs(batch: int = 32) -> torch.Tensor:
    return torch.randn(batch, 3, 224, 224)


def loss(output: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    labels = torch.zeros(len(images), dtype=torch.long)
    return nn.functional.cross_entropy(output, labels)


def optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
