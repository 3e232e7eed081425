"""Users by context, without another trace, against traces of models with prompts of that length."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.cost.batch_choice import choose_batches
from advisor.cost.job import job_for
from advisor.predict.batches import concurrencies
from advisor.predict.capability import gpu_device, whole_cpu_device
from advisor.question.served_model import as_served
from advisor.records.answer import ContextSweep
from advisor.records.device import Device
from advisor.records.options import Options
from advisor.records.prediction import Predictions
from advisor.records.scale import Spreading
from advisor.records.workload import Workload
from advisor.scale.context_sweep import CONTEXTS, at_context, sweep_contexts
from advisor.scale.served import predict_served
from tests.generations import traced
from tests.report.toys import L4, recommendation

pytest.importorskip("transformers")

CATALOG = load_catalog()
ASKED = Options(no_local=True)
OUTPUT = 65
QUOTE = recommendation(L4).quotes[0]
BATCHES = concurrencies()


def devices() -> list[Device]:
    return [gpu_device(CATALOG.gpus["l4"]), whole_cpu_device(CATALOG.cpus["intel-xeon-platinum-8573c"], cores=32)]


def served(name: str, prompt_tokens: int) -> tuple[Workload, Options]:
    return as_served(traced(name, prompt_tokens=prompt_tokens, output_tokens=OUTPUT), ASKED, engines=CATALOG.engines)


def predicted(workload: Workload, options: Options) -> Predictions:
    return predict_served(
        workload,
        devices=devices(),
        efficiencies=CATALOG.efficiencies,
        batches=BATCHES,
        options=options,
        asked=Spreading(),
    )


def swept(workload: Workload, options: Options) -> ContextSweep:
    (sweep,) = sweep_contexts(
        workload,
        [QUOTE],
        devices()[:1],
        efficiencies=CATALOG.efficiencies,
        options=options,
        job=job_for(workload, options),
    )
    return sweep


@pytest.mark.parametrize(
    "name", ["llama", "mistral", "gemma3", "qwen3_moe", "deepseek_v3", "mamba", "mamba2", "qwen3_next"]
)
def test_another_context_costs_what_a_trace_of_it_does(name: str) -> None:
    short, options = served(name, 512)
    for tokens in (256, 2048):
        found = predicted(at_context(short, tokens), options)
        real = predicted(served(name, tokens)[0], options)
        assert found.tokens is not None
        assert real.tokens is not None
        assert found.fits.tolist() == real.fits.tolist()
        is_possible = np.isfinite(real.step_s)
        for mine, theirs in (
            (found.tokens.kv_cache_bytes, real.tokens.kv_cache_bytes),
            (found.tokens.between_s, real.tokens.between_s),
            (found.tokens.first_s, real.tokens.first_s),
        ):
            # The mean context of decode is a whole number in a trace; one token of a prompt goes through the output.
            assert mine[is_possible] == pytest.approx(theirs[is_possible], rel=2e-3)


@pytest.mark.slow
def test_users_by_context_are_those_of_an_answer_for_that_context() -> None:
    found = {size: served("llama3_8b", size - OUTPUT) for size in (1024, 4096)}
    workload, options = found[1024]
    sweep = swept(workload, options)
    # The model takes 8,192 tokens.
    assert [point.context_tokens for point in sweep.points] == [1024, 4096, 8192]
    for point in sweep.points[:2]:
        real, _ = found[point.context_tokens]
        asked = predicted(real, options)
        assert asked.tokens is not None
        at = int(choose_batches(asked, job=job_for(real, options)).index[0])
        assert point.in_flight == BATCHES[at]
        step_s = asked.step_s[0, at]
        assert point.output_tokens_per_s == pytest.approx(BATCHES[at] * OUTPUT / step_s, rel=1e-3)
        per_token_s = step_s / BATCHES[at] / point.context_tokens
        assert point.usd_per_million_tokens == pytest.approx(QUOTE.usd_per_hour / 3600 * per_token_s * 1e6, rel=1e-3)
        assert (point.ttft_s, point.tpot_s) == pytest.approx(
            (asked.tokens.first_s[0, at], asked.tokens.between_s[0, at]), rel=1e-3
        )
        # The last size that fits is between two powers of two; one user more does not fit.
        fitting = BATCHES[asked.fits[0]].max()
        assert fitting <= point.most_in_flight < 2 * fitting
    # Llama 3 8B keeps 131,072 bytes a token and 16.1 GB of weights; an L4 of 24 GB gives 90 %.
    fewest, most = sweep.points[2].most_in_flight, sweep.points[0].most_in_flight
    assert most == pytest.approx(8 * fewest, abs=8)


def test_the_user_after_the_most_does_not_fit() -> None:
    workload, options = served("llama3_8b", 4096 - OUTPUT)
    sweep = swept(workload, options)
    most = sweep.points[1].most_in_flight
    around = predict_served(
        workload,
        devices=devices()[:1],
        efficiencies=CATALOG.efficiencies,
        batches=np.array([most, most + 1]),
        options=options,
        asked=Spreading(),
    )
    assert around.fits.tolist() == [[True, False]]


def test_machines_that_serve_a_context_together_are_counted_and_paid() -> None:
    # 16.1 GB of weights do not go on one GPU of 12 GB.
    workload, options = served("llama3_8b", 1024 - OUTPUT)
    small = replace(devices()[0], memory_bytes=12e9, network_bytes_per_s=1e10)
    (sweep,) = sweep_contexts(
        workload,
        [QUOTE],
        [small],
        efficiencies=CATALOG.efficiencies,
        options=replace(options, max_machines=4),
        job=job_for(workload, options),
    )
    for point in sweep.points:
        assert point.machine_count >= 2
        assert point.output_tokens_per_s is not None
        usd_per_s = point.machine_count * QUOTE.usd_per_hour / 3600
        tokens_per_s = point.output_tokens_per_s / OUTPUT * point.context_tokens
        assert point.usd_per_million_tokens == pytest.approx(usd_per_s / tokens_per_s * 1e6)


@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_a_model_with_an_encoder_has_no_table(name: str) -> None:
    workload, options = served(name, 256)
    asked = job_for(workload, options)
    assert sweep_contexts(workload, [QUOTE], devices()[:1], efficiencies=(), options=options, job=asked) == ()


def test_contexts_without_a_known_limit_are_all_shown() -> None:
    workload, options = served("mamba2", 512)
    sweep = swept(workload, options)
    assert tuple(point.context_tokens for point in sweep.points) == CONTEXTS
    # States do not grow, so that as many users fit at each context: as many as the engine allows.
    assert {point.most_in_flight for point in sweep.points} == {256}
