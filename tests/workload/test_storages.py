from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from advisor.workload.storages import CELL, Storages
from tests.workload.tracing import Calls, traced


def storages():
    return Storages(size_of=int)


def live(tracked, category, storing="full"):
    return tracked.live_bytes[CELL[category, storing]]


def test_a_storage_counts_once_however_many_tensors_view_it():
    tracked = storages()
    tensor = torch.zeros(10)
    first = tracked.of(tensor, "activations")
    assert tracked.of(tensor[2:], "temporaries") is first
    assert live(tracked, "activations") == 40
    assert sum(tracked.live_bytes) == 40


def test_a_storage_counts_until_its_last_tensor_is_gone():
    tracked = storages()
    tensor = torch.zeros(10)
    tracked.of(tensor, "activations")
    view = tensor[:1]
    del tensor
    assert live(tracked, "activations") == 40
    del view
    assert sum(tracked.live_bytes) == 0


def test_other_dtypes_are_kept_apart_from_floats():
    tracked = storages()
    ids, halves = torch.zeros(10, dtype=torch.int64), torch.zeros(10, dtype=torch.float16)
    doubles = torch.zeros(10, dtype=torch.float64)
    for tensor in (ids, halves, doubles):
        tracked.of(tensor, "activations")
    assert live(tracked, "activations", "other") == 80 + 20
    assert live(tracked, "activations", "double") == 80


def test_low_moves_a_float_and_nothing_else():
    tracked = storages()
    floats, ids = torch.zeros(10), torch.zeros(10, dtype=torch.int64)
    tracked.mark_low(tracked.of(floats, "activations"), dtype=floats.dtype)
    tracked.mark_low(tracked.of(ids, "activations"), dtype=ids.dtype)
    assert (live(tracked, "activations", "low"), live(tracked, "activations", "full")) == (40, 0)
    assert live(tracked, "activations", "other") == 80


def test_a_gradient_moves_and_is_kept_in_full():
    tracked = storages()
    gradient = torch.zeros(10)
    tracked.mark_low(tracked.of(gradient, "temporaries"), dtype=gradient.dtype)
    tracked.move(gradient, "gradients")
    assert live(tracked, "gradients") == 40
    assert sum(tracked.live_bytes) == 40


def test_what_is_left_out_counts_no_more_and_says_what_it_counted():
    tracked = storages()
    state = torch.zeros(10)
    tracked.of(state, "temporaries")
    assert tracked.leave_out(state) == 40
    assert sum(tracked.live_bytes) == 0
    assert tracked.leave_out(state) == 0
    del state
    assert sum(tracked.live_bytes) == 0


def test_what_is_left_out_at_first_sight_never_counts():
    tracked = storages()
    state = torch.zeros(10)
    tracked.leave_out(state)
    tracked.of(state, "activations")
    assert sum(tracked.live_bytes) == 0


def test_an_address_that_is_used_again_is_another_storage():
    tracked = storages()
    serials = set()
    for _ in range(20):
        serials.add(tracked.of(torch.zeros(10), "activations").serial)
    assert len(serials) == 20
    assert sum(tracked.live_bytes) == 0


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


@pytest.mark.parametrize("container", [nn.ModuleDict, lambda layers: nn.Sequential(OrderedDict(layers))])
def test_numbered_blocks_of_a_container_are_repeated_whatever_their_name(container):
    def forward(self, x):
        for layer in self.layers.children():
            x = layer(x)
        return x

    layers = container({f"encoder_layer_{number}": Block() for number in range(3)})
    [blocks] = training(Calls(forward, layers=layers)).blocks
    assert (blocks.path, blocks.count) == ("layers.encoder_layer_*", 3)


def test_numbered_attributes_are_no_repeated_blocks():
    # As in a ResNet, where each stage has another width.
    stages = Calls(lambda self, x: self.layer2(self.layer1(x)), layer1=Block(), layer2=Block())
    assert training(stages).blocks == ()


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
