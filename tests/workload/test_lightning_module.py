"""A LightningModule trains by its own step; `LightningModule` here stands in for Lightning's."""

import pytest
import torch
from torch import nn

from advisor.errors import TraceError
from advisor.workload.lightning_module import is_lightning_class
from advisor.workload.sources.live import load_live
from advisor.workload.trace import trace
from tests.workload.tracing import flops_by_op, op_counts, rows_of


class LightningModule(nn.Module):
    """Without a Trainer, Lightning's own fails in these calls too."""

    automatic_optimization = True
    example_input_array = None

    def configure_model(self):
        pass

    def log(self, *_):
        raise AssertionError("there is no Trainer that keeps metrics")

    optimizers = lr_schedulers = manual_backward = log


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)
        self.example_input_array = torch.zeros(3, 8)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, target = batch
        loss = nn.functional.cross_entropy(self(x), target)
        self.log("loss", loss)
        return {"loss": loss}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        steps = self.trainer.estimated_stepping_batches
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=steps)},
        }


def batch_of(batch=5):
    return torch.zeros(batch, 8), torch.zeros(batch, dtype=torch.int64)


def traced(model, inputs=None, *, mode="training"):
    return trace(load_live(model, inputs, mode=mode), mode=mode, batch=None)


def test_training_takes_its_step_and_its_optimizer():
    workload = traced(Classifier(), batch_of)
    assert (workload.batch, workload.batch_is_affine, workload.optimizer) == (5, True, "SGD")
    # 2 x 10 x 8 x 4 forward, and as much for the gradient of the weight.
    assert (flops_by_op(workload, batch=10)["aten.addmm"], flops_by_op(workload, batch=10)["aten.mm"]) == (640, 640)
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"net"}


def test_the_module_is_unchanged_afterwards():
    model = Classifier()
    before = dict(vars(model))
    traced(model, batch_of)
    assert vars(model) == before


def test_inference_takes_the_example_input_array_even_beside_batches_of_the_loader():
    workload = traced(Classifier(), batch_of, mode="inference")
    assert (workload.batch, op_counts(workload)) == (3, {"aten.addmm": 1})


class Adversaries(LightningModule):
    automatic_optimization = False

    def __init__(self):
        super().__init__()
        self.maker, self.judge = nn.Linear(2, 8), nn.Linear(8, 1)

    def training_step(self, real):
        of_maker, of_judge = self.optimizers()
        made = self.maker(real[:, :2])
        self.manual_backward(self.judge(made).mean())
        of_maker.step()
        of_judge.zero_grad()
        self.manual_backward(self.judge(real).mean() - self.judge(made.detach()).mean())
        of_judge.step()
        self.lr_schedulers().step()

    def configure_optimizers(self):
        optimizers = [torch.optim.Adam(self.maker.parameters()), torch.optim.SGD(self.judge.parameters(), lr=0.1)]
        return optimizers, [torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.9)]


def test_a_module_that_optimizes_itself_does():
    workload = traced(Adversaries(), torch.zeros(4, 8))
    names = [row.attributes["name"] for row in rows_of(workload, "optimizer")]
    assert (names, workload.optimizer) == (["Adam", "SGD"], "Adam, SGD")


class Silent(Classifier):
    def training_step(self, batch, batch_idx):
        self(batch[0])


def test_a_step_without_a_loss_is_refused():
    with pytest.raises(TraceError, match="no loss"):
        traced(Silent(), batch_of)


def test_only_a_lightning_module_is_one():
    assert is_lightning_class(Classifier)
    assert not is_lightning_class(nn.Linear)
