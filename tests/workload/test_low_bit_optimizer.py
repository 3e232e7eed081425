"""Optimizers of few bits keep their state in as many bytes as bitsandbytes and torchao do."""

import pytest
import torch
from torch import nn

from advisor.workload.low_bit_optimizer import low_bit_optimizer


def state_bytes(name, model):
    made = low_bit_optimizer(name, model)
    assert made is not None
    optimizer = made(model.parameters(), lr=0.1)
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    return sum(state["moments"].nbytes for state in optimizer.state.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 64 x 128 weights and 64 biases. 8 bits: a byte each and 4 bytes for every 256, of the weights alone.
        ("adamw_bnb_8bit", 2 * (8192 + 8192 // 256 * 4) + 2 * 64 * 4),
        ("paged_adamw_8bit", 2 * (8192 + 128) + 2 * 64 * 4),
        ("adamw_torch_4bit", 2 * (4096 + 128) + 2 * 64 * 4),
        ("paged_adamw_32bit", 2 * 4 * (8192 + 64)),
        ("lion_8bit", 8192 + 128 + 64 * 4),
        ("rmsprop_bnb", 4 * (8192 + 64)),
        ("paged_ademamix_8bit", 3 * (8192 + 128) + 3 * 64 * 4),
    ],
)
def test_state_takes_the_bits_of_its_name(name, expected):
    assert state_bytes(name, nn.Linear(128, 64)) == expected


def test_bitsandbytes_keeps_the_state_of_embeddings_in_fp32():
    """Half of the two 64 x 128 matrices are embeddings: 2 x 4 bytes for each of 8192, and 8 bits for the others."""
    model = nn.ModuleList([nn.Embedding(64, 128), nn.Linear(128, 64, bias=False)])
    assert state_bytes("adamw_bnb_8bit", model) == 2 * 4 * 8192 + 2 * (8192 + 128)
    assert state_bytes("adamw_torch_8bit", model) == 2 * 2 * (8192 + 128)


@pytest.mark.parametrize("name", ["adamw_torch", "adamw_torch_fused", "rmsprop", "adafactor", "galore_adamw_8bit"])
def test_other_optimizers_are_left_to_their_libraries(name):
    assert low_bit_optimizer(name, None) is None


def test_the_class_is_called_as_its_library_calls_it():
    names = ("adamw_8bit", "paged_adamw", "ademamix", "lion_32bit", "paged_lion_8bit", "adamw_torch_4bit")
    made = [low_bit_optimizer(name, None) for name in names]
    assert [kind and kind.__name__ for kind in made] == [
        "AdamW8bit", "PagedAdamW", "AdEMAMix", "Lion", "PagedLion8bit", "AdamW4bit",
    ]  # fmt: skip


def test_a_step_changes_the_parameters():
    weight = nn.Parameter(torch.ones(2))
    made = low_bit_optimizer("adamw_8bit", None)
    assert made is not None
    weight.grad = torch.tensor([1.0, 2.0])
    made([weight], lr=0.5).step()
    assert weight.tolist() == [0.5, 0.0]
