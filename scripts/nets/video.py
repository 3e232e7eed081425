"""3D convolutions over clips of 8 frames."""

import torch
from torch import nn


def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Return a convolution over time and space with its norm and activation."""
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, stride=(1, stride, stride), padding=1), nn.BatchNorm3d(outputs), nn.ReLU()
    )


model = nn.Sequential(
    stage(3, 32, 2), stage(32, 64, 2), stage(64, 128, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(128, 400)
)


def example_inputs(batch: int = 8) -> torch.Tensor:
    """Return clips of 112 x 112."""
    return torch.randn(batch, 3, 8, 112, 112)


def loss(output: torch.Tensor, clips: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
