"""The callbacks of transformers' Trainer and of Lightning, in loops that call them as these do, and in both."""

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.callbacks import LightningCallback, TrainerCallback
from tests.says import assert_says

TRAINER_EVENTS = (
    "on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_pre_optimizer_step", "on_optimizer_step",
    "on_substep_end", "on_step_end", "on_log", "on_evaluate", "on_prediction_step", "on_save", "on_epoch_end",
    "on_train_end", "on_predict", "on_push_begin",
)  # fmt: skip
FIGURES = {"advisor/seconds_spent", "advisor/seconds_remaining", "advisor/usd_spent", "advisor/usd_remaining"}


class Net(nn.Module):
    """A model with a loss of its own, as those of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.layer(x), labels)}


def trainer_run(
    callback: TrainerCallback, *, model: nn.Module | None = None, batch: Any = None, steps: int = 30,
    log_every: int = 10, first_step: int = 0, **args: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Train as transformers' Trainer does, with its events in their order, and return its history of logs."""
    model = model or Net()
    batch = batch or {"x": torch.ones(4, 8), "labels": torch.zeros(4, dtype=torch.long)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = SimpleNamespace(**({"world_size": 1, "dataloader_num_workers": 0, "torch_compile": False} | args))
    state = SimpleNamespace(
        global_step=first_step, max_steps=first_step + steps, is_world_process_zero=True, log_history=[]
    )
    given = dict.fromkeys(("processing_class", "lr_scheduler", "train_dataloader", "eval_dataloader"))

    def event(name: str, **more: Any) -> None:
        found = getattr(callback, name)(settings, state, None, model=model, optimizer=optimizer, **given, **more)
        assert found is None  # the control is as it was

    event("on_init_end")
    event("on_train_begin")
    event("on_epoch_begin")
    for _ in range(steps):
        event("on_step_begin")
        model(**batch)["loss"].backward()
        event("on_pre_optimizer_step")
        optimizer.step()
        event("on_optimizer_step")
        optimizer.zero_grad()
        state.global_step += 1
        event("on_step_end")
        if state.global_step % log_every == 0:
            logs = {"loss": 0.5}
            state.log_history.append({**logs, "step": state.global_step})
            event("on_log", logs=logs)
            assert logs["loss"] == 0.5
            assert logs == {name: value for name, value in state.log_history[-1].items() if name != "step"}
    event("on_epoch_end")
    event("on_train_end")
    return state.log_history


def test_the_trainers_logs_get_the_figures_and_the_advice_is_said_once() -> None:
    said: list[str] = []
    callback = TrainerCallback(usd_per_hour=36.0, provider="aws", say=said.append)  # a cent a second
    history = trainer_run(callback)
    assert [set(logs) >= FIGURES for logs in history] == [True, True, True]
    for logs in history:
        assert logs["advisor/usd_spent"] == pytest.approx(0.01 * logs["advisor/seconds_spent"])
    assert history[-1]["advisor/seconds_remaining"] == 0.0
    advice, total = said
    assert callback.recommendation is not None
    assert callback.recommendation.best is not None
    assert (callback.recommendation.job.samples, callback.recommendation.job.mode) == (10 * 4, "training")
    assert_says(advice, "10 steps", callback.recommendation.best.instance)
    assert_says(total, "30 steps", "$36.00")


def test_every_process_of_the_trainer_has_its_share_of_the_samples() -> None:
    callback = TrainerCallback(provider="aws", say=lambda text: None)
    trainer_run(callback, world_size=8, dataloader_num_workers=2, first_step=100)
    assert callback.recommendation is not None
    assert callback.recommendation.job.samples == 10 * 4 * 8


def test_a_model_that_the_trainer_compiles_gets_no_hooks_and_no_advice() -> None:
    said: list[str] = []
    callback = TrainerCallback(say=said.append)
    history = trainer_run(callback, torch_compile=True)
    assert callback.recommendation is None
    assert_says(said[0], "No advice", "torch_compile")
    assert "advisor/seconds_spent" in history[0]


def test_the_same_callback_follows_a_second_run() -> None:
    said: list[str] = []
    callback = TrainerCallback(say=said.append)
    trainer_run(callback, steps=5)
    history = trainer_run(callback, steps=12)
    assert "12 steps" in said[-1]
    assert history[0]["advisor/seconds_spent"] <= callback.spent_s


@pytest.mark.parametrize("callback", [TrainerCallback(), LightningCallback()])
def test_events_of_any_name_are_answered_and_other_attributes_are_not(callback: Any) -> None:
    assert callback.on_an_event_of_tomorrow(1, 2, some=3) is None
    assert not hasattr(callback, "append")
    assert callback.figures() == {}


class LightningNet(Net):
    """A module as Lightning has them: the loop calls `training_step`."""

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        return self(x, torch.zeros(len(x), dtype=torch.long))["loss"]


def lightning_run(callback: LightningCallback, *, steps: float = 30, accumulate: int = 2, **trainer: Any) -> Any:
    """Train as Lightning does, with an optimizer that steps once for `accumulate` batches; return the trainer."""
    module = LightningNet()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    logged: list[tuple[int, dict[str, float]]] = []
    logger = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((step, metrics)))
    values: dict[str, Any] = {
        "estimated_stepping_batches": steps,
        "global_step": 0,
        "world_size": 1,
        "is_global_zero": True,
        "train_dataloader": SimpleNamespace(num_workers=0),
        "log_every_n_steps": 10,
        "loggers": [logger],
        "logged": logged,
    }
    run = SimpleNamespace(**(values | trainer))
    callback.setup(run, module, stage="fit")
    callback.on_fit_start(run, module)
    callback.on_train_start(run, module)
    for index in range(30 * accumulate):
        batch = torch.ones(4, 8)
        callback.on_train_batch_start(run, module, batch, index)

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            loss = module.training_step(batch)
            loss.backward()
            return loss

        if (index + 1) % accumulate:
            closure()
        else:
            optimizer.step(closure)
            optimizer.zero_grad()
            run.global_step += 1
        callback.on_train_batch_end(run, module, None, batch, index)
    callback.on_train_end(run, module)
    callback.teardown(run, module, stage="fit")
    return run


def test_every_logger_of_lightning_gets_the_figures_once_a_step_that_it_logs() -> None:
    said: list[str] = []
    callback = LightningCallback(usd_per_hour=36.0, provider="aws", say=said.append)
    run = lightning_run(callback)
    assert [step for step, _ in run.logged] == [10, 20, 30]
    assert all(set(metrics) == FIGURES for _, metrics in run.logged)
    assert callback.recommendation is not None
    assert callback.recommendation.job.samples == 10 * 8  # a step has two batches of 4
    assert_says(said[0], "10 steps", "90 %")
    assert_says(said[1], "30 steps", "$36.00")


def test_a_run_of_lightning_without_an_end_is_not_advised() -> None:
    said: list[str] = []
    callback = LightningCallback(say=said.append)
    run = lightning_run(callback, steps=math.inf, train_dataloader=None)
    assert [set(metrics) for _, metrics in run.logged] == [{"advisor/seconds_spent"}] * 3
    assert callback.recommendation is None
    assert len(said) == 1


def test_a_checkpoint_of_lightning_holds_nothing_of_the_callback() -> None:
    assert LightningCallback().state_dict() == {}
    assert LightningCallback().state_key


def test_lightning_says_when_a_run_fails() -> None:
    said: list[str] = []
    callback = LightningCallback(say=said.append)
    module = LightningNet()
    run = SimpleNamespace(
        estimated_stepping_batches=9, global_step=0, world_size=1, is_global_zero=True, train_dataloader=None
    )
    callback.on_train_start(run, module)
    callback.step_ended(1)
    callback.on_exception(run, module, RuntimeError("out of memory"))
    assert not module._forward_pre_hooks
    assert_says(said[0], "1 step")


def test_no_framework_is_imported() -> None:
    code = (
        "import sys, advisor\n"
        "advisor.TrainerCallback(usd_per_hour=1), advisor.LightningCallback(instance='g5.xlarge')\n"
        "print({'torch', 'transformers', 'lightning', 'pytorch_lightning', 'accelerate'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the frameworks
def test_transformers_trainer_runs_with_the_callback(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers: Any = pytest.importorskip("transformers")
    trainers: Any = pytest.importorskip("transformers.trainer")
    events = {name for name in dir(transformers.TrainerCallback) if name.startswith("on_")}
    assert events <= set(TRAINER_EVENTS)
    weights = []
    for is_followed in (False, True):
        transformers.set_seed(0)
        config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, bos_token_id=0, eos_token_id=0)
        model = transformers.GPT2LMHeadModel(config)
        callback = advisor.TrainerCallback(usd_per_hour=36.0, provider="aws", say=lambda text: None)
        data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
        arguments = trainers.TrainingArguments(
            str(tmp_path), max_steps=30, per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
            bf16=True, report_to=[], save_strategy="no", logging_steps=10, disable_tqdm=True,
        )  # fmt: skip
        trainer = trainers.Trainer(
            model=model, args=arguments, train_dataset=data, callbacks=[callback] if is_followed else []
        )
        trainer.train()
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
    assert all(set(logs) >= FIGURES for logs in trainer.state.log_history)
    assert callback.recommendation is not None
    job, (step,) = callback.recommendation.job, callback.recommendation.measured
    assert (job.mode, job.precision, job.samples) == ("training", "amp-bf16", 10 * 8)
    assert step.batch == 8
    assert all(torch.equal(plain, followed) for plain, followed in zip(*weights, strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the framework
def test_lightning_runs_with_the_callback(tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(x)
            return result

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = self(batch[0]).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    logger = lightning.loggers.CSVLogger(str(tmp_path))
    callback = advisor.LightningCallback(usd_per_hour=36.0, provider="aws", say=lambda text: None)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", precision="bf16-mixed", callbacks=[callback], logger=logger,
        log_every_n_steps=10, enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(tmp_path),
    )  # fmt: skip
    rows = torch.utils.data.TensorDataset(torch.randn(64, 8))
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=4))
    assert callback.recommendation is not None
    job = callback.recommendation.job
    assert (job.mode, job.precision, job.samples) == ("training", "amp-bf16", 12 * 4)  # 2 epochs of 16 steps
    header = Path(logger.log_dir, "metrics.csv").read_text(encoding="utf-8").splitlines()[0]
    assert set(header.split(",")) >= FIGURES
