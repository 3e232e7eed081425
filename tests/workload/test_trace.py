import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from advisor.errors import LoadError, TraceError
from advisor.predict.row_work import is_constant
from advisor.predict.step_memory import step_memory
from advisor.workload.summary import totals
from tests.says import assert_says
from tests.workload.tracing import (
    Calls,
    cnn,
    flops_by_op,
    images,
    loaded,
    mlp,
    op_counts,
    rows_of,
    sequences,
    traced,
    vectors,
)

# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_training_step_of_an_mlp_by_hand():
    workload = traced(mlp(), vectors, mode="training", loss=lambda output, batch: output.mean())
    flops = flops_by_op(workload, batch=5)
    # Forward: 2 x 5 x (8 x 16 + 16 x 4) = 1920. Backward: the weights' gradients are as many, and that of the second
    # layer's input 2 x 5 x 16 x 4 = 640; the first layer's input has none.
    assert flops["aten.addmm"] == 1920
    assert flops["aten.mm"] == 1920 + 640
    # AdamW: 8 operators with 1 FLOP per element, on 212 elements, and the count of each of 4 tensors.
    assert flops["optimizer"] == pytest.approx(8 * 212 + 4)
    assert op_counts(workload, phase="loss") == {"aten.mean": 1, "aten.ones_like": 1}  # the loss, and its own gradient


def test_a_training_step_of_a_cnn_by_hand():
    workload = traced(cnn(), images, mode="training", loss=lambda output, batch: output.mean())
    flops = flops_by_op(workload, batch=2)
    # 3x3 of 3 into 4 channels on 8 x 8 pixels: 2 x 9 x 3 x 4 x 64 = 13824 per sample. Backward: as many for the weight,
    # none for the image, and the sum of 4 x 64 for the bias.
    assert flops["aten.convolution"] == 2 * 13824
    assert flops["aten.convolution_backward"] == 2 * (13824 + 256)
    assert flops["aten.addmm"] == 2 * 2 * 256 * 5
    assert flops["aten.mm"] == 2 * flops["aten.addmm"]  # of the weight, and of the input


def test_the_bytes_of_a_linear_layer_by_hand():
    # Input (batch, 8), weight 8 x 4 and bias are read, the output is written.
    result = totals(traced(nn.Linear(8, 4), vectors), batch=6)
    assert (result.read_bytes, result.write_bytes) == (4 * (6 * 8 + 32 + 4), 4 * 6 * 4)


def test_other_batch_sizes_need_no_other_trace():
    for mode in ("inference", "training"):
        options = {"mode": mode, "loss": lambda output, batch: output.mean()}
        workload = traced(cnn(), images, batch=4, **options)
        for batch in (1, 3, 100):
            alone = traced(cnn(), images, batch=batch, batch_is_fixed=True, **options)
            expected, found = totals(alone, batch=batch), totals(workload, batch=batch)
            assert found.flops == pytest.approx(expected.flops)
            assert found.read_bytes == pytest.approx(expected.read_bytes)
            assert found.write_bytes == pytest.approx(expected.write_bytes)
            assert found.peak_memory_bytes == pytest.approx(expected.peak_memory_bytes)


def test_a_contrastive_loss_is_quadratic_in_the_batch():
    def loss(output, batch):
        return functional.cross_entropy(output @ output.t(), torch.arange(len(output)))

    workload = traced(nn.Linear(8, 4), vectors, mode="training", loss=loss)
    assert workload.batch_is_affine  # each dimension is; their product is not
    similarity = [row for row in rows_of(workload, "aten.mm") if row.phase == "loss"]
    assert [operand.shape for row in similarity for operand in row.outputs] == [((0.0, 1.0), (0.0, 1.0))]
    # 2 x batch x batch x 4.
    assert flops_by_op_in_loss(workload, batch=10) == 800
    assert flops_by_op_in_loss(workload, batch=30) == 7200


def info_nce(output, batch):
    """Two views of each sample, one after the other; each finds its own among all others."""
    views = functional.normalize(output, dim=-1)
    similarity = (views @ views.t() / 0.1).masked_fill(torch.eye(len(views), dtype=torch.bool), -1e9)
    return functional.cross_entropy(similarity, torch.arange(len(views)).roll(len(views) // 2))


def two_towers(self, x):
    return functional.normalize(self.one(x), dim=-1) @ functional.normalize(self.other(x), dim=-1).t()


def own_column(output, batch):
    return functional.cross_entropy(output, torch.arange(len(output)))


CONTRASTIVE = {
    "two views": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), info_nce),
    "two towers": (lambda: Calls(two_towers, one=nn.Linear(8, 4), other=nn.Linear(8, 4)), own_column),
}


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.parametrize("base", [1, 4, 6])
def test_the_memory_of_samples_that_are_compared_is_that_of_a_trace_at_any_batch(name, base):
    make, loss = CONTRASTIVE[name]
    options = {"mode": "training", "loss": loss}
    workload = traced(make(), vectors, batch=base, **options)
    assert workload.batch_is_affine
    assert len(workload.traced_batches) == 4
    for batch in (2, 3, 100, 2000):
        alone = traced(make(), vectors, batch=batch, batch_is_fixed=True, **options)
        for width in ("full", "autocast", "half"):
            expected, found = (
                step_memory(one, batches=np.array([float(batch)]), width=width, kind="gpu").allocated[0]
                for one in (alone, workload)
            )
            assert found == pytest.approx(expected, rel=1e-9)


def test_allocators_overhead_on_them_is_that_of_large_tensors():
    make, loss = CONTRASTIVE["two views"]
    workload = traced(make(), vectors, mode="training", loss=loss)
    alone = traced(make(), vectors, mode="training", loss=loss, batch=10**6, batch_is_fixed=True)
    expected, found = (
        step_memory(one, batches=np.array([1e6]), width="full", kind="gpu").parts["allocator"].mid[0]
        for one in (alone, workload)
    )
    assert workload.taken.cache > 100  # of a few kilobytes, at batch 4
    assert found == pytest.approx(expected, rel=0.1)


def triplets(self, x):
    """The distances of each sample to all others, minus those to all others again: batch x batch x batch."""
    distances = torch.cdist(x, x)
    return self.inner(x).mean() + (distances[:, :, None] - distances[:, None, :]).relu().mean()


def test_a_step_that_compares_triplets_holds_for_no_other_batch():
    workload = traced(Calls(triplets, inner=nn.Linear(8, 4)), vectors, mode="training", loss=lambda output, _: output)
    assert not workload.batch_is_affine
    assert workload.traced_batches == (4,)
    assert any("traced only at batch 4:" in note for note in workload.assumptions)


def test_published_models_are_traced_at_two_batches_and_at_four_if_they_compare_samples():
    for loss, count in ((lambda output, batch: output.mean(), 2), (info_nce, 4)):
        workload = traced(mlp(), vectors, mode="training", loss=loss, is_affine=True)
        assert workload.batch_is_affine
        assert len(workload.traced_batches) == count


def flops_by_op_in_loss(workload, *, batch):
    from advisor.ops.evaluate import row_cost

    rows = [row for row in rows_of(workload, "aten.mm") if row.phase == "loss"]
    return sum(row.count * row_cost(row, batch=batch).flops for row in rows)


# -- batch sizes -------------------------------------------------------------------------------------------------------


def pairs(self, x):
    """The products of all pairs: batch x (batch - 1) / 2 of them."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    return self.inner(x[first] * x[second])


def test_what_is_not_affine_is_traced_at_the_batch_asked_for_and_said():
    for asked, batch in ((None, 4), (10, 10)):
        workload = traced(Calls(pairs, inner=nn.Linear(8, 2)), vectors, at=asked)
        assert not workload.batch_is_affine
        assert (workload.batch, workload.traced_batches) == (batch, (batch,))
        pair_count = batch * (batch - 1) / 2
        assert flops_by_op(workload, batch=batch)["aten.addmm"] == 2 * pair_count * 8 * 2
        assert any(f"traced only at batch {batch}:" in note for note in workload.assumptions)


def test_a_fixed_batch_is_traced_once():
    sizes = []

    def make_inputs(batch):
        sizes.append(batch)
        return vectors(batch)

    workload = traced(mlp(), make_inputs, batch=3, batch_is_fixed=True, at=64)
    assert sizes == [3]
    assert (workload.batch, workload.batch_is_affine, workload.traced_batches) == (3, False, (3,))


def test_a_batch_of_one_follows_from_larger_ones():
    workload = traced(mlp(), vectors, batch=1)
    assert workload.traced_batches == (2, 4, 3)
    assert (workload.batch, workload.batch_is_affine) == (1, True)
    assert totals(workload, batch=1).flops == 384 + 16


def test_a_model_that_takes_no_batch_but_its_own_is_traced_at_that():
    def run(self, x):
        output, self.state = self.layer(x, self.state)
        return output

    model = Calls(run, layer=nn.GRU(8, 5, batch_first=True), state=torch.zeros(1, 4, 5))
    workload = traced(model, sequences, batch=4)
    assert not workload.batch_is_affine
    (note,) = (note for note in workload.assumptions if "Expected hidden" in note)
    assert_says(note, "batch 4")


def test_a_step_that_is_the_same_at_every_batch_has_one_batch():
    for asked in (None, 64):
        workload = traced(nn.Sequential(nn.LayerNorm(8), mlp()), lambda batch: torch.zeros(100, 8), batch=5, at=asked)
        assert (workload.batch, workload.batch_is_affine, workload.traced_batches) == (5, False, (5,))
        assert_says(workload.assumptions[0], "5 samples", "every batch size")
        constant = {operand.shape for row in workload.rows for operand in row.inputs if is_constant(operand)}
        assert constant == {(8,), (8, 16), (16,), (16, 4), (4,)}
    assert traced(mlp(), vectors).assumptions == ()


def test_inputs_that_do_not_follow_the_batch_are_said():
    model = Calls(lambda self, table: self.layer(table).expand(self.size, 100, 4).contiguous(), layer=nn.Linear(8, 4))

    def make_inputs(batch):
        model.size = batch
        return torch.zeros(100, 8)

    workload = traced(model, make_inputs)
    assert workload.batch_is_affine
    assert_says(workload.assumptions[0], "inputs are the same", "step is not")


def test_what_does_not_grow_with_the_batch_may_vary_all_the_same():
    """A table of positions that the model computes is no parameter, which autocast would cast once and keep."""

    def run(self, x):
        return self.last(x) @ self.first(self.table).relu()

    model = Calls(run, first=nn.Linear(3, 4), last=nn.Linear(8, 4), table=torch.zeros(4, 3))
    [product] = rows_of(traced(model, vectors), "aten.mm")
    assert [is_constant(operand) for operand in product.inputs] == [False, False]


def test_memory_grows_with_the_batch_if_the_model_lists_the_values_of_a_tensor():
    def run(self, x, lengths):
        self.seen = lengths.tolist()
        return self.inner(x)

    def make_inputs(batch):
        return vectors(batch), torch.zeros(batch, dtype=torch.int64)

    listing, plain = traced(Calls(run, inner=mlp()), make_inputs), traced(mlp(), vectors)
    grown = [totals(workload, batch=512).peak_memory_bytes for workload in (listing, plain)]
    assert grown[0] - grown[1] == 512 * 8  # the numbers


def test_inputs_are_what_travels_to_the_device():
    workload = traced(
        Calls(lambda self, *, x, mask: self.inner(x) * mask, inner=nn.Linear(8, 4)),
        lambda batch: {"x": vectors(batch), "mask": torch.ones(batch, 4, dtype=torch.bool)},
    )
    assert [(operand.shape, operand.dtype) for operand in workload.inputs] == [
        (((0.0, 1.0), 8), "float32"),
        (((0.0, 1.0), 4), "bool"),
    ]


# -- training ----------------------------------------------------------------------------------------------------------


def test_defaults_are_said():
    loss, optimizer = traced(mlp(), vectors, mode="training").assumptions
    assert_says(loss, "loss", "mean")
    assert_says(optimizer, "optimizer", "AdamW")
    said = traced(mlp(), vectors, mode="training", loss=lambda output, batch: output.mean(), optimizer=torch.optim.SGD)
    assert (said.assumptions, said.optimizer) == ((), "SGD")
    assert traced(mlp(), vectors).assumptions == ()


def test_the_loss_and_the_step_get_what_example_inputs_gave():
    given = []

    def loss(output, batch):
        given.append(batch)
        return output.mean()

    pair = Calls(lambda self, x, y: self.inner(x) + self.inner(y), inner=nn.Linear(8, 4))
    traced(mlp(), vectors, mode="training", loss=loss)
    traced(pair, lambda batch: (vectors(batch), vectors(batch)), mode="training", loss=loss)
    named = Calls(lambda self, *, x: self.inner(x), inner=nn.Linear(8, 4))
    traced(named, lambda batch: {"x": vectors(batch)}, mode="training", loss=loss)
    assert [type(value).__name__ for value in given[::3]] == ["FakeTensor", "tuple", "dict"]


def test_the_default_loss_takes_every_float_of_the_output():
    def run(self, x):
        y = self.inner(x)
        return {"scores": [y, y.argmax(1)], "more": y.half()}

    counts = op_counts(traced(Calls(run, inner=nn.Linear(8, 4)), vectors, mode="training"), phase="loss")
    assert counts["aten.mean"] == 3  # of two float outputs, and of these


def test_an_output_without_floats_cannot_be_trained_on():
    model = Calls(lambda self, x: self.inner(x).argmax(1), inner=nn.Linear(8, 4))
    with pytest.raises(TraceError, match="no float tensor") as caught:
        traced(model, vectors, mode="training")
    assert "loss(output, batch)" in caught.value.hint


def test_a_model_without_parameters_cannot_be_trained():
    with pytest.raises(TraceError, match="no trainable parameters"):
        traced(nn.ReLU(), vectors, mode="training")


def test_no_layer_is_dropped_in_training():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.layerdrop = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), 0.5

        def forward(self, x):
            for layer in self.layers:
                if not self.training or self.layerdrop == 0 or torch.rand([]) >= self.layerdrop:
                    x = layer(x)
            return x

    model = Dropping()
    workload = traced(model, vectors, mode="training")
    assert workload.method == "fake"
    assert op_counts(workload, phase="forward")["aten.addmm"] == 4
    assert any("LayerDrop" in one for one in workload.assumptions)
    assert model.layerdrop == 0.5
    assert not any("LayerDrop" in one for one in traced(model, vectors).assumptions)


def test_inference_needs_no_gradients_and_evaluates():
    workload = traced(nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.BatchNorm1d(8)), vectors)
    assert op_counts(workload) == {"aten.addmm": 1, "aten.native_batch_norm": 1}
    assert {"training": False} in [row.attributes for row in workload.rows]
    assert {line.gradients.full for line in workload.memory} == {(0, 0)}


# -- errors ------------------------------------------------------------------------------------------------------------


def test_what_the_model_raises_is_raised():
    def run(self, x):
        raise KeyError("no such layer")

    with pytest.raises(KeyError, match="no such layer"):
        traced(Calls(run), vectors)


def test_a_wrong_shape_is_torchs_error():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2|reduction dim"):
        traced(nn.Linear(9, 4), vectors)


def test_our_own_errors_end_the_trace_at_once():
    calls = []

    def make_inputs(batch):
        calls.append(batch)
        raise LoadError("fixed")

    with pytest.raises(LoadError):
        traced(mlp(), make_inputs)
    assert len(calls) == 1


def test_a_real_step_that_does_not_fit_is_refused_with_the_numbers(monkeypatch):
    with torch.device("meta"):
        model = nn.Linear(8, 2**28, bias=False)  # 2^31 parameters: 8 GiB

    def run(self, x):
        return self.inner(x) if x.sum() > 0 else x

    # As the machine's control groups leave it, whatever else is free.
    monkeypatch.setattr("advisor.workload.trace.free_memory_bytes", lambda: 4.0 * 2**30)
    for mode, needed in (("inference", 16), ("training", 48)):
        with pytest.raises(TraceError) as caught:
            traced(Calls(run, inner=model), vectors, mode=mode)
        assert_says(caught.value.message, f"{needed} GiB", "4 GiB")
        assert ".item()" in caught.value.hint


def test_loaded_notes_come_first():
    workload = traced(mlp(), vectors, mode="training", notes=("batch size 4 assumed",))
    assert workload.assumptions[0] == "batch size 4 assumed"


def test_the_record_names_its_source():
    workload = traced(mlp(), vectors)
    assert (workload.name, workload.mode, workload.method) == ("model", "inference", "fake")
    assert workload.torch_version == torch.__version__
    assert (workload.parameter_count, workload.parameter_bytes) == (212, 848)
    assert loaded(mlp(), vectors).name == "model"


@pytest.mark.parametrize(
    ("loss", "found"),
    [(lambda output, batch: 3.0, "a float"), (lambda output, batch: output, r"a tensor of shape \(4, 8\)")],
)
def test_a_loss_that_is_no_single_number_is_refused(loss, found):
    with pytest.raises(TraceError, match=rf"returned {found}.* one "):
        traced(nn.Linear(8, 8), vectors, mode="training", loss=loss)


def test_a_function_that_returns_no_optimizer_is_refused():
    with pytest.raises(TraceError, match=r"^optimizer\(parameters\) returned a NoneType"):
        traced(nn.Linear(8, 8), vectors, mode="training", optimizer=lambda parameters: None)


def test_a_list_of_as_many_tensors_as_samples_is_traced_at_the_batch_asked_for():
    model = Calls(lambda self, images: self.layer(images[0]), layer=nn.Linear(8, 8))
    workload = traced(model, lambda batch: ([torch.zeros(8) for _ in range(batch)],))
    assert not workload.batch_is_affine
    assert len(workload.inputs) == workload.batch


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_at_one_batch_what_varies_is_what_grows_at_several(mode):
    """But for means over the batch, a number for each channel or one for all."""
    affine, fixed = (traced(cnn(), images, mode=mode, batch_is_fixed=fixed) for fixed in (False, True))

    marks = [
        (row.op, operand.shape, operand.varies, is_constant(same))
        for row, of_several in zip(fixed.rows, affine.rows, strict=True)
        for operand, same in zip((*row.inputs, *row.outputs), (*of_several.inputs, *of_several.outputs), strict=True)
    ]
    assert {varies for *_, varies, _ in marks} == {True, False}
    assert [mark for mark in marks if mark[2] == mark[3] and math.prod(mark[1]) > len(mark[1]) + 3] == []


@dataclass
class Output:
    """The output of a model that computes its own loss, unless it has no labels."""

    logits: Any
    loss: Any = None


class Bag:
    """The same as a plain object."""

    def __init__(self, logits, loss):
        self.logits, self.loss = logits, loss


@pytest.mark.parametrize("make", [Output, Bag, lambda logits, loss: {"logits": logits, "loss": loss}])
def test_the_loss_of_an_output_is_what_is_trained(make):
    def run(self, x):
        logits = self.layer(x)
        return make(logits, functional.mse_loss(logits, x))

    workload = traced(Calls(run, layer=nn.Linear(8, 8)), vectors, mode="training")
    assert op_counts(workload)["aten.mse_loss_backward"] == 1
    (loss,) = (note for note in workload.assumptions if note.startswith("loss: "))
    assert_says(loss, "output's own")


def test_an_output_without_a_loss_is_trained_on_the_mean_of_its_floats():
    def run(self, x):
        return Output(self.layer(x))

    workload = traced(Calls(run, layer=nn.Linear(8, 8)), vectors, mode="training")
    (loss,) = (note for note in workload.assumptions if note.startswith("loss: "))
    assert_says(loss, "mean")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_mistake_of_ours_is_no_reason_for_a_real_step(monkeypatch, mode):
    calls = []

    def run(self, x):
        calls.append(x)
        return self.layer(x)

    monkeypatch.delattr("advisor.workload.recorder._look_up")
    with pytest.raises(NameError, match="_look_up"):
        traced(Calls(run, layer=nn.Linear(8, 4)), lambda batch: torch.zeros(batch, 8), mode=mode)
    assert len(calls) == 1
