"""Speech: strided 1D convolutions, then a GRU in both directions."""

import torch
from torch import nn


class Recognizer(nn.Module):
    """Spectrograms of 80 bands in, a score for each of 64 letters out."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(80, width, 5, stride=2, padding=2), nn.GELU())
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 64)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        scores: torch.Tensor = self.head(self.gru(self.front(sound).transpose(1, 2))[0])
        return scores


model = Recognizer()


def example_inputs(batch: int = 32) -> torch.Tensor:
    """Return four seconds of sound."""
    return torch.randn(batch, 80, 400)


def loss(output: torch.Tensor, sound: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
