"""Which part of a script is its step: accumulated passes, evaluations before it, closures."""

from pathlib import Path

import pytest

from advisor.errors import LoadError
from advisor.records.workload import Workload
from advisor.workload.script_trace import trace_script
from advisor.workload.summary import group_rows

HEAD = "import torch\nfrom torch import nn\nmodel = nn.Linear(100, 10)\n"


def step_of(folder: Path, text: str) -> Workload:
    script = folder / "script.py"
    script.write_text(HEAD + text)
    return trace_script(script, [], mode="training")


def matmul_flops(workload: Workload) -> float:
    groups = group_rows(workload, by="family", batch=workload.batch)
    return next(group.flops for group in groups if group.name == "matmul")


def test_gradients_accumulated_over_passes_make_one_step_of_all_their_samples(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(4):\n"
        "    model(torch.rand(32, 100)).sum().backward()\n"
        "optimizer.step()\n",
    )

    assert workload.batch == 4 * 32
    assert workload.script is not None
    assert workload.script.passes == 4
    # Forward and the weight's gradient, each 2 x 128 samples x 100 x 10; the input needs no gradient.
    assert matmul_flops(workload) == 2 * 2 * 128 * 100 * 10


def test_an_evaluation_before_the_training_is_not_part_of_the_step(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        "with torch.no_grad():\n"
        "    model(torch.rand(1000, 100))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "model(torch.rand(20, 100)).sum().backward()\n"
        "optimizer.step()\n",
    )

    assert workload.batch == 20
    # Forward and the weight's gradient, each 2 x 20 samples x 100 x 10.
    assert matmul_flops(workload) == 2 * 2 * 20 * 100 * 10


def test_a_closure_that_makes_the_gradients_is_the_step(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "def closure():\n"
        "    optimizer.zero_grad()\n"
        "    loss = model(torch.rand(20, 100)).sum()\n"
        "    loss.backward()\n"
        "    return loss\n"
        "for _ in range(3):\n"
        "    optimizer.step(closure)\n",
    )

    assert workload.optimizer == "SGD"
    assert [row.op for row in workload.rows if row.phase == "optimizer"].count("optimizer") == 1
    assert workload.batch == 20


def test_a_script_that_calls_no_model_runs_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LoadError, match="without calling a model"):
        step_of(tmp_path, "print('ran')\n")

    assert capfd.readouterr().out.count("ran") == 1


@pytest.mark.parametrize(
    ("before", "forward", "batch", "passes"),
    [
        ("model(torch.rand(1, 100))", "model(x).sum()", 32, 1),  # a first call that only tries the model
        ("pass", "(model(x) * model(x)).sum()", 32, 1),  # two views of the same samples
        ("pass", "(model(x) - teacher(x)).sum()", 32, 1),
        ("model(torch.rand(1, 100)); passes = 4", "model(x).sum()", 4 * 32, 4),
    ],
)
def test_a_step_has_the_samples_that_its_gradients_are_of(
    tmp_path: Path, before: str, forward: str, batch: int, passes: int
) -> None:
    workload = step_of(
        tmp_path,
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "passes = 1\n"
        "def teacher(x):\n"
        "    with torch.no_grad():\n"
        "        return model(torch.cat([x, x, x]))[:len(x)]\n"
        f"{before}\n"
        "for _ in range(passes):\n"
        "    x = torch.rand(32, 100)\n"
        f"    ({forward}).backward()\n"
        "optimizer.step()\n",
    )
    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (batch, passes)


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_checkpointed_segments_are_part_of_the_backward_pass_that_runs_them(tmp_path: Path, is_reentrant: bool) -> None:
    workload = step_of(
        tmp_path,
        "from torch.utils.checkpoint import checkpoint\n"
        "class Two(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.second = nn.Linear(100, 100), nn.Linear(100, 100)\n"
        "    def forward(self, x):\n"
        "        for layer in (self.first, self.second):\n"
        f"            x = checkpoint(layer, x, use_reentrant={is_reentrant})\n"
        "        return x\n"
        "two = Two()\n"
        "optimizer = torch.optim.SGD(two.parameters(), 0.1)\n"
        "def views():\n"
        "    return torch.rand(2, 32, 100, requires_grad=True)\n"
        "for _ in range(3):\n"
        "    a, b = views()\n"
        "    (two(a) - two(b)).sum().backward()\n"
        "optimizer.step()\n",
    )
    assert workload.script is not None
    # Three passes, each of two views of the same 32 samples, though backward runs two segments of each view.
    assert (workload.batch, workload.script.passes) == (3 * 32, 3)
