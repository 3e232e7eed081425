"""The ranking, `advise memory` and its remedies compute the memory of a step with one function."""

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from advisor.answers.memory_fit import memory_fit
from advisor.answers.ranking import rank
from advisor.errors import UsageError
from advisor.question.from_source import question_from_source
from advisor.question.record import Question
from advisor.records.options import Options
from advisor.records.workload import Mode

ROOT = Path(__file__).parents[2]
CONFIGS = [f"hf:{ROOT}/examples/configs/{name}.json" for name in ("bert_base", "gpt2", "llama3_8b", "llama_7b")]
EXAMPLES = [str(ROOT / f"examples/{name}.py") for name in ("mlp", "small_cnn", "lstm", "transformer", "word_embedding")]
SOURCES = [*EXAMPLES, str(ROOT / "examples/resnet50.py"), *CONFIGS]
INSTANCES = ("c7i.4xlarge", "g4dn.12xlarge", "g5.xlarge", "g5.48xlarge", "p4d.24xlarge")
"""A CPU, and one, four and eight GPUs of 15, 22.5 and 40 GiB."""


@cache
def question(source: str, mode: Mode, **options: object) -> Question:
    asked = Options(**{"mode": mode, "batch": "8", "instance": INSTANCES, "no_local": True, **options})
    return question_from_source(source, asked, read_machine=None)


def test_ten_models_are_compared() -> None:
    assert len(SOURCES) == 10


def cases() -> Iterator[Any]:
    """Yield the models in both modes; of the largest only training, where their memory is hard to fit, is fast."""
    for source, mode in product(SOURCES, get_args(Mode)):
        is_slow = "llama" in source and (mode == "inference" or "7b" in source)
        yield pytest.param(source, mode, marks=pytest.mark.slow if is_slow else ())


@pytest.mark.parametrize(("source", "mode"), list(cases()))
def test_ranking_and_memory_agree(source: str, mode: Mode) -> None:
    asked = question(source, mode)
    ranking = rank(asked)
    quotes = {quote.instance: quote for quote in ranking.quotes}
    too_small = {one.instance for one in ranking.rejected if one.code == "does-not-fit"}
    assert {*quotes, *too_small} == set(INSTANCES)
    for instance, found in zip(INSTANCES, memory_fit(asked, on=INSTANCES).devices, strict=True):
        if instance in too_small:
            assert found.peak_bytes > found.memory_bytes
            continue
        quote = quotes[instance]
        assert (found.precision, found.plan, found.batch) == (quote.precision, quote.plan, quote.batch)
        assert found.peak_bytes == quote.peak_memory_bytes
        assert (found.verdict == "tight") == quote.is_tight
        assert found.peak_bytes <= found.memory_bytes


def test_a_served_model_has_the_part_of_the_memory_that_its_engine_takes_in_both() -> None:
    served = Options(
        prompt_tokens=1024, output_tokens=256, concurrency="32", instance=("g5.xlarge", "g6e.xlarge"), no_local=True
    )
    asked = question_from_source(f"hf:{ROOT}/examples/configs/llama3_8b.json", served, read_machine=None)
    ranking = rank(asked)
    assert [quote.instance for quote in ranking.quotes] == ["g6e.xlarge"]
    small, large = (memory_fit(asked, on=(instance,)).devices[0] for instance in ("g5.xlarge", "g6e.xlarge"))
    assert small.usable_bytes < small.peak_bytes < small.memory_bytes
    assert (small.verdict, large.verdict) == ("does not fit", "fits")
    assert small.largest_batch_at_most < 32 <= large.largest_batch
    assert large.peak_bytes == ranking.quotes[0].peak_memory_bytes


@pytest.mark.parametrize("asked", [{"tensor_parallel": 4}, {"tensor_parallel": 2, "pipeline_parallel": 2}])
def test_a_plan_that_is_asked_for_has_the_same_memory_in_both(asked: dict[str, Any]) -> None:
    served = Options(
        prompt_tokens=1024, output_tokens=256, concurrency="32", instance=("g5.48xlarge",), no_local=True, **asked
    )
    of_plan = question_from_source(f"hf:{ROOT}/examples/configs/llama3_8b.json", served, read_machine=None)
    (quote,) = rank(of_plan).quotes
    (found,) = memory_fit(of_plan, on=("g5.48xlarge",)).devices
    assert found.plan == quote.plan
    assert found.plan is not None
    assert found.plan.tensor * found.plan.pipeline == 4
    assert found.peak_bytes == quote.peak_memory_bytes
    assert found.verdict == "fits"
    sizes = {device.device.count for device in memory_fit(of_plan).devices}
    assert sizes == {8}  # of the machines on offer, with all of their GPUs
    with pytest.raises(UsageError, match="1 GPU in a machine, and the plan needs groups of 4"):
        memory_fit(of_plan, on=("g5.xlarge",))


@pytest.mark.parametrize("source", SOURCES)
def test_a_machine_with_the_gpus_that_a_remedy_names_needs_what_it_says(source: str) -> None:
    (alone,) = memory_fit(question(source, "training"), on=("a10g",)).devices
    sharding = next((remedy for remedy in alone.remedies if remedy.name == "sharding"), None)
    if sharding is None:
        pytest.skip("the step needs no less when it is sharded")
    gpu_count = int(sharding.change.split()[0])
    assert sharding.batch == math.ceil(8 / gpu_count)
    if gpu_count > 8:
        return  # no machine has more
    machine = {"instance": ("g5.48xlarge",), "sharding": "zero3", "gpus": gpu_count, "precision": alone.precision}
    (quote,) = rank(question(source, "training", **machine)).quotes
    assert quote.gpus_used == gpu_count
    assert quote.peak_memory_bytes == sharding.peak_bytes
