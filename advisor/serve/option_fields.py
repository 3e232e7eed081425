"""Lists the options that a request may set, and locates an example workload.

This module is separate from those that read options, so that the service starts fast.
"""

from dataclasses import fields
from pathlib import Path

from advisor.records.options import Options

REFUSED = {
    **dict.fromkeys(("profiles", "prices"), "the service reads no files for a request"),
    **dict.fromkeys(("input", "attention", "timeout", "prompt_tokens", "output_tokens"), "it is fixed in the workload"),
    **dict.fromkeys(("no_local", "no_calibrate"), "the service never uses a local machine"),
}
ALLOWED = {field.name: field for field in fields(Options) if field.name not in REFUSED}
MOST_NAMES = 100
EXAMPLE_WORKLOAD = Path(__file__).parent / "example_workload.json"
