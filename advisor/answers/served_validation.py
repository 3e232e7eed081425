"""Predicts measured requests to served language models, for `advise validate`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.answers.measurement_file import cell_error, family_of, read_rows, source_beside
from advisor.catalog.find import find_device
from advisor.cost.job import job_for
from advisor.devices.named_device import split_cores
from advisor.errors import AdvisorError, UsageError
from advisor.predict.capability import gpu_device, whole_cpu_device
from advisor.predict.served_pass import half_unit, known_of
from advisor.question.served_model import as_served
from advisor.records.answer import Z_90
from advisor.records.device import Device, Gpu
from advisor.records.generation import Generation, Sampling, WeightFormat
from advisor.records.measurement import FailedRow, Measurement, PredictedRow, ServedMode
from advisor.records.options import Options
from advisor.records.prediction import Predictions
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.scale.predict_on_all import predict_on_all
from advisor.scale.served_model import ServedModel
from advisor.workload.spawn import ProfileRequest
from advisor.workload.trace_many import OnProgress, trace_many, workload_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRow:
    """Measured requests to a served model; the fields are the columns of the file.

    - `model`: `hf:CONFIG.json`, relative to the file
    - `engine`: name and release, for the reader; the prediction is of the engine's record in force
    - `concurrency`: mean requests in flight
    - `device`: id or alias of a profile, `ID@N` for N physical cores of a CPU over all its NUMA nodes
    - `host`: id or alias of the profile of a GPU's host CPU, if known
    - `machine`: for the reader
    - `memory_bytes_per_s`: measured read bandwidth of all cores
    - `ttft_s`, `tpot_s`: time to first token, and mean time between later tokens
    - `tokens_per_s`: output tokens of all requests
    - `watts_per_gpu`: mean power of each GPU meanwhile, which only `scripts/fit_power.py` reads
    """

    model: str
    engine: str = "vllm"
    sampling: Sampling = "truncated"
    weights: WeightFormat = "auto"
    prompt_tokens: int
    output_tokens: int
    concurrency: int = 1
    device: str
    host: str | None = None
    machine: str = ""
    numa_nodes: int | None = None
    memory_bytes_per_s: float | None = None
    tensor_parallel: int = 1
    ttft_s: float | None = None
    tpot_s: float | None = None
    tokens_per_s: float | None = None
    watts_per_gpu: float | None = None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """A row with its place in the file, its device and its traced workload."""

    row: ServedRow
    file: str
    line: int
    device: Device
    workload: Workload

    def measured(self) -> Iterator[tuple[ServedMode, float]]:
        """Yield what was measured, as seconds: the tokens per second as the time of one."""
        row = self.row
        amounts = {"ttft": row.ttft_s, "tpot": row.tpot_s, "token": 1 / row.tokens_per_s if row.tokens_per_s else None}
        for name, seconds in amounts.items():
            if seconds is not None:
                yield name, seconds  # type: ignore[misc]  # the keys are those of ServedMode


def read_served(path: Path) -> list[tuple[ServedRow, int]]:
    """Return the rows of a file of served models with their lines; raise `UsageError` for an invalid one."""
    rows = read_rows(path, ServedRow)
    for row, line in rows:
        if row.output_tokens < 2:
            raise cell_error(path, line, "output_tokens", found=str(row.output_tokens), expected="it is a count from 2")
        if row.ttft_s is row.tpot_s is row.tokens_per_s is None:
            raise UsageError(f"{path}:{line}: nothing was measured", hint="give ttft_s, tpot_s or tokens_per_s")
    return rows


def prepare_served(
    files: Sequence[Path], catalog: Catalog, *, timeout_s: float, on_progress: OnProgress | None = None
) -> list[ServedRun | FailedRow]:
    """Return the rows of the files with their devices and workloads, or the reason why one is missing."""
    rows = [(row, file, line) for file in files for row, line in read_served(file)]
    requests = [
        ProfileRequest(
            source=source_beside(row.model, file),
            generation=Generation(prompt_tokens=row.prompt_tokens, output_tokens=row.output_tokens),
            timeout_s=timeout_s,
        )
        for row, file, _ in rows
    ]
    traced = trace_many(requests, on_progress=on_progress)
    prepared: list[ServedRun | FailedRow] = []
    for (row, file, line), request in zip(rows, requests, strict=True):
        try:
            device = served_device(row, catalog)
            options = Options(weights=row.weights, sampling=row.sampling)
            workload, _ = as_served(workload_of(traced[request]), options, engines=catalog.engines)
            prepared.append(ServedRun(row=row, file=str(file), line=line, device=device, workload=workload))
        except AdvisorError as error:
            prepared.append(_failed(row, file, line, reason=error.message))
    return prepared


def served_device(row: ServedRow, catalog: Catalog) -> Device:
    """Return the device of a row; raise `UsageError` if its profile, or that of its host, is not found."""
    name, cores = split_cores(row.device)
    profile = find_device(catalog, name)
    if isinstance(profile, Gpu):
        host = find_device(catalog, row.host) if row.host else None
        if isinstance(host, Gpu):
            raise UsageError(f"host: found {row.host}, a GPU", hint="name the CPU of the machine, or leave it empty")
        return gpu_device(profile, gpu_count=row.tensor_parallel, host=host)
    count = int(cores) if cores else profile.cores_per_socket
    # More cores than a socket has belong to several sockets.
    whole = replace(profile, cores_per_socket=None) if count else profile
    device = whole_cpu_device(
        whole, cores=count, measured_bytes_per_s=row.memory_bytes_per_s, numa_nodes=row.numa_nodes or 1
    )
    return replace(device, cache_bytes=whole_cpu_device(profile, cores=None).cache_bytes)


def predict_served_runs(runs: Sequence[ServedRun], catalog: Catalog) -> Iterator[PredictedRow]:
    """Yield a row for each time that was measured, in the order of the runs."""
    groups: dict[tuple[int, str, str, int], list[ServedRun]] = {}
    for run in runs:
        key = (id(run.workload.rows), run.row.sampling, run.row.weights, run.row.tensor_parallel)
        groups.setdefault(key, []).append(run)
    found = {id(run): rows for members in groups.values() for run, rows in _predicted(members, catalog)}
    for run in runs:
        yield from found[id(run)]


def _predicted(runs: Sequence[ServedRun], catalog: Catalog) -> Iterator[tuple[ServedRun, list[PredictedRow]]]:
    workload = runs[0].workload
    devices = list({id(run.device): run.device for run in runs}.values())
    places = {id(device): place for place, device in enumerate(devices)}
    batches = np.array(sorted({run.row.concurrency for run in runs}), dtype=np.intp)
    ways = runs[0].row.tensor_parallel
    options = Options(tensor_parallel=ways if ways > 1 else None, precision="half", compile="compile")
    predictions = predict_on_all(
        workload,
        devices=devices,
        efficiencies=catalog.efficiencies,
        batches=batches,
        options=options,
        job=job_for(workload, options),
    )
    for run in runs:
        at = (places[id(run.device)], int(np.searchsorted(batches, run.row.concurrency)))
        yield run, [_scored(run, predictions, at, mode, seconds) for mode, seconds in run.measured()]


def _scored(
    run: ServedRun, predictions: Predictions, at: tuple[int, int], mode: ServedMode, seconds: float
) -> PredictedRow:
    tokens, row, generation = predictions.tokens, run.row, run.workload.generation
    if tokens is None or tokens.first_log_spread is None or generation is None or generation.engine is None:
        raise ValueError(f"{run.workload.name} is not served by an engine")
    of_token_s = predictions.step_s / (predictions.batches * row.output_tokens)
    predicted_s = float({"ttft": tokens.first_s, "tpot": tokens.between_s, "token": of_token_s}[mode][at])
    spread = float((tokens.first_log_spread if mode == "ttft" else predictions.log_spread)[at])
    roofline_s, flops = _plain_roofline(run, mode)
    measurement = Measurement(
        model=row.model,
        mode=mode,
        precision=predictions.precisions[at],
        batch=row.concurrency,
        input=f"{row.prompt_tokens}+{row.output_tokens}",
        device=row.device,
        step_s=seconds,
        source=row.source,
        file=run.file,
        line=run.line,
    )
    return PredictedRow(
        measurement=measurement,
        device=run.device.id,
        kind=run.device.kind,
        generation=run.device.generation,
        family=family_of(source_beside(row.model, Path(run.file))),
        known=known_of(run.device, generation.engine),
        predicted_s=predicted_s,
        low_s=predicted_s * math.exp(-Z_90 * spread),
        high_s=predicted_s * math.exp(Z_90 * spread),
        without_own_s=None,
        roofline_s=roofline_s,
        flops=flops,
        usd_per_hour=None,
    )


def _plain_roofline(run: ServedRun, mode: ServedMode) -> tuple[float, float]:
    """Return the time of a whole prompt, or of a decode pass, by the datasheet, and its FLOP; per token for "token"."""
    row, device = run.row, run.device
    in_flight = np.array([1.0 if mode == "ttft" else float(row.concurrency)])
    work = ServedModel(run.workload).work("prefill" if mode == "ttft" else "decode", "half", in_flight)
    share = row.tensor_parallel * (row.concurrency if mode == "token" else 1)
    flops = float((work.product_flops + work.narrow_flops + work.attention_flops)[0])
    bytes_s = float((work.weight_bytes + work.narrow_bytes + work.cache_bytes)[0]) / device.memory_bytes_per_s
    return max(bytes_s, flops / device.peak_flops_per_s[half_unit(device)]) / share, flops


def _failed(row: ServedRow, file: Path, line: int, *, reason: str) -> FailedRow:
    measurement = Measurement(
        model=row.model, mode="tpot", precision="bf16", batch=row.concurrency, device=row.device,
        step_s=row.tpot_s or row.ttft_s or 1.0, source=row.source, file=str(file), line=line,
    )  # fmt: skip
    return FailedRow(measurement=measurement, device=row.device, family=row.model, reason=reason)
