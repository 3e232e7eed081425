"""Time whole steps on the machine at hand: nothing in, rows of measurements as `advise validate` reads them out.

`python scripts/measure_steps.py --device cpu --name amd-epyc-9r45 --out tests/data/measured/own/cpu_steps.csv`
`python scripts/measure_steps.py --device cuda --out tests/data/measured/own/gpu_steps.csv --time-budget 9m`

The models come from the project's own loaders, with real weights, so that what is timed is what `advise` traces: the
model with its inputs on the device already, the loss and the optimizer that its source names, no GradScaler. They are
timed as `advise --measure` times them, in longer blocks: the figure is the median of the fastest half of at least 7
blocks, after 2 warm-up steps; the source says how far the blocks lie apart and what other processes took meanwhile.
Rows that are in the file are not measured again, but for those that were disturbed, at the end. A CPU's row is of as
many of its cores as it had threads, `ID@THREADS`.
"""

import argparse
import csv
import gc
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from advisor.calibrate.repeat_timing import Repeats
from advisor.calibrate.run_step import time_loaded
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import AdvisorError, LoadError
from advisor.records.device import CompileMode, Layout, Precision
from advisor.records.measurement import MeasuredMode, TimedStep
from advisor.records.timing import StepTiming
from advisor.records.workload import Mode
from advisor.units import format_duration, parse_duration_s
from advisor.workload.execution import keep_freed_memory
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources import load
from advisor.workload.sources.python_file import with_weights

FOLDER = Path(__file__).parents[1] / "tests/data/measured/own"
"""Paths in the rows are relative to it, wherever --out lies."""
REPEATS = Repeats(block_s=0.05, least_blocks=7, overtime=math.inf, calm_iqr_ratio=0.0)
"""Blocks far above the grain of clock and scheduler."""
REPEATED_S = 1.0
"""Quick steps get more blocks, until so much time has passed."""
COLUMNS = tuple(field.name for field in fields(TimedStep))
SLOW_STEP_S = 3.0
"""A batch whose step would take longer, in proportion to the one before, is left out."""
DISTURBED_RATIO = 0.15
"""A row is measured again if its blocks spread by more, or others took more of the CPUs it needed."""

Kind = Literal["cnn", "vision-transformer", "language", "other"]

EXAMPLES = "../../../../examples"
MODELS: Mapping[str, Kind] = {
    f"{EXAMPLES}/resnet50.py": "cnn",
    f"{EXAMPLES}/transformer.py": "language",
    f"{EXAMPLES}/lstm.py": "other",
    f"{EXAMPLES}/mlp.py": "other",
    "timm:resnet18@224": "cnn",
    "timm:resnet50@224": "cnn",
    "timm:resnext50_32x4d@224": "cnn",
    "timm:wide_resnet50_2@224": "cnn",
    "timm:seresnet50@224": "cnn",
    "timm:regnety_016@224": "cnn",
    "timm:regnetx_032@224": "cnn",
    "timm:efficientnet_b0@224": "cnn",
    "timm:tf_efficientnetv2_s@224": "cnn",
    "timm:mobilenetv2_100@224": "cnn",
    "timm:mobilenetv3_large_100@224": "cnn",
    "timm:ghostnet_100@224": "cnn",
    "timm:repvgg_a2@224": "cnn",
    "timm:convnext_tiny@224": "cnn",
    "timm:densenet121@224": "cnn",
    "timm:vgg16@224": "cnn",
    "timm:inception_v3@299": "cnn",
    "timm:dla34@224": "cnn",
    "timm:vit_tiny_patch16_224": "vision-transformer",
    "timm:vit_small_patch16_224": "vision-transformer",
    "timm:vit_base_patch16_224": "vision-transformer",
    "timm:deit_tiny_patch16_224": "vision-transformer",
    "timm:beit_base_patch16_224": "vision-transformer",
    "timm:swin_tiny_patch4_window7_224": "vision-transformer",
    "timm:mixer_b16_224": "vision-transformer",
    "timm:maxvit_tiny_tf_224": "vision-transformer",
    "timm:efficientformer_l1": "vision-transformer",
    "timm:poolformer_s12": "vision-transformer",
    "timm:levit_256": "vision-transformer",
    "torchvision:vgg11": "cnn",
    "torchvision:shufflenet_v2_x1_0": "cnn",
    "torchvision:squeezenet1_1": "cnn",
    "hf:configs/bert_base_128.json": "language",
    "hf:configs/distilbert_128.json": "language",
    "hf:configs/gpt2_small_256.json": "language",
    "hf:configs/t5_small_128.json": "language",
    "hf:configs/whisper_tiny_encoder.json": "other",
}
DOZEN = (
    "examples/(resnet50|lstm)|timm:resnet18@|mobilenetv3|efficientnet_b0|convnext_tiny|densenet121|vit_small|swin_tiny|"
    "mixer_b16|bert_base|gpt2_small"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A model in one regime, to be measured at growing batches until a step is slow or does not fit.

    `device` is the name that the rows give; a CPU has a `thread_count`, a GPU none.
    """

    model: str
    mode: MeasuredMode
    precision: Precision
    layout: Layout
    compile: CompileMode
    device: str
    thread_count: int | None
    batches: tuple[int, ...]

    def __str__(self) -> str:
        """What --only is searched in."""
        return f"{self.model} {self.mode} {self.precision} {self.layout} {self.compile} {self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Every model that the pattern `models` is found in, in every combination of the regimes."""

    models: str = ""
    modes: tuple[MeasuredMode, ...] = ("inference",)
    precisions: tuple[Precision, ...] = ("fp32",)
    layouts: tuple[Layout, ...] = ("nchw",)
    compiles: tuple[CompileMode, ...] = ("eager",)
    thread_counts: tuple[int | None, ...] = (None,)
    batches: tuple[int, ...]

    def series(self, device: str) -> Iterator[Series]:
        """The series of this sweep on `device`; threads stand for as many cores, `ID@THREADS`."""
        for model, mode, precision, layout, compile_mode, thread_count in product(
            filter(re.compile(self.models).search, MODELS),
            self.modes,
            self.precisions,
            self.layouts,
            self.compiles,
            self.thread_counts,
        ):
            yield Series(
                model=model,
                mode=mode,
                precision=precision,
                layout=layout,
                compile=compile_mode,
                device=device if thread_count is None else f"{device}@{thread_count}",
                thread_count=thread_count,
                batches=self.batches,
            )


CPU_PLAN = (
    Sweep(thread_counts=(2,), batches=(1, 4, 16)),
    Sweep(models=DOZEN, modes=("training", "forward_backward"), thread_counts=(2,), batches=(4,)),
    Sweep(models=DOZEN, precisions=("amp-bf16",), thread_counts=(2,), batches=(1, 16)),
    Sweep(thread_counts=(1,), batches=(1, 4)),
    Sweep(
        models="resnet18@|mobilenetv3|vit_small|bert_base", compiles=("compile",), thread_counts=(2,), batches=(1, 16)
    ),
    Sweep(models="timm:resnet50@|vit_small|bert_base", precisions=("bf16",), thread_counts=(2,), batches=(1, 16)),
    Sweep(models="timm:resnet50@|mobilenetv3|convnext_tiny", layouts=("nhwc",), thread_counts=(2,), batches=(1, 16)),
)
GPU_PLAN = (
    Sweep(precisions=("fp32", "amp-fp16"), batches=(1, 32, 256)),
    Sweep(modes=("training",), precisions=("fp32", "amp-fp16"), batches=(8, 64, 256)),
    Sweep(models=DOZEN, precisions=("fp32", "amp-fp16"), compiles=("compile",), batches=(1, 32, 256)),
    Sweep(precisions=("tf32", "amp-bf16", "bf16"), batches=(1, 32, 256)),
    Sweep(models=DOZEN, modes=("training",), precisions=("amp-bf16",), compiles=("compile",), batches=(8, 64)),
    Sweep(modes=("forward_backward", "training"), precisions=("tf32", "amp-bf16"), batches=(8, 64, 256)),
    Sweep(models="timm:", precisions=("amp-fp16",), layouts=("nhwc",), batches=(32, 256)),
    Sweep(precisions=("fp32", "amp-fp16", "bf16"), batches=(8, 128, 1024)),
)
"""The most telling sweeps first: a time budget cuts the end."""


def source_of(model: str) -> str:
    """The model as `advise` takes it."""
    scheme, colon, reference = model.partition(":")
    if not colon:
        return str(FOLDER / model)
    return f"hf:{FOLDER / reference}" if scheme == "hf" else model


def mode_of(mode: MeasuredMode) -> Mode:
    """Return the mode that the model is loaded in."""
    return "inference" if mode == "inference" else "training"


def load_with_weights(model: str, *, mode: MeasuredMode) -> LoadedModel:
    """Load the model as `advise` does, but with weights, which tracing does without."""
    with with_weights():
        return load(source_of(model), mode=mode_of(mode), specs=())


class NoOptimizer:
    """Leaves the weights as they are: the step is forward and backward alone."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    def step(self) -> None:
        """Do nothing."""


def load_to_time(series: Series) -> LoadedModel:
    """Load the model of a series; raise `LoadError` for one that names no loss to train with."""
    loaded = load_with_weights(series.model, mode=series.mode)
    if series.mode != "inference" and loaded.loss is None:
        raise LoadError(f"{series.model} names no loss to train with")
    no_optimizer: Any = NoOptimizer
    return replace(loaded, optimizer=no_optimizer) if series.mode == "forward_backward" else loaded


def time_series_step(loaded: LoadedModel, series: Series, *, batch: int) -> StepTiming:
    """Time the step of a series at `batch`."""
    request = MeasureRequest(
        source=series.model,
        mode=mode_of(series.mode),
        batch=batch,
        device="cuda:0" if series.thread_count is None else "cpu",
        thread_count=series.thread_count,
        precision=series.precision,
        layout=series.layout,
        compile=series.compile,
        budget_s=REPEATED_S,
    )
    return time_loaded(loaded, request, repeats=REPEATS)


def taken_ratio(timing: StepTiming, *, thread_count: int | None) -> float:
    """Return the share of the step's own CPUs that other processes took."""
    used_count = thread_count or 1
    spare_count = (os.cpu_count() or 1) - used_count
    return max(0.0, timing.others_cpu_count - spare_count) / used_count


class Rows:
    """The rows of a CSV file, which is written whole after each change: a run can be cut off and taken up again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, ...], dict[str, str]] = {}
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as lines:
                self._rows = {_key(row): row for row in csv.DictReader(lines)}

    def find(self, series: Series, batch: int) -> dict[str, str] | None:
        """The row of this series at this batch."""
        return self._rows.get(_key(_case(series, batch)))

    def keep_calmer(self, series: Series, batch: int, timing: StepTiming, *, machine: str) -> None:
        """Add the row, or put it in the place of one that was disturbed more."""
        known = self.find(series, batch)
        row = _case(series, batch) | {
            "step_s": f"{timing.step_s:.5g}",
            "source": _source_text(series, timing, machine=machine),
        }
        if known is None or disturbance_ratio(row) < disturbance_ratio(known):
            self._rows[_key(row)] = row
            self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        with new.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows.values())
        new.replace(self._path)


def _case(series: Series, batch: int) -> dict[str, str]:
    """The columns that say what is measured."""
    return {
        "model": series.model,
        "mode": series.mode,
        "precision": series.precision,
        "layout": series.layout,
        "compile": series.compile,
        "attention": "auto",
        "batch": str(batch),
        "input": "",
        "device": series.device,
    }


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[column] for column in COLUMNS[:-2])


def _source_text(series: Series, timing: StepTiming, *, machine: str) -> str:
    package = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}.get(series.model.partition(":")[0])
    taken = taken_ratio(timing, thread_count=series.thread_count)
    parts = (
        f"own {date.today().isoformat()}",
        machine,
        *((f"{package} {version(package)}",) if package else ()),
        f"IQR {timing.iqr_ratio:.1%} of blocks, {timing.step_count} steps",
        f"others on {timing.others_cpu_count:.2f} CPUs, {taken:.1%} of those needed",
    )
    return "; ".join(parts)


def disturbance_ratio(row: Mapping[str, str]) -> float:
    """The larger of the two shares in the row's source: the blocks' spread, and what others took of its CPUs."""
    return max(float(percent) / 100 for percent in re.findall(r"([\d.]+)% of", row["source"]))


def batches_to_measure(series: Series, rows: Rows, *, again: bool) -> Iterator[int]:
    """The batches not in the file, or `again` those disturbed, as long as the step is not too slow for its batch."""
    sample_s = 0.0
    for batch in series.batches:
        if sample_s * batch > SLOW_STEP_S:
            return
        row = rows.find(series, batch)
        if row is None if not again else row is not None and disturbance_ratio(row) > DISTURBED_RATIO:
            yield batch
            row = rows.find(series, batch)
        if row is not None:
            sample_s = float(row["step_s"]) / batch


def measure(series: Series, rows: Rows, *, machine: str, again: bool, is_over: Callable[[], bool]) -> None:
    """Add the rows of a series; what does not fit or does not run ends it, with a line that says so."""
    loaded = None
    try:
        for batch in batches_to_measure(series, rows, again=again):
            if is_over():
                return
            loaded = loaded or load_to_time(series)
            timing = time_series_step(loaded, series, batch=batch)
            rows.keep_calmer(series, batch, timing, machine=machine)
            print(f"{series} batch {batch}: {format_duration(timing.step_s)}, IQR {timing.iqr_ratio:.1%}", flush=True)
    except (AdvisorError, RuntimeError, TypeError, ValueError) as error:
        print(f"{series}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
    finally:
        del loaded
        if series.compile == "compile":
            torch.compiler.reset()  # it holds the model
        gc.collect()
        torch.cuda.empty_cache()


def machine_text(device: str) -> str:
    """What stands behind the rows: the device as it names itself, and torch."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}; torch {torch.__version__}, CUDA {torch.version.cuda}"
    about = cpu_info()
    family = f"family {about['cpu family']} model {about['model']}, " if "cpu family" in about else ""
    return f"{about['model name']}, {family}{os.cpu_count()} vCPU; torch {torch.__version__}"


def cpu_info(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo."""
    lines = path.read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def planned(arguments: argparse.Namespace) -> list[Series]:
    """The series of the device's plan that pass the filters."""
    is_gpu = arguments.device == "cuda"
    name = arguments.name or (torch.cuda.get_device_name() if is_gpu else cpu_info()["model name"])
    return [
        series
        for sweep in (GPU_PLAN if is_gpu else CPU_PLAN)
        for series in sweep.series(name)
        if re.search(arguments.only, str(series))
        and MODELS[series.model] in arguments.kinds.split(",")
        and (not arguments.precisions or series.precision in arguments.precisions.split(","))
    ]


def main() -> None:
    """Measure what the file has not, then again what was disturbed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--name", help="id or alias of its profile; without it, what the device calls itself")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="found in `model mode precision layout compile device`"
    )
    parser.add_argument("--kinds", default=",".join(get_args(Kind)), help="kinds of models, with commas")
    parser.add_argument("--precisions", default="", help="with commas; without it, all of the plan")
    parser.add_argument("--time-budget", type=parse_duration_s, default=math.inf, help="20m")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.time_budget
    keep_freed_memory()
    torch.backends.cudnn.benchmark = True
    rows, machine = Rows(arguments.out), machine_text(arguments.device)
    for again in (False, True):
        for series in planned(arguments):
            measure(series, rows, machine=machine, again=again, is_over=lambda: time.monotonic() > end)


if __name__ == "__main__":
    main()
