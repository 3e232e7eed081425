"""Times whole steps of many models on this machine, as rows that `advise validate` reads.

    python scripts/measure_steps.py --device cpu --name amd-epyc-9r45 --out tests/data/measured/own/cpu_steps.csv
    python scripts/measure_steps.py --device cuda --out tests/data/measured/own/gpu_steps.csv --time-budget 9m

Reads and extends the CSV file --out. Existing rows are not measured again, except disturbed ones, at the end.

The models come from the project's own loaders, with real weights, so that the timed step is the one that `advise`
traces: inputs already on the device, the loss and optimizer of the source, no GradScaler. Steps are timed as with
`advise --measure`, but in longer blocks: the figure is the median of the fastest half of at least 7 blocks, after 2
warm-up steps. The column `source` gives the spread of the blocks and the CPU share of other processes. A CPU with N
threads is named ID@N, for N of its cores.
"""

import argparse
import csv
import gc
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from nets.operators import CASES

from advisor.calibrate.repeat_timing import Repeats
from advisor.calibrate.run_step import time_loaded
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import AdvisorError, LoadError
from advisor.records.device import CompileMode, Layout, Precision
from advisor.records.measurement import MeasuredMode, TimedStep
from advisor.records.timing import StepTiming
from advisor.records.workload import Mode
from advisor.units import format_duration, parse_duration_s
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources import load
from advisor.workload.sources.python_file import with_weights
from advisor.workload.torch_devices import keep_freed_memory

FOLDER = Path(__file__).parents[1] / "tests/data/measured/own"
"""Paths in the rows are relative to this folder, regardless of --out."""
REPEATS = Repeats(block_s=0.05, least_blocks=7, overtime=math.inf, calm_iqr_ratio=0.0)
"""Blocks much longer than the resolution of the clock and the time slices of the scheduler."""
REPEATED_S = 1.0
"""Short steps are timed in more blocks, until this much time has passed."""
COLUMNS = tuple(field.name for field in fields(TimedStep))
SLOW_STEP_S = 3.0
"""A batch is left out if its step would take longer than this, in proportion to the batch before."""
DISTURBED_RATIO = 0.15
"""A row is measured again if the spread of its blocks, or the share of its CPUs that others took, exceeds this."""

Kind = Literal["cnn", "vision-transformer", "language", "other", "operator"]

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
    **{f"../../../../scripts/nets/operators.py::operator(case={case!r})": "operator" for case in CASES},
}
DOZEN = (
    "examples/(resnet50|lstm)|timm:resnet18@|mobilenetv3|efficientnet_b0|convnext_tiny|densenet121|vit_small|swin_tiny|"
    "mixer_b16|bert_base|gpt2_small"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A model in one regime, measured at increasing batch sizes until a step is too slow or does not fit.

    `device` is the name in the rows; a CPU has a `thread_count`, a GPU has none. The path of a model is relative to
    `folder`.
    """

    model: str
    mode: MeasuredMode
    precision: Precision
    layout: Layout
    compile: CompileMode
    device: str
    thread_count: int | None
    batches: tuple[int, ...]
    folder: Path = FOLDER

    def __str__(self) -> str:
        """Return the text in which --only searches."""
        return f"{self.model} {self.mode} {self.precision} {self.layout} {self.compile} {self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Every model whose name contains the pattern `models`, in every combination of the regimes."""

    models: str = r"^(?!.*operators\.py)"
    modes: tuple[MeasuredMode, ...] = ("inference",)
    precisions: tuple[Precision, ...] = ("fp32",)
    layouts: tuple[Layout, ...] = ("nchw",)
    compiles: tuple[CompileMode, ...] = ("eager",)
    thread_counts: tuple[int | None, ...] = (None,)
    batches: tuple[int, ...]

    def series(self, device: str) -> Iterator[Series]:
        """Yield the series of this sweep on `device`, named `ID@THREADS` if the number of threads is given."""
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
    Sweep(
        models=r"operators\.py",
        modes=("inference", "forward_backward"),
        precisions=("fp32", "amp-bf16"),
        thread_counts=(2,),
        batches=(1, 16),
    ),
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
"""The most informative sweeps come first, since a time budget cuts off the end."""


def source_of(model: str, *, folder: Path = FOLDER) -> str:
    """Return the model as an argument of `advise`."""
    scheme, colon, reference = model.partition(":")
    if not colon or reference.startswith(":"):  # FILE.py or FILE.py::NAME
        return str(folder / model)
    return f"hf:{folder / reference}" if scheme == "hf" else model


def mode_of(mode: MeasuredMode) -> Mode:
    """Return the mode that the model is loaded in."""
    return "inference" if mode == "inference" else "training"


def load_with_weights(model: str, *, mode: MeasuredMode, folder: Path = FOLDER) -> LoadedModel:
    """Load the model as `advise` does, but with weights, which tracing does not need."""
    with with_weights():
        return load(source_of(model, folder=folder), mode=mode_of(mode), specs=())


class NoOptimizer:
    """An optimizer that does nothing, for steps of forward and backward only."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    def step(self) -> None:
        """Do nothing."""


def load_to_time(series: Series) -> LoadedModel:
    """Load the model of a series; raise `LoadError` for one that names no loss to train with."""
    loaded = load_with_weights(series.model, mode=series.mode, folder=series.folder)
    if series.mode != "inference" and loaded.loss is None:
        raise LoadError(f"{series.model} names no loss to train with")
    no_optimizer: Any = NoOptimizer
    return replace(loaded, optimizer=no_optimizer) if series.mode == "forward_backward" else loaded


def request_of(series: Series, *, batch: int) -> MeasureRequest:
    """Return the request to time the step of a series at `batch`."""
    return MeasureRequest(
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


def time_series_step(loaded: LoadedModel, series: Series, *, batch: int) -> StepTiming:
    """Time the step of a series at `batch`."""
    return time_loaded(loaded, request_of(series, batch=batch), repeats=REPEATS)


def taken_ratio(timing: StepTiming, *, thread_count: int | None) -> float:
    """Return the share of the step's own CPUs that other processes took."""
    used_count = thread_count or 1
    spare_count = (os.cpu_count() or 1) - used_count
    return max(0.0, timing.others_cpu_count - spare_count) / used_count


class Rows:
    """The rows of a CSV file; the file is replaced after each change, so that a run can be interrupted and resumed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, ...], dict[str, str]] = {}
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as lines:
                self._rows = {_key(row): row for row in ({"torch": "", **row} for row in csv.DictReader(lines))}

    def find(self, series: Series, batch: int) -> dict[str, str] | None:
        """Return the row of this series at this batch."""
        return self._rows.get(_key(_case(series, batch)))

    def keep_calmer(
        self, series: Series, batch: int, timing: StepTiming, *, machine: str, remarks: Sequence[str] = ()
    ) -> None:
        """Add the row, or replace the existing one if that was disturbed more; `remarks` go into its source."""
        known = self.find(series, batch)
        row = _case(series, batch) | {
            "step_s": f"{timing.step_s:.5g}",
            "source": "; ".join((_source_text(series, timing, machine=machine), *remarks)),
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
    """Return the columns that identify the step."""
    return {
        "model": series.model,
        "mode": series.mode,
        "precision": series.precision,
        "layout": series.layout,
        "compile": series.compile,
        "attention": "auto",
        "torch": ".".join(torch.__version__.split(".")[:2]),
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
    """Return the larger of the two shares in the row's source: the blocks' spread, and the CPU time of others."""
    return max(float(percent) / 100 for percent in re.findall(r"([\d.]+)% of", row["source"]))


def batches_to_measure(series: Series, rows: Rows, *, again: bool) -> Iterator[int]:
    """Yield the batches missing in the file, or with `again` the disturbed ones, until a step would be too slow."""
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


def measure(
    series: Series,
    rows: Rows,
    *,
    machine: str,
    again: bool,
    is_over: Callable[[], bool],
    time_it: Callable[..., StepTiming] = time_series_step,
    remarks_on_last: Callable[[], Sequence[str]] = tuple,
) -> str:
    """Add the rows of a series; if a step fails or does not fit, print and return the reason and end the series.

    `remarks_on_last` returns what the source says of the step that `time_it` has just timed.
    """
    loaded = None
    try:
        for batch in batches_to_measure(series, rows, again=again):
            if is_over():
                break
            loaded = loaded or load_to_time(series)
            timing = time_it(loaded, series, batch=batch)
            rows.keep_calmer(series, batch, timing, machine=machine, remarks=remarks_on_last())
            print(f"{series} batch {batch}: {format_duration(timing.step_s)}, IQR {timing.iqr_ratio:.1%}", flush=True)
    except (AdvisorError, RuntimeError, TypeError, ValueError) as error:
        problem = (str(error) or type(error).__name__).splitlines()[0]
        print(f"{series}: {problem}", file=sys.stderr, flush=True)
        return problem
    finally:
        del loaded
        if series.compile == "compile":
            torch.compiler.reset()  # its caches keep the model alive
        gc.collect()
        torch.cuda.empty_cache()
    return ""


def machine_text(device: str) -> str:
    """Return the device's own name and the versions of torch and CUDA, for the column `source`."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}; torch {torch.__version__}, CUDA {torch.version.cuda}"
    about = cpu_info()
    family = f"family {about['cpu family']} model {about['model']}, " if "cpu family" in about else ""
    return f"{about['model name']}, {family}{os.cpu_count()} vCPU; torch {torch.__version__}"


def cpu_info(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Return the entries of the first processor in /proc/cpuinfo."""
    lines = path.read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def planned(arguments: argparse.Namespace) -> list[Series]:
    """Return the series of the device's plan that pass the filters."""
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
    """Measure the missing rows, then the disturbed ones again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--name", help="id or alias of the device's profile (default: the device's own name)")
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to extend")
    parser.add_argument(
        "--only",
        default="",
        metavar="REGEX",
        help="run the series whose text `model mode precision layout compile device` contains this pattern",
    )
    parser.add_argument("--kinds", default=",".join(get_args(Kind)), help="kinds of models, separated by commas")
    parser.add_argument("--precisions", default="", help="precisions, separated by commas (default: all of the plan)")
    parser.add_argument(
        "--time-budget", type=parse_duration_s, default=math.inf, help="stop after this time, such as 20m"
    )
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
