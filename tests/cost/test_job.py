from typing import Any

import pytest

from advisor.cost.job import check_effects, job_for, service_limit_notes
from advisor.errors import UsageError
from advisor.records.answer import Job, JobLimits
from advisor.records.fine_tuning import FineTuning
from advisor.records.generation import Generation
from advisor.records.options import Options, ScriptOptions, TimeLimit, time_limit
from advisor.records.workload import Operand
from tests.predict.toys import workload
from tests.says import assert_says
from tests.scale.toys import workload as trained_workload

IDS = Operand(shape=((0.0, 1.0), 1024), dtype="int64")
IMAGES = Operand(shape=((0.0, 1.0), 3, 224, 224), dtype="float32")


def job(*, inputs: tuple[Operand, ...] = (), **options: Any) -> Job:
    return job_for(workload(batch=32, inputs=inputs), Options(**options))


def test_without_a_size_a_million_samples_are_assumed() -> None:
    assert job().samples == 1_000_000
    assert job().assumed


def test_the_job_is_samples_times_epochs() -> None:
    assert job(samples=500).samples == 500
    assert job(samples=500, epochs=3).samples == 1500
    assert not job(samples=500).assumed


def test_packed_samples_stand_beside_the_sequences_that_hold_them() -> None:
    # 500 samples x 3 epochs x 400 tokens = 600,000 tokens, in sequences of 1,024: 585.9.
    packed = job(inputs=(IDS,), samples=500, epochs=3, packing=True, mean_tokens=400.0)
    assert (packed.samples, packed.packed_samples) == (586, 1500)
    assert job(inputs=(IDS,), samples=500).packed_samples is None
    assert job(inputs=(IDS,), tokens=600_000, packing=True, mean_tokens=400.0).packed_samples is None


def test_steps_are_of_the_batch_asked_for_else_of_the_sources_own() -> None:
    assert job(steps=10, batch="64").samples == 640
    assert job(steps=10).samples == 320
    assert not job(steps=10).assumed


def test_a_job_with_more_samples_than_can_be_counted_is_refused() -> None:
    # 1e15 x 10 = 1e16, more than 2**53 = 9.0e15.
    with pytest.raises(UsageError, match="1e\\+16 samples in all"):
        job(samples=10**15, epochs=10)


def test_digits_of_other_scripts_are_no_batch() -> None:
    assert job(steps=10, batch="²").samples == 320


def test_the_batch_is_named_as_it_will_be_chosen() -> None:
    assert job().batch == "auto"
    assert job(mode="training").batch == "32"
    assert job(mode="training", batch="8..64").batch == "8..64"


def test_the_price_has_the_records_name() -> None:
    assert job(price="commit-3y").price == "commit_3y"


def test_tokens_are_counted_in_whole_samples_of_the_input() -> None:
    # 10,000 tokens in sequences of 1,024 are 9.8 samples.
    asked = job(tokens=10_000, inputs=(IMAGES, IDS))

    assert (asked.samples, asked.tokens, asked.assumed) == (10, 10_000, False)


def test_tokens_need_an_input_that_has_them() -> None:
    with pytest.raises(UsageError, match=r"--tokens 5: .* integer"):
        job(tokens=5, inputs=(IMAGES, Operand(shape=((0.0, 1.0),), dtype="int64")))


def test_a_service_is_the_requests_of_a_month() -> None:
    # 730 h are 30.41667 days; 1,200 a day are 36,500.
    asked = job(requests_per_day=1200)

    assert (asked.samples, asked.requests_per_day, asked.assumed) == (36_500, 1200, False)


def test_the_limits_and_the_objective_are_part_of_the_job() -> None:
    asked = job(
        deadline=86400.0, max_usd=50.0, max_hourly=3.0, max_latency=0.05, min_throughput=100.0, objective="time",
        checkpoint_every=1800.0,
    )  # fmt: skip

    assert asked.limits == JobLimits(
        deadline_s=86400.0, max_usd=50.0, max_usd_per_hour=3.0, max_latency_s=0.05, min_samples_per_s=100.0
    )
    assert (asked.objective, asked.checkpoint_every_s) == ("time", 1800.0)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2}, {"steps": 5, "samples": 5},
        {"tokens": 5, "samples": 5}, {"steps": 5, "epochs": 2},
        {"requests_per_day": 5, "steps": 5}, {"requests_per_day": 5, "mode": "training"},
        {"requests_per_day": 5, "deadline": 60.0},
    ],
)  # fmt: skip
def test_sizes_that_make_no_job_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError) as caught:
        job(**options)
    assert caught.value.hint


def test_a_load_by_the_second_is_one_by_the_day() -> None:
    # 0.5 x 86,400 a day; 365 / 12 days of them.
    served = job(requests_per_second=0.5)
    assert (served.requests_per_day, served.samples) == (43_200, 1_314_000)
    assert not served.assumed
    with pytest.raises(UsageError, match="--requests-per-day and --requests-per-second each give the size"):
        job(requests_per_second=0.5, requests_per_day=5)
    with pytest.raises(UsageError, match="--requests-per-second: a service cannot run training"):
        job(requests_per_second=0.5, mode="training")


def test_tokens_of_a_generation_are_those_of_prompt_and_answer() -> None:
    generation = Generation(prompt_tokens=90, output_tokens=10)
    asked = job_for(workload(inputs=(IDS,), generation=generation), Options(tokens=1000))
    assert asked.samples == 10
    assert asked.generation == generation


def test_percentiles_of_tokens_need_a_load() -> None:
    limit = time_limit("p99:300ms")
    assert limit == TimeLimit(seconds=0.3, of="p99")
    with pytest.raises(UsageError, match="--max-ttft p99"):
        job(max_ttft=limit)
    limits = job(max_ttft=limit, max_tpot=time_limit("50ms"), requests_per_second=1.0).limits
    assert (limits.max_ttft_s, limits.ttft_of, limits.max_tpot_s, limits.tpot_of) == (0.3, "p99", 0.05, "mean")


@pytest.mark.parametrize(
    ("changes", "weight_bytes", "trained_bytes"),
    [
        # 120 parameters in fp32, all of them trained
        ({"mode": "inference"}, 480.0, 0.0),
        ({}, 0.0, 480.0),
        ({"is_pretrained": True}, 480.0, 480.0),
        ({"is_pretrained": True, "parameter_count": 240, "parameter_bytes": 960}, 960.0, 480.0),  # half is frozen
        ({"fine_tuning": FineTuning(method="full", trained_count=120)}, 240.0, 480.0),
        ({"fine_tuning": FineTuning(method="lora", trained_count=20)}, 200.0, 80.0),
        ({"fine_tuning": FineTuning(method="qlora", trained_count=20), "parameter_bytes": 130}, 200.0, 80.0),
    ],
)
def test_a_job_reads_published_weights_and_sends_those_that_it_trained(
    changes: dict[str, Any], weight_bytes: float, trained_bytes: float
) -> None:
    job = job_for(trained_workload(**changes), Options(samples=10))
    assert (job.weight_bytes, job.trained_bytes) == (weight_bytes, trained_bytes)


@pytest.mark.parametrize("text", ["p97:300ms", ":300ms", "p99:", "p99:-1s"])
def test_other_statistics_and_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        time_limit(text)


SERVICE: dict[str, Any] = {"requests_per_second": 2.0}


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("--checkpoint-every", {"checkpoint_every": 300.0, "samples": 1000}),
        ("--checkpoint-every", {"checkpoint_every": 300.0, "price": "commit-1y"}),
        ("--checkpoint-every", {"checkpoint_every": 300.0, "price": "spot", **SERVICE}),
        ("--loader-workers", {"loader_workers": 4}),
        ("--max-utilization", {"max_utilization": 0.5, "samples": 1000}),
        ("--max-utilization", {"max_utilization": 0.5, "mode": "training"}),
    ],
)
def test_an_option_that_this_kind_of_job_ignores_is_refused(flag: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{flag}"):
        check_effects(Options(**options))


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(checkpoint_every=300.0, price="spot", samples=1000),
        Options(loader_workers=4, loader_s_per_sample=0.001),
        Options(max_utilization=0.5, **SERVICE),
        Options(max_utilization=0.5),  # the service in the comparison of a job without a size
        Options(mode="training", samples=1000),
        ScriptOptions(loader_workers=4),  # what the script sets, whose loader was not timed
    ],
)
def test_an_option_with_an_effect_is_taken(options: Options) -> None:
    check_effects(options)


def test_the_loader_workers_that_a_user_gives_with_a_script_need_its_loader_timed() -> None:
    with pytest.raises(UsageError, match="--loader-workers"):
        check_effects(ScriptOptions(loader_workers=4, given=frozenset({"loader_workers"})))


def test_limits_of_a_service_without_a_load_have_a_note() -> None:
    (note,) = service_limit_notes(Options(p99=0.1, max_utilization=0.5))
    assert_says(note, "--p99", "--max-utilization", "--requests-per-second")
    assert tuple(service_limit_notes(Options())) == ()
    assert tuple(service_limit_notes(Options(p99=0.1, **SERVICE))) == ()
