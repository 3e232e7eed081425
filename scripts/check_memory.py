"""Compares predicted with measured peak memory of whole steps on this machine's CPU.

    python scripts/check_memory.py --out tests/data/measured/own/memory_check.csv

Reads and rewrites the CSV file --out, and writes its summary into docs/memory.md. Existing rows are not measured again,
but all rows are predicted again. Each step runs in a separate process with default settings of torch and malloc.

The measured figure is the process's peak resident memory after three steps (VmHWM in /proc/self/status) minus its
resident memory after all imports (VmRSS). It contains the model, its gradients and optimizer state, the memory of the
step, and the memory that the allocator keeps. The predicted figure is the middle of the total without "process".
"""

import argparse
import csv
import gc
import json
import statistics
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from measure_steps import load_with_weights, source_of

from advisor.predict.step_memory import step_memory
from advisor.records.workload import Workload
from advisor.workload.loaded import LoadedModel, batch_value, loss_of
from advisor.workload.sources import load
from advisor.workload.trace import trace

Optimizer = Literal["", "AdamW", "SGD"]
COLUMNS = (
    "model", "mode", "optimizer", "checkpointed", "batch", "measured_bytes", "predicted_bytes", "predicted_low_bytes",
    "predicted_high_bytes", "tensor_bytes", "code_bytes", "imported_bytes", "torch",
)  # fmt: skip
DOCS = Path(__file__).parents[1] / "docs/memory.md"
BEGIN, END = "<!-- memory: written by scripts/check_memory.py -->", "<!-- end of memory -->"
STEP_COUNT = 3
"""The first step allocates the optimizer's state; the later ones run beside it."""
EXAMPLES = "../../../../examples"
MODELS: Mapping[str, int] = {
    f"{EXAMPLES}/mlp.py": 65536,
    f"{EXAMPLES}/lstm.py": 128,
    f"{EXAMPLES}/resnet50.py": 16,
    "timm:resnet18@224": 16,
    "timm:vgg16@224": 4,
    "timm:mobilenetv3_large_100@224": 32,
    "timm:convnext_tiny@224": 8,
    "timm:vit_small_patch16_224": 16,
    "timm:mixer_b16_224": 8,
    "hf:configs/bert_base_128.json": 8,
    "hf:configs/gpt2_small_256.json": 4,
    "hf:configs/t5_small_128.json": 8,
}
"""The models, each with its batch size."""
NOT_CHECKPOINTED = (*(model for model in MODELS if model.startswith(EXAMPLES)), "timm:vgg16@224", "timm:mixer_b16_224")
"""Models whose library cannot checkpoint their activations."""
OPTIMIZERS: Mapping[Optimizer, Any] = {
    "AdamW": torch.optim.AdamW,
    "SGD": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One step to measure: inference if it has no optimizer, otherwise training."""

    model: str
    optimizer: Optimizer
    checkpointed: bool
    batch: int

    @property
    def mode(self) -> Literal["inference", "training"]:
        """The mode of the step."""
        return "training" if self.optimizer else "inference"

    @property
    def columns(self) -> dict[str, str]:
        """The columns that identify the case."""
        return {
            "model": self.model,
            "mode": self.mode,
            "optimizer": self.optimizer,
            "checkpointed": "yes" if self.checkpointed else "",
            "batch": str(self.batch),
        }


def cases() -> Iterator[Case]:
    """Yield every model in inference, with both optimizers, and with checkpointing if its library supports it."""
    for model, batch in MODELS.items():
        for optimizer in ("", "AdamW", "SGD"):
            yield Case(model=model, optimizer=optimizer, checkpointed=False, batch=batch)
        if model not in NOT_CHECKPOINTED:
            yield Case(model=model, optimizer="AdamW", checkpointed=True, batch=batch)


def loaded_for(case: Case) -> LoadedModel:
    """Return the model with weights, batch size, optimizer and checkpointing of the case."""
    loaded = replace(load_with_weights(case.model, mode=case.mode), batch=case.batch)
    if case.checkpointed:  # the method's name in timm, and in transformers
        names = ("set_grad_checkpointing", "gradient_checkpointing_enable")
        switch: Any = next(getattr(loaded.model, name) for name in names if hasattr(loaded.model, name))
        switch()
    return replace(loaded, optimizer=OPTIMIZERS.get(case.optimizer))


def measure_here(case: Case) -> dict[str, int]:
    """Run the steps in this process and measure its memory; call it once per process."""
    load(source_of(case.model), mode=case.mode, specs=())  # imports the model's packages, allocates no weights
    OPTIMIZERS["AdamW"]([torch.zeros(1)])  # imports torch._dynamo
    gc.collect()
    before = process_bytes()
    loaded = loaded_for(case)
    loaded.model.train(case.mode == "training")
    optimizer = loaded.optimizer(loaded.model.parameters()) if loaded.optimizer else None
    for _ in range(STEP_COUNT):
        step(loaded, optimizer, batch=case.batch)
    after = process_bytes()
    return {
        "measured_bytes": after["VmHWM"] - before["VmRSS"],
        "code_bytes": after["RssFile"] - before["RssFile"],
        "imported_bytes": before["VmRSS"],
    }


def step(loaded: LoadedModel, optimizer: torch.optim.Optimizer | None, *, batch: int) -> None:
    """Run one step as in a user's loop."""
    inputs = loaded.make_inputs(batch)
    args, kwargs = inputs
    if optimizer is None:
        with torch.no_grad():
            loaded.model(*args, **kwargs)
        return
    optimizer.zero_grad()
    output = loaded.model(*args, **kwargs)
    loss_of(loaded, output, batch_value(inputs)).backward()
    optimizer.step()


def process_bytes(path: Path = Path("/proc/self/status")) -> dict[str, int]:
    """Return this process's resident memory, its peak and its file-backed part, from proc(5)."""
    entries = (line.partition(":") for line in path.read_text(encoding="ascii").splitlines())
    return {key: int(value.split()[0]) * 1024 for key, _, value in entries if key in ("VmRSS", "VmHWM", "RssFile")}


def measure(case: Case) -> dict[str, int] | None:
    """Measure a case in a child process; if it fails, print the reason and return None."""
    arguments = [sys.executable, __file__, "--case", json.dumps(case.columns)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{case}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
        return None
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def predict(workload: Workload, *, batch: int) -> dict[str, int]:
    """Predict the peak memory of the workload on a CPU, without the memory of the process itself."""
    memory = step_memory(workload, batches=np.array([float(batch)]), width="full", kind="cpu")
    total, process = memory.total, memory.parts["process"]
    tensors = sum(part.low for name, part in memory.parts.items() if name not in ("workspaces", "allocator", "process"))
    return {
        "predicted_bytes": round(float(total.mid[0] - process.mid[0])),
        "predicted_low_bytes": round(float(total.low[0] - process.low[0])),
        "predicted_high_bytes": round(float(total.high[0] - process.high[0])),
        "tensor_bytes": round(float(np.sum(tensors))),
    }


def read(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of the file by case."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as lines:
        return {tuple(row[column] for column in COLUMNS[:5]): row for row in csv.DictReader(lines)}


def write(path: Path, rows: Mapping[tuple[str, ...], Mapping[str, str]]) -> None:
    """Replace the file atomically."""
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in map(key_of, cases()) if key in rows)
    new.replace(path)


def key_of(case: Case) -> tuple[str, ...]:
    """Return the key of the case's row."""
    return tuple(case.columns.values())


def error_ratio(row: Mapping[str, str]) -> float:
    """Return predicted / measured - 1."""
    return int(row["predicted_bytes"]) / int(row["measured_bytes"]) - 1


def table(rows: Collection[Mapping[str, str]]) -> str:
    """Return the errors as a Markdown table: a line per kind of step, then one for all."""
    groups: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        checkpointed = ", checkpointed" if row["checkpointed"] else ""
        groups.setdefault(" with ".join(filter(None, (row["mode"], row["optimizer"]))) + checkpointed, []).append(row)
    lines = [
        "| steps | n | mean error | median | bias | inside the spread | tensors alone |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, members in (*groups.items(), ("all", list(rows))):
        errors = [error_ratio(row) for row in members]
        alone = [int(row["tensor_bytes"]) / int(row["measured_bytes"]) - 1 for row in members]
        cells = (
            statistics.mean(map(abs, errors)),
            statistics.median(map(abs, errors)),
            statistics.mean(errors),
            statistics.mean(is_inside(row) for row in members),
            statistics.mean(map(abs, alone)),
        )
        lines.append(f"| {name} | {len(members)} | " + " | ".join(f"{cell:.0%}" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def is_inside(row: Mapping[str, str]) -> bool:
    """Return whether the measured peak is within the predicted interval."""
    return int(row["predicted_low_bytes"]) <= int(row["measured_bytes"]) <= int(row["predicted_high_bytes"])


def main() -> None:
    """Measure the missing cases, predict all, and write the errors into docs/memory.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the CSV file to update")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only models whose name contains TEXT")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        columns = json.loads(arguments.case)
        case = next(case for case in cases() if case.columns == columns)
        print(json.dumps(measure_here(case)))
        return
    rows = read(arguments.out)
    for case in cases():
        key = key_of(case)
        if arguments.only not in case.model:
            continue
        measured: Mapping[str, Any] | None = rows.get(key) or measure(case)
        if measured is None:
            continue
        predicted = predict(trace(loaded_for(case), mode=case.mode, batch=case.batch), batch=case.batch)
        known = {"torch": torch.__version__, **measured, **case.columns, **predicted}
        rows[key] = {column: str(known[column]) for column in COLUMNS}
        write(arguments.out, rows)
        print(" ".join(key), f"{error_ratio(rows[key]):+.1%}", flush=True)
    page = DOCS.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{table(rows.values())}{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(table(rows.values()), end="")


if __name__ == "__main__":
    main()
