"""The sentence on the CPUs that data loading needs."""

from dataclasses import replace

from advisor.report import sentence
from advisor.report.quote_notes import loader_notes
from tests.report.toys import GENOA, L4, recommendation

JOB = replace(recommendation(L4).job, loader_s_per_sample=0.004)


def test_without_a_loader_nothing_is_said() -> None:
    assert not list(loader_notes(L4, recommendation(L4).job))


def test_a_gpu_is_fed_or_waits() -> None:
    fed, waiting = replace(L4, loader_vcpus=2.34), replace(L4, loader_vcpus=12.8, bound="loader")
    assert list(loader_notes(fed, JOB)) == [
        "data loading (4 ms of vCPU time per sample) needs 2.3 vCPUs to keep the GPU busy, "
        "including one for the GPU itself; it has 4."
    ]
    (note,) = loader_notes(waiting, JOB)
    assert note.endswith("needs 13 vCPUs to keep the GPU busy, including one for the GPU itself; it has 4: "
                         "the GPU waits for data.")  # fmt: skip


def test_a_cpu_gives_some_of_its_own() -> None:
    assert list(loader_notes(replace(GENOA, vcpus=1, loader_vcpus=0.26), JOB)) == [
        "data loading (4 ms of vCPU time per sample) uses 0.26 of the 1 vCPU, which the model then cannot use."
    ]


def test_the_answer_says_it_of_the_best() -> None:
    answer = replace(recommendation(replace(L4, loader_vcpus=2.0), GENOA), job=JOB)
    assert any(line.startswith("data loading (4 ms") for line in sentence.basis(answer))
