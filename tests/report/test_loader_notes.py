"""The sentence on the CPUs that data loading needs."""

from dataclasses import replace

from advisor.records.answer import Interval
from advisor.report import sentence
from advisor.report.quote_notes import loader_notes
from tests.report.toys import GENOA, L4, recommendation
from tests.says import assert_says

JOB = replace(recommendation(L4).job, loader_s_per_sample=0.004)


def test_without_a_loader_nothing_is_said() -> None:
    assert not list(loader_notes(L4, recommendation(L4).job))


def test_a_gpu_is_fed_or_waits() -> None:
    fed, waiting = replace(L4, loader_vcpus=2.34), replace(L4, loader_vcpus=12.8, bound="loader")
    (note,) = loader_notes(fed, JOB)
    assert_says(note, "4 ms", "per sample", "2.3 vCPUs", "4")
    assert "waits" not in note
    (note,) = loader_notes(waiting, JOB)
    assert_says(note, "13 vCPUs", "4", "GPU waits")


def test_a_cpu_gives_some_of_its_own() -> None:
    (note,) = loader_notes(replace(GENOA, vcpus=1, loader_vcpus=0.26), JOB)
    assert_says(note, "4 ms", "per sample", "0.26", "1 vCPU")


def test_the_answer_says_it_of_the_best() -> None:
    answer = replace(recommendation(replace(L4, loader_vcpus=2.0), GENOA), job=JOB)
    assert any(line.startswith("data loading (4 ms") for line in sentence.basis(answer))


def test_without_workers_it_is_a_share_of_the_step() -> None:
    # 4 ms for each of 5 samples are 20 ms, a fifth of a step of 100 ms.
    job = replace(JOB, loader_workers=0)
    step_s = Interval(mid=0.1, low=0.09, high=0.11)
    for quote in (replace(L4, loader_vcpus=2.0), replace(GENOA, vcpus=1, loader_vcpus=0.2, gpus_used=0)):
        (note,) = loader_notes(replace(quote, batch=5, step_s=step_s), job)
        assert_says(note, "4 ms", "20 %")
    (note,) = loader_notes(replace(L4, loader_vcpus=2.0), replace(JOB, loader_workers=3))
    assert_says(note, "3 workers", "2 vCPUs")
