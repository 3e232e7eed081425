"""The answer in a terminal."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from advisor.catalog.overlay import layers
from advisor.catalog.parse import parse_catalog
from advisor.report import sentence
from advisor.report.content import Column, printable
from advisor.report.quote_columns import RankedQuote, columns_for, table_rows
from advisor.report.tables import table_of
from advisor.report.terminal import fitting_columns as places_that_fit
from advisor.report.terminal import shortened
from tests.report.toys import (
    A10G,
    GENOA,
    HERE,
    L4,
    T4,
    quote,
    recommendation,
    rejection,
    render_text,
    shown_quotes,
)
from tests.says import assert_says


def fitting_columns(rows: Sequence[RankedQuote], *, width: int) -> list[Column]:
    table = table_of(rows, columns_for(rows))
    return [table.columns[place] for place in places_that_fit(table, width=width)]


ANSWER = recommendation(
    L4,
    T4,
    A10G,
    GENOA,
    rejected=(rejection("p5.48xlarge", code="too-few-gpus", reason="has 1 GPU, not 8"),),
    warnings=("The prices are 300 days old.",),
)


def test_the_whole_answer_at_80_columns() -> None:
    text = render_text(ANSWER, width=80, color=False, top=3)
    table = [
        " #  provider  instance     per h  samples/s  per million  P(best)",
        " 1  aws       g6.xlarge    $0.84        556        $0.42     61 %",
        "~2  aws       g4dn.xlarge  $0.90        556        $0.45     39 %",
        " 4  aws       c7a.xlarge   $5.72        556        $2.86      0 %",
    ]
    assert max(map(len, text.splitlines())) <= 80
    assert "\n".join(table) in text
    # Nothing is lost between the sentences and the page, and the parts stand in this order.
    assert_says(
        text,
        sentence.verdict(ANSWER),
        *sentence.best_figures(ANSWER),
        *sentence.certainty(ANSWER),
        *(" ".join(row.split()) for row in table),
        *sentence.table_notes(table_rows(ANSWER, top=3), quote_count=4),
        "8 columns",  # device, region, batch, precision, per million [90 %], memory, bound, price date
        *sentence.table_details(table_rows(ANSWER, top=3)),
        *sentence.settings(ANSWER),
        *sentence.further_basis(ANSWER),
        sentence.left_out_summary(ANSWER),
        *sentence.left_out(ANSWER),
        *ANSWER.warnings,
    )


def test_a_folded_answer_counts_what_it_leaves_out_and_says_how_to_see_it() -> None:
    text = render_text(ANSWER, width=80, color=False, top=3, folded="--details")
    flat = " ".join(text.split())
    hidden = (*sentence.table_details(table_rows(ANSWER, top=3)), *sentence.further_basis(ANSWER))
    assert len(hidden) == 2  # what ~ means, and the traced step
    assert not [line for line in (*hidden, *sentence.left_out(ANSWER)) if line in flat]
    assert flat.count("--details") == 3
    assert_says(text, sentence.verdict(ANSWER), "1 note (--details)", "Assumes (1 more: --details)", *ANSWER.warnings)
    assert text.splitlines()[0].startswith("aws g6.xlarge (1x L4)")


def test_a_narrow_terminal_says_the_width_that_shows_every_column() -> None:
    text = render_text(ANSWER, width=80, color=False)
    (width,) = map(int, re.findall(r"COLUMNS=(\d+)", text))
    assert "COLUMNS" not in render_text(ANSWER, width=width, color=False)
    assert "COLUMNS" in render_text(ANSWER, width=width - 1, color=False)


def test_what_is_left_out_is_one_line_unless_nothing_fits() -> None:
    rejected = (rejection("p5", code="too-few-gpus", reason="has 1 GPU, not 8"),) * 3
    text = render_text(recommendation(L4, rejected=rejected), width=80, color=False, folded="--details")
    (line,) = (line for line in text.splitlines() if "too-few-gpus" in line)
    assert_says(line, "3", "--details")
    assert "has 1 GPU" not in text
    assert "has 1 GPU, not 8" in render_text(
        recommendation(rejected=rejected), width=80, color=False, folded="--details"
    )


def test_a_wide_terminal_has_every_column() -> None:
    text = render_text(ANSWER, width=200, color=False)
    assert "COLUMNS" not in text
    assert " 1  aws       g6.xlarge    1x L4                 us-east-1  $0.84     64  amp-bf16" in text
    assert "556        $0.42           0.38-0.46     61 %    12 %  memory   2025-11-02\n" in text


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = quote("Standard_NC24ads_A100_v4_constrained", kind="gpu", device="A100-PCIE-80GB", usd=1.0, provider="azure")
    text = render_text(recommendation(long, GENOA), width=width, color=False)
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_table_that_fits_exactly_loses_nothing() -> None:
    rows = shown_quotes(ANSWER.quotes, top=10)
    table = render_text(ANSWER, width=300, color=False).split("\n\n")[1].splitlines()
    natural_width = max(len(line) for line in table[:5])
    assert len(fitting_columns(rows, width=natural_width)) == len(fitting_columns(rows, width=300))
    assert len(fitting_columns(rows, width=natural_width - 1)) == len(fitting_columns(rows, width=300)) - 1


def test_columns_go_in_the_stated_order_and_three_stay() -> None:
    rows = shown_quotes(ANSWER.quotes, top=10)
    headers = [[column.header for column in fitting_columns(rows, width=width)] for width in range(200, 10, -1)]
    dropped = [gone for wide, narrow in pairwise(headers) for gone in wide if gone not in narrow]
    assert dropped == [
        *("price date", "per million [90 %]", "region", "bound", "memory", "precision", "batch", "device"),
        *("P(best)", "provider", "per h", "samples/s"),
    ]
    assert headers[-1] == ["#", "instance", "per million"]


def test_a_number_is_never_cut_short_on_a_narrow_terminal() -> None:
    cheap = quote("c4a-highcpu-1", kind="cpu", device="Google Axion", usd=0.01685)
    lines = render_text(recommendation(L4, cheap), width=30, color=False).splitlines()
    assert "1  g6.xlarge            $0.42" in lines
    assert "2  c4a-highcpu-1       $0.017" in lines  # two significant digits of 0.01685


def test_square_brackets_in_a_name_are_not_markup() -> None:
    assert "net[bold]: 25.6M parameters" in render_text(recommendation(L4, name="net[bold]"), width=80, color=False)


def test_a_name_cannot_steer_the_terminal() -> None:
    text = render_text(recommendation(L4, name="net\x1b[2J\nerror: fake"), width=200, color=False)
    assert "net [2J error: fake: 25.6M parameters" in text
    assert printable("a\tb\u202ec") == "a b c"


def test_colours_are_ansi_codes_around_the_same_text() -> None:
    colored = render_text(ANSWER, width=200, color=True)
    assert "\x1b[" in colored
    stripped = "".join(f"{line.rstrip()}\n" for line in re.sub(r"\x1b\[[0-9;]*m", "", colored).splitlines())
    assert stripped == render_text(ANSWER, width=200, color=False)


def test_an_answer_without_quotes_has_no_table() -> None:
    text = render_text(recommendation(), width=80, color=False)
    assert text.startswith(sentence.headline(recommendation()))
    assert "instance  " not in text


def test_a_long_name_is_shortened_and_keeps_what_tells_it_apart() -> None:
    """33 and 37 characters: without the vendor both fit 31, and without the middle of the second they fit 24."""
    names = ["NVIDIA GeForce RTX 4090 24GB PCIe", "NVIDIA RTX 4090 24GB PCIe [community]"]
    assert shortened(names, beside=[(), ()], width=33) == [names[0], "RTX 4090 24GB PCIe [community]"]
    assert shortened(names, beside=[(), ()], width=24) == ["RTX 4090 24GB PCIe", "RTX 4090 24GB PC\u2026munity]"]


def test_names_that_would_read_the_same_get_more_room() -> None:
    names = ["abcdefghij-1-klm", "abcdefghij-2-klm"]  # the digit is character 12; at width 10 both are abcdef...klm
    assert shortened(names, beside=[("aws",), ("gcp",)], width=10) == ["abcdef\u2026klm"] * 2
    assert shortened(names, beside=[(), ()], width=10) == names  # their end has room for the digit only at 16


def test_what_decides_fits_80_characters_for_every_offer(tmp_path: Path) -> None:
    """The longest provider and the longest instance of the shipped prices, at a long price, time and cost."""
    shipped = parse_catalog(layers(profiles=None, prices=(), cwd=tmp_path)[-1:])
    provider, instance = (
        max((getattr(offer, field) for offer in shipped.offers), key=len) for field in ("provider", "instance")
    )
    dear = quote(instance, kind="gpu", device="L4", usd=56.965, provider=provider)  # $113.93 per hour
    ranked = [replace(L4, instance=f"i{number}") for number in range(99)]
    rate = recommendation(dear, *ranked, at_hand=HERE)
    sized = replace(rate, job=replace(rate.job, assumed=False))
    for answer, deciding in ((rate, {"samples/s", "per million"}), (sized, {"time", "cost"})):
        headers = [column.header for column in fitting_columns(table_rows(answer, top=98), width=80)]
        assert {"#", "provider", "instance", "per h"} | deciding <= set(headers)


def test_the_machine_at_hand_is_the_last_row_with_its_speed() -> None:
    lines = render_text(recommendation(L4, GENOA, at_hand=HERE), width=80, color=False, top=1).splitlines()

    # `top` is one, and the best of the other kind is always shown beside it
    (row,) = (number for number, line in enumerate(lines) if line.startswith("-  local     this machine's cpu"))
    assert_says(lines[row], "556", "$0")
    assert_says(" ".join(lines[row + 1 : row + 4]), "-", "local machine", "electricity")
