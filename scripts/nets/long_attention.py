"""Four encoder layers over 2,048 tokens, where attention costs as much as the matrices."""

import torch
from torch import nn

layer = nn.TransformerEncoderLayer(512, 8, dim_feedforward=1024, dropout=0.0, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)


def example_inputs(batch: int = 4) -> torch.Tensor:
    """Return tokens of 512 features."""
    return torch.randn(batch, 2048, 512)


def loss(output: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
