"""Defines MosaicML's MPT models as in its training benchmark (llm-foundry @ 8c8dd48f, scripts/train/benchmarking).

    advise scripts/mpt_model.py::mpt_7b_2048 --input ids=2048:int64 --mode training

There is one function per size and sequence length. The models have learned positions, tied embeddings and biases in all
layers; the parameter counts equal the published ones exactly.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 50_368
SIZES = {
    # layers, width, heads: llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
    "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64),
}  # fmt: skip
LENGTHS = tuple(2**exponent for exponent in range(9, 17))


class Attention(nn.Module):
    """Causal attention in one fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) -> the same."""
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: torch.Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return result


class Block(nn.Module):
    """A transformer block with norms before attention and before the feed-forward layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) -> the same."""
        x = x + self.attention(self.norm_1(x))
        result: torch.Tensor = x + self.down(self.act(self.up(self.norm_2(x))))
        return result


class Mpt(nn.Module):
    """The language model, from token ids to logits."""

    def __init__(self, *, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(batch, length) -> (batch, length, vocabulary)."""
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


class FusedCrossEntropy(torch.autograd.Function):
    """The cross-entropy of flash-attn, which MPT uses.

    It saves the logits and one number per token for backward, and writes the gradient over the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss for logits (tokens, vocabulary) and labels (tokens,)."""
        normalizer = torch.logsumexp(logits, dim=-1)
        ctx.save_for_backward(logits, labels, normalizer)
        return (normalizer - logits.gather(1, labels[:, None])[:, 0]).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the logits: the probabilities minus 1 at the labels."""
        logits, labels, normalizer = ctx.saved_tensors
        gradient = logits.sub_(normalizer[:, None]).exp_()
        gradient.scatter_add_(1, labels[:, None], -torch.ones_like(labels[:, None], dtype=gradient.dtype))
        return gradient.mul_(gradients[0] / len(labels)), None


def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of predicting the next token."""
    return FusedCrossEntropy.apply(output.reshape(-1, VOCABULARY), batch.roll(-1, 1).reshape(-1))  # type: ignore[no-any-return, no-untyped-call]


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    """Return AdamW, whose decoupled weight decay the benchmark's optimizer has too."""
    return torch.optim.AdamW(parameters)


def build(size: str, length: int) -> Mpt:
    """Return the model of this size for sequences of this length."""
    layers, width, heads = SIZES[size]
    return Mpt(layers=layers, width=width, heads=heads, length=length)


globals().update({f"mpt_{size}_{length}": partial(build, size, length) for size in SIZES for length in LENGTHS})
