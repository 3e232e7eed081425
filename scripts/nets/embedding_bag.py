"""A click model: an embedding bag of 64 words among a million, then an MLP."""

import torch
from torch import nn

WORDS, COUNT = 1_000_000, 64
model = nn.Sequential(nn.EmbeddingBag(WORDS, 64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))


def example_inputs(batch: int = 4096) -> torch.Tensor:
    """Return the words of each sample."""
    return torch.randint(WORDS, (batch, COUNT))


def loss(output: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
