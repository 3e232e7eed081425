"""Rows of fine-tuning runs: what a file may hold, which cell an error names, and what is predicted of a run."""

from pathlib import Path

import pytest

from advisor.answers.measurement_file import has_column
from advisor.answers.tuning_validation import read_tuning_runs
from advisor.answers.validation import validate
from advisor.errors import UsageError
from advisor.records.options import Options

HEADER = "model,finetune,sequence,batch,device,gpus,sharding,step_s,peak_bytes,ran_out,source\n"
SHIPPED = Path(__file__).parent.parent / "data/measured/fine_tuning/fms_a100.csv"
TINY = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}"""


def table(tmp_path: Path, *rows: str) -> Path:
    file = tmp_path / "runs.csv"
    file.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    (tmp_path / "tiny.json").write_text(TINY)
    return file


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ("hf:a.json,lora,0,4,a10g,1,none,1.5,,,me", "runs.csv:2: sequence"),
        ("hf:a.json,dora,128,4,a10g,1,none,1.5,,,me", "runs.csv:2: finetune"),
        ("hf:a.json,lora,128,4,a10g,1,none,-1,,,me", "runs.csv:2: step_s"),
        ("hf:a.json,lora,128,4,a10g,1,none,,,,me", "runs.csv:2: nothing was measured"),
    ],
)
def test_an_invalid_cell_is_named_with_its_line(tmp_path: Path, cells: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_tuning_runs(table(tmp_path, cells))


def test_the_shipped_runs_are_read_and_failed_ones_have_no_time() -> None:
    assert has_column(SHIPPED, "finetune")
    rows = [row for row, _ in read_tuning_runs(SHIPPED)]
    assert (len(rows), sum(row.ran_out for row in rows)) == (231, 73)
    assert all((row.step_s is None) == row.ran_out for row in rows)


@pytest.mark.slow
def test_no_shipped_run_that_ran_out_is_said_to_fit() -> None:
    pytest.importorskip("transformers")
    peaks = validate([SHIPPED], Options(timeout=900)).peaks
    assert sum(one.measured_bytes is None for one in peaks) == 73
    assert [one.line for one in peaks if one.measured_bytes is None and one.verdict == "fits"] == []
    assert [one.line for one in peaks if one.measured_bytes and one.verdict == "does not fit"] == []


def test_times_and_peaks_of_runs_are_scored_apart(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    rows = (
        "hf:tiny.json,lora,128,4,a10g,1,none,0.05,1e9,,me",
        "hf:tiny.json,lora,128,4,a10g,2,zero3,0.05,,,me",
        "hf:tiny.json,full,128,4,a10g,1,none,,,1,me",
        "hf:tiny.json,full,128,4,no-such-gpu,1,none,0.05,,,me",
    )
    found = validate([table(tmp_path, *rows)], Options())
    assert [row.measurement.line for row in found.predicted] == [2, 3]
    assert [row.measurement.line for row in found.failed] == [5]
    assert found.predicted[1].predicted_s > found.predicted[0].predicted_s  # the same work, and exchanges
    assert [(one.line, one.measured_bytes, one.verdict) for one in found.peaks] == [
        (2, 1e9, "fits"),
        (4, None, "fits"),
    ]
