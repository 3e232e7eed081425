"""An embedding of 100 million words, trained to predict the next one: 200 billion parameters in two layers.

    advise examples/word_embedding.py
    advise memory examples/word_embedding.py

No GPU holds it, and nothing needs to: `sampled` outputs, a smaller width or hashed words are what people do instead.
"""

import torch
from torch import nn

WORDS = 100_000_000
WIDTH = 1000


def get_model(words: int = WORDS, width: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Embedding(words, width), nn.Linear(width, words, bias=False))


def example_inputs(batch: int = 1) -> torch.Tensor:
    return torch.randint(WORDS, (batch,))
