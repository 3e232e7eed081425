"""A two-layer bidirectional LSTM that classifies sentences.

    advise examples/lstm.py
    advise examples/lstm.py --mode training --samples 25000 --epochs 10

A class that builds without arguments is enough: `get_model` is not needed, nor is `optimizer` (AdamW is assumed).
"""

import torch
from torch import nn

VOCABULARY = 20_000
TOKENS = 200


class SentenceClassifier(nn.Module):
    """Embedding, LSTM, and a linear layer on the last state of both directions."""

    def __init__(self, width: int = 256, class_count: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.head = nn.Linear(2 * width, class_count)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        _, (last_state, _) = self.lstm(self.embedding(ids))  # (layers x directions, batch, width)
        return self.head(torch.cat([last_state[-2], last_state[-1]], dim=1))


def example_inputs(batch: int = 64) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, TOKENS))


def loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    labels = torch.zeros(len(ids), dtype=torch.long)
    return nn.functional.cross_entropy(logits, labels)
