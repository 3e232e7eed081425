import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from torch import nn

from advisor.errors import LoadError
from advisor.workload.run_script import StepCaptured, run_script

SCRIPT = """
    import sys
    import torch
    from torch import nn

    def main():
        model = nn.Sequential(nn.Linear(3, 2))
        if "train" in sys.argv:
            augmented = nn.Dropout()(torch.ones(5, 3))
            output = model(augmented)
            nn.MSELoss()(output, torch.zeros(5, 2)).backward()
        print("the end")

    if __name__ == "__main__":
        main()
"""
CALL = nn.Module.__call__


@pytest.fixture(autouse=True)
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pytest its own `__main__` and arguments back."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)


def write(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def test_the_first_call_of_a_module_with_parameters_is_reported_before_it_runs(tmp_path: Path) -> None:
    calls: list[tuple[str, Any]] = []

    def first_forward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((type(model).__name__, (tuple(args[0].shape), kwargs)))
        raise StepCaptured

    run_script(write(tmp_path, SCRIPT), ["train"], on_first_forward=first_forward)
    assert calls == [("Sequential", ((5, 3), {}))]


@pytest.mark.parametrize(
    "parametrized",
    [
        "parametrizations.spectral_norm(model)",
        "parametrizations.orthogonal(model)",
        "parametrize.register_parametrization(model, 'weight', Scaled())",
        "parametrize.register_parametrization(parametrizations.spectral_norm(model), 'weight', Scaled())",
    ],
)
def test_the_parametrization_of_a_weight_is_no_model(tmp_path: Path, parametrized: str) -> None:
    text = f"""
    import torch
    from torch import nn
    from torch.nn.utils import parametrizations, parametrize

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, weight):
            return self.scale * weight

    model = nn.Linear(3, 3)
    {parametrized}
    model.weight.sum()
    model(torch.ones(5, 3))
    """
    calls: list[nn.Module] = []
    run_script(write(tmp_path, text), [], on_first_forward=lambda model, args, kwargs: calls.append(model))
    assert [len(list(model.parametrizations)) for model in calls] == [1]


def test_the_script_goes_on_where_nothing_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[nn.Module] = []
    run_script(write(tmp_path, SCRIPT), ["train"], on_first_forward=lambda model, args, kwargs: calls.append(model))
    assert len(calls) == 1
    assert capsys.readouterr().out == "the end\n"


def test_a_script_that_calls_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="ended without calling a model"):
        run_script(write(tmp_path, SCRIPT), [], on_first_forward=lambda *_: None)


def test_a_script_that_exits_cleanly_without_a_model_is_the_same_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="ended without calling a model"):
        run_script(write(tmp_path, "import sys; sys.exit(0)"), [], on_first_forward=lambda *_: None)


def test_a_script_that_fails_before_its_model_raises_what_it_raised(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="7"):
        run_script(write(tmp_path, "import sys; sys.exit(7)"), [], on_first_forward=lambda *_: None)
    with pytest.raises(KeyError):
        run_script(write(tmp_path, "{}['data']"), [], on_first_forward=lambda *_: None)


def test_a_handler_of_every_exception_does_not_hold_the_captured_step_up(tmp_path: Path) -> None:
    text = """
    import sys
    from torch import nn
    import torch
    try:
        nn.Linear(1, 1)(torch.ones(1, 1))
    except Exception:
        raise AssertionError("went on")
    """

    def first_forward(*_: Any) -> None:
        raise StepCaptured

    run_script(write(tmp_path, text), [], on_first_forward=first_forward)


def test_a_handler_that_raises_another_error_from_a_third_does_not_hide_the_captured_step(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn
    try:
        nn.Linear(1, 1)(torch.ones(1, 1))
    except BaseException:
        raise RuntimeError("clean-up failed") from ValueError("of its own")
    """

    def first_forward(*_: Any) -> None:
        raise StepCaptured

    run_script(write(tmp_path, text), [], on_first_forward=first_forward)


def test_modules_are_called_as_before_afterwards(tmp_path: Path) -> None:
    run_script(write(tmp_path, SCRIPT), ["train"], on_first_forward=lambda *_: None)
    with pytest.raises(LoadError):
        run_script(write(tmp_path, SCRIPT), [], on_first_forward=lambda *_: None)
    assert nn.Module.__call__ is CALL
