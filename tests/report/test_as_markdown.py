"""The Markdown of an answer."""

from advisor.report.as_markdown import escape, render
from advisor.report.view import View
from tests.report.toys import GENOA, L4, T4, quote, recommendation, rejection


def test_the_whole_answer() -> None:
    answer = recommendation(
        L4, T4, GENOA, rejected=(rejection("p5", code="does-not-fit", reason="too small"),), warnings=("Old prices.",)
    )
    assert render(answer, View(top=2)).splitlines() == [
        r"**aws g6.xlarge (1x L4) does 1,000,000 samples for \$0.42 (\$0.38-\$0.46) in 30 min: "
        r"a GPU is 6.8x cheaper here than the best CPU (aws c7a.xlarge, \$2.86); "
        "1 other cannot be told apart from the best (the cheapest with a chance of 61 %): aws g4dn.xlarge (39 %).**",
        "",
        "Assumes:",
        "",
        "- inference, the cheapest batch per device, precision auto (bf16 or fp16 autocast where native, else fp32), "
        "eager, NCHW, on-demand prices; no job size was given, so 1,000,000 samples with the device kept busy.",
        "- the best: batch 64, amp-bf16; its time is predicted from operators measured on its generation, its price "
        r"(\$0.84 an hour, list price) of 2025-11-02; the cost covers the hours of computing, nothing else.",
        "- resnet50: 25.6 M parameters, 8.18 GFLOP a step at batch 1; every operator has a formula.",
        "",
        r"| # | instance | provider | region | device | per h | batch | precision | step \[90 %\] | samples/s | cost "
        "| cheapest | memory | bound | price date |",
        "|---:|---|---|---|---|---:|---:|---|---:|---:|---:|---:|---:|---|---|",
        r"| 1 | g6.xlarge | aws | us-east-1 | 1x L4 | \$0.84 | 64 | amp-bf16 | 115 ms \[104-128\] | 556 | \$0.42 "
        "| 61 % | 12 % | memory | 2025-11-02 |",
        r"| 3 | c7a.xlarge | aws | us-east-1 | 4 vCPU AMD EPYC 9R14 | \$5.72 | 64 | fp32 | 115 ms \[104-128\] | 556 "
        r"| \$2.86 | 0 % | 12 % | compute | 2025-11-02 |",
        "",
        "Rows:",
        "",
        "- Row 3 is the best CPU.",
        "- 1 more in the ranking (--top 3 shows all).",
        "",
        "Left out (1):",
        "",
        "- 1 does-not-fit: aws p5: too small",
        "",
        "Warnings:",
        "",
        "- Old prices.",
    ]


def test_a_name_cannot_become_a_cell_a_link_or_html() -> None:
    odd = quote("a|b [x](y) <script>", kind="gpu", device="L4", usd=1.0)
    assert r"| a\|b \[x\](y) \<script\> |" in render(recommendation(odd), View())


def test_a_name_stays_on_its_line() -> None:
    assert escape("two\nlines") == "two lines"
