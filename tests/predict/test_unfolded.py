"""Which convolutions a CPU computes without oneDNN, as torch's profiler shows, and what that costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from advisor.ops.registry import Call, Tensor
from advisor.predict.kernel_time import kernel_times
from advisor.predict.unfolded import depthwise_cycles, unfolding_of
from tests.predict.test_kernel_time import rates
from tests.predict.test_lowering import backward_conv_row, conv_row, lowered
from tests.predict.toys import workload

Shape = tuple[int, ...]


def call(source: Shape, weight: Shape, **options: Any) -> Call:
    """A convolution, as the tracer records it."""
    images, kernel = torch.empty(source, device="meta"), torch.empty(weight, device="meta")
    result = convolution(images, kernel, options)
    is_transposed = options.get("transposed", False)
    return Call(
        op="aten.convolution",
        inputs=(Tensor(shape=source, dtype="float32"), Tensor(shape=weight, dtype="float32")),
        outputs=(Tensor(shape=tuple(result.shape), dtype="float32"),),
        attributes={"transposed": is_transposed, "dilation": [options.get("dilation", 1)] * (len(source) - 2)},
    )


def convolution(images: torch.Tensor, kernel: torch.Tensor, options: Mapping[str, Any]) -> torch.Tensor:
    """Run torch's function for the number of dimensions."""
    name = f"conv_transpose{images.dim() - 2}d" if options.get("transposed") else f"conv{images.dim() - 2}d"
    result: torch.Tensor = getattr(functional, name)(
        images, kernel, **{name: value for name, value in options.items() if name != "transposed"}
    )
    return result


def is_left_to_onednn(source: Shape, weight: Shape, options: Mapping[str, Any]) -> bool:
    """Look for the operators of torch's own implementation among those that the profiler lists."""
    images, kernel = torch.zeros(source), torch.zeros(weight)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as found:
        convolution(images, kernel, options)
    return not any("slow_conv" in event.key for event in found.key_averages())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("source", "weight", "options"),
    [
        ((1, 16, 32, 32), (8, 16, 3, 3), {}),  # 16,384 elements
        ((1, 20, 32, 32), (8, 20, 3, 3), {}),  # 20,480
        ((1, 21, 32, 32), (8, 21, 3, 3), {}),
        ((2, 16, 16, 16), (8, 16, 3, 3), {}),
        ((1, 16, 16, 16), (8, 16, 3, 3), {"stride": 2}),
        ((1, 16, 16, 16), (8, 16, 3, 3), {"dilation": 2}),
        ((1, 16, 16, 16), (8, 8, 3, 3), {"groups": 2}),
        ((1, 16, 16, 16), (8, 16, 4, 4), {}),
        ((1, 16, 16, 16), (8, 16, 4, 3), {}),
        ((1, 16, 64), (8, 16, 9), {}),
        ((1, 16, 2000), (8, 16, 3), {}),
        ((1, 16, 8, 16, 16), (8, 16, 3, 3, 3), {}),  # 2,048 in the first four dimensions
        ((1, 16, 40, 40, 4), (8, 16, 3, 3, 3), {}),
        ((1, 16, 16, 16), (16, 8, 3, 3), {"transposed": True}),
        ((2, 16, 16, 16), (16, 8, 3, 3), {"transposed": True}),
        ((1, 16, 16, 16), (8, 16, 1, 1), {}),
        ((2, 16, 64, 64), (8, 16, 1, 1), {}),
        ((15, 16, 8, 8), (8, 16, 1, 1), {}),
        ((16, 16, 8, 8), (8, 16, 1, 1), {}),
        ((2, 16, 8, 8), (8, 16, 1, 1), {"stride": 2}),
        ((2, 16, 8, 8), (8, 16, 1, 1), {"padding": 1}),
        ((2, 16, 8, 16, 16), (8, 16, 3, 1, 1), {}),
        ((2, 16, 8, 16, 16), (8, 16, 3, 1, 1), {"stride": (2, 1, 1)}),
    ],
)
def test_convolutions_are_left_to_onednn_by_torchs_rule(
    source: Shape, weight: Shape, options: Mapping[str, Any], threads: int
) -> None:
    found = unfolding_of(call(source, weight, **options))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        is_left = is_left_to_onednn(source, weight, options)
    finally:
        torch.set_num_threads(before)
    assert is_left == (threads > found.most_cores)


def test_every_element_under_the_kernel_is_copied_once() -> None:
    """3 x 3 x 16 elements at 8 x 8 positions, written and read: rows of 8, or every second element."""
    plain = unfolding_of(call((1, 16, 10, 10), (8, 16, 3, 3)))
    assert (plain.copied_bytes, plain.cycles) == (2 * 4 * 9216, 18 / 8 * 9216)
    strided = unfolding_of(call((1, 16, 17, 17), (8, 16, 3, 3), stride=2))
    assert (strided.copied_bytes, strided.cycles) == (2 * 4 * 9216, 5 * 9216)
    volume = unfolding_of(call((1, 4, 6, 6, 6), (8, 4, 3, 3, 3)))
    assert (volume.copied_bytes, volume.cycles) == (2 * 4 * 108 * 64, 3 * 108 * 64)
    nothing = unfolding_of(call((1, 16, 8, 8), (8, 16, 1, 1)))
    assert nothing.copied_bytes == nothing.cycles == 0


def test_a_kernel_by_blas_takes_the_place_of_the_librarys_at_the_batch_sizes_and_cores_of_the_rule() -> None:
    """A 1 x 1 convolution of 10 x 10 images: a single one, or up to 15 on one core."""
    batches = np.array([1.0, 4.0, 16.0])
    kernels = lowered(workload(conv_row()), kind="cpu", batches=batches)
    assert kernels.families == ("conv", "matmul")
    by_library, by_blas = kernels.library_calls
    assert (by_library.tolist(), by_blas.tolist()) == ([1, 1, 1], [0, 0, 0])
    assert kernels.flops[0].tolist() == kernels.flops[1].tolist()
    for cores, shares in ((1.0, [[0, 0, 1], [1, 1, 0]]), (2.0, [[0, 1, 1], [1, 0, 0]])):
        seconds = kernel_times(kernels, rates(core_count=cores)).total_s
        assert (seconds > 0).astype(int).reshape(2, 3).tolist() == shares


def test_gradients_are_unfolded_like_the_convolution() -> None:
    kernels = lowered(workload(backward_conv_row(size=3)), kind="cpu", batches=np.array([1.0]))
    assert kernels.families == ("matmul",)
    assert kernels.scalar_cycles.tolist() == [[2700 * 18 / 10]] * 2
    assert not kernels.library_calls.any()
    in_half = lowered(workload(backward_conv_row(size=3)), kind="cpu", precision="bf16", batches=np.array([1.0]))
    assert in_half.families == ("conv_backward",)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="the rule was read off AVX-512")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("source", "weight", "options"),
    [
        ((2, 32, 28, 28), (32, 1, 3, 3), {"padding": 1}),
        ((2, 32, 28, 28), (32, 1, 3, 3), {"padding": 1, "stride": 2}),
        ((2, 32, 28, 28), (32, 1, 3, 3), {"padding": 2, "dilation": 2}),
        ((2, 32, 28, 28), (32, 1, 5, 3), {"padding": (2, 1)}),
        ((2, 32, 28, 28), (32, 1, 3, 5), {"padding": (1, 2)}),
        ((2, 32, 28, 28), (32, 1, 7, 7), {"padding": 3}),
        ((2, 32, 28, 28), (64, 1, 3, 3), {"padding": 1}),
        ((2, 32, 90), (32, 1, 3), {"padding": 1}),
        ((2, 32, 90), (32, 1, 9), {"padding": 4}),
        ((2, 32, 6, 8, 8), (32, 1, 3, 3, 3), {"padding": 1}),
    ],
)
def test_depthwise_convolutions_without_a_kernel_are_those_that_onednn_names(
    source: Shape, weight: Shape, options: Mapping[str, Any], dtype: torch.dtype, capfd: pytest.CaptureFixture[str]
) -> None:
    if dtype == torch.bfloat16 and not torch.cpu._is_avx512_bf16_supported():
        pytest.skip("no 16-bit kernels")
    images, kernel = torch.ones(source, dtype=dtype, requires_grad=True), torch.ones(weight, dtype=dtype)
    kernel.requires_grad_()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        convolution(images, kernel, {**options, "groups": 32}).sum().backward()
    lines = (line.split(",") for line in capfd.readouterr().out.splitlines() if ",exec,cpu,convolution," in line)
    is_generic = {
        kind: name.startswith(("x64:gemm", "brgconv_strided")) for *_, name, kind in (one[:8] for one in lines)
    }

    forward = call(source, weight, **options, groups=32)
    gradient = replace(forward, op="aten.convolution_backward", inputs=(*forward.outputs, *forward.inputs))
    how = {"is_half": dtype == torch.bfloat16}
    assert {
        "forward_training": depthwise_cycles(forward, of_weight=False, **how) > 0,
        "backward_data": depthwise_cycles(gradient, of_weight=False, **how) > 0,
        "backward_weights": depthwise_cycles(gradient, of_weight=True, **how) > 0,
    } == is_generic


def test_the_multiply_adds_of_a_depthwise_gradient_without_a_kernel_take_cycles() -> None:
    """The gradients of the input and the weight, each 4 channels x 5 x 5 x 10 x 10."""
    wide = lowered(workload(backward_conv_row(inputs=4, outputs=4, groups=4, size=5)), kind="cpu")
    assert wide.scalar_cycles[:, 0].tolist() == [0, pytest.approx(2.7 * wide.flops[1, 0] / 2)]
    assert wide.flop_ratio[:, 0].tolist() == [1, 0]
    narrow = lowered(workload(backward_conv_row(inputs=4, outputs=4, groups=4, size=3)), kind="cpu")
    assert not narrow.scalar_cycles.any()


def test_a_convolution_whose_bias_alone_has_a_gradient_multiplies_nothing() -> None:
    backward = backward_conv_row()
    bias_alone = replace(backward, attributes={**backward.attributes, "output_mask": (False, False, True)})
    kernels = lowered(workload(bias_alone), kind="cpu", batches=np.array([1.0]))
    assert kernels.families == ("conv_backward",)
