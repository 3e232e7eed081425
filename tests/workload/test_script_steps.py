"""Which part of a script is its step: accumulated passes, evaluations before it, closures."""

from pathlib import Path

import pytest

from advisor.errors import LoadError
from advisor.records.workload import Workload
from advisor.workload.script_trace import trace_script
from advisor.workload.summary import group_rows
from tests.says import assert_says

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


TWO_NETWORKS = (
    "one, two = nn.Linear(100, 50), nn.Linear(50, 10)\n"
    "first = torch.optim.SGD(one.parameters(), 0.1)\n"
    "second = torch.optim.AdamW(two.parameters(), 0.1)\n"
)
ONE_COUNT, TWO_COUNT = 100 * 50 + 50, 50 * 10 + 10


def optimizer_elements(workload: Workload) -> list[object]:
    return [row.attributes["element_count"] for row in workload.rows if row.op == "optimizer"]


def test_optimizers_that_step_one_after_the_other_are_one_step(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        TWO_NETWORKS + "for _ in range(3):\n"
        "    two(torch.relu(one(torch.rand(32, 100)))).sum().backward()\n"
        "    first.step()\n"
        "    second.step()\n"
        "    raise AssertionError('went on after the step')\n",
    )

    assert workload.optimizer == "SGD, AdamW"
    assert optimizer_elements(workload) == [ONE_COUNT, TWO_COUNT]
    assert workload.parameter_count == ONE_COUNT + TWO_COUNT
    assert workload.parameter_bytes == 4 * (ONE_COUNT + TWO_COUNT)
    # AdamW keeps two moments of 4 bytes for each element, and a count of 4 bytes for each of 2 tensors; SGD nothing.
    assert workload.memory[0].optimizer_state.full[0] == 8 * TWO_COUNT + 2 * 4
    assert workload.batch == 32


GAN = (
    "generator, critic = nn.Linear(100, 50), nn.Linear(50, 1)\n"
    "of_generator = torch.optim.Adam(generator.parameters())\n"
    "of_critic = torch.optim.Adam(critic.parameters())\n"
    "def train_critic():\n"
    "    made = generator(torch.rand(32, 100))\n"
    "    critic(torch.rand(32, 50)).sum().backward()\n"
    "    critic(made.detach()).sum().backward()\n"
    "    of_critic.step()\n"
    "def train_generator():\n"
    "    critic(generator(torch.rand(32, 100))).sum().backward()\n"
    "    of_generator.step()\n"
)


def test_a_step_of_a_gan_trains_both_networks(tmp_path: Path) -> None:
    workload = step_of(tmp_path, GAN + "for _ in range(3):\n    train_critic()\n    train_generator()\n")

    # A multiply-add of a sample: 100 x 50 in the generator, 50 in the critic.
    # The critic's turn: generator; critic on 2 batches, forward and weight gradient. The generator's turn: forward of
    # both, gradients of the critic's weights and input and of the generator's weights.
    of_critic = 100 * 50 + 2 * 2 * 50
    of_generator = (100 * 50 + 50) + (2 * 50 + 100 * 50)
    assert matmul_flops(workload) == 2 * 32 * (of_critic + of_generator)
    assert workload.parameter_count == 100 * 50 + 50 + 50 + 1
    # The two calls of the critic are not two passes of data: one has the images of the generator.
    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (32, 1)


@pytest.mark.parametrize("frozen", ["", "    critic.requires_grad_(False)\n"])
def test_a_critic_with_several_steps_for_each_of_the_generator_has_their_samples(tmp_path: Path, frozen: str) -> None:
    workload = step_of(
        tmp_path,
        GAN + "for _ in range(3):\n"
        "    critic.requires_grad_(True)\n"
        "    for _ in range(5):\n"
        "        train_critic()\n"
        f"{frozen}"
        "    train_generator()\n",
    )

    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (5 * 32, 5)
    # As above, 5 turns and 1; without gradients of its weights, the critic saves 50 in the generator's turn.
    of_critic, of_generator = 100 * 50 + 2 * 2 * 50, 2 * 100 * 50 + (2 if frozen else 3) * 50
    assert matmul_flops(workload) == 2 * 32 * (5 * of_critic + of_generator)


def test_a_gradient_penalty_is_no_pass_of_its_own(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(3):\n"
        "    x = torch.rand(32, 100, requires_grad=True)\n"
        "    slope, = torch.autograd.grad(model(x).sum(), x, create_graph=True)\n"
        "    (model(torch.rand(32, 100)).sum() + slope.square().sum()).backward()\n"
        "    optimizer.step()\n",
    )

    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (32, 1)


def test_accumulated_gradients_of_two_optimizers_are_counted_once(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        TWO_NETWORKS + "for _ in range(3):\n"
        "    for _ in range(4):\n"
        "        two(torch.relu(one(torch.rand(32, 100)))).sum().backward()\n"
        "    for optimizer in (first, second):\n"
        "        optimizer.step()\n",
    )

    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (4 * 32, 4)


@pytest.mark.parametrize(
    "end",
    [
        "while True:\n    train_critic()\n",  # the loop comes round without the other
        "train_critic()\n",
        "train_critic()\nraise RuntimeError('disk full')\n",
    ],
)
def test_an_optimizer_that_does_not_step_is_left_out_with_a_note(tmp_path: Path, end: str) -> None:
    alone = step_of(tmp_path, GAN + "del of_generator\ntrain_critic()\n")
    workload = step_of(tmp_path, GAN + end)

    assert workload.rows == alone.rows
    assert workload.memory == alone.memory
    assert workload.batch == alone.batch == 32
    assert_says(" ".join(workload.assumptions), "not counted", "Adam", "5.05k")
    assert "not counted" not in " ".join(alone.assumptions)


def test_an_optimizer_of_parameters_that_have_stepped_is_not_waited_for(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        "unused = torch.optim.SGD(model.parameters(), 0.1)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), 0.1)\n"
        "while True:\n"
        "    model(torch.rand(32, 100)).sum().backward()\n"
        "    optimizer.step()\n"
        "    raise AssertionError('went on after the step')\n",
    )

    assert (workload.optimizer, workload.method) == ("AdamW", "symbolic")


def test_a_value_that_is_needed_between_two_optimizers_takes_a_real_step(tmp_path: Path) -> None:
    workload = step_of(
        tmp_path,
        GAN + "while True:\n"
        "    train_critic()\n"
        "    if critic(torch.rand(1, 50)).item() > 1e9:\n"
        "        break\n"
        "    train_generator()\n",
    )

    assert workload.method == "cpu_step"
    assert len(optimizer_elements(workload)) == 2
