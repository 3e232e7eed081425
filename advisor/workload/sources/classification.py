"""Defines the default training of image classifiers: cross-entropy, and SGD with momentum.

These are the defaults of timm's `train.py` and of torchvision's `references/classification/train.py`.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional

from advisor.workload.loaded import tensors_in


def cross_entropy(output: Any, batch: Any) -> torch.Tensor:
    """Return the cross-entropy of logits (batch, classes), summed over auxiliary heads such as Inception's."""
    logits = tensors_in(output)
    labels = torch.zeros(logits[0].shape[:1], dtype=torch.long, device=logits[0].device)
    losses = [functional.cross_entropy(head, labels) for head in logits]
    return torch.stack(losses).sum() if len(losses) > 1 else losses[0]


def sgd_with_momentum(parameters: Iterable[Any]) -> torch.optim.Optimizer:
    """Return SGD with a momentum of 0.9."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
