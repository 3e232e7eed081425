"""A small network for tables of numbers: the smallest file the advisor takes, a `model` and its `example_inputs`.

    advise examples/mlp.py
    advise examples/mlp.py --input 100

`--input` is without the batch dimension, and wins over `example_inputs`.
"""

import torch
from torch import nn

model = nn.Sequential(
    nn.Linear(100, 256),
    nn.ReLU(),
    nn.Linear(256, 256),
    nn.ReLU(),
    nn.Linear(256, 1),
)

example_inputs = torch.randn(64, 100)
