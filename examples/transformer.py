"""A decoder-only transformer of GPT-2's small size (Radford et al. 2019): 124 million parameters, 1,024 tokens.

    advise examples/transformer.py --mode training --batch 8,16,32
    advise examples/transformer.py --device cpu

`--batch` names the sizes to choose from; without it, training takes the default of `example_inputs`.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

VOCABULARY = 50257
CONTEXT = 1024


class Attention(nn.Module):
    """Causal self-attention; one projection makes queries, keys and values."""

    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        self.head_count = head_count
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.head_count, width // self.head_count)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, head width)
        y = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """Attention and a four times wider MLP, each after a norm and beside a shortcut."""

    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, head_count)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Tokens in, a score for each possible next token out; the embedding is also the last layer."""

    def __init__(self, layer_count: int = 12, width: int = 768, head_count: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, head_count) for _ in range(layer_count)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(positions))))


def get_model() -> nn.Module:
    return LanguageModel()


def example_inputs(batch: int = 8) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, CONTEXT))


def loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=6e-4, weight_decay=0.1)
