"""Tracing leaves the user's model, and the interpreter, as they were: on fake tensors, for real, and when it fails."""

import copy
import logging
import random
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch
from torch import nn

from advisor.workload.fakes import (
    fake_inputs,
    fake_mode,
    fake_tensor_log_silenced,
    to_clone,
    to_fake,
    untouched,
    with_tensors,
)
from advisor.workload.inputs import resized
from tests.workload.tracing import Calls, cnn, images, mlp, rows_of, traced, vectors

WAYS = ["fake", "cpu_step", "raises"]


def trace_in_mode(way, run, model, make_inputs=vectors, **options):
    """Trace `model` with `run(model, batch)` inside its step: on fake tensors, on real ones, or failing half-way."""

    def train_step(inner, batch):
        run(inner, batch)
        inner(batch).mean().backward()
        if way == "cpu_step":
            assert batch.sum() > -1e9  # fake tensors cannot answer
        if way == "raises":
            raise ValueError("half-way")

    options = {"mode": "training", "train_step": train_step} | options
    if way == "raises":
        with pytest.raises(ValueError, match="half-way"):
            traced(model, make_inputs, **options)
    else:
        assert traced(model, make_inputs, **options).method == way


def nothing(model, batch):
    pass


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


def test_parameters_are_the_same_tensors_with_the_same_values(way):
    model = mlp()
    before = [(id(p), p.detach().clone()) for p in model.parameters()]

    def run(inner, batch):
        with torch.no_grad():
            for parameter in inner.parameters():
                parameter.add_(1)

    trace_in_mode(way, run, model)
    for parameter, (identity, values) in zip(model.parameters(), before, strict=True):
        assert id(parameter) == identity
        assert torch.equal(parameter, values)


def test_running_statistics_stay(way):
    model = cnn()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    identities = {name: id(buffer) for name, buffer in model.named_buffers()}
    trace_in_mode(way, lambda inner, batch: inner(batch), model, images)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])
        assert id(buffer) == identities[name]


def test_gradients_stay(way):
    model = mlp()
    model(vectors(4)).sum().backward()
    before = [(parameter.grad, parameter.grad.clone()) for parameter in model.parameters()]
    trace_in_mode(way, lambda inner, batch: inner.zero_grad(), model)
    for parameter, (gradient, values) in zip(model.parameters(), before, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, values)


def test_so_they_do_where_the_step_holds_the_parameters_themselves(way):
    model = mlp()
    model(vectors(4)).sum().backward()
    parameters = list(model.parameters())
    before = [parameter.grad for parameter in parameters]

    def run(inner, batch):
        for parameter in parameters:
            parameter.grad = None

    trace_in_mode(way, run, model)
    assert all(parameter.grad is gradient for parameter, gradient in zip(parameters, before, strict=True))


def test_a_model_without_gradients_gets_none(way):
    model = mlp()
    trace_in_mode(way, nothing, model)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_stay(way):
    model = nn.Sequential(mlp(), nn.Dropout())
    model[0].eval()
    trace_in_mode(way, nothing, model)
    assert [module.training for module in model.modules()] == [True, False, False, False, False, True]


def test_requires_grad_stays(way):
    model = mlp()
    model[0].requires_grad_(False)
    trace_in_mode(way, lambda inner, batch: inner.requires_grad_(True), model)
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, False, True, True]


def test_hooks_stay_and_no_others_are_left(way):
    model = mlp()
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    trace_in_mode(way, lambda inner, batch: inner.register_forward_hook(lambda *_: calls.append(2)), model)
    calls.clear()
    model(vectors(4))
    assert calls == [1]
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks
    assert all(not parameter._backward_hooks for parameter in model.parameters())


def test_random_generators_stay(way):
    model = mlp()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()

    def run(inner, batch):
        torch.rand(3), random.random(), np.random.rand()

    trace_in_mode(way, run, model)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2][1])
    assert np.random.get_state()[2] == states[2][2]


def test_seeds_set_by_the_step_do_not_stay(way):
    torch.manual_seed(5)
    expected = torch.rand(3)
    model = mlp()
    torch.manual_seed(5)
    trace_in_mode(way, lambda inner, batch: torch.manual_seed(1), model)
    assert torch.equal(torch.rand(3), expected)


def test_the_default_dtype_stays(way):
    trace_in_mode(way, lambda inner, batch: torch.set_default_dtype(torch.float64), mlp())
    assert torch.get_default_dtype() is torch.float32


def test_the_grad_mode_stays(way):
    def run(inner, batch):
        torch.set_grad_enabled(False)
        torch.set_grad_enabled(True)

    with torch.no_grad():
        trace_in_mode(way, run, mlp())
        assert not torch.is_grad_enabled()


def test_what_forward_caches_does_not_stay(way):
    def run(self, x):
        self.last = x
        self.seen.append(x)
        self.by_name["a"]["b"] = x
        self.names.add("x")
        self.recent.append(x)
        self.state = (x, x)
        return self.inner(x)

    model = Calls(
        run,
        inner=mlp(),
        seen=[],
        by_name=OrderedDict(a={}),
        names=set(),
        recent=deque(maxlen=2),
        state=None,
    )
    trace_in_mode(way, nothing, model)
    assert not hasattr(model, "last")
    assert (model.seen, model.by_name, model.names, list(model.recent), model.state) == ([], {"a": {}}, set(), [], None)


def test_plain_tensors_are_not_written(way):
    def run(self, x):
        self.count.add_(1)
        self.counts[0].add_(1)
        self.pair[0].add_(1)
        return self.inner(x)

    tensors = [torch.zeros(3) for _ in range(3)]
    model = Calls(run, inner=mlp(), count=tensors[0], counts=[tensors[1]], pair=(tensors[2], 1))
    trace_in_mode(way, nothing, model)
    assert all(torch.equal(tensor, torch.zeros(3)) for tensor in tensors)
    assert (model.count, model.counts[0], model.pair[0]) == (tensors[0], tensors[1], tensors[2])


def test_code_may_read_its_plain_tensors_on_fake_tensors():
    model = Calls(lambda self, x: self.inner(x)[:, : self.widths.tolist()[0]], inner=mlp(), widths=torch.tensor([3]))
    workload = traced(model, vectors)
    assert workload.method == "fake"


def test_a_network_that_the_step_trains_beside_the_model_stays(way):
    critic = nn.Linear(4, 1)
    running = torch.optim.SGD(critic.parameters(), lr=0.1)
    before = critic.weight.detach().clone()

    def run(inner, batch):
        critic(inner(batch)).mean().backward()
        running.step()

    trace_in_mode(way, run, mlp())
    assert torch.equal(critic.weight, before)
    assert critic.weight.grad is None
    assert running.param_groups[0]["params"][0] is critic.weight


def test_a_network_beside_the_model_is_counted():
    teacher = nn.Linear(8, 4)

    def train_step(model, batch):
        torch.nn.functional.mse_loss(model(batch), teacher(batch).detach()).backward()

    workload = traced(mlp(), vectors, mode="training", train_step=train_step)
    assert workload.memory[0].parameters.full[0] == (212 + 36) * 4
    assert workload.parameter_count == 212
    assert "Linear" in {row.module for row in rows_of(workload, "aten.addmm")}


def test_weight_averages_are_followed_and_stay(way):
    model = mlp()
    average = copy.deepcopy(model)
    before = average[0].weight.clone()

    def run(inner, batch):
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), inner.parameters(), strict=True):
                mean.lerp_(parameter, 0.1)

    trace_in_mode(way, run, model)
    assert torch.equal(average[0].weight, before)


def test_a_scaler_stays(way):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def run(inner, batch):
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
        scaler.scale(inner(batch).mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    def train_step(inner, batch):
        run(inner, batch)
        if way == "raises":
            raise ValueError("half-way")

    if way == "raises":
        with pytest.raises(ValueError, match="half-way"):
            traced(mlp(), vectors, mode="training", train_step=train_step)
    else:
        assert traced(mlp(), vectors, mode="training", train_step=train_step).method == "cpu_step"
    assert scaler._scale is None
    assert scaler.get_scale() == 8.0


def test_inference_leaves_the_model_alone():
    model = Calls(lambda self, x: self.inner(x), inner=cnn()).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    traced(model, images)
    assert model.training
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


# -- the parts ---------------------------------------------------------------------------------------------------------


def test_tied_tensors_stay_tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    with untouched([model]):
        replaced = with_tensors([model], to_clone)
        assert model[1].weight is model[0].weight
        assert len(replaced) == 3


def test_the_flat_weights_of_a_recurrent_layer_follow():
    layer = nn.LSTM(4, 4)
    weights = list(layer._flat_weights)
    with untouched([layer]):
        with_tensors([layer], to_clone)
        assert layer._flat_weights[0] is layer.weight_ih_l0
    assert all(now is before for now, before in zip(layer._flat_weights, weights, strict=True))


def test_a_fake_parameter_is_a_parameter():
    fake = to_fake(fake_mode(symbolic=False, isolated=False), nn.Parameter(torch.zeros(3, 4).t(), requires_grad=False))
    assert isinstance(fake, nn.Parameter)
    assert (tuple(fake.shape), fake.stride(), fake.requires_grad) == ((4, 3), (1, 4), False)


def test_a_clone_of_what_has_no_values_is_small_and_random():
    clone = to_clone(nn.Parameter(torch.empty(1000, device="meta")))
    assert isinstance(clone, nn.Parameter)
    assert clone.device.type == "cpu"
    assert 0 < clone.abs().max() < 0.2
    assert to_clone(torch.empty(3, dtype=torch.int64, device="meta")).tolist() == [0, 0, 0]


def test_inputs_that_need_values_are_made_for_real():
    mode = fake_mode(symbolic=False, isolated=False)

    def make_inputs(batch):
        return torch.tensor(np.arange(batch)) * int(torch.ones(1).item())

    made = fake_inputs(mode, make_inputs, 5)
    assert made.fake_mode is mode
    assert tuple(made.shape) == (5,)


def test_what_the_inputs_function_raises_is_raised():
    def make_inputs(batch):
        raise KeyError("no such column")

    with pytest.raises(KeyError):
        fake_inputs(fake_mode(symbolic=False, isolated=False), make_inputs, 5)


def test_a_meta_model_is_traced_without_its_weights():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 10**6), nn.Linear(10**6, 10**6))  # 4 TB
    workload = traced(model, vectors, mode="training")
    assert workload.parameter_count == 9 * 10**6 + 10**12 + 10**6
    assert all(parameter.is_meta for parameter in model.parameters())


def on_meta(batch):
    return torch.zeros(batch, 3, 8, 8, device="meta")


def cut_from_one_on_meta(batch):
    return resized(on_meta(4), 4, batch)


@pytest.mark.parametrize("make_inputs", [on_meta, cut_from_one_on_meta])
@pytest.mark.parametrize("asks_for_values", [False, True])
def test_inputs_on_the_meta_device_are_traced_like_those_on_the_cpu(make_inputs, asks_for_values):
    def train_step(model, batch):
        model(batch).mean().backward()
        if asks_for_values:
            assert batch.sum() > -1e9  # fake tensors cannot answer

    meta, usual = (traced(cnn(), make, mode="training", train_step=train_step) for make in (make_inputs, images))
    assert (meta.method, meta.batch_is_affine) == ("cpu_step" if asks_for_values else "fake", True)
    assert (meta.rows, meta.inputs) == (usual.rows, usual.inputs)


def test_errors_on_fake_tensors_are_not_logged_while_tracing_and_are_afterwards():
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    with fake_tensor_log_silenced():
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.ERROR)
    assert logger.level == level
