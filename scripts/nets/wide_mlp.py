"""Three large matrices: at small batches their bytes decide, at large ones their FLOP."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4096, 8192), nn.GELU(), nn.Linear(8192, 8192), nn.GELU(), nn.Linear(8192, 1024))


def example_inputs(batch: int = 64) -> torch.Tensor:
    """Return rows of 4,096 features."""
    return torch.randn(batch, 4096)


def loss(output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
