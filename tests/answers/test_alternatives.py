"""What comes closest where no offer keeps all limits, and the single flag that helps.

On the market of tests/answers/test_break_even.py a step takes the GPU 0.4 s and 0.01 s a sample, at $1e-3 a second;
the CPU 1 s a sample at $1e-4 a second.
"""

from dataclasses import asdict, replace
from typing import Any

import pytest

from advisor.answers.ranking import rank
from advisor.question.from_source import question_of
from advisor.records.answer import Alternative, Recommendation
from advisor.records.billing import Billing, Disk, ExtraCosts, StartUp
from advisor.records.options import Options
from tests.answers.test_break_even import CPU_OFFER, GPU_OFFER, asked_of_padded, catalog, net


def answer(**options: Any) -> Recommendation:
    workload = replace(net(), mode=options.get("mode", "training"), batch=2)
    given = {"mode": "training", "precision": "fp32"} | options
    found = rank(question_of(workload, Options(**given), catalog=catalog()))
    assert found.best is None
    return found


def flags(found: Recommendation) -> dict[str, Alternative]:
    return {one.flag: one for one in found.alternatives if one.kind == "flag"}


def of_kind(found: Recommendation, kind: str) -> Alternative:
    (one,) = (one for one in found.alternatives if one.kind == kind)
    return one


def test_a_larger_batch_keeps_a_deadline() -> None:
    # 512 steps of 0.42 s take 215 s. In batches of 1024: 0.4 + 10.24 = 10.64 s, $0.01064. At 16, 64 steps of 0.56 s
    # take 35.8 s; at 32, 32 steps of 0.72 s take 23.0 s.
    found = flags(answer(samples=1024, deadline=30.0))
    auto, smallest = found["--batch auto"].quote, found["--batch 32"].quote
    assert (auto.batch, auto.job_s.mid, auto.job_usd.mid) == (1024, pytest.approx(10.64), pytest.approx(0.01064))
    assert (smallest.batch, smallest.job_s.mid) == (32, pytest.approx(23.04))


def test_a_deadline_is_named_that_the_fastest_keeps() -> None:
    # 215.04 s, rounded up to two digits of minutes: 3.6 min.
    found = answer(samples=1024, deadline=100.0, batch="2")
    assert flags(found)["--deadline 3.6m"].quote.job_s.mid == pytest.approx(215.04)
    # In 100 s: 238 steps of 0.42 s, 476 of the 1024 samples, 470 with two digits.
    part = of_kind(found, "deadline")
    assert (part.flag, part.done_ratio) == ("--samples 470", pytest.approx(470 / 1024))
    assert part.quote.job_s.mid <= 100


@pytest.mark.parametrize("is_affine", [True, False])
def test_each_batch_is_of_its_own_step_where_one_trace_does_not_serve_all(is_affine: bool) -> None:
    # A sample costs the CPU $8e-5 in batches of 8, and the GPU $1e-3 x (0.4 / 32 + 0.032) = $4.45e-5 in batches of 32.
    question = asked_of_padded(Options(batch="8,32", samples=1024, max_usd=1e-3), is_affine=is_affine)
    quote = flags(rank(question))["--max-usd 0.046"].quote
    assert (quote.batch, quote.job_usd.mid) == (32, pytest.approx(0.045568))
    assert rank(replace(question, options=replace(question.options, max_usd=0.046))).best is not None


def test_a_latency_is_that_of_the_only_batch_that_is_known() -> None:
    # Without --batch it is 2, which takes the CPU 0.4 s; a batch of 1 would take 0.1 s.
    question = asked_of_padded(Options(max_latency=0.05, samples=10), is_affine=False)
    assert flags(rank(question))["--max-latency 400ms"].quote.batch == 2


def test_a_deadline_that_no_flag_takes_is_not_named() -> None:
    # 1e12 samples in batches of 2 take 0.21 s each, 2.4 million days; --deadline takes at most 1e9 s.
    found = answer(samples=10**12, deadline=3600.0, batch="2")
    assert not any(flag.startswith("--deadline") for flag in flags(found))
    assert of_kind(found, "fastest").quote.job_s.mid > 1e9


def test_the_fastest_uses_all_machines_that_are_allowed() -> None:
    # Two steps of 512 samples: on one machine, which costs least, 0.4 + 5.12 s each, on two 0.4 + 2.56 s.
    market = catalog()
    networked = replace(GPU_OFFER, network_bytes_per_s=1e10)
    options = Options(mode="training", precision="fp32", samples=1024, batch="512", deadline=5.0, max_machines=2)
    question = question_of(
        replace(net(), mode="training", batch=512), options, catalog=replace(market, offers=(networked,))
    )
    found = rank(question)
    assert of_kind(found, "cheapest").quote.job_s.mid == pytest.approx(11.04)
    for alternative in (of_kind(found, "fastest"), flags(found)["--deadline 6s"]):
        assert alternative.quote.job_s.mid == pytest.approx(5.92, rel=1e-3)


def test_reading_the_weights_is_part_of_the_start_up() -> None:
    # 10 s to boot and 2 GB at 0.1 GB/s, 30 s in all, then 215.04 s of steps.
    start = StartUp(
        sample_count=1,
        boot_script_median_s=10.0,
        boot_script_p10_s=10.0,
        boot_script_p90_s=10.0,
        container_running_median_s=10.0,
    )
    disk = Disk(size_bytes=1e12, usd_per_month=0.0, read_bytes_per_s=1e8, date="2026-11-01", source="a test")
    billing = Billing(start_ups={"aws": start}, extra_costs=ExtraCosts(disks={"aws": disk}))
    workload = replace(net(), mode="training", batch=2, parameter_bytes=2_000_000_000, is_pretrained=True)
    options = Options(mode="training", precision="fp32", samples=1024, deadline=100.0, batch="2")
    fastest = of_kind(rank(question_of(workload, options, catalog=catalog(billing=billing))), "fastest").quote
    assert (fastest.start_up_s, fastest.job_s.mid) == (pytest.approx(30.0), pytest.approx(245.04))


def test_budget_and_deadline_are_told_apart() -> None:
    # The CPU takes 1024 s for $0.1024, the GPU 215 s for $0.215. $0.15 buy the CPU; 300 s the GPU; nothing does both.
    found = answer(samples=1024, batch="2", max_usd=0.15, deadline=300.0)
    kinds = {kind: of_kind(found, kind).quote.device.kind for kind in ("cheapest", "fastest", "budget", "deadline")}
    assert kinds == {"cheapest": "cpu", "fastest": "gpu", "budget": "cpu", "deadline": "gpu"}
    assert flags(found)["--max-usd 0.22"].quote.job_usd.mid == pytest.approx(0.21504)
    assert flags(found)["--deadline 18m"].quote.job_s.mid == pytest.approx(1024)


def test_inference_is_split_by_hand_over_the_machines_that_keep_the_deadline() -> None:
    # 1024 samples take a CPU 1024 s and $0.1024, so 11 of them 94 samples each: 94 s and 11 x $0.0094. Three GPUs do
    # 342 each in 171 steps of 0.42 s for $0.215.
    given: dict[str, Any] = {"samples": 1024, "deadline": 100.0, "batch": "2"}
    quote = of_kind(answer(mode="inference", **given), "split").quote
    assert (quote.instance, quote.instance_count, quote.job_s.mid) == ("cpu", 11, pytest.approx(94.0))
    assert quote.job_usd.mid == pytest.approx(0.1034)
    assert sum(asdict(quote.job_parts_usd).values()) == pytest.approx(0.1034)
    assert of_kind(answer(mode="inference", max_usd=0.11, **given), "split").quote == quote
    for options in ({"mode": "inference", "max_usd": 0.103}, {"mode": "training"}):
        assert all(one.kind != "split" for one in answer(**given, **options).alternatives)


def test_each_machine_of_a_split_is_committed_to() -> None:
    # 11 CPUs, as above, at $0.36 an hour for the 8,760 hours of a year.
    offers = tuple(replace(one, prices=(replace(one.prices[0], kind="commit_1y"),)) for one in (CPU_OFFER, GPU_OFFER))
    options = Options(precision="fp32", samples=1024, deadline=100.0, batch="2", price="commit-1y")
    found = rank(question_of(replace(net(), batch=2), options, catalog=replace(catalog(), offers=offers)))
    quote = of_kind(found, "split").quote
    assert (quote.instance_count, quote.commitment_usd) == (11, pytest.approx(11 * 0.36 * 8760))


def test_a_flag_that_leaves_out_what_would_do() -> None:
    found = answer(samples=1024, batch="2", deadline=300.0, device=("cpu",))
    assert flags(found)["no --device"].quote.device.kind == "gpu"


def test_a_latency_that_no_step_keeps() -> None:
    # A step of one sample takes the GPU 0.41 s; its 99th percentile is more than that with any wait.
    found = answer(mode="inference", requests_per_second=0.1, p99=0.1)
    (change,) = (one for flag, one in flags(found).items() if flag.startswith("--p99"))
    assert change.quote.p99_s is not None
    assert change.flag in ("--p99 410ms", "--p99 450ms", "--p99 460ms", "--p99 500ms")
    assert change.quote.device.kind == "gpu"
    assert of_kind(found, "fastest").quote.p99_s == pytest.approx(0.41)  # hardly a request waits for a free instance


def test_the_fastest_service_needs_no_larger_budget_than_another() -> None:
    # One CPU instance is always on for $0.36 an hour, $262.80 a month, with a tenth of its time busy.
    assert flags(answer(mode="inference", requests_per_second=0.1, objective="time", max_usd=1.0))["--max-usd 270"]


def test_a_budget_buys_what_the_start_up_leaves() -> None:
    # 100 s of start-up cost the CPU $0.01; $0.0201 of the budget are 201 s and as many samples, 200 with two digits.
    start = StartUp(
        sample_count=1,
        boot_script_median_s=100.0,
        boot_script_p10_s=100.0,
        boot_script_p90_s=100.0,
        container_running_median_s=100.0,
    )
    workload = replace(net(), mode="training", batch=2)
    options = Options(mode="training", precision="fp32", samples=1024, max_usd=0.0301, batch="2")
    found = rank(question_of(workload, options, catalog=catalog(billing=Billing(start_ups={"aws": start}))))
    part = of_kind(found, "budget")
    assert (part.flag, part.quote.job_usd.mid) == ("--samples 200", pytest.approx(0.03))


def test_without_limits_there_is_nothing_to_change() -> None:
    workload = net()
    found = rank(question_of(workload, Options(precision="fp32"), catalog=catalog()))
    assert found.alternatives == ()
