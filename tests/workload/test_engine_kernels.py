"""Layers that an engine runs in its own kernels are replaced during the trace, and only then."""

import sys

import torch
from torch import nn

from advisor.workload.engine_kernels import engine_kernels, engine_layers


class RMSNorm(nn.Module):
    def forward(self, states):
        return states * 2


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    return q + 1, k + 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm()
        self.act = nn.SiLU()

    def forward(self, states):
        return self.norm(states)


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_norms_and_rotations_are_single_operators_inside_and_themselves_again_outside():
    model, states = Model(), torch.ones(2, 3, 4, 8)
    with Seen() as seen, engine_kernels(model, is_decode=False):
        model(states)
        queries, keys = apply_rotary_pos_emb(states, states[:, :1], None, None)

    assert [name for name in seen.names if "engine" in name] == ["engine.norm.default", "engine.rotary.default"]
    assert queries.shape == states.shape
    assert keys.shape == (2, 1, 4, 8)
    assert torch.equal(model(states), states * 2)
    assert torch.equal(apply_rotary_pos_emb(states, states, None, None)[0], states + 1)


def test_heads_may_stand_before_or_behind_the_tokens():
    states = torch.ones(2, 3, 4, 8)
    with engine_kernels(Model(), is_decode=False):
        for place in (1, 2):
            queries, keys = apply_rotary_pos_emb(states, states, None, None, unsqueeze_dim=place)
            assert queries.shape == keys.shape == states.shape


def test_a_rotation_with_other_parameters_is_traced_as_it_stands(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "apply_rotary_pos_emb", lambda tensor, sin, cos: tensor + 1)
    with Seen() as seen, engine_kernels(Model(), is_decode=False):
        apply_rotary_pos_emb(torch.ones(2), None, None)
    assert seen.names == ["aten.ones.default", "aten.add.Tensor"]


def test_layers_are_found_by_their_classes():
    layers = engine_layers(Model(), same_input=())
    assert layers.normalising == layers.gated == {""}
    assert layers.activations == {"act"}
    assert layers.merged == {"norm"}
