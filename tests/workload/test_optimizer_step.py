import pytest
import torch
from torch import nn

from advisor.ops.evaluate import row_cost
from advisor.workload.summary import totals
from tests.workload.tracing import Calls, mlp, op_counts, rows_of, traced, vectors

ELEMENTS = 8 * 16 + 16 + 16 * 4 + 4  # of `mlp`: 212 in 4 tensors


def step_of(optimizer):
    workload = traced(mlp(), vectors, mode="training", optimizer=optimizer)
    [row] = rows_of(workload, "optimizer")
    return workload, row


def test_sgd_is_one_call_without_state():
    workload, row = step_of(lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    assert workload.optimizer == "SGD"
    assert row.count == 1
    assert row.phase == "optimizer"
    assert row.attributes["name"] == "SGD"
    assert (row.attributes["element_count"], row.attributes["tensor_count"]) == (ELEMENTS, 4)
    assert row.attributes["calls_per_tensor"] == 1  # add_
    assert row.attributes["flops_per_element"] == 1  # of one pointwise operator
    assert row.attributes["state_bytes_per_element"] == 0
    assert row.attributes["read_bytes_per_element"] == 8  # parameter, gradient
    assert row.attributes["write_bytes_per_element"] == 4


STATE_BYTES = [
    # optimizer, options, bytes of state per element, tensors of 4 bytes kept beside them per parameter (the step)
    ("SGD", {"momentum": 0.9}, 4, 0),
    ("Adam", {}, 8, 1),
    ("AdamW", {}, 8, 1),
    ("Adam", {"amsgrad": True}, 12, 1),
    ("RMSprop", {}, 4, 1),
    ("RMSprop", {"momentum": 0.9, "centered": True}, 12, 1),
    ("Adagrad", {}, 4, 1),
    ("Adadelta", {}, 8, 1),
    ("Adamax", {}, 8, 1),
    ("NAdam", {}, 8, 2),
]


@pytest.mark.parametrize(("name", "options", "per_element", "scalars"), STATE_BYTES)
def test_the_state_of_an_optimizer_is_what_it_keeps(name, options, per_element, scalars):
    workload, row = step_of(lambda parameters: getattr(torch.optim, name)(parameters, lr=0.1, **options))
    state_bytes = per_element * ELEMENTS + 4 * scalars * 4
    assert row.attributes["state_bytes_per_element"] == pytest.approx(state_bytes / ELEMENTS)
    for line in workload.memory:
        assert sum(kind[0] for kind in (line.optimizer_state.low, line.optimizer_state.full)) == state_bytes


def test_the_step_of_a_model_in_float64_is_in_float64():
    doubles = mlp().double()
    workload = traced(doubles, lambda batch: torch.zeros(batch, 8, dtype=torch.float64), mode="training")
    line = next(line for line in workload.memory if line.phase == "optimizer")
    # Two moments of 8 bytes, and a step of 4 bytes for each of the 4 tensors, which counts as float64 with them.
    assert line.optimizer_state.double == (2 * 8 * ELEMENTS + 4 * 4, 0)
    assert line.gradients.double == (8 * ELEMENTS, 0)
    # The update of the largest tensor, 8 x 16.
    assert line.temporaries.double[0] >= 8 * 8 * 16
    assert line.optimizer_state.full == line.gradients.full == line.temporaries.full == (0, 0)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_parameters_without_elements_take_no_step(name):
    def build(parameters):
        return getattr(torch.optim, name)(parameters, lr=0.1)

    def forward(self, x):
        return self.inner(x).sum() + self.scale.sum()

    alone = Calls(lambda self, x: x.sum() + self.scale.sum(), scale=nn.Parameter(torch.zeros(0)))
    workload = traced(alone, vectors, mode="training", optimizer=build)
    assert rows_of(workload, "optimizer") == []
    assert workload.optimizer == name

    beside = traced(
        Calls(forward, inner=mlp(), scale=nn.Parameter(torch.zeros(0))), vectors, mode="training", optimizer=build
    )
    [row] = rows_of(beside, "optimizer")
    assert row.attributes["element_count"] == ELEMENTS


def test_what_adamw_does_is_that_of_a_later_step():
    # mul_ (decay), lerp_, mul_, addcmul_, sqrt, div, add_, addcdiv_ and the count's own add_; no zeros_like.
    _, row = step_of(lambda parameters: torch.optim.AdamW(parameters, lr=0.1))
    assert row.attributes["calls_per_tensor"] == 9


def test_momentum_is_that_of_a_later_step():
    # mul_, add_ on the momentum and add_ on the parameter; in the first step the gradient would be cloned.
    _, row = step_of(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    assert row.attributes["calls_per_tensor"] == 3


def test_the_loop_over_tensors_is_seen_where_foreach_is_asked_for():
    _, loop = step_of(lambda parameters: torch.optim.AdamW(parameters, lr=0.1))
    _, foreach = step_of(lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True))
    assert dict(foreach.attributes) == dict(loop.attributes)


def test_a_fused_optimizer_makes_one_call():
    _, row = step_of(lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True))
    assert row.attributes["calls_per_tensor"] == 1
    assert row.attributes["element_count"] == ELEMENTS


def test_equal_shapes_are_stepped_once_and_multiplied():
    deep = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))
    workload = traced(deep, vectors, mode="training", optimizer=torch.optim.AdamW)
    [row] = rows_of(workload, "optimizer")
    assert (row.attributes["element_count"], row.attributes["tensor_count"]) == (5 * 72, 10)
    # 9 calls for each tensor: the loop over two shapes is the loop over ten.
    assert row.attributes["calls_per_tensor"] == 9
    assert workload.memory[-1].optimizer_state.full[0] == 5 * 72 * 8 + 10 * 4


def test_parameter_groups_are_one_step():
    def optimizer(parameters):
        first, *rest = list(parameters)
        return torch.optim.AdamW([{"params": [first], "weight_decay": 0.0}, {"params": rest}])

    _, row = step_of(optimizer)
    assert (row.attributes["element_count"], row.attributes["tensor_count"]) == (ELEMENTS, 4)


def test_frozen_parameters_are_not_stepped():
    model = mlp()
    model[0].requires_grad_(False)
    workload = traced(model, vectors, mode="training", optimizer=torch.optim.AdamW)
    [row] = rows_of(workload, "optimizer")
    assert row.attributes["element_count"] == 16 * 4 + 4
    assert workload.parameter_count == ELEMENTS
    assert workload.memory[-1].gradients.full == ((16 * 4 + 4) * 4, 0)


def sparse_table(**parts):
    """A table of 50 rows of 8, of which each sample looks up 6."""
    return Calls(
        lambda self, ids: self.last(self.table(ids)).sum(1),
        **({"table": nn.Embedding(50, 8, sparse=True), "last": nn.Identity()} | parts),
    )


def lookups(batch):
    return torch.zeros(batch, 6, dtype=torch.int64)


def test_a_sparse_gradient_updates_only_its_rows():
    workload = traced(sparse_table(), lookups, mode="training", optimizer=torch.optim.SparseAdam)
    [row] = rows_of(workload, "optimizer")
    assert workload.batch_is_affine
    # 6 rows of 8 elements a sample, each with an index of 8 bytes; parameter, gradient and two moments are read.
    for batch in (1, 10):
        elements = 6 * 8 * batch
        cost = row_cost(row, batch=batch)
        assert cost.read_bytes == 16 * elements + 8 * 6 * batch
        assert cost.write_bytes == 12 * elements
    assert row.attributes["element_count"] == 50 * 8  # as many as data parallelism reduces
    assert row.attributes["state_bytes_per_element"] == 8
    # coalesce; sparse_mask, difference, product and addition to each moment, and a square; two additions to the old
    # ones, root, epsilon, quotient, rate, and the addition to the table.
    assert row.attributes["calls_per_tensor"] == 1 + 2 * 4 + 1 + 7
    assert "looked up twice" in workload.assumptions[-1]


def test_the_sparse_gradient_of_bags_has_a_row_for_each_look_up():
    bags = sparse_table(table=nn.EmbeddingBag(10**10, 8, sparse=True, mode="sum", device="meta"))
    bags.forward = lambda ids: bags.table(ids).sum(1)
    workload = traced(bags, lookups, mode="training", optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    [row] = rows_of(workload, "optimizer")
    assert [one.shape for one in row.inputs] == [(1, (0, 6)), ((0, 6), 8)]
    [backward] = rows_of(workload, "aten._embedding_bag_backward[sparse]")
    # Of 2 samples, 12 indices and their bags' gradients are read, and 12 indices and rows are written.
    cost = row_cost(backward, batch=2)
    assert (cost.read_bytes, cost.write_bytes) == (12 * (8 + 32), 12 * (8 + 32))


def test_dense_and_sparse_gradients_are_two_rows():
    model = sparse_table(last=nn.Linear(8, 4))
    workload = traced(model, lookups, mode="training", optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    dense, sparse = rows_of(workload, "optimizer")
    assert (dense.inputs, dense.attributes["element_count"]) == ((), 8 * 4 + 4)
    assert dense.attributes["loop_read_bytes_per_element"] == 8
    # One addition to the rows, which also reads their indices: 8 bytes for 8 elements.
    assert sparse.attributes["calls_per_tensor"] == 1
    assert sparse.attributes["flops_per_element"] == 1
    assert sparse.attributes["loop_read_bytes_per_element"] == 8 + 1
    assert sparse.attributes["loop_write_bytes_per_element"] == 4


def test_a_sparse_gradient_takes_the_memory_of_its_rows():
    workload = traced(sparse_table(), lookups, mode="training", optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    line = next(line for line in workload.memory if line.phase == "optimizer")
    assert line.gradients.full == (0, 6 * 8 * 4)
    assert line.gradients.other == (0, 6 * 8)  # indices


def test_sparse_gradients_of_several_passes_add_up():
    def train_step(model, batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(batch).mean().backward()
        optimizer.step()

    [row] = rows_of(traced(sparse_table(), lookups, mode="training", train_step=train_step), "optimizer")
    assert row.inputs[1].shape == ((0, 3 * 6), 8)


def test_a_decay_of_the_whole_table_is_a_row_of_its_own():
    class Decayed(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.mul_(0.99)
                parameter.add_(parameter.grad, alpha=-0.1)

    workload = traced(sparse_table(), lookups, mode="training", optimizer=lambda p: Decayed(p, lr=0.1))
    [update] = rows_of(workload, "optimizer")
    [decay] = [row for row in workload.rows if row.phase == "optimizer" and row is not update]
    assert (decay.op, decay.inputs[0].shape) == ("aten.mul_", (50, 8))
    assert update.attributes["calls_per_tensor"] == 1


def closure_step(optimizer):
    def train_step(model, batch):
        def closure():
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    return train_step


def test_a_closure_is_forward_and_backward():
    def train_step(model, batch):
        closure_step(torch.optim.SGD(model.parameters(), lr=0.1))(model, batch)

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert op_counts(workload, phase="forward")["aten.addmm"] == 2
    assert op_counts(workload, phase="backward")["aten.mm"] == 3
    [row] = rows_of(workload, "optimizer")
    assert (row.attributes["element_count"], row.attributes["tensor_count"]) == (ELEMENTS, 4)
    assert row.attributes["calls_per_tensor"] == 1


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    ],
)
def test_a_step_with_a_closure_is_a_later_one_too(optimizer_of):
    def with_closure(model, batch):
        closure_step(optimizer_of(model.parameters()))(model, batch)

    def without(model, batch):
        model(batch).pow(2).mean().backward()
        optimizer_of(model.parameters()).step()

    [row], [expected] = (
        rows_of(traced(mlp(), vectors, mode="training", train_step=step), "optimizer")
        for step in (with_closure, without)
    )
    assert dict(row.attributes) == dict(expected.attributes)


@torch.library.custom_op("advisor_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x):
    return torch.empty_like(x)


def test_the_first_step_with_a_closure_does_not_count_beside_the_second():
    class Own(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            with torch.enable_grad():
                loss = closure()
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(halved(parameter.grad))
            return loss

    model = nn.Linear(8, 4, bias=False)
    workload = traced(model, vectors, mode="training", train_step=closure_step(Own(model.parameters(), lr=0.1)))
    assert workload.unknown_ops == {"advisor_tests.halved": 1}


def test_gradients_that_an_update_computes_itself_are_part_of_it():
    class Sam(torch.optim.SGD):  # Foret et al., 2021: gradients at a point that the first ones lead to
        @torch.no_grad()
        def step(self, closure=None):
            parameters = [p for group in self.param_groups for p in group["params"]]
            moved = [p.grad.clone() for p in parameters]
            for parameter, way in zip(parameters, moved, strict=True):
                parameter.add_(way)
                parameter.grad = None
            with torch.enable_grad():
                closure()
            for parameter, way in zip(parameters, moved, strict=True):
                parameter.sub_(way).sub_(parameter.grad)

    def train_step(model, batch):
        optimizer = Sam(model.parameters(), lr=0.1)
        model(batch).mean().backward()
        optimizer.step(lambda: model(batch).mean().backward())

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert workload.method == "fake"
    assert op_counts(workload, phase="forward")["aten.addmm"] == 2 * 2
    [row] = rows_of(workload, "optimizer")
    assert row.attributes["calls_per_tensor"] == 4  # clone, add_, sub_, sub_


def test_lbfgs_evaluates_its_closure_as_often_as_it_does():
    def train_step(model, batch):
        closure_step(torch.optim.LBFGS(model.parameters(), max_iter=3, tolerance_grad=0, tolerance_change=0))(
            model, batch
        )

    workload = traced(mlp(), lambda batch: torch.ones(batch, 8), mode="training", train_step=train_step)
    assert workload.method == "cpu_step"  # it branches on the loss
    # Once at first, and after each iteration but the last.
    assert op_counts(workload, phase="forward")["aten.addmm"] == 3 * 2
    assert workload.optimizer == "LBFGS"
    [row] = rows_of(workload, "optimizer")
    # Direction, last gradient and at least one pair of the history, each as large as the parameters.
    assert row.attributes["state_bytes_per_element"] >= 4 * 4


def test_two_optimizers_are_two_rows():
    networks = Calls(lambda self, x: self.second(self.first(x)), first=nn.Linear(8, 16), second=nn.Linear(16, 4))

    def train_step(model, batch):
        one = torch.optim.SGD(model.first.parameters(), lr=0.1)
        two = torch.optim.AdamW(model.second.parameters(), lr=0.1)
        model(batch).mean().backward()
        one.step()
        model(batch).mean().backward()
        two.step()

    workload = traced(networks, vectors, mode="training", train_step=train_step)
    assert workload.optimizer == "SGD, AdamW"
    assert sorted(row.attributes["element_count"] for row in rows_of(workload, "optimizer")) == [68, 144]
    # AdamW's state is counted once, in every moment.
    assert {line.optimizer_state.full[0] for line in workload.memory} == {68 * 8 + 2 * 4}


def test_an_optimizer_that_steps_twice_keeps_one_state():
    def train_step(model, batch):
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(batch).mean().backward()
            optimizer.step()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    [row] = rows_of(workload, "optimizer")
    assert row.count == 2
    assert {line.optimizer_state.full[0] for line in workload.memory} == {ELEMENTS * 8 + 4 * 4}


def test_an_optimizer_built_outside_is_followed_and_left_as_it_was():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)

    def train_step(model, batch):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        scheduler.step()

    parameters = list(optimizer.param_groups[0]["params"])
    workload = traced(model, vectors, mode="training", train_step=train_step)
    [row] = rows_of(workload, "optimizer")
    assert row.attributes["element_count"] == ELEMENTS
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in parameters]
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert not optimizer.state
    assert scheduler.last_epoch == 0


def test_the_state_of_a_running_training_is_left_as_it_was():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(vectors(4)).mean().backward()
    optimizer.step()
    before = {key: value.clone() for key, value in optimizer.state[model[0].weight].items()}
    gradient = model[0].weight.grad.clone()

    def train_step(model, batch):
        optimizer.zero_grad(set_to_none=False)
        model(batch).mean().backward()
        optimizer.step()
        assert model[0].weight.sum() > -1e9  # and for real

    workload = traced(model, vectors, mode="training", train_step=train_step)
    assert workload.method == "cpu_step"
    assert set(optimizer.state) == set(model.parameters())
    for key, value in optimizer.state[model[0].weight].items():
        assert torch.equal(value, before[key])
    assert torch.equal(model[0].weight.grad, gradient)


def test_a_step_that_raises_leaves_the_optimizer_as_it_was():
    model = mlp()

    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise ValueError("broken")

    optimizer = Broken(model.parameters(), lr=0.1, foreach=True)

    def train_step(model, batch):
        model(batch).mean().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="broken"):
        traced(model, vectors, mode="training", train_step=train_step)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]
    assert optimizer.param_groups[0]["foreach"] is True


def test_so_does_one_that_only_its_step_was_seen_of():
    model = mlp()

    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise ValueError("broken")

    class Settings:  # what classes hold is not searched for optimizers
        optimizer = Broken(model.parameters(), lr=0.1)

    def train_step(model, batch):
        model(batch).mean().backward()
        Settings.optimizer.step()

    with pytest.raises(ValueError, match="broken"):
        traced(model, vectors, mode="training", train_step=train_step)
    assert [id(p) for p in Settings.optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]


def test_a_closure_needs_no_more_memory_than_the_same_step_without():
    def optimizer_of(model):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def with_closure(model, batch):
        closure_step(optimizer_of(model))(model, batch)

    def without(model, batch):
        optimizer = optimizer_of(model)
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()

    peaks = [
        totals(traced(mlp(), vectors, mode="training", train_step=step), batch=4).peak_memory_bytes
        for step in (with_closure, without)
    ]
    assert peaks[0] == pytest.approx(peaks[1], rel=0.02)


def test_steps_after_the_trace_are_not_followed():
    model = mlp()
    traced(model, vectors, mode="training")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(vectors(4)).mean().backward()
    before = model[0].weight.clone()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)
    assert len(optimizer.param_groups[0]["params"]) == 4


def test_an_optimizer_of_a_users_own_is_followed():
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    if not state:
                        state["last"] = torch.zeros_like(parameter)
                    state["last"].copy_(parameter.grad)
                    parameter.sub_(parameter.grad)

    workload, row = step_of(Own)
    assert workload.optimizer == "Own"
    assert row.attributes["calls_per_tensor"] == 2
    assert row.attributes["flops_per_element"] == 1  # sub_; a copy has none
    assert row.attributes["state_bytes_per_element"] == 4


def test_adafactor_keeps_rows_and_columns():
    workload, row = step_of(lambda parameters: torch.optim.Adafactor(parameters))
    assert workload.method == "cpu_step"  # it branches on the norm of each parameter
    # Rows and columns of each matrix, all of each vector, and a count each: 16 + 8, 16, 4 + 16, 4 floats and 4 counts.
    assert row.attributes["state_bytes_per_element"] == pytest.approx((24 + 16 + 20 + 4 + 4) * 4 / ELEMENTS)
