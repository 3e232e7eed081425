"""The record of each call: phase, module, operands, and how autocast and torch.compile would store them."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from advisor.ops.evaluate import row_cost
from advisor.ops.registry import autocast_of
from tests.workload.tracing import Calls, cnn, flops_by_op, images, mlp, op_counts, rows_of, sequences, traced, vectors


def mean(output, batch):
    return output.mean()


def test_calls_are_laid_to_the_module_that_makes_them():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    workload = traced(model, vectors)
    assert sorted(row.module for row in workload.rows) == ["0", "1.0", "1.1"]


def test_the_blocks_of_a_list_are_one_module():
    block = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
    workload = traced(nn.Sequential(*block), vectors)
    assert {row.module for row in workload.rows} == {"*.0", "*.1"}
    assert op_counts(workload) == {"aten.addmm": 3, "aten.relu": 3}


def test_gradients_are_laid_to_the_module_of_their_forward():
    model = Calls(lambda self, x: self.second(self.first(x)), first=nn.Linear(8, 6), second=nn.Linear(6, 4))
    workload = traced(model, vectors, mode="training", loss=mean)
    modules = {row.module: row.inputs[1].shape for row in rows_of(workload, "aten.mm") if row.phase == "backward"}
    # The weight's gradient is grad^T x input: 8 wide for the first layer, 6 for the second.
    assert modules["first"][-1] == 8
    assert modules["second"][-1] in (6, 4)
    assert set(modules) == {"first", "second"}


def test_phases_follow_the_step():
    def train_step(model, batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = functional.mse_loss(model(batch).exp(), batch[:, :4])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    phase_of = {row.op: row.phase for row in workload.rows}
    assert phase_of["aten.addmm"] == "forward"
    assert phase_of["aten.exp"] == phase_of["aten.mse_loss"] == "loss"
    assert phase_of["aten.mse_loss_backward"] == phase_of["aten.mm"] == "backward"
    assert phase_of["aten.linalg_vector_norm"] == phase_of["optimizer"] == "optimizer"


def test_a_criterion_is_loss_and_a_second_call_of_the_model_is_forward():
    criterion = nn.MSELoss()

    def train_step(model, batch):
        for _ in range(2):
            criterion(model(batch), batch[:, :4]).backward()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert op_counts(workload, phase="forward")["aten.addmm"] == 4
    assert op_counts(workload, phase="loss")["aten.mse_loss"] == 2


def test_what_is_computed_again_in_backward_is_backward():
    for reentrant in (False, True):

        def run(self, x, reentrant=reentrant):
            return checkpoint(self.inner, x.requires_grad_(), use_reentrant=reentrant)

        counts = op_counts(traced(Calls(run, inner=mlp()), vectors, mode="training", loss=mean), phase="backward")
        assert counts["aten.addmm"] in (1, 2)  # of the last layer only its input is needed
        assert counts["aten.mm"] == 4


def test_composites_are_computed_again_in_backward_too():
    model = Calls(lambda self, x: checkpoint(lambda y: self.layer(y)[0], x, use_reentrant=False), layer=nn.GRU(8, 5))
    workload = traced(model, sequences, mode="training", loss=mean)
    assert op_counts(workload, phase="forward")["rnn"] == 1
    assert op_counts(workload, phase="backward")["rnn"] == 1
    assert op_counts(workload, phase="backward")["rnn_backward"] == 1


def test_attention_is_computed_again_by_whatever_name_it_is_called():
    by_name = functional.scaled_dot_product_attention

    def run(self, x):
        def attend(y):
            q = self.inner(y)[:, None]
            return by_name(q, q, q, dropout_p=0.1)

        return checkpoint(attend, x, use_reentrant=False)

    workload = traced(Calls(run, inner=nn.Linear(8, 8)), sequences, mode="training", loss=mean)
    assert op_counts(workload, phase="backward")["attention"] == 1
    assert op_counts(workload, phase="backward")["attention_backward"] == 1


def test_accumulated_gradients_are_as_many_steps():
    def train_step(model, batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for part in batch.chunk(2):
            model(part).mean().backward()
        optimizer.step()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert op_counts(workload)["aten.addmm"] == 4
    assert op_counts(workload)["optimizer"] == 1
    # Two halves are one whole: 2 x 10 x (8 x 16 + 16 x 4).
    assert flops_by_op(workload, batch=10)["aten.addmm"] == 3840


def test_the_second_order_is_traced():
    def train_step(model, batch):
        batch = batch.requires_grad_()
        [gradient] = torch.autograd.grad(model(batch).tanh().sum(), batch, create_graph=True)
        gradient.norm().backward()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert workload.method == "fake"
    assert op_counts(workload, phase="backward")["aten.mm"] > 4


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_model_that_takes_gradients_itself_goes_on_in_forward(mode):
    """Forces of a potential, for example: only a pass that fills `.grad` ends the forward."""

    def run(self, x):
        with torch.enable_grad():
            x = x.requires_grad_()
            [force] = torch.autograd.grad(self.energy(x).tanh().sum(), x, create_graph=self.training)
        return self.head(force)

    workload = traced(Calls(run, energy=nn.Linear(8, 1), head=nn.Linear(8, 3)), vectors, mode=mode)
    assert {row.phase for row in workload.rows if row.module == "head"} <= {"forward", "backward"}
    assert op_counts(workload, phase="forward")["aten.addmm"] == 2
    assert ("optimizer" in op_counts(workload, phase="optimizer")) == (mode == "training")


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch uses it itself
def test_forward_mode_derivatives_are_traced():
    model = Calls(lambda self, x: torch.func.jvp(self.inner, (x,), (torch.ones_like(x),))[1], inner=mlp())
    workload = traced(model, vectors)
    assert (workload.method, workload.batch_is_affine, workload.unknown_ops) == ("fake", True, {})
    assert op_counts(workload)["aten.mm"] >= 2


def test_a_gradient_with_a_kernel_of_its_own_is_one_call():
    model = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8), nn.Mish())
    counts = op_counts(traced(model, vectors, mode="training"), phase="backward")
    assert (counts["aten.silu_backward"], counts["aten.mish_backward"]) == (1, 1)
    assert "aten.sigmoid" not in counts


def test_frozen_layers_have_no_gradient_of_their_weight():
    model = mlp()
    model[0].requires_grad_(False)
    counts = op_counts(traced(model, vectors, mode="training", loss=mean), phase="backward")
    assert counts["aten.mm"] == 1  # the second layer's weight; nothing before it needs a gradient


def test_tied_weights_are_counted_once_and_used_twice():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    workload = traced(model, vectors, mode="training", loss=mean)
    assert workload.parameter_count == 64 + 8 + 8
    assert op_counts(workload, phase="forward")["aten.addmm"] == 2
    assert workload.memory[-1].parameters.full[0] == 80 * 4


def test_code_in_inference_mode_is_taken_apart_as_any_other():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2)
    )

    def run(self, x):
        with torch.inference_mode():
            return self.inner(x)

    ordinary = op_counts(traced(model, images))
    workload = traced(Calls(run, inner=model), images)
    assert not workload.unknown_ops
    assert ordinary.keys() <= op_counts(workload).keys()


def test_sparse_gradients_are_traced():
    model = Calls(lambda self, ids: self.table(ids).sum(1), table=nn.Embedding(50, 8, sparse=True))

    def optimizer(parameters):
        return torch.optim.SparseAdam(parameters)

    workload = traced(
        model, lambda batch: torch.zeros(batch, 6, dtype=torch.int64), mode="training", loss=mean, optimizer=optimizer
    )
    # A call with operands that are not dense is listed, never counted by the formula of a dense operator.
    assert all(op.endswith("[sparse]") for op in workload.unknown_ops)
    assert workload.unknown_ops


# -- autocast ----------------------------------------------------------------------------------------------------------


def low_of(workload, op):
    [row] = rows_of(workload, op)
    return [operand.low for operand in row.inputs], [operand.low for operand in row.outputs]


def test_products_leave_halves_and_norms_what_they_normalise():
    model = Calls(
        lambda self, x: functional.softmax(self.norm(functional.relu(self.inner(x))), -1),
        inner=nn.Linear(8, 8),
        norm=nn.LayerNorm(8),
    )
    workload = traced(model, vectors)
    assert low_of(workload, "aten.addmm") == ([False, False, False], [True])
    assert low_of(workload, "aten.relu") == ([True], [True])
    assert low_of(workload, "aten._softmax")[1] == [False]  # autocast runs it in float32


def test_a_sum_of_a_half_and_a_float_is_a_float():
    workload = traced(Calls(lambda self, x: self.inner(x) + x, inner=nn.Linear(8, 8)), vectors)
    assert low_of(workload, "aten.add")[1] == [False]


def test_a_gradient_in_half_is_summed_for_a_bias_as_it_is():
    def forward(self, x):
        return self.second(self.first(x)).sum(dim=1)

    workload = traced(Calls(forward, first=nn.Linear(8, 8), second=nn.Linear(8, 4)), sequences, mode="training")
    sums = rows_of(workload, "aten.sum")
    policies = {(row.phase, row.inputs[0].shape[-1]): autocast_of(row.op, row.attributes, on_cpu=False) for row in sums}
    # That of the second layer's bias comes from the model's sum, which autocast computes in fp32.
    assert (policies["forward", 4], policies["backward", 4], policies["backward", 8]) == ("full", "full", "low")


def test_other_dtypes_are_never_low():
    model = nn.Linear(8, 4).double()
    workload = traced(model, lambda batch: torch.zeros(batch, 8, dtype=torch.float64))
    assert low_of(workload, "aten.addmm") == ([False, False, False], [False])


def test_autocast_casts_a_weight_once_however_often_it_is_used():
    def three_times(self, x):
        return self.layer(self.layer(self.layer(x)))

    workload = traced(Calls(three_times, layer=nn.Linear(8, 8)), vectors)
    weights = {row.inputs[2].low: row.count for row in rows_of(workload, "aten.addmm")}
    assert weights == {False: 1, True: 2}
    frozen = Calls(three_times, layer=nn.Linear(8, 8).requires_grad_(False))
    assert all(not row.inputs[2].low for row in rows_of(traced(frozen, vectors), "aten.addmm"))


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_part_for_which_the_model_switches_autocast_off_computes_in_fp32_forward_and_backward():
    def run(self, x):
        x = self.first(x)
        with torch.autocast("cuda", enabled=False):
            x = self.second(x.float())
            with torch.autocast("cuda", dtype=torch.bfloat16):
                x = self.third(x)
        return self.fourth(x)

    layers = {name: nn.Linear(8, 8) for name in ("first", "second", "third", "fourth")}
    rows = traced(Calls(run, **layers), vectors, mode="training", loss=mean).rows
    for op, phase in (("aten.addmm", "forward"), ("aten.mm", "backward")):
        full = {row.module: bool(row.attributes.get("in_full")) for row in rows if (row.op, row.phase) == (op, phase)}
        assert full == {"first": False, "second": True, "third": False, "fourth": False}


def test_autocast_that_a_training_loop_switches_off_is_left_to_the_precision_asked_for():
    def train_step(model, batch):
        with torch.autocast("cuda", enabled=False):
            model(batch).mean().backward()

    rows = traced(mlp(), vectors, mode="training", train_step=train_step).rows
    assert not any(row.attributes.get("in_full") for row in rows)


def test_a_checkpoint_in_a_checkpoint_does_not_switch_autocast_off():
    def run(self, x):
        inner = lambda y: checkpoint(self.inner, y, use_reentrant=False)  # noqa: E731
        return checkpoint(inner, x.requires_grad_(), use_reentrant=False)

    rows = traced(Calls(run, inner=mlp()), vectors, mode="training", loss=mean).rows
    assert not any(row.attributes.get("in_full") for row in rows)


def test_an_expanded_index_has_the_size_in_which_it_is_stored():
    def run(self, x):
        index = torch.zeros(4, 1, dtype=torch.int64).expand(4, 8)
        x.scatter_add_(0, index, x[:4])
        x.scatter_(0, index, 1.0)
        return x.gather(0, index)

    workload = traced(Calls(run, layer=nn.Linear(1, 1)), lambda batch: torch.zeros(8, 8), batch=8)
    shapes = {row.op: row.inputs[1].shape for row in workload.rows if row.family == "gather"}
    assert shapes == {"aten.scatter_add_": (4, 1), "aten.scatter_": (4, 8), "aten.gather": (4, 1)}


def test_a_write_at_indices_out_of_place_copies_its_destination_and_a_gradient_does_not():
    def run(self, x):
        index = torch.zeros(2, dtype=torch.int64)
        return torch.index_add(x, 1, index, x[:, :2]).index_select(1, index)

    rows = traced(Calls(run, layer=nn.Linear(1, 1)), lambda batch: vectors(batch).requires_grad_()).rows
    assert [row.attributes for row in rows if row.op == "aten.index_add"] == [{"copies_destination": True}]
    model = Calls(lambda self, x: run(self, self.layer(x)), layer=nn.Linear(8, 8))
    rows = traced(model, vectors, mode="training", loss=mean).rows
    copied = [row.attributes.get("copies_destination", False) for row in rows if row.op.startswith("aten.index_add")]
    assert sorted(copied) == [False, True]


def test_an_integer_of_four_bits_takes_the_byte_that_torch_stores_it_in():
    model = nn.Linear(8, 4)
    model.register_buffer("codes", torch.empty(100, dtype=torch.int4))
    both = Calls(lambda self, x: (self.inner(x), self.inner.codes.clone()), inner=model)
    (copied,) = rows_of(traced(both, vectors), "aten.clone")
    assert row_cost(copied, batch=4).read_bytes == 100


def test_equal_layers_are_one_row():
    def through_all(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    deep = Calls(through_all, layers=nn.ModuleList(nn.Linear(8, 8) for _ in range(50)))
    workload = traced(deep, vectors)
    assert len(workload.rows) <= 3  # the first reads what is not low, the others alike
    assert op_counts(workload) == {"aten.addmm": 50}


def test_hooks_on_tensors_are_run_as_they_are():
    seen = []

    def run(self, x):
        y = self.inner(x)
        y.register_hook(lambda gradient: seen.append(tuple(gradient.shape)))
        return y

    traced(Calls(run, inner=cnn()), images, mode="training", batch=2, batch_is_fixed=True, loss=mean)
    assert seen == [(2, 5)]
