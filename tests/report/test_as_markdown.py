"""The Markdown of an answer."""

from advisor.report import sentence
from advisor.report.as_markdown import escape, render
from advisor.report.content import View
from advisor.report.quote_columns import table_rows
from tests.report.toys import GENOA, L4, T4, quote, recommendation, rejection
from tests.says import assert_says


def test_the_whole_answer() -> None:
    answer = recommendation(
        L4, T4, GENOA, rejected=(rejection("p5", code="does-not-fit", reason="too small"),), warnings=("Old prices.",)
    )
    text = render(answer, View(top=2))
    plain = text.replace("\\", "")
    assert text.startswith(r"**aws g6.xlarge (1x L4) ")
    assert r"\$0.42 (\$0.38-\$0.46)" in text
    table = [
        r"| # | provider | instance | device | region | per h | batch | precision | samples/s | per million "
        r"| per million \[90 %\] | P(best) | memory | bound | price date |",
        "|---:|---|---|---|---|---:|---:|---|---:|---:|---:|---:|---:|---|---|",
        r"| 1 | aws | g6.xlarge | 1x L4 | us-east-1 | \$0.84 | 64 | amp-bf16 | 556 | \$0.42 | 0.38-0.46 "
        "| 61 % | 12 % | memory | 2025-11-02 |",
        r"| 3 | aws | c7a.xlarge | 4 vCPU AMD EPYC 9R14 | us-east-1 | \$5.72 | 64 | fp32 | 556 | \$2.86 "
        r"| 2.57-3.15 | 0 % | 12 % | compute | 2025-11-02 |",
    ]
    # Nothing is lost between the sentences and the page, and the parts stand in this order.
    assert_says(
        plain,
        f"**{sentence.verdict(answer)}**",
        *sentence.best_figures(answer),
        *sentence.certainty(answer),
        *(row.replace("\\", "") for row in table),
        *(f"- {line}" for line in sentence.table_notes(table_rows(answer, top=2), quote_count=3)),
        *(f"- {line}" for line in sentence.settings(answer)),
        *(f"- {line}" for line in sentence.further_basis(answer)),
        f"{sentence.left_out_summary(answer)}:",
        *(f"- {line}" for line in sentence.left_out(answer)),
        "- Old prices.",
    )
    assert "\n".join(table) in text


def test_a_name_cannot_become_a_cell_a_link_or_html() -> None:
    odd = quote("a|b [x](y) <script>", kind="gpu", device="L4", usd=1.0)
    assert r"| a\|b \[x\](y) \<script\> |" in render(recommendation(odd), View())


def test_a_name_stays_on_its_line() -> None:
    assert escape("two\nlines") == "two lines"
