"""Residual blocks of a diffusion model: group norm, SiLU, attention over pixels, nearest upsampling."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Block(nn.Module):
    """Two convolutions, each after a group norm, beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        part = (nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        again = (nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.body = nn.Sequential(*part, *again)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the body and the shortcut."""
        changed: torch.Tensor = x + self.body(x)
        return changed


class Attention(nn.Module):
    """Attention of four heads over the pixels of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(32, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the attention and the shortcut."""
        batch, width, height, wide = x.shape
        pixels = self.qkv(self.norm(x).flatten(2).transpose(1, 2)).view(batch, height * wide, 3, 4, width // 4)
        query, key, value = pixels.permute(2, 0, 3, 1, 4)
        y: torch.Tensor = self.out(scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        changed: torch.Tensor = x + y.transpose(1, 2).view_as(x)
        return changed


model = nn.Sequential(
    nn.Conv2d(4, 128, 3, padding=1),
    Block(128),
    nn.Conv2d(128, 256, 3, stride=2, padding=1),
    Block(256),
    Attention(256),
    Block(256),
    nn.Upsample(scale_factor=2),
    nn.Conv2d(256, 128, 3, padding=1),
    Block(128),
    nn.Conv2d(128, 4, 3, padding=1),
)


def example_inputs(batch: int = 16) -> torch.Tensor:
    """Return latent images of 32 x 32."""
    return torch.randn(batch, 4, 32, 32)


def loss(output: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
