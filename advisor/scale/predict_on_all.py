"""Predicts the step on every device, using several GPUs or machines where that is best."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from advisor.cost.market import DeviceTerms, no_terms
from advisor.cost.service import machines_together, server_counts
from advisor.cost.token_queue import percentile_limits
from advisor.errors import UsageError
from advisor.predict.anchor import Correct, uncorrected
from advisor.predict.batches import is_auto, predict_growing
from advisor.predict.join import join_devices
from advisor.predict.loader import with_loader
from advisor.predict.lowering import StepKernels
from advisor.predict.precision_choice import cheapest_runs, runs_of
from advisor.predict.step_time import predict_runs_of
from advisor.records.answer import Job
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.flag_values import flag_name
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.scale import Plan, Spreading
from advisor.records.workload import Workload
from advisor.scale.kept_steps import KeptSteps
from advisor.scale.lateness import lateness_of
from advisor.scale.plans import machine_counts, runs_as_it_is
from advisor.scale.served import predict_served
from advisor.scale.spread_out import IndivisibleBatchError, planned_steps, under_best_plans

_PredictSome: TypeAlias = Callable[[IndexArray, Sequence[int]], Predictions]
"""Predicts the step at these batch sizes on single devices, given by index."""
_TRAINING_DEFAULTS = (("max_machines", 1), ("sharding", "auto"), ("accumulate", 1), ("checkpoint_activations", False))
"""Flags that only training uses, with their default values."""


def predict_on_all(
    workload: Workload,
    *,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    options: Options,
    job: Job,
    terms: DeviceTerms | None = None,
    correct: Correct = uncorrected,
    family_of: Callable[[Plan], tuple[int, ...]] = lambda plan: (),
    kept: KeptSteps | None = None,
) -> Predictions:
    """Predict the step at each global batch on every device, with the best plan over the GPUs of its machine.

    `terms` say what each device's machines cost and when they start; without them, money and start-up do not count.
    `correct` takes timed steps into account, and is not used in LLM serving. `family_of` is as in `predict_served`.
    `kept` has the steps of earlier calls for this model, traced once at each batch, with the same corrections.
    """
    kept = kept or KeptSteps()
    terms = terms or no_terms(len(devices))
    if workload.generation is not None:
        return predict_served(
            workload,
            devices=devices,
            efficiencies=efficiencies,
            batches=batches,
            options=options,
            asked=spreading_of(options, is_served=True),
            lateness=lateness_of(job, batches, terms=terms),
            family_of=family_of,
        )
    places, precisions = runs_of(devices, options.precision, workload=workload)
    devices, terms = [devices[place] for place in places], terms.of(np.array(places, dtype=np.intp))
    how: dict[str, Any] = {
        "devices": devices,
        "precisions": precisions,
        "efficiencies": efficiencies,
        "options": options,
        "correct": correct,
    }
    predict_at = _predictor(workload, kept=kept, **how)
    asked, by_cost = spreading_of(options), job.objective in ("cost", "co2")
    per_step_s = terms.start_up_s[:, np.newaxis] / np.ceil(job.samples / batches)
    is_alone = [runs_as_it_is(device, asked=asked) for device in devices]
    alone, several = np.flatnonzero(is_alone).tolist(), np.flatnonzero(np.logical_not(is_alone)).tolist()
    parts = []
    if several:
        steps = kept.get(
            (
                "planned",
                workload.batch,
                batches.tobytes(),
                asked,
                *_runs_key(devices, precisions, several, options=options),
            ),
            lambda: planned_steps(
                workload,
                devices=[devices[index] for index in several],
                batches=batches,
                predict_at=lambda sizes: predict_at(sizes, several),
                asked=asked,
                predict_under_fsdp=_under_fsdp(workload, several, **how),
            ),
        )
        spread = under_best_plans(
            steps,
            lateness=lateness_of(job, batches, terms=terms.of(np.array(several, dtype=np.intp))),
            by_cost=by_cost,
            is_service=job.requests_per_day is not None,
            start_up_s=per_step_s[several],
        )
        parts.append((several, spread))
    if alone or not several:  # most devices; they skip the smaller batches that only several GPUs need
        parts.append((alone, predict_at(batches, alone)))
    runs = _with_loader(join_devices(parts), options)
    lateness, together = lateness_of(job, batches, terms=terms), machines_together(runs)
    return cheapest_runs(
        runs,
        places,
        late=np.maximum(1.0, lateness(runs.step_s, range(len(places)), server_counts(runs, job=job), together, None)),
        machine_s=(runs.step_s + per_step_s) * (together if by_cost else 1.0),
    )


def predict_with_growing_batches(
    workload: Workload,
    *,
    devices: Sequence[Device],
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    options: Options,
    job: Job,
    terms: DeviceTerms | None = None,
    correct: Correct = uncorrected,
    kept: KeptSteps | None = None,
) -> Predictions:
    """Predict on all devices like `predict_on_all`; with `--batch auto`, also at larger batches where they may pay.

    They cannot pay in a service, whose load is given, and engines that serve language models limit their batch.
    The load may decide which plan of a served model costs least, because it determines how many groups of machines
    are needed, and how many keep the limits on percentiles. Such plans form families, which the choice of the batch
    compares.
    """
    by_copy = bool(percentile_limits(job))

    def family_of(plan: Plan) -> tuple[int, ...]:
        return (plan.machines, *((plan.tensor, plan.pipeline, plan.expert) if by_copy else ()))

    def predict_at(sizes: IndexArray) -> Predictions:
        return predict_on_all(
            workload,
            devices=devices,
            efficiencies=efficiencies,
            batches=sizes,
            options=options,
            job=job,
            terms=terms,
            correct=correct,
            family_of=family_of,
            kept=kept,
        )

    is_one_job = job.requests_per_day is None and job.generation is None
    if not (is_auto(options.batch, mode=options.mode) and workload.batch_is_affine and is_one_job):
        return predict_at(batches)
    return predict_growing(predict_at, batches, most=job.samples)


def predict_by_machines(
    workload: Workload,
    *,
    device: Device,
    efficiencies: Sequence[Efficiency],
    batches: IndexArray,
    options: Options,
    job: Job,
    correct: Correct = uncorrected,
) -> Predictions:
    """Predict the step on 1, 2, 4, ... machines with that device; each number takes the place of one device.

    Stop when the batch has too few samples for more machines.
    """
    places, precisions = runs_of([device], options.precision, workload=workload)
    runs = [device for _ in places]
    how: dict[str, Any] = {
        "devices": runs,
        "precisions": precisions,
        "efficiencies": efficiencies,
        "options": options,
        "correct": correct,
    }
    predict_at = _predictor(workload, kept=KeptSteps(), **how)
    predict_under_fsdp = _under_fsdp(workload, range(len(runs)), **how)
    asked = spreading_of(options)
    parts: list[tuple[Sequence[int], Predictions]] = []
    for count in machine_counts(has_network=device.network_bytes_per_s is not None, asked=asked):
        try:
            steps = planned_steps(
                workload,
                devices=runs,
                batches=batches,
                predict_at=lambda sizes: predict_at(sizes, range(len(runs))),
                asked=replace(asked, machines=count),
                predict_under_fsdp=predict_under_fsdp,
            )
        except IndivisibleBatchError:
            break
        spread = under_best_plans(steps, by_cost=job.objective in ("cost", "co2"))
        parts.append(([len(parts)], cheapest_runs(_with_loader(spread, options), places)))
    return join_devices(parts)


def _predictor(
    workload: Workload,
    *,
    devices: Sequence[Device],
    precisions: Sequence[Precision | None],
    efficiencies: Sequence[Efficiency],
    options: Options,
    correct: Correct,
    kept: KeptSteps,
) -> _PredictSome:
    step_kernels = StepKernels(workload, compile_mode=options.compile, layout=options.layout)

    def predict_at(sizes: IndexArray, some: Sequence[int]) -> Predictions:
        return kept.get(
            ("single", workload.batch, sizes.tobytes(), *_runs_key(devices, precisions, some, options=options)),
            lambda: predict_runs_of(
                step_kernels,
                devices=[devices[index] for index in some],
                precisions=[precisions[index] for index in some],
                efficiencies=efficiencies,
                batches=sizes,
                correct=correct,
            ),
        )

    return predict_at


def _under_fsdp(workload: Workload, some: Sequence[int], **how: Any) -> Callable[[IndexArray], Predictions] | None:
    """Return the function that predicts the step under FSDP on single devices, if that step differs."""
    if workload.under_fsdp is None:
        return None
    predict_at = _predictor(workload.under_fsdp, kept=KeptSteps(), **how)
    return lambda sizes: predict_at(sizes, some)


def _runs_key(
    devices: Sequence[Device], precisions: Sequence[Precision | None], some: Sequence[int], *, options: Options
) -> tuple[object, ...]:
    """Return what the steps of these runs depend on."""
    runs = [(precisions[index], devices[index]) for index in some]
    return options.compile, options.layout, len(runs), *runs


def _with_loader(predictions: Predictions, options: Options) -> Predictions:
    if options.loader_s_per_sample is None:
        return predictions
    return with_loader(
        predictions, loader_s_per_sample=options.loader_s_per_sample, loader_workers=options.loader_workers
    )


def plan_gpus(options: Options) -> int:
    """Return the GPUs of a copy of the model in the plan that was asked for; 1 if none was."""
    return (options.tensor_parallel or 1) * (options.pipeline_parallel or 1) * (options.expert_parallel or 1)


def spreading_of(options: Options, *, is_served: bool = False) -> Spreading:
    """Return what the options allow; raise `UsageError` if they contradict each other or the kind of job."""
    counts = (
        "gpus",
        "max_gpus",
        "max_machines",
        "accumulate",
        "tensor_parallel",
        "pipeline_parallel",
        "expert_parallel",
    )
    for name in counts:
        value = getattr(options, name)
        if value is not None and value < 1:
            flag = flag_name(name)
            raise UsageError(f"{flag} {value}: must be 1 or more", hint=f"leave out {flag}")
    if options.gpus is not None and options.max_gpus is not None and options.gpus > options.max_gpus:
        raise UsageError(
            f"--gpus {options.gpus} is more than --max-gpus {options.max_gpus}", hint="leave one of them out"
        )
    if options.mode == "inference":
        for name, default in _TRAINING_DEFAULTS:
            if getattr(options, name) != default and not (is_served and name == "max_machines"):
                flag = flag_name(name)
                jobs, hint = "training", f"add --mode training, or leave out {flag}"
                if name == "max_machines":
                    jobs, hint = "training and LLM serving", f"{hint}; samples of inference can be split by hand"
                raise UsageError(f"{flag} applies only to {jobs}", hint=hint)
    return Spreading(
        gpus=options.gpus,
        max_gpus=options.max_gpus,
        max_machines=options.max_machines,
        sharding=None if options.sharding == "auto" else options.sharding,
        accumulate=options.accumulate,
        checkpoint_activations=options.checkpoint_activations,
        tensor=options.tensor_parallel,
        pipeline=options.pipeline_parallel,
        expert=options.expert_parallel,
    )
