"""Small models, their steps and what was traced of them."""

from collections import Counter
from contextlib import contextmanager

import torch
from torch import nn

from advisor.workload.loaded import LoadedModel
from advisor.workload.trace import trace


def loaded(model, make_inputs, *, batch=4, **options):
    """`make_inputs(batch)` gives one tensor, a tuple of positional or a dict of keyword arguments."""

    def arguments(size):
        made = make_inputs(size)
        if isinstance(made, dict):
            return (), made
        return (made if isinstance(made, tuple) else (made,)), {}

    fields = {
        "name": "model",
        "batch_is_fixed": False,
        "loss": None,
        "optimizer": None,
        "train_step": None,
        "notes": (),
    }
    return LoadedModel(model=model, make_inputs=arguments, batch=batch, **(fields | options))


def traced(
    model, make_inputs, *, mode="inference", at=None, isolated=False, attention="auto", half_attention=False, **options
):
    made = loaded(model, make_inputs, **options)
    return trace(made, mode=mode, batch=at, isolated=isolated, attention=attention, half_attention=half_attention)


def op_counts(workload, *, phase=None):
    counts = Counter()
    for row in workload.rows:
        if phase in (None, row.phase):
            counts[row.op] += row.count
    return counts


def rows_of(workload, op):
    return [row for row in workload.rows if row.op == op]


def flops_by_op(workload, *, batch):
    from advisor.ops.evaluate import row_cost

    flops = Counter()
    for row in workload.rows:
        flops[row.op] += row.count * row_cost(row, batch=batch).flops
    return flops


@contextmanager
def tf32_settings_kept(*, of_cudnn="tf32"):
    """Restore torch's newer settings for TF32 (since 2.9) at the end; at the start, set those of a new process.

    In a new process the global setting overrides the others, also those of cuDNN, which are "tf32". Once a setting of
    cuDNN has been written, the global setting overrides it only while it is "none".
    """
    owners = [torch.backends, torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]
    before = [owner.fp32_precision for owner in owners]
    for owner, precision in zip(owners, ("none", "none", of_cudnn, of_cudnn), strict=True):
        owner.fp32_precision = precision
    try:
        yield
    finally:
        for owner, precision in zip(owners, before, strict=True):
            owner.fp32_precision = precision


class Calls(nn.Module):
    """A module whose forward is `run(self, *inputs)`, with the given submodules and attributes."""

    def __init__(self, run, **attributes):
        super().__init__()
        self._run = run
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs, **named):
        return self._run(self, *inputs, **named)


def vectors(batch):
    return torch.randn(batch, 8)


def sequences(batch):
    return torch.randn(batch, 6, 8)


def images(batch):
    return torch.randn(batch, 3, 8, 8)


def tokens(batch):
    return torch.randint(50, (batch, 6))


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 5)
    )


def attention_block(**options):
    """Self-attention of one layer, 2 heads 4 wide, on (batch, 6, 8)."""

    def run(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, **options)

    return Calls(run, qkv=nn.Linear(8, 24))
