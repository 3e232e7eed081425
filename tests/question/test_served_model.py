"""Language models in service, from the flags to the quotes: what is refused, worked examples, and laws."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from advisor import breakeven, explain, memory, recommend
from advisor.answers.explanation import explain as explain_question
from advisor.answers.memory_fit import memory_fit
from advisor.answers.ranking import rank
from advisor.catalog.overlay import load_catalog
from advisor.cli.main import run
from advisor.errors import ExitCode, LoadError, NothingFitsError, UsageError
from advisor.predict.capability import gpu_device
from advisor.predict.weights import with_weights
from advisor.question.from_source import question_from_source, question_of
from advisor.question.record import Question
from advisor.question.served_model import as_served, check_generation
from advisor.records.answer import Quote
from advisor.records.generation import WeightFormat
from advisor.records.options import Options, TimeLimit
from advisor.records.prediction import Predictions, TokenTimes
from advisor.records.scale import Spreading
from advisor.records.workload import Workload
from advisor.scale.served import predict_served
from advisor.workload.file import workload_to_json
from tests.generations import CONFIGS, traced
from tests.predict.toys import workload as toy
from tests.says import assert_says

pytest.importorskip("transformers")

ENGINES = load_catalog().engines
GPUS = ("a100-sxm4-80gb", "h100-sxm5-80gb", "l4", "rtx-4090", "t4", "v100-sxm2-16gb")
CONCURRENCIES = tuple(range(1, 129))
LLAMA_WEIGHT_BYTES = 2 * 8_030_261_248


def served(**options: Any) -> Options:
    return Options(prompt_tokens=1024, output_tokens=256, **options)


def llama() -> Workload:
    return traced("llama3_8b", prompt_tokens=1024, output_tokens=256)


@cache
def token_times(*, weights: WeightFormat = "auto") -> tuple[Predictions, TokenTimes]:
    """Llama 3 8B at `CONCURRENCIES`."""
    return predicted(with_weights(llama(), weights), CONCURRENCIES)


def predicted(workload: Workload, concurrencies: Sequence[int]) -> tuple[Predictions, TokenTimes]:
    """On `GPUS`, one row each."""
    catalog = load_catalog()
    devices = [gpu_device(catalog.gpus[name]) for name in GPUS]
    served_workload, options = as_served(workload, Options(), engines=catalog.engines)
    found = predict_served(
        served_workload,
        devices=devices,
        efficiencies=catalog.efficiencies,
        batches=np.array(concurrencies),
        options=options,
        asked=Spreading(),
    )
    assert found.tokens is not None
    return found, found.tokens


@cache
def quoted(**options: Any) -> tuple[Quote, ...]:
    catalog = load_catalog()
    return rank(question_of(llama(), Options(no_local=True, **options), catalog=catalog)).quotes


# -- flags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("hf:config.json", Options(prompt_tokens=10), "needs --output-tokens"),
        ("hf:config.json", Options(concurrency="8"), "needs --prompt-tokens and --output-tokens"),
        ("model.py", served(), "model.py is not an hf: language model"),
        ("workload.json", served(), "is a saved workload, whose prompt and output lengths are fixed"),
        ("hf:config.json", served(mode="training"), "a service cannot run training"),
        ("hf:config.json", served(attention="eager"), "has no effect in LLM serving"),
        ("hf:config.json", served(measure=True), "has no effect in LLM serving"),
        ("hf:config.json", served(batch="8", concurrency="8"), "both say how many requests"),
    ],
)
def test_flags_that_contradict_each_other_or_the_source_are_refused(source, options, message):
    with pytest.raises(UsageError, match=message):
        check_generation(source, options)


def test_a_saved_generation_takes_the_flags_that_its_trace_does_not_settle():
    check_generation("workload.json", Options(concurrency="8", weights="int4", max_tpot=TimeLimit(seconds=0.05)))


def test_what_generates_nothing_takes_no_flags_of_a_service():
    with pytest.raises(UsageError, match=r"^--weights .*: toy"):
        as_served(toy(), Options(weights="int4"), engines=ENGINES)


def test_an_engine_runs_in_half_with_fused_kernels_and_so_many_requests():
    asked = Options(concurrency="8", weights="int8", kv_cache="fp8")
    workload, options = as_served(llama(), asked, engines=ENGINES)

    assert (options.batch, options.precision, options.compile) == ("8", "half", "compile")
    assert workload.generation is not None
    assert workload.generation.weights == "int8"
    assert as_served(workload, options, engines=ENGINES) == (workload, options)


def test_a_prompt_has_at_least_one_token_that_no_cache_has():
    workload, _ = as_served(llama(), Options(cached_prompt_tokens=2), engines=ENGINES)
    assert workload.generation is not None
    assert workload.generation.new_tokens == workload.generation.prompt_tokens - 2
    with pytest.raises(UsageError, match=r"^--cached-prompt-tokens"):
        as_served(llama(), Options(cached_prompt_tokens=workload.generation.prompt_tokens), engines=ENGINES)


def test_drafts_come_with_the_rate_at_which_they_are_accepted():
    asked = Options(draft_tokens=4, acceptance_rate=0.7, draft_cost=0.1)
    workload, _ = as_served(llama(), asked, engines=ENGINES)
    assert workload.generation is not None
    assert (workload.generation.draft_tokens, workload.generation.draft_cost_ratio) == (4, 0.1)
    for alone in (Options(draft_tokens=4), Options(acceptance_rate=0.7), Options(draft_cost=0.1)):
        with pytest.raises(UsageError, match="needs both"):
            as_served(llama(), alone, engines=ENGINES)


def test_who_trains_with_narrow_weights_is_told_of_fine_tuning():
    with pytest.raises(UsageError) as refused:
        check_generation("hf:config.json", Options(weights="int4", mode="training"))
    assert "--finetune qlora" in (refused.value.hint or "")


def test_what_is_no_number_of_requests_is_refused_by_the_flag_that_says_it():
    with pytest.raises(UsageError, match=r"^--concurrency many: 'many'"):
        as_served(llama(), Options(concurrency="many"), engines=ENGINES)


@pytest.mark.parametrize(("precision", "whole"), [("amp-bf16", "bf16"), ("tf32", "fp32"), ("cudnn-tf32", "fp32")])
def test_engines_have_neither_autocast_nor_tf32(precision, whole):
    with pytest.raises(UsageError, match=f"^--precision {precision}: .*without autocast or TF32") as refused:
        as_served(llama(), Options(precision=precision), engines=ENGINES)
    assert f"--precision {whole}," in refused.value.hint


def test_weights_are_stored_once():
    workload = with_weights(llama(), "int8")
    with pytest.raises(UsageError, match="was saved with weights in int8"):
        as_served(workload, Options(weights="int4"), engines=ENGINES)


@pytest.mark.parametrize(
    ("engine", "asked", "stored"),
    [("vllm", "auto", "fp8"), ("vllm", "bf16", "bf16"), ("vllm", "int4", "int4"), ("llama.cpp", "auto", "auto")],
)
def test_weights_are_those_that_are_published_where_the_engine_has_kernels(engine, asked, stored):
    traced_model = llama()
    published = replace(traced_model, generation=replace(traced_model.generation, published_weights="fp8"))
    workload, _ = as_served(published, Options(engine=engine, weights=asked), engines=ENGINES)
    assert workload.generation.weights == stored


def test_a_format_of_experts_alone_is_refused_for_a_model_without_experts():
    with pytest.raises(UsageError, match="mxfp4 stores experts alone") as refused:
        as_served(llama(), Options(weights="mxfp4"), engines=ENGINES)
    assert "--weights int4" in refused.value.hint


def test_a_config_is_ranked_by_way_of_the_process_that_reads_sources(tmp_path):
    file = tmp_path / "llama.json"
    file.write_text(json.dumps(CONFIGS["llama"]))
    options = Options(prompt_tokens=512, output_tokens=65, concurrency="4", no_local=True, device=("l4",))

    there = rank(question_from_source(f"hf:{file}", options))
    here = rank(question_of(traced("llama"), options, catalog=load_catalog()))
    assert there.quotes == here.quotes
    assert there.job.generation == here.job.generation


def small_llama() -> nn.Module:
    """The model of `CONFIGS`, without weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = {name: value for name, value in CONFIGS["llama"].items() if name not in ("model_type", "architectures")}
    with torch.device("meta"):
        return LlamaForCausalLM(LlamaConfig(**settings))


def test_from_python_the_config_of_a_model_at_hand_says_the_same(tmp_path):
    file = tmp_path / "LlamaForCausalLM.json"
    file.write_text(json.dumps(CONFIGS["llama"]))
    there = rank(
        question_from_source(
            f"hf:{file}", served(concurrency="4", no_local=True, device=("l4",), max_tpot=TimeLimit(seconds=0.1))
        )
    )
    model = small_llama()

    here = recommend(
        model, prompt_tokens=1024, output_tokens=256, concurrency=4, max_tpot="100ms", no_local=True, device="l4"
    )
    assert here.quotes == there.quotes
    assert here.quotes
    assert here.workload.name == "LlamaForCausalLM"


def test_from_python_explanations_memory_and_break_even_take_the_same_keywords(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, Options]] = []

    def from_source(source: str, options: Options, **_: Any) -> Question:
        asked.append((json.loads(Path(source.removeprefix("hf:")).read_text())["architectures"], options))
        workload = traced("llama", prompt_tokens=1024, output_tokens=256)
        return question_of(workload, options, catalog=load_catalog())

    monkeypatch.setattr("advisor.question.from_model.question_from_source", from_source)
    model = small_llama()
    flags = {"prompt_tokens": 1024, "output_tokens": 256, "concurrency": 4, "max_tpot": "100ms", "no_local": True}

    explained = explain(model, on="l4", **flags)
    assert explained.generation is not None
    assert explained.steps[0].batch == 4
    needed = memory(model, on="l4", **flags)
    assert (needed.generation, needed.batch) == (explained.generation, 4)
    crossings = breakeven(model, **flags, provider="aws", region="us-east-1")
    assert crossings.job.generation == explained.generation
    assert crossings.job.limits.max_tpot_s == 0.1
    assert {name for (name,), _ in asked} == {"LlamaForCausalLM"}
    assert all((options.prompt_tokens, options.output_tokens) == (1024, 256) for _, options in asked)


def test_from_python_memory_is_of_one_number_of_requests():
    with pytest.raises(UsageError, match=r"^concurrency 1\.\.8: memory takes one batch size"):
        memory(small_llama(), prompt_tokens=1024, output_tokens=256, concurrency="1..8")


def test_from_python_an_error_names_the_model_and_no_file():
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, n_positions=64))
    with pytest.raises(UsageError) as refused:
        recommend(model, prompt_tokens=1024, output_tokens=256, no_local=True)
    assert_says(str(refused.value), "GPT2LMHeadModel", "64 tokens", "1,280")


def test_from_python_a_model_without_a_config_is_no_service():
    with pytest.raises(LoadError, match=r"Linear .* config "):
        recommend(nn.Linear(8, 8), prompt_tokens=1024, output_tokens=256)
    with pytest.raises(UsageError, match=r"^max_ttft .*: Linear"):
        recommend(nn.Linear(8, 8), torch.rand(4, 8), max_ttft="1s", no_local=True)


# -- worked examples --------------------------------------------------------------------------------------------------


def test_decode_of_one_request_is_no_faster_than_the_memory_that_holds_the_weights():
    # 16.06 GB at the 2.04 TB/s of an A100's datasheet: 7.88 ms a token; the embedding of the other 128,255 tokens,
    # 1.05 GB, is not read, so 7.36 ms.
    _, tokens = token_times()
    read_bytes = LLAMA_WEIGHT_BYTES - 2 * 4096 * 128_255

    a100 = GPUS.index("a100-sxm4-80gb")
    assert read_bytes / 2.04e12 == pytest.approx(7.36e-3, rel=1e-3)
    assert read_bytes / 2.04e12 < tokens.pass_s[a100, 0] < 2 * read_bytes / 2.04e12


def test_weights_in_int4_take_a_quarter_of_the_blocks_and_their_scales():
    # The blocks of Llama 3 8B have 32 x 218,103,808 = 6,979,321,856 weights in matrices. In int4 each takes half a byte
    # and 1/128 of an fp16 scale and a zero of 4 bits: 0.51953125 bytes. The rest, 1,050,939,392, stays in half.
    workload = with_weights(llama(), "int4")
    stored = workload.memory[0].parameters

    assert stored.full[0] == 4 * 1_050_939_392
    assert stored.other[0] == pytest.approx(6_979_321_856 * 0.51953125)


def test_the_cache_of_32_requests_takes_5_gib():
    # 131,072 bytes x 1,280 tokens x 32 requests = 5,368,709,120 bytes.
    (quote, *_) = quoted(concurrency="32", device=("a100-sxm4-80gb",))
    assert quote.tokens is not None
    assert quote.tokens.kv_cache_bytes == 5_368_709_120
    assert quote.tokens.weight_bytes == LLAMA_WEIGHT_BYTES


def test_dollars_per_million_tokens_are_those_of_the_month():
    # 2 requests/s are 2 x 730 x 3600 = 5,256,000 a month, of 1024 + 256 tokens each.
    (quote, *_) = quoted(requests_per_second=2.0, device=("a100-sxm4-80gb",))
    assert quote.tokens is not None
    assert quote.tokens.usd_per_million_tokens == pytest.approx(quote.job_usd.mid / (5_256_000 * 1280) * 1e6)
    assert quote.tokens.usd_per_million_output_tokens == pytest.approx(5 * quote.tokens.usd_per_million_tokens)
    assert quote.tokens.output_tokens_per_s == pytest.approx(quote.samples_per_s * 256)


def test_enough_replicas_carry_the_load():
    # 50 requests/s over what one instance does, which is loaded to 70 % at most.
    (quote, *_) = quoted(requests_per_second=50.0, concurrency="8", device=("l4",))
    assert quote.instance_count == int(np.ceil(50 / 0.7 / quote.samples_per_s))


def test_limits_on_tokens_hold_for_every_quote_and_say_who_breaks_them():
    catalog = load_catalog()
    answer = rank(
        question_of(
            llama(),
            Options(no_local=True, max_tpot=TimeLimit(seconds=0.009), max_ttft=TimeLimit(seconds=0.1), device=("gpu",)),
            catalog=catalog,
        )
    )

    assert answer.quotes
    for quote in answer.quotes:
        assert quote.tokens is not None
        assert quote.tokens.tpot_s.mid <= 0.009
        assert quote.tokens.ttft_s.mid <= 0.1
    reasons = {each.code: each.reason for each in answer.rejected}
    assert "its first token takes" in reasons["over-ttft"]
    assert "more than --max-tpot 9 ms" in reasons["over-tpot"]


def test_few_requests_share_all_gpus_and_many_have_copies_of_their_own():
    # 8 A100: 16 requests wait for the weights, which eight GPUs read together; 1,024 wait for computing.
    (few, *_) = quoted(concurrency="16", device=("a100-sxm4-80gb",), gpus=8)
    (many, *_) = quoted(concurrency="1024", device=("a100-sxm4-80gb",), gpus=8)
    assert few.plan is not None
    assert many.plan is not None
    assert few.plan.tensor > many.plan.tensor
    assert few.tokens is not None
    assert many.tokens is not None
    assert few.tokens.output_tokens_per_s < many.tokens.output_tokens_per_s


def test_a_model_too_large_for_one_gpu_is_divided_among_those_of_its_machine():
    # 15 GiB of weights on T4s of 15 GiB: two of them at least.
    (quote, *_) = [quote for quote in quoted(device=("t4",), max_gpus=4) if quote.device.count == 4]
    assert quote.plan is not None
    assert quote.plan.tensor * quote.plan.pipeline > 1
    assert quote.plan.data * quote.plan.tensor * quote.plan.pipeline == quote.gpus_used


def test_cpus_serve_too():
    (quote, *_) = quoted(device=("cpu",))
    assert quote.device.kind == "cpu"
    assert quote.tokens is not None
    assert quote.tokens.tpot_s.low < quote.tokens.tpot_s.mid < quote.tokens.tpot_s.high


def test_fp8_and_int8_cost_what_their_kernels_take() -> None:
    # An A100 multiplies fp8 weights in 16 bits, int8 ones in int8: fewer bytes per second, but twice the FLOP.
    fp8, int8 = (
        quoted(weights=weights, concurrency="128", device=("a100-sxm4-80gb",), gpus=1)[0] for weights in ("fp8", "int8")
    )
    assert fp8.tokens is not None
    assert int8.tokens is not None
    assert fp8.tokens.weight_bytes == int8.tokens.weight_bytes
    assert fp8.job_usd.mid > 1.03 * int8.job_usd.mid
    assert "16 bits" in fp8.tokens.kernels
    assert "int8 products" in int8.tokens.kernels


def test_memory_takes_the_engine_that_its_hint_names_and_a_narrow_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "llama.json"
    saved.write_text(json.dumps(workload_to_json(traced("llama"))), encoding="utf-8")
    asked = ["memory", str(saved), "--on", "l4", "--concurrency", "4", "-o", "json"]
    assert run([*asked, "--weights", "q4_k_m"]) == ExitCode.USAGE
    assert "--engine llama.cpp" in capsys.readouterr().err

    def parts(*flags: str) -> dict[str, float]:
        assert run([*asked, *flags]) == ExitCode.ANSWER
        (found,) = json.loads(capsys.readouterr().out)["devices"]
        return {term["part"]: term["mid_bytes"] for term in found["terms"]}

    plain = parts()
    # Q4_K has 4.5 bits for each of 16, Q6_K of the output and of some matrices 6.6.
    narrow = parts("--weights", "q4_k_m", "--engine", "llama.cpp")
    assert 4.5 / 16 < narrow["parameters"] / plain["parameters"] < 6.6 / 16
    assert parts("--kv-cache", "fp8")["KV cache"] == pytest.approx(plain["KV cache"] / 2)


def test_devices_without_kernels_are_rejected_and_engines_without_the_format_are_an_error() -> None:
    catalog = load_catalog()
    answer = rank(question_of(traced("llama"), Options(no_local=True, weights="fp8"), catalog=catalog))
    assert {quote.device.kind for quote in answer.quotes} == {"gpu"}
    reasons = [each.reason for each in answer.rejected if each.code == "no-native-precision"]
    assert any("vllm has no kernels for weights in fp8 on AMD EPYC" in reason for reason in reasons)
    on_t4 = question_of(traced("llama"), Options(no_local=True, weights="nvfp4", concurrency="1"), catalog=catalog)
    with pytest.raises(UsageError, match=r"no kernels for weights in nvfp4 on t4"):
        explain_question(on_t4, on=("t4",))
    with pytest.raises(NothingFitsError, match=r"no kernels for weights in nvfp4 on t4"):
        memory_fit(on_t4, on=("t4",))
    with pytest.raises(UsageError, match="vllm has no kernels for it") as problem:
        as_served(traced("llama"), Options(weights="q4_k_m"), engines=catalog.engines)
    assert problem.value.hint == "write --engine llama.cpp"
    with pytest.raises(UsageError, match=r"llama\.cpp has no kernels for it"):
        as_served(traced("llama"), Options(engine="llama.cpp", kv_cache="fp8"), engines=catalog.engines)


# -- laws -------------------------------------------------------------------------------------------------------------


@given(st.sampled_from(range(len(GPUS))), st.lists(st.sampled_from(CONCURRENCIES), min_size=2, max_size=2))
def test_with_more_requests_in_flight_no_token_comes_sooner(gpu: int, concurrencies: list[int]) -> None:
    few, many = sorted(concurrencies)
    predictions, tokens = token_times()
    for times in (tokens.first_s, tokens.between_s, tokens.pass_s, predictions.peak_memory_bytes):
        assert times[gpu, few - 1] <= times[gpu, many - 1]


@given(st.sampled_from(range(len(GPUS))), st.sampled_from(CONCURRENCIES))
def test_narrower_weights_are_never_larger_and_without_kernels_of_their_own_never_slower(
    gpu: int, concurrency: int
) -> None:
    formats: tuple[WeightFormat, ...] = ("auto", "fp8", "int4")
    found = {weights: token_times(weights=weights) for weights in formats}
    at = gpu, concurrency - 1
    for wide, narrow in pairwise(one for one in formats if np.isfinite(found[one][1].pass_s[at])):  # no fp8 on a V100
        assert found[narrow][0].peak_memory_bytes[at] <= found[wide][0].peak_memory_bytes[at]
    if GPUS[gpu] not in ("t4", "v100-sxm2-16gb"):  # which write the weights in 16 bits from 51 tokens on
        assert found["int4"][1].pass_s[at] <= found["auto"][1].pass_s[at]


def test_a_longer_prompt_never_has_its_first_token_sooner() -> None:
    times = [predicted(traced("llama", prompt_tokens=tokens), (1, 16))[1].first_s for tokens in (128, 512, 2048)]
    assert all((shorter <= longer).all() for shorter, longer in pairwise(times))


def test_fewer_heads_of_keys_need_less_memory() -> None:
    shared, own = (
        rank(
            question_of(traced(name), Options(no_local=True, concurrency="64", device=("l4",)), catalog=load_catalog())
        )
        for name in ("llama", "llama_all_heads")
    )
    assert shared.quotes[0].peak_memory_bytes < own.quotes[0].peak_memory_bytes


def test_the_ranking_of_a_saved_generation_is_that_of_the_trace() -> None:
    from advisor.workload.file import workload_from_json, workload_to_json

    options = Options(no_local=True, device=("l4",), concurrency="16")
    saved = replace(workload_from_json(workload_to_json(llama())), name="llama3_8b")
    catalog = load_catalog()
    assert (
        rank(question_of(saved, options, catalog=catalog)).quotes
        == rank(question_of(llama(), options, catalog=catalog)).quotes
    )
