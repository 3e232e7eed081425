"""Wrappers are told from models."""

import pytest
import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.loaded import unwrapped
from advisor.workload.sources.live import load_live


def test_wrappers_of_torch_are_taken_off():
    model = nn.Linear(2, 2)
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(nn.DataParallel(model), backend="eager")) is model


def test_a_model_with_a_part_called_module_is_kept():
    model = nn.ModuleDict({"module": nn.Linear(2, 2)})
    assert unwrapped(model) is model


def test_a_batch_without_samples_is_refused():
    with pytest.raises(LoadError, match="batch of 0"):
        load_live(nn.Linear(4, 4), torch.zeros(0, 4))
    with pytest.raises(LoadError, match="batch of 0"):
        load_live(nn.Linear(4, 4), lambda batch=0: torch.zeros(batch, 4))
