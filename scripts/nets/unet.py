"""A U-Net of three levels with batch norms and transposed convolutions."""

import torch
from torch import nn


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convolutions, each with a norm and an activation."""
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Images in, a mask of the same size out."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.second, self.third = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up_2, self.up_1 = (nn.ConvTranspose2d(2 * n * width, n * width, 2, stride=2) for n in (2, 1))
        self.join_2, self.join_1 = block(4 * width, 2 * width), block(2 * width, width)
        self.pool, self.mask = nn.MaxPool2d(2), nn.Conv2d(width, 1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the masks."""
        first = self.first(images)
        second = self.second(self.pool(first))
        third = self.third(self.pool(second))
        up = self.join_2(torch.cat([second, self.up_2(third)], dim=1))
        mask: torch.Tensor = self.mask(self.join_1(torch.cat([first, self.up_1(up)], dim=1)))
        return mask


model = UNet()


def example_inputs(batch: int = 16) -> torch.Tensor:
    """Return images of 128 x 128."""
    return torch.randn(batch, 3, 128, 128)


def loss(output: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return output.float().square().mean()
