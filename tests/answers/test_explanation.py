"""`advise explain` and `advisor.explain` from a model to where the time of its step goes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers import explanation
from advisor.answers.ranking import rank
from advisor.calibrate.store import Stored
from advisor.catalog.overlay import load_catalog
from advisor.cli.main import run
from advisor.errors import ExitCode, NothingFitsError, UsageError
from advisor.question.from_source import profile_source, question_from_source, question_of
from advisor.records.explained_step import Explanation
from advisor.records.options import Options
from advisor.records.workload import Workload
from advisor.workload.file import workload_to_json
from tests.answers.test_break_even import asked_of_padded, padded
from tests.answers.test_break_even import catalog as market
from tests.calibrate.toys import EPYC, calibration
from tests.generations import traced
from tests.model_files import TWO_LAYERS
from tests.says import assert_says

Explain = Callable[..., dict[str, Any]]


def explain_source(source: str, options: Options, *, on: Sequence[str] = (), **how: Any) -> Explanation:
    return explanation.explain(question_from_source(source, options, on=on, **how), on=on)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(dedent(TWO_LAYERS))
    return str(file)


@pytest.fixture(scope="module")
def source(net: str) -> str:
    """The saved step, which needs no trace."""
    file = Path(net).with_suffix(".json")
    file.write_text(json.dumps(workload_to_json(profile_source(net, Options()).workload)))
    return str(file)


@pytest.fixture
def explain(source: str, capsys: pytest.CaptureFixture[str]) -> Explain:
    def call(*flags: str, source: str = source) -> dict[str, Any]:
        assert run(["explain", source, "-o", "json", *flags]) == ExitCode.ANSWER
        out, err = capsys.readouterr()
        assert err == ""
        document: dict[str, Any] = json.loads(out)
        return document

    return call


@pytest.mark.parametrize(
    "flags", [("--max-gpus", "1"), ("--max-gpus", "1", "--mode", "training", "--batch", "32", "--precision", "fp32")]
)
def test_the_total_is_that_of_the_ranking_to_the_digit(
    net: str, explain: Explain, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    assert run([net, "-o", "json", *flags]) == ExitCode.ANSWER
    ranked = json.loads(capsys.readouterr().out)
    (best,) = explain(*flags, source=net)["steps"]
    last = ranked["quotes"][-1]
    (named,) = explain("--on", last["id"], *flags, source=net)["steps"]
    for quote, step in ((ranked["best"], best), (last, named)):
        assert step["step_s"] == quote["step_s"]
        assert step["name"] == f"{quote['provider']} {quote['instance']}"
        for key in ("batch", "precision", "bound", "time_source"):
            assert step[key] == quote[key]
        assert sum(group["time_s"] for group in step["families"]) == pytest.approx(quote["step_s"]["mid"])


@pytest.mark.parametrize("is_affine", [True, False])
def test_of_several_batches_the_step_of_the_one_that_the_ranking_chose_is_explained(is_affine: bool) -> None:
    # A step of b samples takes the GPU 0.4 s and 1e-3 s x b^2: on the offer in batches of 16, as on the device alone.
    question = asked_of_padded(Options(batch="4,16", samples=1000), is_affine=is_affine)
    for step in explanation.explain(question, on=("gpu", "t4")).steps:
        assert (step.batch, step.step_s.mid) == (16, pytest.approx(0.656))
        assert sum(group.time_s for group in step.families) == pytest.approx(0.656)


def test_fused_attention_is_traced_at_the_batches_that_were_asked_for() -> None:
    def trace(batch: int, *, op: str) -> Workload:
        padded_step = padded(batch, is_affine=False)
        return replace(padded_step, rows=tuple(replace(row, op=op) for row in padded_step.rows))

    traced: list[int] = []

    def trace_fused(batch: int) -> Workload:
        traced.append(batch)
        return trace(batch, op="aten.relu")

    explanation.explain(
        question_of(
            trace(2, op="aten._softmax"),
            Options(batch="4,16", precision="fp32"),
            catalog=market(),
            trace_at=partial(trace, op="aten._softmax"),
            trace_fused=trace_fused,
        ),
        on=("gpu",),
    )
    assert traced == [2, 4, 16]


BLOCKS = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            for _ in range(10):
                x = self.layer(x).sigmoid()
            return x

    def get_model():
        return nn.Sequential(*(Block() for _ in range(4)))

    def example_inputs(batch=16):
        return torch.zeros(batch, 256, 64)
"""


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four repeated blocks that keep 10 results of 64 KiB a sample each."""
    file = tmp_path_factory.mktemp("blocks") / "blocks.py"
    file.write_text(dedent(BLOCKS))
    return str(file)


@pytest.mark.parametrize("instance", ["g4dn.xlarge", "c7a.xlarge"])
def test_recomputation_is_explained_as_the_ranking_counts_it(blocks: str, instance: str) -> None:
    options = Options(
        mode="training", batch="256", checkpoint_activations=True, precision="fp32", instance=(instance,), no_local=True
    )
    best = rank(question_from_source(blocks, options)).best
    (step,) = explain_source(blocks, options).steps
    assert best is not None
    assert (step.step_s, step.batch, step.job_usd) == (best.step_s, best.batch, best.job_usd)
    (plain,) = explain_source(blocks, replace(options, checkpoint_activations=False)).steps
    groups, phases = ({group.name: group for group in one.phases} for one in (plain, step))
    # All of forward is in the blocks, and is computed twice.
    assert phases["recomputation"].flops == phases["forward"].flops == groups["forward"].flops
    assert phases["recomputation"].kernels_s == pytest.approx(phases["forward"].kernels_s)
    assert step.step_s.mid > plain.step_s.mid
    assert sum(group.time_s for group in step.phases) == pytest.approx(step.step_s.mid)
    assert not any("shown is" in line for line in explain_source(blocks, options).warnings)


def test_a_device_by_itself_holds_the_step_with_recomputation_and_with_accumulation(blocks: str) -> None:
    # 8,192 samples keep 40 x 64 KiB = 20 GiB, more than the T4's 15; recomputed, the inputs of 4 blocks and one block's
    # results: 7 GiB.
    options = Options(mode="training", batch="8192", precision="fp32")
    with pytest.raises(NothingFitsError, match="t4"):
        explain_source(blocks, options, on=("t4",))
    (step,) = explain_source(blocks, replace(options, checkpoint_activations=True), on=("t4",)).steps
    assert (step.batch, step.checkpoint_activations) == (8192, True)
    found = explain_source(blocks, replace(options, accumulate=4), on=("t4",))
    assert found.steps[0].batch == 2048
    (warning,) = (line for line in found.warnings if "pass" in line)
    assert_says(warning, "t4", "4 passes")


def test_of_a_step_on_several_gpus_one_pass_of_one_of_them_is_explained(net: str, explain: Explain) -> None:
    training = ("--mode", "training", "--precision", "fp32")
    document = explain(*training, "--batch", "64", "--gpus", "4", "--on", "g4dn.12xlarge", source=net)
    (step,) = document["steps"]
    # One GPU of the same series, behind the same host.
    (alone,) = explain(*training, "--batch", "16", "--max-gpus", "1", "--on", "g4dn.xlarge", source=net)["steps"]
    assert step["host_cpu"] == alone["host_cpu"] == "intel-xeon-platinum-8259cl"
    assert step["batch"] == 16
    assert step["step_s"] == alone["step_s"]
    (warning,) = (line for line in document["warnings"] if "GPUs" in line)
    assert_says(warning, step["name"], "64 samples", "4 GPUs", "16", "without the exchange between GPUs")


def test_only_doubtful_prices_of_the_named_machines_are_warned_of(source: str) -> None:
    question = question_from_source(source, Options(no_local=True))
    quotes = rank(question).quotes
    fresh = next(quote for quote in quotes if not quote.price_marks)
    old = next(quote for quote in quotes if quote.price_marks)
    assert any("OLD" in line for line in explanation.explain(question).warnings)
    assert not any("OLD" in line for line in explanation.explain(question, on=(fresh.id,)).warnings)
    (warning,) = (line for line in explanation.explain(question, on=(old.id,)).warnings if "OLD" in line)
    assert_says(warning, old.provider, old.price_date)


def test_an_offer_outside_the_ranking_is_explained_as_its_like_within(source: str) -> None:
    quotes = rank(question_from_source(source, Options(device=("t4",)))).quotes
    (alone,) = explain_source(source, Options(), on=("t4",)).steps
    # The GPU by itself, which nobody rents out, at the batch that a T4 in the ranking takes.
    assert alone.name == "t4"
    alike = [quote.step_s.mid for quote in quotes if quote.batch == alone.batch]
    assert alike
    assert alone.step_s.mid == pytest.approx(min(alike))


def test_one_of_several_instances_that_are_asked_for_is_explained(source: str) -> None:
    (step,) = explain_source(source, Options(instance=("g4dn.xlarge", "c7a.xlarge"), no_local=True)).steps
    assert step.job_usd is not None


def test_named_devices_come_in_their_order(explain: Explain) -> None:
    steps = explain("--on", "g4dn.xlarge", "--on", "aws c7a.xlarge", "--on", "Tesla T4", "--on", "aws-graviton3@4")[
        "steps"
    ]
    assert [(step["name"], step["device"]["id"], step["core_count"]) for step in steps] == [
        ("aws g4dn.xlarge", "t4", 40.0),
        ("aws c7a.xlarge", "amd-epyc-9r14", 4.0),
        ("Tesla T4", "t4", 40.0),
        ("aws-graviton3@4", "aws-graviton3", 4.0),
    ]


def test_modules_are_named_as_the_model_names_them(explain: Explain) -> None:
    (step,) = explain("--on", "t4", "--batch", "8")["steps"]
    assert {group["name"] for group in step["modules"]} == {"0", "1", "2"}
    # 2 x 512 x 2048 FLOP per sample in either layer, one per element in the activation.
    by_name = {group["name"]: group for group in step["modules"]}
    assert by_name["0"]["flops"] == by_name["2"]["flops"] == 8 * 2 * 512 * 2048
    assert by_name["1"]["flops"] == 8 * 2048


def test_a_step_of_one_batch_alone_is_explained_at_that_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fixed.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n        return self.layer(x) if len(x) < 20 else self.layer(self.layer(x))\n"
        "def example_inputs(batch=16):\n    return torch.zeros(batch, 8)\n"
    )
    fixed = str(tmp_path / "fixed.py")
    for batch, products in ((8, 1), (32, 2)):
        (step,) = explain_source(fixed, Options(batch=str(batch)), on=("t4",)).steps
        assert (step.batch, step.total.flops) == (batch, products * batch * 2 * 8 * 8)


def test_the_table_names_the_device_and_its_parts(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", source, "--on", "t4", "--on", "c7a.xlarge"]) == ExitCode.ANSWER
    out = capsys.readouterr().out
    assert_says(out, "A", "t4", "Tesla T4", "B", "aws c7a.xlarge", "AMD EPYC 9R14", "4 cores")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("on", "options", "message"),
    [
        ("gtx-9999", Options(), "--on gtx-9999: no offer has this name, and no profile describes the device"),
        ("t4@4", Options(), "@N must be a number of physical cores of a CPU"),
        ("aws-graviton2", Options(precision="bf16"), "aws-graviton2 has no unit for bf16"),
        ("t4", Options(device=("gpu",)), "--on and --device both choose the device"),
    ],
)
def test_a_device_that_cannot_be_explained_says_why(source: str, on: str, options: Options, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain_source(source, options, on=(on,))
    assert message in caught.value.message


def test_an_instance_of_several_providers_asks_for_one(source: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain_source(source, Options(), on=("NVIDIA A100 PCIe 80GB PCIe",))
    assert "providers have it" in caught.value.message
    assert "hyperstack NVIDIA A100 PCIe 80GB PCIe" in caught.value.hint


def test_a_step_that_does_not_fit_is_not_explained(source: str) -> None:
    with pytest.raises(NothingFitsError, match=r"t4: .*\b[\d.]+ [GT]iB.*\b15 GiB"):
        explain_source(source, Options(batch="100000000"), on=("t4",))


@pytest.mark.parametrize(
    ("concurrency", "on", "message"),
    [
        ("300", "a100-sxm4-80gb", r"^a100-sxm4-80gb: vllm .*\b256 requests .*\b300$"),  # its default on an A100
        ("256", "l4", r"^l4: .* 256 requests in flight.*vllm.* 20\.2 GiB"),  # 90 % of 22.5 GiB
    ],
)
def test_a_service_with_too_many_requests_in_flight_names_the_limit(concurrency: str, on: str, message: str) -> None:
    pytest.importorskip("transformers")
    workload = traced("llama3_8b", prompt_tokens=1024, output_tokens=256)
    question = question_of(workload, Options(concurrency=concurrency, no_local=True), catalog=load_catalog())
    with pytest.raises(NothingFitsError, match=message):
        explanation.explain(question, on=(on,))


def test_where_nothing_is_left_to_choose_there_is_nothing_to_explain(source: str) -> None:
    with pytest.raises(NothingFitsError, match="no instance"):
        explain_source(source, Options(device=("t4",), provider=("lambda",)))


def test_seven_devices_are_too_many(source: str) -> None:
    with pytest.raises(UsageError, match=r"^--on: 7 .*\b6\b"):
        explain_source(source, Options(), on=("t4",) * 7)


def test_python_explains_as_the_command_does(source: str) -> None:
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
    from_python = advisor.explain(model, torch.zeros(16, 512), on=["t4", "c7a.xlarge"], batch=8, precision="fp32")
    from_file = explain_source(source, Options(batch="8", precision="fp32"), on=("t4", "c7a.xlarge"))
    assert from_python.steps == from_file.steps
    assert advisor.explain(model, torch.zeros(16, 512), on="t4", batch=8, precision="fp32").steps == from_file.steps[:1]


def test_keywords_are_those_of_recommend() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        advisor.explain(nn.Linear(8, 8), torch.zeros(1, 8), colour="red")
    with pytest.raises(UsageError, match="precision: "):
        advisor.explain(nn.Linear(8, 8), torch.zeros(1, 8), precision="fp31")


def test_the_machine_at_hand_is_explained_as_local_and_from_its_calibration(net: str) -> None:
    calibrated = Stored(calibrations=(calibration(),))

    found = explain_source(
        net,
        Options(precision="fp32"),
        on=["local"],
        read_machine=lambda: EPYC,
        read_calibrations=lambda *_: calibrated,
    )

    (step,) = found.steps
    assert (step.name, step.device.id, step.core_count) == ("this machine's cpu", "amd-epyc-7763", 4.0)
    assert step.time_source == "calibrated"


def test_the_machine_at_hand_is_explained_where_it_is_the_one_that_is_ranked(net: str) -> None:
    options = Options(precision="fp32", device=("local",))

    (step,) = explain_source(net, options, read_machine=lambda: EPYC, read_calibrations=lambda *_: Stored()).steps

    assert (step.name, step.device.id, step.core_count) == ("this machine's cpu", "amd-epyc-7763", 4.0)


def test_a_machine_that_is_left_out_is_not_explained() -> None:
    with pytest.raises(UsageError, match=r"^on local: no device"):
        advisor.explain(nn.Linear(8, 4), torch.zeros(2, 8), on="local", no_local=True)
