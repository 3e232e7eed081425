"""Which options a request may name, and an example of a workload; apart from what reads them: the front starts soon."""

from dataclasses import fields
from pathlib import Path

from advisor.records.options import Options

REFUSED = {
    **dict.fromkeys(("profiles", "prices"), "the service reads no files for a request"),
    **dict.fromkeys(("input", "attention", "timeout", "prompt_tokens", "output_tokens"), "the workload has settled it"),
    **dict.fromkeys(("no_local", "no_calibrate"), "the service knows of no machine at hand"),
}
ALLOWED = {field.name: field for field in fields(Options) if field.name not in REFUSED}
MOST_NAMES = 100
EXAMPLE_WORKLOAD = Path(__file__).parent / "example_workload.json"
