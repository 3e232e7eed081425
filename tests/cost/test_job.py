from typing import Any

import pytest

from advisor.cost.job import job_of
from advisor.errors import UsageError
from advisor.records.answer import Job
from advisor.records.options import Options


def job(**options: Any) -> Job:
    return job_of(Options(**options), source_batch=32)


def test_without_a_size_a_million_samples_are_assumed() -> None:
    assert job().samples == 1_000_000
    assert job().assumed


def test_the_job_is_samples_times_epochs() -> None:
    assert job(samples=500).samples == 500
    assert job(samples=500, epochs=3).samples == 1500
    assert not job(samples=500).assumed


def test_steps_are_of_the_batch_asked_for_else_of_the_sources_own() -> None:
    assert job(steps=10, batch="64").samples == 640
    assert job(steps=10).samples == 320
    assert not job(steps=10).assumed


def test_the_batch_is_named_as_it_will_be_chosen() -> None:
    assert job().batch == "auto"
    assert job(mode="training").batch == "32"
    assert job(mode="training", batch="8..64").batch == "8..64"


def test_the_price_has_the_records_name() -> None:
    assert job(price="commit-3y").price == "commit_3y"


@pytest.mark.parametrize(
    "options", [{"samples": 0}, {"epochs": -1, "samples": 5}, {"steps": 0}, {"epochs": 2}, {"steps": 5, "samples": 5}]
)
def test_sizes_that_make_no_job_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError) as caught:
        job(**options)
    assert caught.value.hint
