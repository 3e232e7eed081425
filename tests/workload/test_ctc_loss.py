"""CTC losses on fake tensors, against those of a real step."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from advisor.workload.trace import trace
from tests.says import assert_says
from tests.workload.tracing import Calls, loaded, rows_of, sequences, traced

STEPS = 6
"""Time steps of a sample of `sequences`."""
CTC = ("aten._ctc_loss", "aten._ctc_loss_backward")


def speech(loss, *, mode="training", **options):
    model = Calls(lambda self, x: self.inner(x).log_softmax(-1).transpose(0, 1), inner=nn.Linear(8, 5))
    return traced(model, sequences, mode=mode, loss=loss, **options)


def ctc(output, lengths, *, width, concatenated=False):
    """The loss of targets of these lengths, padded to a width or concatenated."""
    batch = output.shape[1]
    targets = torch.ones(batch * width if concatenated else (batch, width), dtype=torch.int64)
    of_inputs = [STEPS] * batch if isinstance(lengths, list) else torch.full((batch,), STEPS)
    return functional.ctc_loss(output, targets, of_inputs, lengths)


def padded(output, batch):
    return ctc(output, torch.full((output.shape[1],), 3), width=3)


def concatenated(output, batch):
    return ctc(output, torch.full((output.shape[1],), 3), width=3, concatenated=True)


def as_lists(output, batch):
    return ctc(output, [3] * output.shape[1], width=4)


def with_a_value(loss):
    """The same loss after a question that only a real step answers."""

    def asking(output, batch):
        if output.sum().item() > 0:
            raise ValueError("log-probabilities are not positive")
        return loss(output, batch)

    return asking


def floats(operands):
    return [one for one in operands if one.dtype == "float32"]


@pytest.mark.parametrize("loss", [padded, concatenated, as_lists], ids=lambda loss: loss.__name__)
def test_its_rows_and_its_memory_are_those_of_a_real_step(loss):
    fake, real = speech(loss), speech(with_a_value(loss))
    assert (fake.method, real.method) == ("fake", "cpu_step")
    assert fake.batch_is_affine
    assert not fake.unknown_ops
    for op in CTC:
        [found], [expected] = rows_of(fake, op), rows_of(real, op)
        assert floats(found.inputs) == floats(expected.inputs)  # lengths in a list are tensors on fakes alone
        assert found.outputs == expected.outputs
        assert found.count == 1
    # 3 labels and the blanks around them.
    [row] = rows_of(fake, "aten._ctc_loss")
    assert row.outputs[1].shape == ((0.0, 1.0), STEPS, 2 * 3 + 1)


@pytest.mark.parametrize(("loss", "words"), [(padded, "longest target"), (concatenated, "all targets")])
def test_a_length_that_fake_tensors_do_not_have_is_assumed_and_said(loss, words):
    (note,) = (note for note in speech(loss).assumptions if "ctc_loss" in note)
    assert_says(note, words, "3 labels")


def test_a_length_that_is_known_is_not_assumed():
    assert not any("ctc_loss" in note for note in speech(as_lists).assumptions)


def test_targets_that_a_mask_selects_are_half_as_many():
    """As transformers makes them of padded labels: of 8 for each sample, 4 are expected."""

    def loss(output, batch):
        labels = torch.randint(0, 5, (output.shape[1], 8))
        is_label = labels > 0
        lengths = torch.full((output.shape[1],), STEPS)
        return functional.ctc_loss(output, labels.masked_select(is_label), lengths, is_label.sum(-1))

    workload = speech(loss)
    assert workload.method == "symbolic"
    [row] = rows_of(workload, "aten._ctc_loss")
    assert row.outputs[1].shape == ((0.0, 1.0), STEPS, 2 * 4 + 1)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda output, _: ctc(output, torch.full((7,), 3), width=3), "target_lengths"),
        (lambda output, _: ctc(output, [3] * output.shape[1], width=2), "targets of at least 3"),
        (lambda output, _: ctc(output.flatten(0, 0)[:2], [1] * output.shape[1], width=2), "input_lengths of at most 2"),
        (
            lambda output, _: functional.ctc_loss(
                output, torch.ones(3, 3, dtype=torch.int64), *2 * [torch.full((output.shape[1],), 3)]
            ),
            "targets of 4 samples",
        ),
    ],
    ids=["too many lengths", "targets too short", "inputs too short", "too few targets"],
)
def test_arguments_that_torch_refuses_are_refused(loss, message):
    model = Calls(lambda self, x: self.inner(x).log_softmax(-1).transpose(0, 1), inner=nn.Linear(8, 5))
    with pytest.raises(RuntimeError, match=message):
        trace(loaded(model, sequences, loss=loss), mode="training", batch=None, real_step=False)
