"""Code that asks whether a data-dependent size is zero is traced with the size assumed."""

import torch
from torch import nn

from advisor.workload.loaded import LoadedModel
from advisor.workload.summary import group_rows
from advisor.workload.trace import trace
from tests.says import assert_says
from tests.workload.tracing import Calls, images, rows_of, traced

EXPERTS, TOP_K, WIDTH = 8, 2, 32


class Mixture(nn.Module):
    """Routes each token to TOP_K of EXPERTS linear layers, and skips an expert that got none."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(TOP_K)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, place = torch.where(chosen == index)
            if token.numel() == 0:
                continue
            result.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return result


def test_routed_tokens_are_counted_once_per_choice_and_the_batch_stays_affine() -> None:
    loaded = LoadedModel(
        name="mixture",
        model=Mixture(),
        make_inputs=lambda batch: ((torch.zeros(batch, WIDTH),), {}),
        batch=64,
        batch_is_fixed=False,
        loss=None,
        optimizer=None,
        train_step=None,
        notes=(),
    )

    workload = trace(loaded, mode="inference", batch=None, isolated=False)

    assert workload.method == "symbolic"
    assert workload.batch_is_affine
    (matmul,) = (group for group in group_rows(workload, by="family", batch=640) if group.name == "matmul")
    # Gate: 2 x 640 x 32 x 8 FLOP. Experts: 640 tokens x 2 choices, each 2 x 32 x 32.
    assert matmul.flops == 2 * 640 * 32 * 8 + 640 * 2 * 2 * 32 * 32
    # Each of the 8 experts gets 64 x 2 / 8 = 16 tokens of the first batch traced.
    (note,) = (text for text in workload.assumptions if "depend on data" in text)
    assert_says(note, "8 sizes", "16, 16, 16, 16, 16, 16, ...")


def test_kernels_that_ask_the_sizes_of_chosen_images_are_traced_with_symbols() -> None:
    def chosen_upsampled(_self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        chosen = x[x.sum((1, 2, 3)) > 0]
        return nn.functional.interpolate(chosen, scale_factor=2, mode="bilinear")

    workload = traced(Calls(chosen_upsampled), images)

    assert workload.method == "symbolic"
    [upsampling] = rows_of(workload, "aten.upsample_bilinear2d")
    [chosen] = upsampling.inputs
    assert chosen.shape[0] == (0, 0.5)  # half of the batch
