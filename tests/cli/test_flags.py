"""The record of options is the command line."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import click
import pytest

from advisor.calibrate.first_use import calibrations_on_first_use
from advisor.cli.flags import option_flags
from advisor.records.options import Options
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
        "options": Options(),
        "run": False,
        "script_args": (),
        "read_calibrations": calibrations_on_first_use,
    }


def test_every_flag_reaches_the_record(advise: Advise, pipeline: Pipeline) -> None:
    given = (
        *(
            "--mode",
            "training",
            "--precision",
            "bf16",
            "--batch",
            "8,16",
            "--input",
            "3x224x224",
            "--input",
            "a=2:int64",
        ),
        *("--layout", "nhwc", "--compile", "compile", "--samples", "1e6", "--epochs", "3", "--steps", "100"),
        *("--provider", "aws,gcp", "--provider", "azure", "--region", "EU", "--tier", "neocloud, hyperscaler"),
        *(
            "--device",
            "l4,t4",
            "--no-local",
            "--no-calibrate",
            "--price",
            "commit-1y",
            "--top",
            "5",
            "--strict",
            "--timeout",
            "2m",
        ),
        *("--max-price-age", "90d", "--drop-prices", "old", "--currency", "EUR"),
        *("--tokens", "1e9", "--requests-per-day", "1000", "--checkpoint-every", "30m", "--objective", "cost-time"),
        *("--deadline", "24h", "--max-usd", "$50", "--max-hourly", "3.5", "--max-latency", "50ms"),
        *("--min-throughput", "100", "--profiles", "mine", "--prices", "a,b.yaml"),
    )
    assert advise("model.py", *given).err == ""
    assert pipeline.asked[0]["options"] == Options(
        mode="training",
        precision="bf16",
        batch="8,16",
        input=("3x224x224", "a=2:int64"),
        layout="nhwc",
        compile="compile",
        samples=1_000_000,
        epochs=3,
        steps=100,
        tokens=1_000_000_000,
        requests_per_day=1000,
        checkpoint_every=1800.0,
        provider=("aws", "gcp", "azure"),
        region=("EU",),
        tier=("neocloud", "hyperscaler"),
        device=("l4", "t4"),
        no_local=True,
        no_calibrate=True,
        price="commit-1y",
        objective="cost-time",
        deadline=86400.0,
        max_usd=50.0,
        max_hourly=3.5,
        max_latency=0.05,
        min_throughput=100.0,
        max_price_age=90,
        drop_prices="old",
        currency="EUR",
        top=5,
        strict=True,
        timeout=120.0,
        profiles="mine",
        prices=("a,b.yaml",),  # a file name may hold a comma
    )


def test_a_choice_may_be_written_in_capitals(advise: Advise, pipeline: Pipeline) -> None:
    advise("model.py", "--mode", "Training")
    assert pipeline.asked[0]["options"] == replace(Options(), mode="training")


@pytest.mark.parametrize(
    ("flag", "value", "error", "hint"),
    [
        ("--mode", "trainin", "--mode: 'trainin' is not one of inference, training", "did you mean training?"),
        ("--price", "x", "--price: 'x' is not one of on-demand, spot, commit-1y, commit-3y", "give one of on-demand,"),
        ("--tier", "neocloud,hyper", "--tier: 'hyper' is not one of", "did you mean hyperscaler?"),
        ("--top", "0", "--top: '0' is not a whole number from 1", "write it out, or as 1e6"),
        ("--samples", "-5", "--samples: '-5' is not a whole number from 1", "write it out, or as 1e6"),
        ("--max-price-age", "old", "--max-price-age: 'old' is not a whole number of days from 1", "write 180 or 180d"),
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
        flags._flag(fields(Odd)[0])


def test_the_page_of_flags_is_what_the_commands_say() -> None:
    assert Path(TARGET).read_text(encoding="utf-8") == flag_docs(), "run python scripts/write_flag_docs.py"
