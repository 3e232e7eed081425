"""A script as it is becomes the Workload of its first step."""

import sys
from textwrap import dedent

import pytest
import torch

from advisor.errors import LoadError, TraceError
from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.script_trace import trace_script
from tests.workload.tracing import flops_by_op, op_counts, rows_of

HEAD = """
import argparse, sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
"""


@pytest.fixture(autouse=True)
def _arguments(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))


@pytest.fixture
def script(tmp_path):
    def write(body):
        path = tmp_path / "script.py"
        path.write_text(HEAD + dedent(body), encoding="utf-8")
        return path

    return write


TRAINING = """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    arguments = parser.parse_args()
    model = Net(arguments.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for _ in range(1000):
        optimizer.zero_grad()
        loss = criterion(model(torch.randn(arguments.batch, 8)), torch.zeros(arguments.batch, dtype=torch.int64))
        loss.backward()
        optimizer.step()
    raise AssertionError("the script went on after its first step")

if __name__ == "__main__":
    main()
"""


def test_a_training_script_gives_its_first_step(script):
    workload = trace_script(script(TRAINING), ["--width", "32", "--batch", "10"], mode="training")
    assert (workload.batch, workload.batch_is_affine, workload.method) == (10, False, "symbolic")
    assert workload.parameter_count == 8 * 32 + 32 + 32 * 4 + 4
    # 2 x 10 x (8 x 32 + 32 x 4); backward: both weights and the second input.
    flops = flops_by_op(workload, batch=10)
    assert flops["aten.addmm"] == 7680
    assert flops["aten.mm"] == 7680 + 2560
    assert workload.optimizer == "AdamW"
    [row] = rows_of(workload, "optimizer")
    assert row.attributes["element_count"] == workload.parameter_count
    assert {row.phase for row in workload.rows} == {"forward", "loss", "backward", "optimizer"}
    assert any("its batch of 10" in note for note in workload.assumptions)


def test_an_inference_script_gives_its_first_call(script):
    path = script("""
        model = Net(16).eval()
        with torch.no_grad():
            for _ in range(1000):
                output = model(torch.randn(5, 8))
        raise AssertionError("the script went on after its first call")
        """)
    workload = trace_script(path, [], mode="inference")
    assert (workload.mode, workload.batch) == ("inference", 5)
    assert op_counts(workload) == {"aten.addmm": 2, "aten.relu": 1}
    assert workload.optimizer is None


STEPS = """
for _ in range(1000):
    model(torch.randn(5, 8)).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "tries", ["model(x)", "model(x); model(x)", "list(map(model, [x] * 3))", "sum(model(x).shape)"]
)
def test_a_call_that_tries_the_model_before_the_loop_is_no_part_of_the_step(script, tries):
    path = script(f"""
        model, x = Net(16), torch.randn(7, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {tries}
        {STEPS.replace(chr(10), chr(10) + " " * 8)}
        """)
    workload = trace_script(path, [], mode="training")
    assert (op_counts(workload)["aten.addmm"], workload.batch) == (2, 5)


@pytest.mark.parametrize(
    ("act", "layer_count"),
    [
        ("model(torch.randn(1, 8)).argmax()", 2 * 2),
        ("[model(torch.randn(1, 8)).argmax() for _ in range(3)]", 2 * 2),
        ("sum(model(x).detach() for x in [torch.randn(1, 8)])", 2 * 2),
        ("for _ in range(3): model(torch.randn(1, 8)).argmax()", 2 * 2),
    ],
)
def test_acting_in_earlier_turns_of_the_loop_is_no_part_of_the_step(script, act, layer_count):
    path = script(f"""
        model = Net(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1000):
            {act}
            if step > 20:
                model(torch.randn(5, 8)).mean().backward()
                optimizer.step()
        """)
    workload = trace_script(path, [], mode="training")
    assert (op_counts(workload)["aten.addmm"], workload.batch) == (layer_count, 5)


def test_a_pass_whose_result_is_detached_is_part_of_its_step(script):
    path = script("""
        model = Net(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1000):
            target = model(torch.randn(5, 8)).detach()
            nn.functional.mse_loss(model(torch.randn(5, 8)), target).backward()
            optimizer.step()
        """)
    assert op_counts(trace_script(path, [], mode="training"))["aten.addmm"] == 4


@pytest.mark.parametrize(
    ("body", "in_fp32"),
    [
        ("with half:\n                loss = model(x).mean()", [False, False]),
        ("y = model.first(x)\n            with half:\n                loss = model.second(y).mean()", [True, False]),
        ("with half:\n                y = model.first(x)\n            loss = model.second(y).mean()", [False, True]),
        ("loss = model(x).mean()", [False, False]),
    ],
)
def test_what_runs_outside_of_the_scripts_autocast_runs_in_fp32(script, body, in_fp32):
    path = script(f"""
        model, x = Net(16), torch.randn(5, 8)
        half = torch.autocast("cuda", dtype=torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1000):
            {body}
            loss.backward()
            optimizer.step()
        """)
    workload = trace_script(path, [], mode="training")
    forward = [row for row in workload.rows if row.op == "aten.addmm"]
    backward = [row for row in workload.rows if row.op == "aten.mm"]
    assert [bool(row.attributes.get("in_full")) for row in forward] == in_fp32
    assert {bool(row.attributes.get("in_full")) for row in backward} == set(in_fp32)


def test_parameters_of_an_optimizer_that_no_network_holds_are_trained_too(script):
    path = script("""
        model, table = Net(16), torch.randn(100, 8, requires_grad=True)
        optimizer = torch.optim.Adam([table, *model.parameters()], lr=0.1)
        for _ in range(1000):
            model(table[torch.randint(0, 100, (5,))]).mean().backward()
            optimizer.step()
        """)
    workload = trace_script(path, [], mode="training")
    count = 100 * 8 + 212
    [row] = rows_of(workload, "optimizer")
    assert (workload.parameter_count, row.attributes["element_count"]) == (count, count)
    peak = workload.memory[-1]
    assert peak.parameters.full[0] == peak.gradients.full[0] == 4 * count
    assert peak.optimizer_state.full[0] >= 2 * 4 * count


def test_master_copies_of_the_weights_are_state_of_the_step(script):
    path = script("""
        model = Net(16).to(torch.bfloat16)
        copies = [part.detach().float().clone().requires_grad_(True) for part in model.parameters()]
        optimizer = torch.optim.Adam(copies, lr=0.1)
        for _ in range(1000):
            model(torch.randn(5, 8, dtype=torch.bfloat16)).mean().backward()
            for part, copy in zip(model.parameters(), copies):
                copy.grad, part.grad = part.grad.float(), None
            optimizer.step()
        """)
    workload = trace_script(path, [], mode="training")
    [row] = rows_of(workload, "optimizer")
    assert (workload.parameter_count, row.attributes["element_count"]) == (2 * 212, 212)


def test_two_calls_of_a_step_without_a_loop_are_both_counted(script):
    path = script("""
        model, optimizer = Net(16), None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        distance = model(torch.randn(5, 8)) - model(torch.randn(5, 8))
        distance.square().mean().backward()
        optimizer.step()
        """)
    assert op_counts(trace_script(path, [], mode="training"))["aten.addmm"] == 4


@pytest.mark.parametrize(
    ("body", "batch", "passes"),
    [
        (  # sharpness-aware minimization: a second pass at other weights
            """
            for _ in range(1000):
                model(x).mean().backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(parameter.grad, alpha=0.1)
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
            """, 6, 1,
        ),
        (  # accumulated gradients, of made-up data
            """
            for _ in range(1000):
                for _ in range(3):
                    model(x).mean().backward()
                optimizer.step()
            """, 18, 3,
        ),
        (  # a line search
            """
            optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

            def evaluate():
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            for _ in range(1000):
                optimizer.step(evaluate)
            """, 6, 1,
        ),
    ],
)  # fmt: skip
def test_samples_that_come_again_at_other_weights_count_once(script, body, batch, passes):
    path = script(
        """
        model, x = Net(16), torch.randn(6, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """
        + dedent(body).replace("\n", "\n" + " " * 8)
    )
    workload = trace_script(path, [], mode="training")
    assert workload.script is not None
    assert (workload.batch, workload.script.passes) == (batch, passes)


METHOD = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.cell, self.unused = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def encode(self, x, steps=1):
        x = self.first(x)
        for _ in range(steps):
            x = torch.tanh(self.cell(x))
        return x

    def repeat(self, x, steps):
        for _ in range(steps):
            x = self.first(x)
        return x
"""


@pytest.mark.parametrize(
    ("call", "layer_count"),
    [
        ("encode(x)", 2),
        ("encode(x, 5)", 6),
        ("encode(x) if True else model.unused(x)", 2),
        ("repeat(x, 5)", 5),
        ("repeat(x, 1000)", 64),
    ],
)
def test_a_method_of_the_model_is_counted_until_it_returns(script, call, layer_count):
    path = script(f"""
        {METHOD.replace(chr(10), chr(10) + " " * 8)}
        model = Encoder().eval()

        def evaluate(model):
            for _ in range(1000):
                x = torch.randn(5, 8)
                model.{call}

        with torch.no_grad():
            evaluate(model)
        raise AssertionError("the script went on after its first call")
        """)
    workload = trace_script(path, [], mode="inference")
    assert op_counts(workload)["aten.addmm"] == layer_count
    assert workload.batch == 5
    assert workload.parameter_count == 3 * (8 * 8 + 8)
    assert any("not counted: what follows the first 64 calls" in note for note in workload.assumptions) == (
        layer_count == 64
    )


def test_a_method_that_needs_values_takes_a_real_step(script):
    path = script(f"""
        {METHOD.replace(chr(10), chr(10) + " " * 8)}
        class Chooser(Encoder):
            def choose(self, x):
                x = self.first(x)
                return self.cell(x) if f"{{x.sum().item():.3f}}" else x

        with torch.no_grad():
            Chooser().eval().choose(torch.randn(5, 8))
        """)
    workload = trace_script(path, [], mode="inference")
    assert (workload.method, op_counts(workload)["aten.addmm"]) == ("cpu_step", 2)


@pytest.mark.parametrize(
    ("end", "is_noted"), [("", False), ("print(f'{found.sum().item():.3f}')", True), ("found.numpy()", True)]
)
def test_networks_that_run_in_turn_are_one_step_of_inference(script, end, is_noted):
    path = script(f"""
        first, second = Net(16).eval(), Net(32).eval()
        with torch.no_grad():
            for _ in range(1000):
                x = torch.randn(5, 8)
                found = second(torch.cat([first(x), x[:, :4]], 1))
                {end}
        raise AssertionError("the script went on after its first step")
        """)
    workload = trace_script(path, [], mode="inference")
    assert (workload.method, op_counts(workload)["aten.addmm"]) == ("symbolic", 4)
    assert workload.parameter_count == sum(8 * width + width + width * 4 + 4 for width in (16, 32))
    assert any("which needs values" in note for note in workload.assumptions) == is_noted


def test_a_loss_that_is_printed_takes_a_real_step(script):
    path = script("""
        model = Net(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1000):
            loss = model(torch.randn(4, 8)).mean()
            loss.backward()
            print(f"{step}: {loss.item():.3f}")
            optimizer.step()
        """)
    workload = trace_script(path, [], mode="training")
    assert workload.method == "cpu_step"
    assert op_counts(workload)["aten.addmm"] == 2
    assert any("real step" in note for note in workload.assumptions)


def test_a_loss_that_is_summed_up_does_not(script):
    path = script("""
        model = Net(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        total = 0.0
        for step in range(1000):
            loss = model(torch.randn(4, 8)).mean()
            loss.backward()
            total += loss.item()
            optimizer.step()
        """)
    assert trace_script(path, [], mode="training").method == "symbolic"


@pytest.mark.skipif(torch.cuda.is_available(), reason="requests for CUDA are redirected where there is none")
def test_an_optimizer_made_before_the_model_moves_is_followed(script):
    path = script("""
        model = Net(16)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model.cuda()
        for _ in range(1000):
            loss = model(torch.randn(4, 8, device="cuda")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """)
    with cuda_redirected():
        workload = trace_script(path, [], mode="training")
    [row] = rows_of(workload, "optimizer")
    assert (row.attributes["name"], row.attributes["element_count"]) == ("Adam", 212)


def test_other_networks_of_the_script_are_part_of_its_step(script):
    path = script("""
        def train(model, teacher):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(1000):
                x = torch.randn(4, 8)
                loss = nn.functional.mse_loss(model(x), teacher(x).detach())
                loss.backward()
                optimizer.step()

        train(Net(16), Net(64))
        """)
    workload = trace_script(path, [], mode="training")
    assert workload.parameter_count == 212
    assert workload.memory[0].parameters.full[0] == 4 * (212 + 8 * 64 + 64 + 64 * 4 + 4)


def test_a_script_that_never_calls_a_model_is_named(script):
    with pytest.raises(LoadError, match="ended without calling a model"):
        trace_script(script("print(Net(16))"), [], mode="inference")


def test_a_script_that_never_steps_is_named(script):
    path = script("Net(16)(torch.randn(4, 8))")
    with pytest.raises(TraceError, match="ended before an optimizer's step") as caught:
        trace_script(path, [], mode="training")
    assert "--mode inference" in caught.value.hint


def test_what_the_script_raises_before_its_model_is_raised(script):
    with pytest.raises(FileNotFoundError):
        trace_script(script("open('no such data')"), [], mode="training")


def test_what_its_step_raises_is_raised(script):
    with pytest.raises(RuntimeError):
        trace_script(script("Net(16)(torch.randn(4, 9))"), [], mode="inference")


def test_a_first_step_without_samples_is_named(script):
    with pytest.raises(TraceError, match="has no samples"):
        trace_script(script(TRAINING), ["--batch", "0"], mode="training")


def test_arguments_that_it_refuses_end_it(script):
    with pytest.raises(SystemExit):
        trace_script(script(TRAINING), ["--no-such-flag"], mode="training")


def test_a_mistake_of_ours_does_not_run_the_script_a_second_time(script, tmp_path, monkeypatch):
    path = script(f"""
with open({str(tmp_path / "runs")!r}, "a") as runs:
    runs.write("x")
Net(16)(torch.randn(4, 8))
""")
    monkeypatch.delattr("advisor.workload.recorder._look_up")
    with pytest.raises(NameError, match="_look_up"):
        trace_script(path, [], mode="inference")
    assert (tmp_path / "runs").read_text() == "x"


def test_a_part_that_a_method_of_the_model_calls_has_its_name_in_the_model(script):
    path = script("""
        class Learner(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.head = Net(16), nn.Linear(4, 2)

            def training_step(self, x):
                return self.head(self.net(x)).mean()

        model = Learner()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1000):
            model.training_step(torch.randn(4, 8)).backward()
            optimizer.step()
        """)
    workload = trace_script(path, [], mode="training")
    assert {row.module for row in workload.rows if row.op == "aten.addmm"} == {"net.first", "net.second", "head"}
    assert workload.parameter_count == 212 + 4 * 2 + 2
    assert workload.batch == 4


def test_a_trainer_that_fails_to_clean_up_after_the_step_does_not_matter(script):
    path = script("""
        model = Net(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            for _ in range(1000):
                model(torch.randn(4, 8)).mean().backward()
                optimizer.step()
        except BaseException:
            raise RuntimeError("cannot save")
        """)
    assert trace_script(path, [], mode="training").method == "symbolic"


def test_a_loss_that_is_checked_for_nan_needs_no_real_step(script):
    path = script("""
        model = Net(16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(1000):
            loss = model(torch.randn(4, 8)).mean()
            if torch.isnan(loss) or torch.isinf(loss):
                sys.exit("diverged")
            loss.backward()
            optimizer.step()
        """)
    assert trace_script(path, [], mode="training").method == "symbolic"
