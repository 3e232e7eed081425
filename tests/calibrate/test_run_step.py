"""Real steps of small models, and what is left of them: nothing."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from advisor.calibrate.run_step import time_loaded
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import TraceError, UsageError
from advisor.records.timing import StepTiming
from advisor.workload.sources.live import load_live


class Net(nn.Module):
    """Remembers what it was called with; batch norm keeps running means, dropout draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2))
        self.seen: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append((x.dtype, x.shape[0], self.training, torch.is_inference_mode_enabled()))
        SEEN.append((x, next(self.parameters())))
        result: torch.Tensor = self.body(x)
        return result


SEEN: list[tuple[torch.Tensor, torch.Tensor]] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def timed(model: nn.Module, *, batch: int = 4, functions: dict[str, Any] | None = None, **how: Any) -> StepTiming:
    loaded = load_live(model, lambda batch=4: torch.randn(batch, 3, 8, 8), **(functions or {}))
    return time_loaded(loaded, MeasureRequest(source="net", batch=batch, **({"budget_s": 0.01} | how)))


def test_what_follows_a_timing_can_run_the_step_on_the_copy_of_the_parameters() -> None:
    model, counts = Net(), []
    own = next(model.parameters())

    def follow(step: Any) -> None:
        counts.append(len(SEEN))
        step()
        counts.append(len(SEEN))
        assert SEEN[-1][1] is SEEN[0][1]
        assert SEEN[-1][1] is not own

    loaded = load_live(model, lambda batch=4: torch.randn(batch, 3, 8, 8))
    timing = time_loaded(loaded, MeasureRequest(source="net", batch=4, budget_s=0.01), then=follow)
    assert counts == [2 + timing.step_count, 3 + timing.step_count]  # two steps warm up, one follows


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_timed_model_is_left_as_it_was(mode: Any) -> None:
    model = Net()
    model.body[0].weight.grad = torch.ones_like(model.body[0].weight)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()

    timing = timed(model, mode=mode)

    assert timing.step_count >= 2
    assert timing.low_s <= timing.step_s <= timing.high_s
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(model.body[0].weight.grad, torch.ones_like(model.body[0].weight))
    assert [parameter.grad is None for parameter in model.parameters()][1:] == [True] * 5
    assert (model.training, model.seen) == (True, [])
    assert torch.equal(state, torch.get_rng_state())


def test_it_runs_on_copies_with_the_values_of_the_models_own_parameters() -> None:
    model = Net()

    timed(model)

    _, used = SEEN[0]
    assert used is not model.body[0].weight
    assert torch.equal(used, model.body[0].weight)


def test_the_step_has_the_batch_that_is_asked_for() -> None:
    assert timed(Net(), batch=6).batch == 6
    assert {x.shape[0] for x, _ in SEEN} == {6}


def test_the_models_own_batch_is_taken_where_none_is_asked_for() -> None:
    loaded = load_live(nn.Linear(3, 2), torch.zeros(5, 3))

    assert time_loaded(loaded, MeasureRequest(source="net", budget_s=0.01)).batch == 5


@pytest.mark.parametrize(
    ("precision", "of_inputs", "of_results"),
    [("fp32", torch.float32, torch.float32), ("bf16", torch.bfloat16, torch.bfloat16),
     ("amp-bf16", torch.float32, torch.bfloat16)],
)  # fmt: skip
def test_the_precision_is_that_of_the_whole_model_or_of_autocast(
    precision: Any, of_inputs: torch.dtype, of_results: torch.dtype
) -> None:
    results: list[torch.dtype] = []

    class Product(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = super().forward(x)
            results.append(result.dtype)
            SEEN.append((x, result))
            return result

    loaded = load_live(Product(3, 2), torch.zeros(5, 3))
    time_loaded(loaded, MeasureRequest(source="net", precision=precision, budget_s=0.01))

    assert {x.dtype for x, _ in SEEN} == {of_inputs}
    assert set(results) == {of_results}


def test_images_and_weights_are_channels_last_where_that_is_asked_for() -> None:
    timed(Net(), layout="nhwc")

    for tensor in SEEN[0]:
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert not tensor.is_contiguous()


def test_training_takes_the_models_own_loss_and_optimizer_and_makes_it_once() -> None:
    made: list[torch.optim.Optimizer] = []
    losses: list[torch.Tensor] = []

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        made.append(torch.optim.SGD(parameters, lr=0.1))
        return made[-1]

    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        losses.append(output.square().mean())
        return losses[-1]

    timed(Net(), mode="training", functions={"loss": loss, "optimizer": optimizer})

    assert len(made) == 1
    assert len(losses) >= 4
    assert len({float(one.detach()) for one in losses}) > 1  # the copy learns


def test_a_train_step_of_its_own_is_run_with_its_optimizer_and_leaves_both_as_they_were() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    before = copy.deepcopy(model.state_dict())
    steps: list[int] = []

    def train_step(model: nn.Module, batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        steps.append(len(optimizer.state))

    timed(model, mode="training", functions={"train_step": train_step})

    assert steps[-1] == 2  # the state of weight and bias
    assert not optimizer.state
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_model_without_parameters_cannot_be_trained() -> None:
    with pytest.raises(TraceError, match="no trainable parameters"):
        timed(nn.Flatten(), mode="training")


def test_a_step_that_needs_more_memory_than_is_free_is_refused_before_it_runs() -> None:
    with pytest.raises(UsageError, match=r"the step needs 1 EiB.*are free"):
        timed(Net(), needed_bytes=2.0**60)
    assert SEEN == []


def test_settings_of_torch_are_put_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        timed(Net())
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_eager_attention_leaves_torchs_fused_kernels_alone_again() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            SEEN.append((x, torch.tensor(torch.backends.cuda.flash_sdp_enabled())))
            return nn.functional.scaled_dot_product_attention(x, x, x)

    before = torch.backends.cuda.flash_sdp_enabled()
    loaded = load_live(Attention(), torch.zeros(2, 2, 4, 8))
    time_loaded(loaded, MeasureRequest(source="net", attention="eager", budget_s=0.01))

    assert not any(bool(flash) for _, flash in SEEN)
    assert torch.backends.cuda.flash_sdp_enabled() == before


def test_the_step_runs_on_as_many_threads_as_asked_and_leaves_torchs_own() -> None:
    seen = []

    class Asking(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return super().forward(x)

    before = torch.get_num_threads()
    timed(Asking(), thread_count=before + 1)

    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_model_that_is_one_of_torch_s_containers_is_compiled(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **how: compiled(model, backend=count, **how))
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.ReLU())
    timed(model, functions={"loss": lambda output, rows: output.sum()}, mode=mode, compile="compile")
    assert len(graphs) == 1
