"""The Markdown of an answer."""

from advisor.report.as_markdown import escape, render
from advisor.report.view import View
from tests.report.toys import GENOA, L4, T4, quote, recommendation, rejection


def test_the_whole_answer() -> None:
    answer = recommendation(
        L4, T4, GENOA, rejected=(rejection("p5", code="does-not-fit", reason="too small"),), warnings=("Old prices.",)
    )
    assert render(answer, View(top=2)).splitlines() == [
        r"**aws g6.xlarge (1x L4) processes 1,000,000 samples for \$0.42 (\$0.38-\$0.46) in 30 min: "
        r"a GPU is 6.8x cheaper than the best CPU (aws c7a.xlarge, \$2.86); "
        "1 other offer is too close to call (this one is the cheapest with a probability of 61 %): "
        "aws g4dn.xlarge (39 %).**",
        "",
        "Assumes:",
        "",
        "- inference, the cheapest batch size for each device, precision auto (bf16 or fp16 autocast if native, else "
        "fp32), eager, NCHW, on-demand prices; no job size given, so 1,000,000 samples on a device that is always "
        "busy.",
        "- best offer: batch 64, amp-bf16; time predicted from operators measured on its hardware generation; "
        r"price \$0.84 per hour (list price, 2025-11-02); the cost covers only compute time.",
        "- resnet50: 25.6 M parameters, 8.18 GFLOP per step at batch 1; every operator has a formula.",
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
