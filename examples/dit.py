"""DiT-XL/2, a diffusion transformer on latents of 256 x 256 images (Peebles and Xie, 2023, table 1).

advise examples/dit.py --finetune lora --lora-targets qkv,out --samples 20000
"""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, DEPTH, PATCH, CHANNELS, SIDE = 1152, 16, 28, 2, 4, 32
CLASSES = 1000


class Block(nn.Module):
    """Attention and a feed-forward layer, each scaled and shifted by the condition (adaLN-Zero)."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed_norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Take tokens (batch, tokens, width) and the condition (batch, width)."""
        parts = self.modulation(functional.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
        attention_shift, attention_scale, attention_gate, feed_shift, feed_scale, feed_gate = parts
        attended = self.attention_norm(x) * (1 + attention_scale) + attention_shift
        q, k, v = self.qkv(attended).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + attention_gate * self.out(mixed)
        fed = self.feed_norm(x) * (1 + feed_scale) + feed_shift
        return x + feed_gate * self.down(functional.gelu(self.up(fed), approximate="tanh"))


class DiT(nn.Module):
    """Predicts the noise in latents, and its variance."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2, WIDTH), requires_grad=False)
        self.time = nn.Sequential(nn.Linear(256, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.label = nn.Embedding(CLASSES + 1, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.head = nn.Linear(WIDTH, PATCH * PATCH * 2 * CHANNELS)

    def forward(self, latents: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Take latents (batch, channels, side, side), embedded times (batch, 256) and labels (batch)."""
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        condition = self.time(time) + self.label(label)
        for block in self.blocks:
            x = block(x, condition)
        return self.head(self.norm(x))


def get_model() -> nn.Module:
    """Return the model."""
    return DiT()


def example_inputs(batch: int = 32) -> dict[str, torch.Tensor]:
    """Return noisy latents with their times and labels."""
    return {
        "latents": torch.randn(batch, CHANNELS, SIDE, SIDE),
        "time": torch.randn(batch, 256),
        "label": torch.zeros(batch, dtype=torch.long),
    }


def loss(output: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the mean squared error of the noise."""
    return functional.mse_loss(output.float(), torch.zeros_like(output, dtype=torch.float32))
