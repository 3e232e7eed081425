"""`advise memory` and `advisor.memory`, on toy devices and from a model file to the verdict."""

import json
import resource
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

import advisor
from advisor.answers import memory_fit as memory_fit_module
from advisor.answers.memory_fit import fit_on, memory_fit
from advisor.answers.ranking import rank
from advisor.catalog.overlay import load_catalog
from advisor.cli.main import run
from advisor.errors import ExitCode, NothingFitsError, UsageError
from advisor.question.from_source import question_of
from advisor.records.device_memory import DeviceMemory, FitAnswer, MemoryAnswer
from advisor.records.options import Options
from advisor.records.price import Catalog, PriceErrors
from advisor.records.workload import Row, StoredBytes, Workload
from tests.answers.test_break_even import CPU, GPU, catalog
from tests.cost.test_price_trust import spread
from tests.cost.toys import offer, price
from tests.generations import traced
from tests.machines import gpu, machine
from tests.model_files import TWO_LAYERS
from tests.predict.toys import memory_line, operand, row
from tests.says import assert_says
from tests.scale.test_remedies import GB, net

STEP = net(batch=8, parameter_bytes=GB)
"""11 GB of tensors at batch 8, and on a GPU a context of 0.29 to 0.67 GB."""
SMALL = replace(GPU, id="p4", name="P4", memory_bytes=8e9)
BIG = replace(GPU, id="a100", name="A100", memory_bytes=80e9)
TIGHT = replace(GPU, id="rtx", name="RTX", memory_bytes=11.5e9)


def gpus() -> Catalog:
    named = {gpu.id: gpu for gpu in (BIG, SMALL, TIGHT)}
    offers = tuple(offer(f"with-{name}", gpu=name, gpu_count=1, cpu=None) for name in named)
    return replace(catalog(), gpus=named, offers=offers)


def answer(*on: str, of: Catalog | None = None, step: Workload = STEP, **options: Any) -> MemoryAnswer:
    settings = Options(**({"mode": "training", "precision": "fp32"} | options))
    return memory_fit(question_of(step, settings, catalog=of or gpus()), on=on)


def large_product() -> Row:
    data, weight, result = operand((0.0, 1e5), 4096), operand(4096, 4096), operand((0.0, 1e5), 4096, low=True)
    return row("aten.mm", (data, weight), (result,), family="matmul", count=10)


def only(found: MemoryAnswer) -> DeviceMemory:
    (device,) = found.devices
    return device


def test_local_is_a_machine_to_check_and_not_an_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(dedent(TWO_LAYERS))
    monkeypatch.setattr(memory_fit_module, "this_machine", lambda: machine(gpus=(gpu("Tesla T4", memory_bytes=15e9),)))

    (device,) = advisor.memory(str(tmp_path / "model.py"), on="local", batch="4").devices

    assert (device.name, device.memory_bytes) == ("this machine's Tesla T4", 15e9)
    with pytest.raises(UsageError) as caught:
        advisor.memory(str(tmp_path / "model.py"), device="local", batch="4")
    assert_says(caught.value.hint, "write on local")


def test_devices_come_from_the_smallest_memory_with_a_verdict_each() -> None:
    found = [(device.name, device.verdict) for device in answer().devices]
    assert found == [("P4", "does not fit"), ("RTX", "tight"), ("A100", "fits")]


def test_the_peak_and_the_largest_batch_by_hand() -> None:
    device = only(answer("A100"))
    # A context, and at most what a driver reserves.
    assert (device.peak_low_bytes, device.peak_high_bytes) == (11 * GB + 287_047_680, 11 * GB + 666_632_192 + 0.97e9)
    # 80 GB less 3 GB and 1.64 GB leave 75 samples of 1 GB; 80 GB less 3.29 GB leave 76.
    assert (device.largest_batch, device.largest_batch_at_most) == (75, 76)
    assert device.phase == "loss"
    assert {term.part: term.mid_bytes for term in device.terms}["optimizer state"] == 2 * GB


def test_another_batch_needs_no_other_trace() -> None:
    assert only(answer("A100", batch="20")).peak_low_bytes == 23 * GB + 287_047_680


def test_the_machine_may_be_named_by_its_offer() -> None:
    assert only(answer("with-p4")).name == "acme with-p4"


def test_remedies_are_of_the_device_they_are_for() -> None:
    remedies = {remedy.name: remedy for remedy in only(answer("P4")).remedies}
    # Two P4 hold 1.5 GB of all there is once, 4 samples, and what FSDP keeps whole: 0.625 GB.
    assert remedies["sharding"].peak_bytes == pytest.approx(6.125 * GB + (287_047_680 + 666_632_192) / 2)
    assert remedies["sharding"].verdict == "tight"  # 8 GB, with at most 0.97 GB of the driver and 0.93 GB of NCCL
    assert remedies["8-bit optimizer"].verdict == "does not fit"


def test_host_memory_of_cpu_instances_counts_too() -> None:
    small, large = offer("small", memory_bytes=8e9), offer("large", memory_bytes=64e9)
    found = answer(of=replace(catalog(), cpus={"xeon": CPU}, offers=(small, large)))
    assert [(device.name, device.memory_bytes, device.verdict) for device in found.devices] == [
        ("acme small", 8e9, "does not fit"),
        ("acme large", 64e9, "fits"),
    ]


def test_cpu_instances_are_named_by_the_cheapest_of_each_memory_and_precision() -> None:
    old = replace(CPU, id="old", isa=("avx2",))
    wide = replace(CPU, id="wide", isa=("avx2", "avx512f", "avx512_bf16", "amx_bf16"))
    offers = tuple(
        offer(name, cpu=cpu, memory_bytes=memory_bytes, usd_per_hour=usd)
        for name, cpu, memory_bytes, usd in (
            ("dear-old", "old", 64e9, 2.0),
            ("dear-wide", "wide", 64e9, 4.0),
            ("cheap-old", "old", 64e9, 1.0),
            ("cheap-wide", "wide", 64e9, 3.0),
            ("small-wide", "wide", 32e9, 9.0),
        )
    )
    cpus = {cpu.id: cpu for cpu in (old, wide)}
    asked: dict[str, Any] = {"of": replace(catalog(), cpus=cpus, offers=offers), "precision": "auto"}
    asked["step"] = replace(STEP, rows=(*STEP.rows, large_product()))  # faster in bf16, where the CPU has it
    found = answer(**asked)
    assert {(device.name, device.precision) for device in found.devices} == {
        ("acme cheap-old", "fp32"),
        ("acme cheap-wide", "amp-bf16"),
        ("acme small-wide", "amp-bf16"),
    }
    named = answer("acme dear-old", "acme dear-wide", **asked)
    verdicts = {(device.memory_bytes, device.precision): device.verdict for device in found.devices}
    assert [device.verdict for device in named.devices] == [verdicts[64e9, "fp32"], verdicts[64e9, "amp-bf16"]]


def test_an_offer_with_a_doubtful_price_names_no_memory_size_that_a_trusted_one_has() -> None:
    # 0.2 x sqrt(2 years) = 0.28 is more than 0.1.
    by_date = {"2024-01-01": 1.0, "2026-01-01": 2.0}
    offers = tuple(
        offer(f"of-{day[:4]}", memory_bytes=64e9, prices=(price(usd, date=day),)) for day, usd in by_date.items()
    )
    errors = PriceErrors(drift={"hyperscaler": spread(0.2)}, trusted=spread(0.1))
    found = answer(of=replace(catalog(), cpus={"xeon": CPU}, offers=offers, price_errors=errors))
    assert [device.name for device in found.devices] == ["acme of-2026"]


def test_a_precision_that_no_device_has_is_refused() -> None:
    with pytest.raises(NothingFitsError, match=r"no device .*\bbf16"):
        answer("cpu", of=catalog(), precision="bf16")


def test_an_engine_limits_the_requests_in_flight_however_much_memory_there_is() -> None:
    pytest.importorskip("transformers")

    def served(*on: str, concurrency: int, **options: Any) -> MemoryAnswer:
        settings = Options(concurrency=str(concurrency), **options)
        workload = traced("llama", prompt_tokens=64, output_tokens=32)
        return memory_fit(question_of(workload, settings, catalog=load_catalog()), on=on)

    # profiles/engines/vllm.yaml: 256 on an A100, 1,024 on an H100, 128 on a CPU.
    for on, most in (("a100-sxm4-80gb", 256), ("h100-sxm5-80gb", 1024)):
        device = only(served(on, concurrency=most))
        assert (device.largest_batch, device.largest_batch_at_most, device.verdict) == (most, most, "fits")
        assert all(remedy.largest_batch <= most for remedy in device.remedies)
        with pytest.raises(UsageError, match=f"^{on}: .* {most:,} requests .*{most + 1:,}$"):
            served(on, concurrency=most + 1)
    found = served(concurrency=257, device=("a100-sxm4-80gb", "h100-sxm5-80gb"))
    assert [device.device.id for device in found.devices] == ["h100-sxm5-80gb"]
    assert_says(next(note for note in found.notes if "left out" in note), "1", "256 requests", "257")
    with pytest.raises(NothingFitsError, match=r"1,024 requests .*2,000$"):
        served(concurrency=2000, device=("a100-sxm4-80gb", "h100-sxm5-80gb"))


def test_limits_that_leave_no_offer_are_refused() -> None:
    with pytest.raises(NothingFitsError, match="limits"):
        answer(device=("cpu",))


def test_the_ranking_marks_what_is_tight_and_says_what_would_make_the_rest_fit() -> None:
    recommendation = rank(
        question_of(STEP, Options(mode="training", precision="fp32", batch="8", device=("gpu",)), catalog=gpus())
    )
    assert {quote.device.name: quote.is_tight for quote in recommendation.quotes} == {"A100": False, "RTX": True}
    [note] = [note for note in recommendation.notes if "too little memory" in note]
    assert "P4 (7.45 GiB)" in note
    assert "sharding" in note
    [left_out] = [each for each in recommendation.rejected if each.code == "does-not-fit"]
    assert_says(left_out.reason, "10.7 GiB", "batch 8", "7.45 GiB")


@pytest.fixture
def source(tmp_path: Path) -> str:
    file = tmp_path / "net.py"
    file.write_text(dedent(TWO_LAYERS))
    return str(file)


def test_the_command_and_python_agree(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--mode", "training", "--batch", "32", "--on", "t4", "-o", "json"]) == ExitCode.ANSWER
    document = json.loads(capsys.readouterr().out)
    [device] = document["devices"]
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
    found = only(advisor.memory(model, torch.zeros(16, 512), mode="training", batch=32, on="t4"))
    assert device["peak_bytes"] == found.peak_bytes
    assert (document["batch"], device["largest_batch"]) == (32, found.largest_batch)


def test_the_table_names_all_devices_on_offer(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--device", "gpu", "--top", "3"]) == ExitCode.ANSWER
    out = capsys.readouterr().out
    assert_says(out, "net", "inference", "batch 16", "devices")
    assert "more (--top" in out
    assert "CUDA context" in out


def test_what_fits_nowhere_is_told_with_another_exit_code(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--batch", "900000000", "--on", "t4"]) == ExitCode.NOTHING_FITS
    assert "does not fit t4" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ("1..8", "memory takes one batch size"),
        ("auto", "memory takes one batch size"),
        ("0", "not a positive whole number"),
    ],
)
def test_memory_is_of_one_batch(source: str, batch: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", source, "--batch", batch]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"--batch {batch}: " in error
    assert reason in error


def test_a_batch_that_the_model_cannot_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\b8\b.*\b16\b"):
        memory_fit(question_of(replace(STEP, batch_is_affine=False), Options(batch="16"), catalog=gpus()), on=("A100",))


def test_a_cpu_has_the_memory_of_its_machine_and_none_of_its_own(source: str) -> None:
    with pytest.raises(UsageError, match="amd-epyc-9b14"):
        advisor.memory(source, on="amd-epyc-9b14")
    assert only(advisor.memory(source, on="c7a.2xlarge")).memory_bytes == 16 * 2**30


def test_the_only_batch_known_is_not_called_the_largest_without_a_note() -> None:
    answers = [
        memory_fit(question_of(step, Options(precision="fp32"), catalog=gpus()), on=("A100",))
        for step in (STEP, replace(STEP, batch_is_affine=False))
    ]
    assert ["so no batch but 8 was checked" in " ".join(answer.notes) for answer in answers] == [False, True]


def fit(name: str, **options: Any) -> FitAnswer:
    settings = Options(**({"mode": "training", "precision": "fp32"} | options))
    return fit_on(name, lambda: question_of(STEP, settings, catalog=gpus()))


def test_logits_in_chunks_are_traced_where_the_step_may_not_fit() -> None:
    traced = []

    def trace_chunked() -> Workload:
        traced.append(1)
        return net(
            batch=8, parameter_bytes=GB, memory=(memory_line(phase="loss", parameters=StoredBytes(full=(GB, 0.0))),)
        )

    settings = Options(mode="training", precision="fp32")
    question = question_of(STEP, settings, catalog=gpus(), trace_chunked=trace_chunked)
    assert not {remedy.name for remedy in only(memory_fit(question, on=("A100",))).remedies} & {"chunked logits"}
    assert traced == []
    (chunked,) = (one for one in only(memory_fit(question, on=("P4",))).remedies if one.name == "chunked logits")
    assert traced == [1]
    assert (chunked.saved_bytes, chunked.verdict) == (pytest.approx(10 * GB), "fits")


def test_a_fit_is_true_only_if_the_step_surely_fits() -> None:
    found = {name: fit(name) for name in ("P4", "RTX", "A100")}
    assert {name: bool(one) for name, one in found.items()} == {"P4": False, "RTX": False, "A100": True}
    assert {name: one.is_tight for name, one in found.items()} == {"P4": False, "RTX": True, "A100": False}


def test_a_fit_has_the_memory_needed_and_available_by_hand() -> None:
    found = fit("A100")
    needed_bytes = 11 * GB + (287_047_680 + 666_632_192) / 2  # the tensors, and the middle of the context
    assert (found.needed_bytes, found.available_bytes) == (needed_bytes, 80e9)
    assert found.margin_bytes == 80e9 - needed_bytes
    assert (found.largest_batch, found.remedies, found.larger) == (75, (), None)


def test_what_does_not_fit_has_the_changes_that_make_it_fit_and_the_smallest_device_that_holds_it() -> None:
    found = fit("P4")
    assert found.margin_bytes is not None
    assert found.margin_bytes < 0
    assert {remedy.verdict for remedy in found.remedies} == {"fits"}
    assert "gradient accumulation" in {remedy.name for remedy in found.remedies}
    assert "8-bit optimizer" not in {remedy.name for remedy in found.remedies}
    assert found.larger is not None
    assert found.larger.name == "A100"  # the RTX between them is tight
    # 8 GB less 3 GB and 1.64 GB leave 3 samples of 1 GB.
    assert found.largest_batch == 3
    for text in (repr(found), found._repr_html_()):
        assert_says(text, "does not fit", "4 passes with 2 samples each", "A100")


def test_a_fit_of_nothing_on_offer_names_no_larger_device() -> None:
    assert fit("P4", batch="1000").larger is None


def test_a_fit_that_cannot_be_predicted_is_unknown_with_the_reason() -> None:
    asked = question_of(STEP, Options(mode="training", precision="bf16"), catalog=catalog())
    found = fit_on("cpu", lambda: asked)
    assert (found.verdict, bool(found), found.needed_bytes, found.largest_batch) == ("unknown", False, None, None)
    assert_says(found.reason, "bf16")
    assert_says(repr(found), "not known", "cpu", "bf16")


class NeedsValues(nn.Module):
    """A step that only runs on real tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) * float(x.numpy().sum())
        return result


def test_fits_runs_no_real_step_where_memory_does() -> None:
    model, rows = NeedsValues(), torch.zeros(2, 4)
    seen: set[type] = set()
    model.layer.register_forward_pre_hook(lambda module, args: seen.add(type(args[0])))
    found = advisor.fits(model, rows, device="t4")
    assert found.verdict == "unknown"
    assert_says(found.reason, "numpy")
    assert torch.Tensor not in seen
    assert only(advisor.memory(model, rows, on="t4")).verdict == "fits"
    assert torch.Tensor in seen


def test_fits_leaves_the_model_and_the_random_state_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)).eval()
    before, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    assert advisor.fits(model, torch.zeros(4, 8), device="t4", mode="training")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_fits_allocates_none_of_what_the_step_needs() -> None:
    def peak_bytes() -> int:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with torch.device("meta"):
        model = nn.Linear(2**16, 2**16)
    before = peak_bytes()
    found = advisor.fits(model, lambda batch=64: torch.zeros(batch, 2**16), device="t4", mode="training")
    assert found.needed_bytes is not None
    assert found.needed_bytes > 4 * 2**34  # weights, gradients and two states of AdamW with 2^32 values of 4 bytes
    assert peak_bytes() - before < 2**30


@pytest.mark.parametrize("given", [{"device": "t5"}, {"device": ["t4", "a10g"]}, {"device": "t4", "batch": "1..8"}])
def test_fits_refuses_a_device_or_a_batch_that_cannot_be_used(given: Any) -> None:
    with pytest.raises(UsageError):
        advisor.fits(nn.Linear(4, 4), torch.zeros(2, 4), **given)


def test_fits_takes_the_flags_of_memory_only() -> None:
    with pytest.raises(TypeError, match=r"^fits\(\) .*'measure'"):
        advisor.fits(nn.Linear(4, 4), torch.zeros(2, 4), measure=True)  # type: ignore[call-arg]


def test_fits_checks_this_machines_first_gpu_if_no_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(gpus=(gpu("Tesla T4", memory_bytes=15e9),))
    monkeypatch.setattr("advisor.answers.memory_fit.this_machine", lambda: here)
    found = advisor.fits(nn.Linear(4, 4), torch.zeros(2, 4))
    assert (found.available_bytes, found.fits) == (15e9, True)
    monkeypatch.setattr("advisor.answers.memory_fit.this_machine", machine)
    assert advisor.fits(nn.Linear(4, 4), torch.zeros(2, 4)).available_bytes == 32e9
    monkeypatch.setattr("advisor.answers.memory_fit.this_machine", lambda: machine(gpus=(gpu("Unheard Of 9000"),)))
    with pytest.raises(UsageError, match="Unheard Of 9000"):
        advisor.fits(nn.Linear(4, 4), torch.zeros(2, 4))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)), (16, 512)),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), (4, 3, 32, 32)),
    "encoder": (lambda: nn.TransformerEncoderLayer(64, 4, batch_first=True), (2, 16, 64)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("mode", "on", "batch"),
    [("training", "t4", None), ("inference", "g5.48xlarge", 64), ("training", "c7i.4xlarge", 10**8)],
)
def test_fits_and_memory_agree(name: str, mode: str, on: str, batch: int | None) -> None:
    make, shape = MODELS[name]
    given: Any = {"mode": mode} | ({} if batch is None else {"batch": batch})
    model, rows = make(), torch.zeros(*shape)
    found, memory = advisor.fits(model, rows, device=on, **given), only(advisor.memory(model, rows, on=on, **given))
    assert found.memory is not None
    assert found.memory.devices == (memory,)
    assert (found.verdict, found.needed_bytes) == (memory.verdict, memory.peak_bytes)
    assert (found.verdict == "fits") == (batch != 10**8)
