"""Rows of served models: what a file may hold, and which line and cell an error names."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.answers.measurement_file import has_column
from advisor.answers.served_validation import read_served, served_device
from advisor.catalog.overlay import load_catalog
from advisor.errors import UsageError

HEADER = "model,device,prompt_tokens,output_tokens,concurrency,ttft_s,tpot_s,tokens_per_s,source\n"
SHIPPED = Path(__file__).parent.parent / "data/measured/served/vllm.csv"


def table(tmp_path: Path, *rows: str) -> Path:
    file = tmp_path / "served.csv"
    file.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return file


def test_an_empty_cell_was_not_measured(tmp_path: Path) -> None:
    ((row, line),) = read_served(table(tmp_path, "hf:a.json,l4,256,128,4,,0.02,190,me"))
    assert line == 2
    assert (row.ttft_s, row.tpot_s, row.tokens_per_s, row.concurrency) == (None, 0.02, 190.0, 4)
    assert (row.engine, row.tensor_parallel) == ("vllm", 1)


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ("hf:a.json,l4,256,1,4,,0.02,190,me", "served.csv:2: output_tokens"),
        ("hf:a.json,l4,0,128,4,,0.02,190,me", "served.csv:2: prompt_tokens"),
        ("hf:a.json,l4,256,128,4,,-1,190,me", "served.csv:2: tpot_s"),
        ("hf:a.json,l4,256,128,four,,0.02,190,me", "served.csv:2: concurrency"),
        ("hf:a.json,l4,256,128,4,,,,me", "served.csv:2: nothing was measured"),
    ],
)
def test_an_invalid_cell_is_named_with_its_line(tmp_path: Path, cells: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_served(table(tmp_path, cells))


def test_the_shipped_rows_are_read_and_each_measured_something(tmp_path: Path) -> None:
    assert has_column(SHIPPED, "prompt_tokens")
    rows = [row for row, _ in read_served(SHIPPED)]
    assert len(rows) == 999
    assert all(row.tpot_s is not None for row in rows)


def test_the_code_of_the_host_takes_longer_at_a_lower_clock() -> None:
    shipped = load_catalog()
    rows = [row for row, _ in read_served(SHIPPED) if row.device == "a100-sxm4-40gb"]
    device = served_device(rows[0], shipped)
    # Cascade Lake in Google Cloud: 2.9 GHz, against 4 GHz of the reference.
    assert (device.host_cpu, device.host_time_ratio) == ("intel-cascade-lake-2-2-ghz", pytest.approx(4.0 / 2.9))
    assert served_device(replace(rows[0], host=None), shipped).host_time_ratio == 1.0
    with pytest.raises(UsageError, match="host"):
        served_device(replace(rows[0], host="l4"), shipped)
