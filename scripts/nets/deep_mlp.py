"""64 small layers: almost nothing to compute, a launch for each kernel."""

import torch
from torch import nn

WIDTH = 128
model = nn.Sequential(*(layer for _ in range(64) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


def example_inputs(batch: int = 64) -> torch.Tensor:
    """Return rows of a table."""
    return torch.randn(batch, WIDTH)


def loss(output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
