from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from advisor.errors import LoadError, UsageError
from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.sources.live import check_given, load_live
from tests.says import assert_says

MODEL = nn.Linear(3, 2)
INPUTS = torch.zeros(4, 3)


def test_what_the_user_gives_is_what_the_tracer_gets() -> None:
    def loss(output: Any, batch: Any) -> torch.Tensor:
        return output.sum()

    loaded = load_live(MODEL, INPUTS, loss=loss, optimizer=torch.optim.SGD, train_step=lambda model, batch: None)
    assert loaded.model is MODEL
    assert (loaded.name, loaded.batch, loaded.loss, loaded.optimizer) == ("Linear", 4, loss, torch.optim.SGD)
    assert loaded.train_step is not None
    assert loaded.notes == ()


def test_wrappers_around_the_model_are_left_out() -> None:
    assert load_live(nn.DataParallel(MODEL), INPUTS).model is MODEL


def _compiled_in_place(part: nn.Module) -> nn.Module:
    part.compile(backend="eager")
    return part


def _compiled_in_a_file(part: nn.Module) -> nn.Module:
    with cuda_redirected():
        return torch.compile(part)


@pytest.mark.parametrize(
    "compiled", [lambda part: torch.compile(part, backend="eager"), _compiled_in_place, _compiled_in_a_file]
)
def test_its_own_torch_compile_is_not_followed(compiled: Callable[[nn.Module], nn.Module]) -> None:
    for model in (compiled(nn.Linear(3, 3)), nn.Sequential(compiled(nn.Linear(3, 3)), MODEL)):
        (note,) = load_live(model, INPUTS).notes
        assert "--compile compile" in note


def test_an_optimizer_object_stands_for_its_kind_and_settings() -> None:
    given = torch.optim.AdamW(nn.Linear(1, 1).parameters(), lr=0.25, weight_decay=0.5)
    made = load_live(MODEL, INPUTS, optimizer=given).optimizer
    assert made is not None
    optimizer = made(MODEL.parameters())
    assert isinstance(optimizer, torch.optim.AdamW)
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.25, 0.5)
    assert optimizer.param_groups[0]["params"] == list(MODEL.parameters())


def test_an_optimizer_object_trains_the_parameters_that_it_holds() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 6))
    _, *others = model
    model[0].requires_grad_(False)
    given = torch.optim.AdamW([{"params": others[1].parameters()}, {"params": [others[0].bias], "amsgrad": True}])
    made = load_live(model, INPUTS, optimizer=given).optimizer
    assert made is not None
    optimizer = made([parameter for layer in others for parameter in layer.parameters()])
    assert [group["params"] for group in optimizer.param_groups] == [list(others[1].parameters()), [others[0].bias]]
    assert [group["amsgrad"] for group in optimizer.param_groups] == [False, True]


def test_a_name_used_for_something_else_is_left_out_with_a_note() -> None:
    loaded = load_live(MODEL, INPUTS, loss=0.5, train_step=lambda model, optimizer, x, y: None)
    assert (loaded.loss, loaded.train_step) == (None, None)
    loss, train_step = loaded.notes
    assert_says(loss, "`loss`", "(output, batch)")
    assert_says(train_step, "`train_step`", "(model, batch)")


def test_specs_win_over_example_inputs() -> None:
    loaded = load_live(MODEL, INPUTS, specs=parse_input_specs(["7x3"]))
    assert tuple(loaded.make_inputs(2)[0][0].shape) == (2, 7, 3)


def test_without_inputs_the_error_shows_the_forward_and_an_input_that_fits() -> None:
    with pytest.raises(LoadError, match=r"Linear\.forward\(input: torch\.Tensor\)") as caught:
        load_live(MODEL)
    assert "--input 3" in caught.value.hint


@pytest.mark.parametrize(("model", "found"), [(nn.Linear, "the class Linear"), ("net", "str")])
def test_what_is_no_module_is_refused(model: Any, found: str) -> None:
    with pytest.raises(LoadError, match=rf"\b{found}\b.*torch\.nn\.Module"):
        load_live(model, INPUTS)


@pytest.mark.parametrize(
    ("functions", "given", "accepted"),
    [
        ({"loss": lambda out: out.mean()}, "loss(out)", "loss(output, batch)"),
        ({"optimizer": lambda: None}, "optimizer()", "optimizer(parameters)"),
        ({"train_step": lambda model, x, y: None}, "train_step(model, x, y)", "train_step(model, batch)"),
    ],
)
def test_in_training_a_function_with_other_parameters_is_refused(
    functions: dict[str, Any], given: str, accepted: str
) -> None:
    with pytest.raises(LoadError) as caught:
        load_live(MODEL, INPUTS, mode="training", **functions)
    assert given in caught.value.message
    assert accepted in caught.value.hint
    assert load_live(MODEL, INPUTS, mode="training", loss=0.5).loss is None
    assert load_live(MODEL, INPUTS, mode="inference", **functions).notes


@pytest.mark.parametrize(
    "given", [{"loss": 5}, {"optimizer": "adam"}, {"loss": lambda out: out.mean()}, {"train_step": MODEL.double}]
)
def test_what_the_caller_gives_for_a_step_is_refused_if_the_step_cannot_call_it(given: dict[str, Any]) -> None:
    (role,) = given
    with pytest.raises(UsageError, match=f"^{role}: ") as caught:
        check_given(given)
    assert f"{role}(" in caught.value.hint


def test_the_caller_may_give_functions_classes_and_optimizers() -> None:
    check_given({"loss": lambda output, batch: output.mean(), "optimizer": torch.optim.SGD, "train_step": None})
    check_given({"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters())})
