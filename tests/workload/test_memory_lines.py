"""The peak memory of a traced step, against torch's own MemTracker on a real one."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from advisor.workload.caught_composites import Composites
from advisor.workload.summary import totals
from tests.workload.tracing import Calls, cnn, images, mlp, rows_of, sequences, tokens, traced, vectors

mem_tracker = pytest.importorskip("torch.distributed._tools.mem_tracker")  # a private module of torch


def tracked_peak_bytes(model, inputs, optimizer):
    """The peak of the second of two real steps, when the optimizer has its state; of one forward without optimizer."""
    model = copy.deepcopy(model).train(optimizer is not None)
    tracker = mem_tracker.MemTracker()
    if optimizer is None:
        tracker.track_external(model, inputs)
        with torch.no_grad(), tracker:
            model(inputs)
        return total_bytes(tracker)
    running = optimizer(model.parameters())
    tracker.track_external(model, running, inputs)
    with tracker:
        for step in range(2):
            output = model(inputs)
            loss = output.mean()
            loss.backward()
            running.step()
            if step == 0:
                running.zero_grad()
                inputs.grad = None
                del output, loss
                tracker.reset_mod_stats()
                tracker._peak_mem.clear()
                tracker._peak_mem_snap.clear()
    return total_bytes(tracker)


def total_bytes(tracker):
    return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.1)


def mean(output, batch):
    return output.mean()


def vit(dropout=0.0):
    layer = nn.TransformerEncoderLayer(8, 2, 32, dropout=dropout, batch_first=True, norm_first=True)
    return Calls(
        lambda self, x: self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1)),
        patches=nn.Conv2d(3, 8, 2, 2),
        layers=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        head=nn.Linear(8, 5),
    )


def checkpointed(*, reentrant):
    def run(self, x):
        x = x.requires_grad_() if reentrant and self.training else x
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=reentrant) if self.training else layer(x)
        return x

    layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)) for _ in range(4))
    return Calls(run, layers=layers)


def tied():
    model = Calls(
        lambda self, ids: self.head(functional.relu(self.inner(self.table(ids)))),
        table=nn.Embedding(50, 8),
        inner=nn.Linear(8, 8),
        head=nn.Linear(8, 50, bias=False),
    )
    model.head.weight = model.table.weight
    return model


def residual():
    return Calls(
        lambda self, x: self.head(x + self.norm(functional.dropout(self.inner(x), 0.1, self.training))),
        inner=nn.Linear(8, 8),
        norm=nn.LayerNorm(8),
        head=nn.Linear(8, 30),
    )


def depthwise():
    return nn.Sequential(
        nn.Conv2d(3, 12, 1), nn.GroupNorm(3, 12), nn.SiLU(), nn.Conv2d(12, 12, 3, padding=1, groups=12),
        nn.Upsample(scale_factor=2), nn.AvgPool2d(2), nn.Softmax(1),
    )  # fmt: skip


def in_place():
    return Calls(
        lambda self, x: functional.relu_(self.inner(x).mul_(2)).cumsum(1)[:, ::2].exp(), inner=nn.Linear(8, 40)
    )


MODELS = {
    "mlp": (mlp, vectors),
    "cnn": (cnn, images),
    "vit": (vit, images),
    "checkpointed": (lambda: checkpointed(reentrant=False), sequences),
    "checkpointed, reentrant": (lambda: checkpointed(reentrant=True), sequences),
    "tied": (tied, tokens),
    "residual with dropout": (residual, sequences),
    "depthwise": (depthwise, images),
    "in place": (in_place, vectors),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(6, 16, 3), nn.ReLU(), nn.Conv1d(16, 4, 3), nn.Flatten()), sequences),
}
WAYS = [("inference", None), ("training", sgd), ("training", adamw)]


def assert_peaks_agree(model, make_inputs, mode, optimizer):
    workload = traced(model, make_inputs, mode=mode, batch=16, optimizer=optimizer, loss=mean)
    assert workload.method == "fake"
    for batch in (16, 11, 40):  # traced at 16, 32 and 48
        expected = tracked_peak_bytes(model, make_inputs(batch), optimizer)
        assert totals(workload, batch=batch).peak_memory_bytes == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("mode", "optimizer"), WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_that_of_a_real_step(name, mode, optimizer):
    build, make_inputs = MODELS[name]
    assert_peaks_agree(build(), make_inputs, mode, optimizer)


@pytest.mark.parametrize(("mode", "optimizer"), WAYS)
@pytest.mark.parametrize("name", ["gru", "rnn", "attention with dropout"])
def test_so_is_that_of_what_composites_stand_for(name, mode, optimizer, monkeypatch):
    """MemTracker sees the CPU's program, so this is with the composites off. (An LSTM's is oneDNN's, with a workspace
    that only a real run allocates.)"""
    monkeypatch.setattr(Composites, "catching", lambda self: nullcontext())
    if name == "attention with dropout":
        assert_peaks_agree(vit(dropout=0.1), images, mode, optimizer)
        return
    layer = (nn.RNN if name == "rnn" else nn.GRU)(8, 16, batch_first=True)
    assert_peaks_agree(Calls(lambda self, x: self.layer(x)[0], layer=layer), sequences, mode, optimizer)


def test_a_recurrent_layer_keeps_its_gates_for_backward():
    model = Calls(lambda self, x: self.layer(x)[0], layer=nn.LSTM(8, 16, batch_first=True))
    workload = traced(model, sequences, mode="training", loss=mean, optimizer=sgd)
    [row] = rows_of(workload, "rnn")
    # 6 tokens x (4 gates + 1 cell) x 16 for each sample.
    assert row.outputs[-1].shape == ((0.0, 6.0), 80)
    [row] = rows_of(traced(model, sequences), "rnn")
    assert len(row.outputs) == 3  # without backward: output and two states


def test_dropout_in_attention_keeps_no_scores():
    # With a kernel that is fused, as on CUDA, the (heads, 16, 16) of each sample are never in memory.
    workload = traced(vit(dropout=0.1), images, mode="training", loss=mean, optimizer=sgd)
    shapes = [operand.shape for row in workload.rows for operand in (*row.inputs, *row.outputs)]
    assert not [shape for shape in shapes if shape[-2:] == (16, 16)]


def test_frozen_parameters_have_no_gradients():
    model = mlp()
    model[0].requires_grad_(False)
    workload = traced(model, vectors, mode="training", optimizer=sgd)
    assert {line.parameters.full[0] for line in workload.memory} == {212 * 4}
    assert max(line.gradients.full[0] for line in workload.memory) == 68 * 4


def test_batchnorm_statistics_are_buffers():
    workload = traced(cnn(), images)
    # Mean and variance of 4 channels, and a count in int64.
    assert {line.buffers.full for line in workload.memory} == {(32, 0)}
    assert {line.buffers.other for line in workload.memory} == {(8, 0)}


def test_accumulated_gradients_are_counted_once():
    def train_step(model, batch):
        optimizer = sgd(model.parameters())
        for part in batch.chunk(4):
            model(part).mean().backward()
        optimizer.step()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert max(line.gradients.full[0] for line in workload.memory) == 212 * 4
