"""The record of options is the command line."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import click
import pytest

from advisor.calibrate.first_use import calibrations_on_first_use
from advisor.cli.commands import load_command
from advisor.cli.flags import option_flags
from advisor.records.options import GivenOptions, Options, TimeLimit
from scripts.write_flag_docs import TARGET, flag_docs
from tests.cli.conftest import Pipeline, Result

Advise = Callable[..., Result]


def test_every_field_of_the_record_is_one_flag_with_a_help_text() -> None:
    made = {flag.opts[0]: flag for flag in option_flags() if isinstance(flag, click.Option)}
    assert list(made) == [f"--{field.name.replace('_', '-')}" for field in fields(Options)]
    assert all(flag.help for flag in made.values())


def test_without_flags_the_options_are_the_defaults(advise: Advise, pipeline: Pipeline) -> None:
    advise("model.py")
    assert pipeline.asked[0] == {
        "source": "model.py",
        "options": GivenOptions(),
        "run": False,
        "script_args": (),
        "trace": None,
        "read_calibrations": calibrations_on_first_use,
    }


GIVEN: dict[str, tuple[tuple[str, ...], Any]] = {
    "finetune": (("lora",), "lora"),
    "model_config": (("llama.json",), "llama.json"),
    "lora_rank": (("8",), 8),
    "lora_targets": (("q_proj,v_proj",), ("q_proj", "v_proj")),
    "sequence": (("4096",), 4096),
    "packing": ((), True),
    "mean_tokens": (("300",), 300.0),
    "lengths": (("180,512",), "180,512"),
    "optim": (("adamw-8bit",), "adamw-8bit"),
    "trainer_kernels": (("liger",), "liger"),
    "keep_activations": ((), True),
    "mode": (("training",), "training"),
    "precision": (("bf16",), "bf16"),
    "batch": (("8,16",), "8,16"),
    "prompt_tokens": (("1024",), 1024),
    "output_tokens": (("256",), 256),
    "cached_prompt_tokens": (("512",), 512),
    "concurrency": (("4..64",), "4..64"),
    "weights": (("int4",), "int4"),
    "kv_cache": (("fp8",), "fp8"),
    "draft_tokens": (("4",), 4),
    "acceptance_rate": (("70%",), 0.7),
    "draft_cost": (("0.05",), 0.05),
    "sampling": (("plain",), "plain"),
    "engine": (("other",), "other"),
    "api_usd_per_mtok": (("0.2,0.6",), "0.2,0.6"),
    "tensor_parallel": (("2",), 2),
    "pipeline_parallel": (("2",), 2),
    "expert_parallel": (("2",), 2),
    "accumulate": (("4",), 4),
    "checkpoint_activations": ((), True),
    "gpus": (("2",), 2),
    "max_gpus": (("8",), 8),
    "max_machines": (("16",), 16),
    "sharding": (("zero3",), "zero3"),
    "input": (("3x224x224", "a=2:int64"), ("3x224x224", "a=2:int64")),
    "layout": (("nhwc",), "nhwc"),
    "compile": (("compile",), "compile"),
    "attention": (("fused",), "fused"),
    "samples": (("1e6",), 1_000_000),
    "epochs": (("3",), 3),
    "steps": (("100",), 100),
    "tokens": (("1e9",), 1_000_000_000),
    "requests_per_day": (("1000",), 1000),
    "requests_per_second": (("0.5",), 0.5),
    "checkpoint_every": (("30m",), 1800.0),
    "loader_s_per_sample": (("4ms",), 0.004),
    "loader_workers": (("0",), 0),
    "provider": (("aws,gcp", "azure"), ("aws", "gcp", "azure")),
    "region": (("EU",), ("EU",)),
    "tier": (("neocloud, hyperscaler",), ("neocloud", "hyperscaler")),
    "arch": (("arm",), ("arm",)),
    "instance": (("g6.xlarge,c7g.large", "t2"), ("g6.xlarge", "c7g.large", "t2")),
    "device": (("l4,t4",), ("l4", "t4")),
    "no_local": ((), True),
    "no_calibrate": ((), True),
    "measure": ((), True),
    "price": (("commit-1y",), "commit-1y"),
    "objective": (("cost-time",), "cost-time"),
    "deadline": (("24h",), 86400.0),
    "max_usd": (("$50",), 50.0),
    "max_hourly": (("3.5",), 3.5),
    "max_co2": (("4.5",), 4.5),
    "max_latency": (("50ms",), 0.05),
    "p99": (("100ms",), 0.1),
    "max_utilization": (("60%",), 0.6),
    "max_ttft": (("p99:2s",), TimeLimit(seconds=2.0, of="p99")),
    "max_tpot": (("20ms",), TimeLimit(seconds=0.02)),
    "min_throughput": (("100",), 100.0),
    "max_price_age": (("90d",), 90),
    "drop_prices": (("old",), "old"),
    "currency": (("EUR",), "EUR"),
    "top": (("5",), 5),
    "strict": ((), True),
    "timeout": (("3m",), 180.0),
    "profiles": (("mine",), "mine"),
    "prices": (("a,b.yaml",), ("a,b.yaml",)),  # a file name may hold a comma
}
"""For each field: the values typed after the flag, and the value that the record then holds."""
NO_FIELDS = {
    "source",
    "script_args",
    "run",
    "emit",
    "details",
    "idle_minutes",
    "port",
    "image",
    "compare_to",
    "fail_if_cost_rises",
    "output",
}
"""Flags of the command that are not fields of the record."""


def test_every_flag_of_the_command_reaches_the_record(advise: Advise, pipeline: Pipeline) -> None:
    command = load_command("rank")
    taken = {parameter.name for parameter in command.get_params(click.Context(command))} - {"_click_default_help"}
    assert taken - NO_FIELDS == set(GIVEN)  # a new flag stands here with a value

    arguments: list[str] = []
    for name, (typed, _) in GIVEN.items():
        flag = f"--{name.replace('_', '-')}"
        arguments += [text for value in typed for text in (flag, value)] or [flag]
    assert advise("model.py", *arguments).err == ""

    found = pipeline.asked[0]["options"]
    for name, (_, expected) in GIVEN.items():
        assert getattr(found, name) == expected, name
        assert getattr(Options(), name) != expected, name  # else nothing is shown


def test_a_choice_may_be_written_in_capitals(advise: Advise, pipeline: Pipeline) -> None:
    advise("model.py", "--mode", "Training")
    assert pipeline.asked[0]["options"] == GivenOptions(mode="training", given=frozenset({"mode"}))


@pytest.mark.parametrize(
    ("flag", "value", "error", "hint"),
    [
        ("--mode", "trainin", "--mode: 'trainin' is not one of inference, training", "did you mean training?"),
        ("--price", "x", "--price: 'x' is not one of on-demand, spot, commit-1y, commit-3y", "use one of on-demand,"),
        ("--tier", "neocloud,hyper", "--tier: 'hyper' is not one of", "did you mean hyperscaler?"),
        ("--top", "0", "--top: '0' is not a whole number of at least 1", "write for example 500, 200k, 1.5M or 1e6"),
        (
            "--samples",
            "-5",
            "--samples: '-5' is not a whole number of at least 1",
            "write for example 500, 200k, 1.5M or 1e6",
        ),
        (
            "--max-price-age",
            "old",
            "--max-price-age: 'old' is not a whole number of days, at least 1",
            "write 180 or 180d",
        ),
        ("--timeout", "soon", "--timeout: 'soon' is not a duration", "write seconds,"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_flag(
    advise: Advise, pipeline: Pipeline, flag: str, value: str, error: str, hint: str
) -> None:
    result = advise("model.py", flag, value)
    assert result.code == 2
    first, second = result.err.splitlines()
    assert first.startswith(f"error: {error}")
    assert second.startswith(f"hint: {hint}")
    assert pipeline.asked == []


def test_a_field_of_a_new_type_is_refused_when_the_flags_are_made() -> None:
    from advisor.cli import flags

    @dataclass
    class Odd:
        when: complex = field(default=0j, metadata={"help": "", "metavar": ""})

    with pytest.raises(KeyError, match="complex"):
        flags.OptionFlag(fields(Odd)[0])


def test_the_page_of_flags_is_what_the_commands_say() -> None:
    page = Path(TARGET).read_text(encoding="utf-8")
    assert page == flag_docs(), "run python scripts/write_flag_docs.py"
    # Commands that mean something else by a flag have a line of their own.
    lines = [line for line in page.splitlines() if line.startswith("| `--on` |")]
    assert [line.split(" | ")[-2] for line in lines] == ["calibrate", "explain", "memory"]
