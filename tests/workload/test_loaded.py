"""Wrappers are told from models."""

import torch
from torch import nn

from advisor.workload.loaded import unwrapped


def test_wrappers_of_torch_are_taken_off():
    model = nn.Linear(2, 2)
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(nn.DataParallel(model), backend="eager")) is model


def test_a_model_with_a_part_called_module_is_kept():
    model = nn.ModuleDict({"module": nn.Linear(2, 2)})
    assert unwrapped(model) is model
