"""Writes the table of eight well-known models into docs/breakeven.md: where a CPU or a GPU is cheaper, and why.

    python scripts/write_seed_table.py

Reads the shipped prices regardless of their age. A slow test compares the page with the table.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import get_args

from advisor import units
from advisor.answers.break_even import break_even
from advisor.answers.explanation import explain
from advisor.answers.ranking import rank
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.answer import Contender
from advisor.records.break_even_curves import Curve
from advisor.records.device import DeviceKind
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Mode, Workload
from advisor.report.break_even import end_text, stretches

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "breakeven.md"
SEEDS = {
    "MLP": "examples/mlp.py",
    "small CNN": "examples/small_cnn.py",
    "ResNet-50": "examples/resnet50.py",
    "LSTM": "examples/lstm.py",
    "BERT": "hf:examples/configs/bert_base.json",
    "GPT-2": "hf:examples/configs/gpt2.json",
    "7-billion Llama": "hf:examples/configs/llama_7b.json",
    "100 million words": "examples/word_embedding.py",
}
MODES: tuple[Mode, ...] = get_args(Mode)
_KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu")
MARKS = "<!-- seeds: written by scripts/write_seed_table.py -->", "<!-- end of seeds -->"
_HEAD = (
    "| model | parameters | cheapest CPU | cheapest GPU | over the batch | over requests a day | over samples | why |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def seed_table() -> str:
    """Return a Markdown table with a line for each model: inference of a million samples with default options."""
    catalog = catalog_of(Options())
    return "\n".join((*_HEAD, *(_line(name, source, catalog) for name, source in SEEDS.items())))


def _line(name: str, source: str, catalog: Catalog) -> str:
    scheme, colon, path = source.rpartition(":")
    source = f"{scheme}{colon}{ROOT / path}"
    workload = profile_source(source, Options()).workload
    question = question_of(workload, Options(), catalog=catalog)
    curves = {curve.kind: curve for curve in break_even(question).curves}
    busy = next((one.point for one in rank(question).situations if one.kind == "busy"), None)
    # Without a GPU that fits there is nothing to compare, and the best batch of the curve stands for the CPU.
    cpu, gpu = (_cheapest(curves["batch"], kind) for kind in _KINDS) if busy is None else (busy.cpu, busy.gpu)
    cells = (
        f"[{name}](../{path})",
        units.format_count(workload.parameter_count),
        *("none fits" if one is None else f"{units.format_usd(one.job_usd.mid)} ({one.name})" for one in (cpu, gpu)),
        *(where(curves[kind]) for kind in ("batch", "requests_per_day", "samples")),
        _why(source, workload, cpu, gpu, catalog),
    )
    return f"| {' | '.join(cells)} |"


def _cheapest(curve: Curve, kind: DeviceKind) -> Contender | None:
    found = [one for point in curve.points if (one := point.cpu if kind == "cpu" else point.gpu)]
    return min(found, key=lambda one: one.job_usd.mid, default=None)


def where(curve: Curve) -> str:
    """Return "CPU below 32 [16-68], then perhaps GPU", or the kind that is cheaper everywhere."""
    parts = stretches(curve)
    names = [
        f"{'perhaps ' if part.is_in_doubt else ''}{part.kind.upper()}{' alone' if part.is_alone else ''}"
        for part in parts
    ]
    if len(parts) == 1:
        return f"{names[0]} everywhere"
    ended = [
        f"{name} below {end_text(one.end, following=following)}"
        for name, (one, following) in zip(names, pairwise(parts), strict=False)
        if one.end is not None
    ]
    return ", then ".join((*ended, names[-1]))


def _why(source: str, workload: Workload, cpu: Contender | None, gpu: Contender | None, catalog: Catalog) -> str:
    """Return the time of one sample on both, the GPU's speed-up at its best batch, and its sequential kernels."""
    if cpu is None or gpu is None:
        return _gpus_needed(source, catalog)
    one_each = explain(question_of(workload, Options(batch="1"), catalog=catalog), on=(cpu.id, gpu.id)).steps
    cpu_s, gpu_s = (units.format_duration(step.step_s.mid) for step in one_each)
    busy = units.format_ratio(min(1.0, one_each[1].total.kernels_s / one_each[1].step_s.mid))
    speed = units.format_times(gpu.batch / gpu.step_s.mid / (cpu.batch / cpu.step_s.mid))
    chains = sum(chain.kernel_count for chain in one_each[1].sequential)
    in_turn = f"; its time steps are {chains:,} kernels in turn" if chains else ""
    alone = f"one sample: CPU {cpu_s}, GPU {gpu_s} (its kernels run for {busy} of it)"
    return f"{alone}; in batches of {gpu.batch:,} it is {speed} faster{in_turn}"


def _gpus_needed(source: str, catalog: Catalog) -> str:
    """Return how many of the largest GPUs hold the step at batch 1, in inference and in training."""
    largest_bytes = max(one.memory_bytes for one in catalog.gpus.values())
    needs = []
    for mode in MODES:
        summary = profile_source(source, Options(mode=mode, batch="1")).summary
        needed_bytes = summary.totals.peak_memory_bytes
        optimizer = f" with {summary.optimizer}" if summary.optimizer else ""
        count = math.ceil(needed_bytes / largest_bytes)
        needs.append(f"{mode}{optimizer} needs {units.format_bytes(needed_bytes)}: {count} GPUs")
    return f"{'; '.join(needs)} of {units.format_bytes(largest_bytes)}, the largest here"


def with_table(page: str, table: str, *, marks: tuple[str, str] = MARKS) -> str:
    """Return the page with the table between two lines replaced."""
    first, last = marks
    before, begin, rest = page.partition(first)
    if not begin:
        raise ValueError(f"the page has no line {first!r}")
    _, _, after = rest.partition(last)
    return f"{before}{first}\n{table}\n{last}{after}"


if __name__ == "__main__":
    new_table = seed_table()
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), new_table), encoding="utf-8")
