"""Options as no form would send them: each door refuses them by name, or answers with figures that can be."""

import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
import torch
from torch import nn

from advisor import breakeven, explain, memory, recommend
from advisor.answers import break_even, explanation, memory_fit, ranking
from advisor.cli.main import run
from advisor.errors import AdvisorError, ExitCode
from advisor.question.from_source import profile_source, question_from_source
from advisor.question.option_values import checked_options
from advisor.records.flag_values import flag_name, value_type
from advisor.records.options import Options
from advisor.report.as_json import to_json
from advisor.serve.options import EXAMPLE_WORKLOAD
from tests.reliability.attack import Attack

pytestmark = pytest.mark.slow

SOURCE = str(EXAMPLE_WORKLOAD)
DOORS: dict[str, Callable[..., Any]] = {
    "rank": lambda *asked: ranking.rank(question_from_source(*asked)),
    "explain": lambda *asked: explanation.explain(question_from_source(*asked)),
    "memory": lambda *asked: memory_fit.memory_fit(question_from_source(*asked)),
    "breakeven": lambda *asked: break_even.break_even(question_from_source(*asked)),
    "profile": profile_source,
}
OPTIONS = {field.name: field for field in fields(Options)}
TEXTS = (
    "", " ", "0", "-1", "nan", "inf", "1e999", "1e308", "5e-324", "9" * 5000, "1,2", "1..2", "4096..1", "..", ",", "²",
    "\u0661\u0662", "\x00", "\x1b[2J\x1b]0;x\x07", "a\nhint: b", "\u202e\x9b8m", "\ud800", "naïve", "../..", "-", "@",
    "--help", "/dev/null", "t4@0", "g5.xlarge", "x" * 10_000, "{}", "%s%n", "auto", "cpu", "gpu", "aws", "EUR", "1h",
)  # fmt: skip
LIKELY = {
    "batch": ("1", "64", "1..4096", "7,900,31", "auto", "999999999", "3..5"), "device": ("t4", "cpu", "gpu", "a100,l4"),
    "provider": ("aws", "gcp,azure", "vast-ai"), "region": ("US", "EU", "us-east-1"), "currency": ("usd",),
}  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 7, 64, 1000, 10**6, 10**15, 10**15 + 1, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.1, 1e-15, 1e-12,
    1e9, 1e15, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf,
)  # fmt: skip
OTHERS = (None, True, False, [], {}, (), [None], ["t4", 3], {"a": 1}, b"x", object(), 3j, Path("x"), ["aws"] * 500)
MAY_BE_NEGATIVE = {"saved_bytes", "saved_usd", "saved_ratio"}
"""A change may cost more than it saves."""


def text(chance: Random) -> str:
    return (
        chance.choice(TEXTS) if chance.random() < 0.7 else "".join(chr(chance.randrange(1, 0x3000)) for _ in range(8))
    )


def value(chance: Random, name: str) -> Any:
    """Mostly something that the field takes, however large or small, else something of no sense."""
    kind, odds = value_type(OPTIONS[name].type), chance.random()
    if odds < 0.6 and kind in (int, float):
        return kind(10 ** chance.uniform(0 if kind is int else -12, 15))
    if odds < 0.6 and name in LIKELY:
        return chance.choice(LIKELY[name])
    if odds < 0.7 and get_args(kind):
        return chance.choice(get_args(kind))
    if 0.7 < odds < 0.75:
        return chance.choice(OTHERS)
    if odds < 0.7 and kind is bool:
        return True
    return chance.choice(NUMBERS) if kind in (int, float) or odds < 0.85 else text(chance)


def flags(chance: Random) -> dict[str, Any]:
    names = chance.sample(sorted(OPTIONS.keys() - {"timeout", "prices", "profiles"}), chance.randrange(1, 5))
    return {name: value(chance, name) for name in names}


def numbers(document: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON document with its key."""
    if isinstance(document, dict):
        for name, inner in document.items():
            yield from numbers(inner, name)
    elif isinstance(document, list):
        for inner in document:
            yield from numbers(inner, key)
    elif isinstance(document, (int, float)) and not isinstance(document, bool):
        yield key, document


def check_figures(document: Any) -> None:
    for key, number in numbers(document):
        assert math.isfinite(number), key
        assert number >= 0 or key in MAY_BE_NEGATIVE, f"{key}: {number}"


def check_text(shown: str) -> None:
    assert all(line.isprintable() for line in shown.replace("\t", " ").split("\n"))


def test_fuzzed_python_keywords(attack: Attack) -> None:
    def check(chance: Random) -> None:
        given, door, refused = flags(chance), chance.choice(sorted(DOORS)), None
        try:
            answer = DOORS[door](SOURCE, checked_options(**{**given, "no_local": True}))
        except AdvisorError as error:
            refused = error
        else:
            if door != "profile":
                check_figures(json.loads(to_json(answer)))
                check_text(repr(answer))
        assert refused is None or (refused.message and refused.hint)

    attack.each(check)


def test_mutated_arguments_of_the_command(attack: Attack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def check(chance: Random) -> None:
        arguments = [chance.choice(sorted(DOORS)), SOURCE]
        for name, given in flags(chance).items():
            arguments += [flag_name(name)] if given is True else [f"{flag_name(name)}={given}"]
        if chance.random() < 0.2:
            arguments.insert(chance.randrange(len(arguments) + 1), text(chance))
        if chance.random() < 0.5:
            arguments += ["-o", chance.choice(("json", "table", "markdown", "csv", text(chance)))]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(arguments)
        check_text(out.getvalue())
        check_text(err.getvalue())
        assert code in (ExitCode.ANSWER, ExitCode.NOTHING_FITS, ExitCode.USAGE, ExitCode.LOAD)
        if code in (ExitCode.USAGE, ExitCode.LOAD):
            assert err.getvalue().startswith(("error: ", "warning: "))
            assert "\nhint: " in err.getvalue()
        assert sys.stdout is not out

    attack.each(check)


def test_mutated_keywords_beside_a_live_model(attack: Attack) -> None:
    model, inputs = nn.Linear(8, 4), torch.zeros(4, 8)

    def check(chance: Random) -> None:
        given = {name: one for name, one in flags(chance).items() if name not in ("input", "measure")}
        try:
            answer = chance.choice((recommend, explain, memory, breakeven))(
                model, inputs, **{**given, "no_local": True}
            )
        except AdvisorError:
            return
        check_figures(json.loads(to_json(answer)))
        check_text(repr(answer))

    attack.each(check, count=max(1, attack.count // 10))
