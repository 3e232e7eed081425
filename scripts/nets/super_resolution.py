"""Convolutions at one size, a pixel shuffle and a bicubic shortcut."""

import torch
from torch import nn
from torch.nn.functional import interpolate


class SuperResolution(nn.Module):
    """Images in, images of twice the size out."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        body = [layer for _ in range(8) for layer in (nn.Conv2d(width, width, 3, padding=1), nn.PReLU())]
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), *body, nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the larger images."""
        details: torch.Tensor = self.body(images)
        larger: torch.Tensor = interpolate(images, scale_factor=2, mode="bicubic") + details
        return larger


model = SuperResolution()


def example_inputs(batch: int = 16) -> torch.Tensor:
    """Return images of 96 x 96."""
    return torch.randn(batch, 3, 96, 96)


def loss(output: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
