"""`flex_attention` is the attention composite, with the blocks of scores that its mask leaves to compute."""

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from advisor.errors import TraceError
from advisor.workload.trace import trace_live
from tests.workload.tracing import Calls, flops_by_op, loaded, op_counts, rows_of

LENGTH = 256
"""Two blocks of queries and keys, of 128 each."""


def sequences(batch):
    return torch.zeros(batch, LENGTH, 8)


def attending(run):
    """Attention of 2 heads 4 wide, on (batch, LENGTH, 8); `run(self, q, k, v)` calls it."""

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return run(self, q, k, v)

    return Calls(forward, qkv=nn.Linear(8, 24))


def traced(model, *, mode="inference", **options):
    return trace_live(loaded(model, sequences, **options), mode=mode, batch=None, attention="auto")


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def mask_of(function, *, block=128, samples=None):
    return create_block_mask(function, samples, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=block)


def ratio_of(workload):
    [row] = rows_of(workload, "attention")
    return row.attributes["block_ratio"]


def is_assumed(workload, words):
    return any(words in note for note in workload.assumptions)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_it_is_one_attention_forward_and_one_backward(is_compiled):
    function = torch.compile(flex_attention, backend="eager") if is_compiled else flex_attention
    workload = traced(attending(lambda self, q, k, v: function(q, k, v)), mode="training")
    counts = op_counts(workload)
    assert workload.method == "fake"
    assert (counts["attention"], counts["attention_backward"]) == (1, 1)
    assert not workload.unknown_ops
    # No row makes the mask that torch makes where none is given.
    assert set(op_counts(workload, phase="forward")) == {"aten.addmm", "attention"}
    # Per sample: 2 heads x 4 x 256 x 256 x 4; backward has 2.5 times as many.
    flops = flops_by_op(workload, batch=3)
    assert flops["attention"] == 3 * 2 * 4 * 256 * 256 * 4
    assert flops["attention_backward"] == 2.5 * flops["attention"]


def test_it_keeps_the_sums_of_its_softmax_for_backward():
    model = attending(lambda self, q, k, v: flex_attention(q, k, v))
    [row] = rows_of(traced(model, mode="training"), "attention")
    assert [operand.shape for operand in row.outputs] == [((0, 1), 2, LENGTH, 4), ((0, 1), 2, LENGTH)]
    [row] = rows_of(traced(model), "attention")
    assert [operand.shape for operand in row.outputs] == [((0, 1), 2, LENGTH, 4)]


def test_a_masks_blocks_are_counted_where_it_was_made_before():
    mask = mask_of(causal)
    workload = traced(attending(lambda self, q, k, v: flex_attention(q, k, v, block_mask=mask)), mode="training")
    assert ratio_of(workload) == 3 / 4  # all but the upper right one
    assert rows_of(workload, "attention_backward")[0].attributes["block_ratio"] == 3 / 4
    assert not is_assumed(workload, "every block")


@pytest.mark.parametrize(
    ("function", "block", "ratio"),
    [
        (causal, 128, 3 / 4),
        (causal, 64, 10 / 16),
        # 64 wide: each row of blocks has its own and the one before it.
        (lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx <= 64), 64, 7 / 16),
        (lambda b, h, q_idx, kv_idx: q_idx >= 0, 128, 1.0),
        (causal, 256, 1.0),  # a single block
        # Blocks that the length does not fill: 3 by 3, and all but three above the diagonal.
        (causal, 100, 6 / 9),
    ],
)
def test_a_mask_that_the_model_makes_is_evaluated(function, block, ratio):
    def run(self, q, k, v):
        return flex_attention(q, k, v, block_mask=mask_of(function, block=block))

    assert ratio_of(traced(attending(run))) == ratio


def test_a_large_mask_is_evaluated_at_even_distances(monkeypatch):
    # Four of eight rows of blocks of 32: the second, fourth, sixth and last, with 2, 4, 6 and 8 of 8 blocks.
    monkeypatch.setattr("advisor.workload.flex_attention._MOST_PAIRS", 4 * 32 * LENGTH)

    def run(self, q, k, v):
        return flex_attention(q, k, v, block_mask=mask_of(causal, block=32))

    assert ratio_of(traced(attending(run))) == 20 / 32


def test_a_mask_may_look_up_numbers_that_are_known():
    documents = torch.arange(LENGTH) // 64

    def same_document(b, h, q_idx, kv_idx):
        return documents[q_idx] == documents[kv_idx]

    mask = lambda: mask_of(same_document, block=64)  # noqa: E731
    assert ratio_of(traced(attending(lambda self, q, k, v: flex_attention(q, k, v, block_mask=mask())))) == 4 / 16


def test_a_mask_that_depends_on_data_counts_every_block_and_says_so():
    def run(self, q, k, v):
        lengths = (q[:, 0, 0, 0] * 100).long()

        def within(b, h, q_idx, kv_idx):
            return kv_idx < lengths[b]

        return flex_attention(q, k, v, block_mask=mask_of(within, samples=len(q)))

    workload = traced(attending(run))
    assert workload.method == "fake"
    assert ratio_of(workload) == 1.0
    assert is_assumed(workload, "every block")


def test_scores_may_be_changed_by_parameters_which_are_trained():
    def run(self, q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, q_idx, kv_idx: score + self.bias[h, kv_idx])

    model = attending(run)
    model.bias = nn.Parameter(torch.zeros(2, LENGTH))
    workload = traced(model, mode="training")
    [row] = rows_of(workload, "optimizer")
    assert row.attributes["element_count"] == 8 * 24 + 24 + 2 * LENGTH
    assert not workload.unknown_ops


def test_the_sums_of_the_softmax_are_returned_where_they_are_asked_for():
    with_sums = {"return_lse": True}
    if hasattr(torch.nn.attention.flex_attention, "AuxRequest"):
        with_sums = {"return_aux": torch.nn.attention.flex_attention.AuxRequest(lse=True)}

    def run(self, q, k, v):
        result, sums = flex_attention(q, k, v, **with_sums)
        return result * getattr(sums, "lse", sums)[..., None]

    workload = traced(attending(run), mode="training")
    assert op_counts(workload)["attention_backward"] == 1
    assert len(rows_of(workload, "attention")[0].outputs) == 2


def test_heads_may_share_keys():
    def run(self, q, k, v):
        return flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True)

    [row] = rows_of(traced(attending(run)), "attention")
    assert [operand.shape[1] for operand in row.inputs] == [2, 1, 1]


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_it_is_traced_by_a_real_step_too(mode):
    mask = mask_of(causal)

    def run(self, q, k, v):
        result = flex_attention(q, k, v, block_mask=mask)
        return result * 2 if result.abs().max().item() >= 0 else result

    workload = traced(attending(run), mode=mode)
    assert workload.method == "cpu_step"
    assert ratio_of(workload) == 3 / 4
    assert op_counts(workload)["attention_backward"] == (mode == "training")
    assert is_assumed(workload, "real step, flex_attention has neither")


def test_torch_is_left_as_it_was():
    module = torch.nn.attention.flex_attention
    before = [getattr(module, name) for name in ("_validate_device", "_create_empty_block_mask")]
    traced(attending(lambda self, q, k, v: flex_attention(q, k, v)))
    assert [getattr(module, name) for name in ("_validate_device", "_create_empty_block_mask")] == before


def test_another_higher_order_operator_is_an_error_that_names_it():
    model = Calls(lambda self, x: torch.cond(x.sum() > 0, self.inner, lambda x: x * 2, (x,)), inner=nn.Linear(8, 8))
    with pytest.raises(TraceError, match=r"test_flex_attention.py:\d+: .*`cond`") as raised:
        traced(model)
    assert "`if`" in raised.value.hint
