"""Predicts measured fine-tuning runs, their step times and peak memory, for `advise validate`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.answers.accuracy_score import known_of
from advisor.answers.measurement_file import family_of, read_rows, source_beside
from advisor.catalog.find import find_device
from advisor.errors import AdvisorError, UsageError
from advisor.predict.capability import gpu_device
from advisor.predict.plain_roofline import plain_roofline
from advisor.predict.precision import resolve_precision, width_of
from advisor.predict.step_memory import verdict_of
from advisor.predict.step_time import predict
from advisor.question.early_trace import traces_fp32
from advisor.question.fine_tuning import with_fp32_shards
from advisor.records.device import Device, Gpu, Precision
from advisor.records.fine_tuning import FineTuning, FineTuningMethod, OptimizerChoice, TrainerKernels
from advisor.records.measurement import FailedRow, Measurement, PredictedPeak, PredictedRow
from advisor.records.price import Catalog
from advisor.records.scale import Plan, Sharding
from advisor.records.workload import Workload
from advisor.scale.parallel_step import spread_part
from advisor.scale.sharded_memory import memory_of_one
from advisor.workload.spawn import ProfileRequest
from advisor.workload.trace_many import OnProgress, trace_many, workload_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """A measured fine-tuning run; the fields are the columns of the file.

    - `model`: `hf:CONFIG.json`, relative to the file
    - `finetune`, `lora_rank`, `sequence`, `trainer_kernels`, `optim`, `keep_activations`, `accumulate`: as the
      flags; `lora_targets` separated by blanks
    - `fp32_logits`, `separate_experts`, `reentrant`: as in `FineTuning`
    - `precision`: bf16, or amp-bf16 for weights in fp32 under autocast
    - `batch`: sequences of one GPU in one pass
    - `sharding`: over the GPUs of one machine; none on one GPU
    - `peak_bytes`: `torch.cuda.max_memory_allocated` of one GPU
    - `ran_out`: 1 for a run that failed, which has no time and no peak
    """

    model: str
    finetune: FineTuningMethod
    lora_rank: int = 16
    lora_targets: str = "auto"
    sequence: int
    trainer_kernels: TrainerKernels = "torch"
    optim: OptimizerChoice = "adamw"
    fp32_logits: bool = False
    separate_experts: bool = False
    reentrant: bool | None = None
    keep_activations: bool = False
    precision: Precision = "bf16"
    batch: int
    accumulate: int = 1
    device: str
    gpus: int = 1
    sharding: Sharding = "none"
    step_s: float | None = None
    peak_bytes: float | None = None
    ran_out: bool = False
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRun:
    """A row with its place in the file, its device and its traced workload."""

    row: TuningRow
    file: str
    line: int
    device: Device
    workload: Workload
    precision: Precision

    @property
    def plan(self) -> Plan:
        """The plan that the run used."""
        row = self.row
        return Plan(
            data=row.gpus,
            sharding=row.sharding,
            accumulate=row.accumulate,
            checkpoint_activations=not row.keep_activations,
        )


def read_tuning_runs(path: Path) -> list[tuple[TuningRow, int]]:
    """Return the rows of a file of fine-tuning runs with their lines; raise `UsageError` for an invalid one."""
    rows = read_rows(path, TuningRow)
    for row, line in rows:
        if row.step_s is row.peak_bytes is None and not row.ran_out:
            raise UsageError(f"{path}:{line}: nothing was measured", hint="give step_s, peak_bytes or ran_out")
    return rows


def _request(row: TuningRow, file: Path, *, timeout_s: float) -> ProfileRequest:
    return ProfileRequest(
        source=source_beside(row.model, file),
        mode="training",
        fine_tuning=FineTuning(
            method=row.finetune,
            rank=row.lora_rank,
            targets=tuple(row.lora_targets.split()),
            sequence=row.sequence,
            optimizer=row.optim,
            kernels=row.trainer_kernels,
            fp32_weights=traces_fp32(row.precision, row.sharding),
            fp32_logits=row.fp32_logits,
            separate_experts=row.separate_experts,
        ),
        timeout_s=timeout_s,
    )


def prepare_tuning_runs(
    files: Sequence[Path], catalog: Catalog, *, timeout_s: float, on_progress: OnProgress | None = None
) -> list[TuningRun | FailedRow]:
    """Return the rows of the files with their devices and workloads, or the reason why one is missing."""
    rows = [(row, file, line) for file in files for row, line in read_tuning_runs(file)]
    requests = [_request(row, file, timeout_s=timeout_s) for row, file, _ in rows]
    traced = trace_many(requests, on_progress=on_progress)
    prepared: list[TuningRun | FailedRow] = []
    for (row, file, line), request in zip(rows, requests, strict=True):
        try:
            device = _device(row, catalog)
            precision = resolve_precision(row.precision, device)
            if precision is None:
                raise UsageError(f"{row.device} does not run {row.precision}", hint="correct the row")
            workload = _as_run(workload_of(traced[request]), row)
            run = TuningRun(row=row, file=str(file), line=line, device=device, workload=workload, precision=precision)
            prepared.append(run)
        except AdvisorError as error:
            prepared.append(_failed(row, file, line, reason=error.message))
    return prepared


def _as_run(workload: Workload, row: TuningRow) -> Workload:
    """Return the workload with the settings of the row that do not change its trace."""
    workload = with_fp32_shards(workload, precision=row.precision, sharding=row.sharding)
    tuning = workload.fine_tuning
    return workload if tuning is None else replace(workload, fine_tuning=replace(tuning, reentrant=row.reentrant))


def _device(row: TuningRow, catalog: Catalog) -> Device:
    profile = find_device(catalog, row.device)
    if not isinstance(profile, Gpu):
        raise UsageError(f"{row.device}: fine-tuning runs are predicted on GPUs", hint="correct the row")
    return gpu_device(profile, gpu_count=row.gpus)


def predict_tuning_runs(runs: Sequence[TuningRun], catalog: Catalog) -> list[PredictedRow]:
    """Return a row for each time that was measured."""
    return [_predicted(run, catalog) for run in runs if run.row.step_s is not None]


def _predicted(run: TuningRun, catalog: Catalog) -> PredictedRow:
    batches, row = np.array([run.row.batch]), run.row
    # Trainers copy the next batch while a step runs.
    busy = replace(run.device, host_to_device_bytes_per_s=None)
    alone = predict(
        run.workload, devices=[busy], efficiencies=catalog.efficiencies, batches=batches, precision=run.precision
    )
    alone = replace(alone, devices=(run.device,))
    width = width_of(run.precision, run.workload)
    spread = spread_part(run.workload, run.plan, alone=alone, rows=[0], at=np.array([0]), width=width)
    ratio = float((spread.step_s / alone.step_s)[0, 0])
    roofline_s, flops = plain_roofline(
        run.workload, devices=[run.device], precisions=[run.precision], batches=batches, compile_mode="eager"
    )
    return PredictedRow(
        measurement=_measurement(row, run.file, run.line, precision=run.precision),
        device=run.device.id,
        kind="gpu",
        generation=run.device.generation,
        family=family_of(source_beside(row.model, Path(run.file))),
        known=known_of(run.device, run.precision, catalog),
        predicted_s=float(alone.step_s[0, 0]) * ratio,
        low_s=float(alone.step_low_s[0, 0]) * ratio,
        high_s=float(alone.step_high_s[0, 0]) * ratio,
        without_own_s=None,
        roofline_s=float(roofline_s[0, 0]) * row.accumulate,
        flops=float(flops[0, 0]) * row.accumulate,
        usd_per_hour=None,
    )


def predicted_peaks(runs: Sequence[TuningRun]) -> Iterator[PredictedPeak]:
    """Yield the peak memory of each run that was measured, or that ran out of memory."""
    for run in runs:
        row = run.row
        if row.peak_bytes is None and not row.ran_out:
            continue
        memory = memory_of_one(
            run.workload,
            run.plan,
            batches=np.array([float(row.batch)]),
            width=width_of(run.precision, run.workload),
        )
        yield PredictedPeak(
            model=row.model,
            device=run.device.id,
            file=run.file,
            line=run.line,
            measured_bytes=row.peak_bytes,
            allocated_bytes=float(memory.allocated[0]),
            verdict=verdict_of(memory.total, memory_bytes=run.device.memory_bytes),
        )


def _measurement(row: TuningRow, file: str, line: int, *, precision: Precision) -> Measurement:
    return Measurement(
        model=row.model,
        mode="training",
        precision=precision,
        batch=row.batch,
        input=" ".join((row.finetune, str(row.sequence), f"{row.gpus} GPUs", row.sharding)),
        device=row.device,
        step_s=row.step_s or 1.0,
        source=row.source,
        file=file,
        line=line,
    )


def _failed(row: TuningRow, file: Path, line: int, *, reason: str) -> FailedRow:
    measurement = _measurement(row, str(file), line, precision=row.precision)
    return FailedRow(measurement=measurement, device=row.device, family=row.model, reason=reason)
