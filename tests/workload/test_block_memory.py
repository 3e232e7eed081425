import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.workload.tracing import Calls, traced


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 32, bias=False)
        self.narrow = nn.Linear(32, 8, bias=False)

    def forward(self, x):
        return self.narrow(self.wide(x).relu())


def stack(run=lambda layer, x: layer(x)):
    def forward(self, x):
        for layer in self.layers:
            x = run(layer, x)
        return x

    return Calls(forward, layers=nn.ModuleList(Block() for _ in range(3)))


def samples(batch):
    return torch.zeros(batch, 8)


def training(model):
    return traced(model, samples, mode="training", loss=lambda output, batch: output.mean())


def test_a_block_holds_what_backward_needs_of_it():
    [blocks] = training(stack()).blocks
    assert (blocks.path, blocks.count) == ("layers.*", 3)
    # 8 x 32 and 32 x 8 weights in fp32.
    assert (blocks.parameter_bytes, blocks.largest_parameter_bytes) == (3 * 2048, 2048)
    # A sample: what relu gives (32), kept by relu and the second layer alike, and what the block gives (8). Products
    # are stored in half under autocast, and so is what relu makes of them.
    assert blocks.kept.low == (0, 3 * 40 * 4)
    assert blocks.largest_kept.low == (0, 40 * 4)
    assert blocks.results.low == (0, 3 * 8 * 4)


def test_nothing_is_held_in_inference():
    [blocks] = traced(stack(), samples).blocks
    assert blocks.count == 3
    assert blocks.kept.low == blocks.results.low == (0, 0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_seen_as_such(reentrant):
    model = stack(lambda layer, x: checkpoint(layer, x.requires_grad_(), use_reentrant=reentrant))
    workload = training(model)
    note = "torch.utils.checkpoint: layers.* run again in backward and keep no activations for it"
    assert note in workload.assumptions
    [blocks] = workload.blocks
    assert blocks.kept == blocks.results


def test_a_model_without_checkpoints_has_no_such_note():
    assert not [note for note in training(stack()).assumptions if "checkpoint" in note]


def test_a_model_without_blocks_has_none():
    assert training(nn.Sequential(nn.Linear(8, 8), nn.ReLU())).blocks == ()
