from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS, STRIDED
from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.recorder import Recorder
from tests.workload.tracing import Calls, images, rows_of, sequences, traced


def normalised(self, x):
    """A norm of the channels of images, as ConvNeXt has it, between two convolutions."""
    return self.after(self.norm(self.before(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


def convnext():
    return Calls(normalised, before=nn.Conv2d(3, 4, 1), norm=nn.LayerNorm(4), after=nn.Conv2d(4, 3, 1))


def order(workload, op):
    """For each row of the operator: True if its images come channels-last, and how many operands it copies."""
    return [(CHANNELS_LAST in row.attributes, row.attributes.get(MADE_CONTIGUOUS, 0)) for row in rows_of(workload, op)]


def test_a_norm_of_permuted_images_copies_them_and_leaves_them_channels_last():
    workload = traced(convnext(), images)
    assert order(workload, "aten.convolution") == [(False, 0), (True, 0)]
    assert order(workload, "aten.native_layer_norm") == [(False, 1)]


def test_its_gradient_copies_what_was_normalised_but_not_a_gradient_that_comes_in_order():
    workload = traced(convnext(), images, mode="training")
    # The convolution of channels-last images gives theirs a gradient in the same order.
    assert order(workload, "aten.native_layer_norm_backward") == [(False, 1)]
    assert sorted(order(workload, "aten.convolution_backward")) == [(False, 0), (True, 0)]


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_a_norm_of_tokens_in_order_or_of_a_part_of_them_copies_nothing(part):
    model = Calls(lambda self, x: self.norm(self.linear(x)[:, part]), linear=nn.Linear(8, 8), norm=nn.LayerNorm(8))
    assert order(traced(model, sequences), "aten.native_layer_norm") == [(False, 0)]


def test_a_group_norm_copies_channels_last_images_and_gives_nchw():
    def forward(self, x):
        return self.after(self.norm(x.contiguous(memory_format=torch.channels_last)))

    model = Calls(forward, norm=nn.GroupNorm(1, 3), after=nn.Conv2d(3, 4, 1))
    workload = traced(model, images)
    assert order(workload, "aten.native_group_norm") == [(False, 1)]
    assert order(workload, "aten.convolution") == [(False, 0)]


class Contiguous(TorchDispatchMode):
    """Lets only contiguous operands through to group norms: their gradient would crash on others."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "group_norm" in func.name():
            assert all(arg.is_contiguous() for arg in args if isinstance(arg, torch.Tensor))
        return func(*args, **(kwargs or {}))


def test_a_real_step_of_a_group_norm_runs_in_nchw():
    def weight_gradient(*modes):
        norm = nn.GroupNorm(2, 4)
        image = torch.arange(2 * 4 * 3 * 3.0).sin().reshape(2, 4, 3, 3)
        factors = torch.arange(2 * 4 * 3 * 3.0).cos().reshape(2, 4, 3, 3)
        with ExitStack() as active:
            for mode in modes:
                image = image.to(memory_format=torch.channels_last)
                active.enter_context(mode)
            (norm(image) * factors).sum().backward()
        return norm.weight.grad

    recorder = Recorder(nn.Module(), sizes=AssumedSizes(), symbolic=False)
    torch.testing.assert_close(weight_gradient(Contiguous(), recorder), weight_gradient())


def test_images_made_of_some_tokens_are_channels_last_to_an_upsampling():
    def forward(self, tokens):
        return functional.interpolate(
            tokens[:, 2:].transpose(1, 2).unflatten(-1, (2, 2)), scale_factor=2, mode="bilinear"
        )

    assert order(traced(Calls(forward), sequences), "aten.upsample_bilinear2d") == [(True, 0)]

    def of_images(self, x):
        return functional.interpolate(self.conv(x), scale_factor=2, mode="bilinear")

    assert order(traced(Calls(of_images, conv=nn.Conv2d(3, 4, 1)), images), "aten.upsample_bilinear2d") == [(False, 0)]


@pytest.mark.parametrize(
    ("forward", "op", "expected"),
    [
        (lambda self, x: self.linear(x) + x, "aten.add", None),
        (lambda self, x: x.transpose(1, 2) + x.transpose(1, 2), "aten.add", None),  # as one list of elements
        (lambda self, x: x.transpose(1, 2) + x.reshape(-1, 8, 6), "aten.add", "transposed"),
        (lambda self, x: x[:, 1:] * 2, "aten.mul", "rows"),
        (lambda self, x: x + x[:, :1].expand(-1, 6, -1), "aten.add", None),  # broadcast, as its shape tells
        (lambda self, x: x.clone(), "aten.clone", None),
        (lambda self, x: x.transpose(1, 2).contiguous(), "aten.clone", "transposed"),
        (lambda self, x: x.unflatten(-1, (2, 4)).transpose(1, 2).contiguous(), "aten.clone", "rows"),
        (lambda self, x: torch.cat((x, x)), "aten.cat", None),
        (lambda self, x: torch.cat((x[:, 1:], x), dim=1), "aten.cat", "rows"),
        (lambda self, x: torch.stack((x, x)), "aten.stack", None),
        (lambda self, x: torch.stack((x[:, 1:], x[:, :-1])), "aten.stack", "rows"),
    ],
)
def test_elementwise_kernels_and_copies_say_whether_they_compute_offsets(forward, op, expected):
    [found] = rows_of(traced(Calls(forward, linear=nn.Linear(8, 8)), sequences), op)
    assert found.attributes.get(STRIDED) == expected


def test_the_gradients_of_queries_keys_and_values_are_stacked_in_another_order():
    def forward(self, x):
        q, k, v = self.linear(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind()
        return functional.scaled_dot_product_attention(q, k, v)

    workload = traced(Calls(forward, linear=nn.Linear(8, 24)), sequences, mode="training")
    stacked = [row for row in rows_of(workload, "aten.stack") if row.phase == "backward"]
    assert [row.attributes.get(STRIDED) for row in stacked] == ["rows"]
