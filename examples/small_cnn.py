"""A small convolutional network for images of 32 x 32, of the kind that tutorials train on CIFAR-10.

    advise examples/small_cnn.py
    advise breakeven examples/small_cnn.py --vary width=8..256

`width` is that of the first layer; the second has twice as many channels.
"""

import torch
from torch import nn


def get_model(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def example_inputs(batch: int = 64) -> torch.Tensor:
    return torch.randn(batch, 3, 32, 32)
