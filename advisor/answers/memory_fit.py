"""Says whether a step fits the memory of devices, and what would make it fit."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from advisor.catalog.find import overlay_notes
from advisor.catalog.invariants import catalog_warnings
from advisor.cost.job import job_for, price_kind_of
from advisor.cost.quotes import plan_at
from advisor.cost.rank_offers import why_too_small
from advisor.cost.selection import Selection, select_offers
from advisor.devices.local_device import local_devices
from advisor.devices.named_machine import NamedMachine, named_machine
from advisor.errors import AdvisorError, NothingFitsError, UsageError
from advisor.machine.this_machine import this_machine
from advisor.predict.batches import batch_candidates
from advisor.predict.capability import fleet_of
from advisor.predict.precision import width_of
from advisor.predict.step_memory import usable_bytes, verdict_of
from advisor.question.from_source import profiled_batch
from advisor.question.record import Question
from advisor.records.answer import QuotedDevice
from advisor.records.device import Precision
from advisor.records.device_memory import (
    MEMORY_SCHEMA_VERSION,
    DeviceMemory,
    FitAnswer,
    MemoryAnswer,
    MemoryTerm,
    Remedy,
)
from advisor.records.flag_values import single_batch_of
from advisor.records.generation import Generation
from advisor.records.machine import LOCAL
from advisor.records.options import Options
from advisor.records.prediction import Predictions
from advisor.records.price import Catalog
from advisor.records.rejection import OTHER_FORMATS, Cause, no_kernels_text, sentence_of
from advisor.records.scale import Plan
from advisor.records.workload import Workload
from advisor.scale.predict_on_all import plan_gpus, predict_on_all
from advisor.scale.remedies import MOST_BATCH, Remedied, Step, largest_batches, remedies
from advisor.scale.sharded_memory import memory_of_one
from advisor.scale.spread_out import pass_batches
from advisor.workload.user_error import explain, is_of_user


def check_one_batch(options: Options) -> None:
    """Raise `UsageError` if several batch sizes are asked for."""
    flag, asked = ("--concurrency", options.concurrency) if options.concurrency else ("--batch", options.batch)
    if asked and not single_batch_of(asked):
        batch_candidates(asked, mode=options.mode, source_batch=1)  # says what is wrong with it
        raise UsageError(f"{flag} {asked}: memory takes one batch size", hint="write one number, or leave it out")


def reading_here(on: Iterable[str]) -> dict[str, Any]:
    """Return the keywords of a question that let it read this machine if `on` names it, and only then."""
    is_named = any(name.casefold() == LOCAL for name in on)
    return {"on": (LOCAL,), "read_machine": this_machine} if is_named else {"read_machine": None}


def memory_fit(question: Question, *, on: Sequence[str] = ()) -> MemoryAnswer:
    """Say whether the step fits each of `on`, or every device on offer within the limits, smallest memory first.

    The ranking's choice of precision, and of the plan over a machine's GPUs, applies at this batch. CPU instances with
    the same memory size and precision need the same memory, so only the cheapest of them is shown.
    Raises `UsageError` if one of `on` cannot take the batch, however much memory it has.
    """
    workload, options, catalog = question.workload, question.options, question.catalog
    batch = profiled_batch(workload, single_batch_of(options.batch))
    machines = [_named(name, question) for name in on] or _on_offer(options, catalog)
    machines = _with_enough_gpus(machines, options, named=bool(on))
    predictions = predict_on_all(
        workload,
        devices=[machine.device for machine in machines],
        efficiencies=catalog.efficiencies,
        batches=np.array([batch], dtype=np.intp),
        options=options,
        job=job_for(workload, options),
    )
    places = tuple(range(len(machines)) if on else _distinct(machines, predictions))
    generation = workload.generation
    refused = _refused(places, predictions, generation)
    hint = f"choose another {'--batch' if generation is None else '--concurrency'}, plan or device"
    if refused and on:
        place, cause = next(iter(refused.items()))
        raise UsageError(f"{machines[place].name}: {sentence_of(cause, generation)}", hint=hint)
    places = tuple(place for place in places if place not in refused)
    found = partial(_on_each, machines, workload, places=places, predictions=predictions, batch=batch)
    devices = found()
    if question.trace_chunked is not None and any(device.verdict != "fits" for device in devices):
        devices = found(chunked=question.trace_chunked())
    notes = (*workload.assumptions, *overlay_notes(catalog), *catalog_warnings(catalog, today=date.today()))
    if not on and any(device.device.kind == "cpu" for device in devices):
        notes = ("of the instances without a GPU, the cheapest of each memory and precision stands for all", *notes)
    if not workload.batch_is_affine:
        said = f"how the step grows with the batch is not known, so no batch but {workload.batch:,} was checked"
        notes = (said, *notes)
    left_out = Counter(refused.values())
    notes = (
        *(f"devices left out: {count:,}, since {sentence_of(cause, generation)}" for cause, count in left_out.items()),
        *notes,
    )
    if not devices:
        if left_out:
            most = max(left_out, key=lambda cause: cause.available or 0.0)
            raise NothingFitsError(f"no device takes the batch: {sentence_of(most, generation)}", hint=hint)
        missing = [] if generation is None else [generation.missing_kernels(machine.device) for machine in machines]
        if missing and all(missing):
            names = " or ".join(machine.name for machine in machines) if on else "any device on offer"
            formats = dict.fromkeys(chain(*missing))
            raise NothingFitsError(no_kernels_text(formats, generation, on=names), hint=OTHER_FORMATS)
        raise NothingFitsError(
            f"no device has a unit for {options.precision}, or kernels for the step",
            hint="choose another precision or device",
        )
    return MemoryAnswer(
        schema_version=MEMORY_SCHEMA_VERSION,
        workload=workload.name,
        mode=workload.mode,
        batch=batch,
        optimizer=workload.optimizer,
        devices=tuple(devices if on else sorted(devices, key=lambda each: (each.memory_bytes, each.name))),
        notes=notes,
        generation=workload.generation,
    )


def _refused(places: Iterable[int], predictions: Predictions, generation: Generation | None) -> Mapping[int, Cause]:
    """Return the places of the machines that cannot take the batch with any memory, and why."""
    return {
        place: why_too_small(place, predictions=predictions, generation=generation)
        for place in places
        if predictions.precisions[place, 0] is not None and np.isinf(predictions.peak_memory_bytes[place, 0])
    }


def _on_each(
    machines: Sequence[NamedMachine],
    workload: Workload,
    *,
    places: Iterable[int],
    predictions: Predictions,
    batch: int,
    chunked: Workload | None = None,
) -> list[DeviceMemory]:
    """Return the memory of the step on each machine at `places` that has the precision."""
    return [
        device_memory(
            machines[place],
            workload,
            precision=precision,
            plan=plan_at(predictions, (place, 0)),
            batch=batch,
            chunked=chunked,
        )
        for place in places
        if (precision := predictions.precisions[place, 0]) is not None
    ]


def _distinct(machines: Sequence[NamedMachine], predictions: Predictions) -> Iterable[int]:
    """Return the places of the machines that differ in what decides what fits: memory, precision, and the GPU if any.

    The first machine stands for those like it.
    """
    first: dict[Any, int] = {}
    for place, (machine, precision) in enumerate(zip(machines, predictions.precisions[:, 0], strict=True)):
        is_gpu = machine.device.kind == "gpu"
        first.setdefault(place if is_gpu else (machine.device.memory_bytes, precision), place)
    return first.values()


def _with_enough_gpus(machines: list[NamedMachine], options: Options, *, named: bool) -> list[NamedMachine]:
    """Return the machines with the GPUs of the plan that was asked for; raise `UsageError` for one that was `named`."""
    needed = plan_gpus(options)
    enough = [machine for machine in machines if machine.device.gpu_count >= needed]
    lacking = [machine for machine in machines if machine.device.gpu_count < needed]
    if lacking and (named or not enough):
        what = f"--on {lacking[0].name}" if named else "the machines on offer"
        most = max(machine.device.gpu_count for machine in lacking)
        raise UsageError(
            f"{what}: at most {most} GPU{'s' if most > 1 else ''} in a machine, and the plan needs groups of {needed}",
            hint="name an instance with enough GPUs, or ask for a smaller plan",
        )
    return enough


def fit_on(name: str, ask: Callable[[], Question]) -> FitAnswer:
    """Say whether the step of the question that `ask` returns fits the device of this name.

    A step that cannot be traced or predicted has the verdict "unknown", with the reason. Raises `UsageError` for a name
    or an option that cannot be used.
    """
    try:
        question = ask()
        memory = memory_fit(question, on=(name,))
    except UsageError:
        raise
    except AdvisorError as error:
        return FitAnswer(on=name, reason=error.message)
    except Exception as error:  # the model's code runs in there, and may raise anything
        if not is_of_user(error):
            raise
        return FitAnswer(on=name, reason=explain(error, what="its code fails on fake tensors").message)
    (device,) = memory.devices
    larger = None if device.verdict == "fits" else _larger(device, question)
    return FitAnswer(on=name, memory=memory, larger=larger)


def _larger(device: DeviceMemory, question: Question) -> DeviceMemory | None:
    """Return the smallest device on offer, of the same kind, on which the step surely fits."""
    alike = replace(question, options=replace(question.options, device=(device.device.kind,)))
    try:
        found = memory_fit(alike).devices
    except NothingFitsError:
        return None
    return next((each for each in found if each.verdict == "fits"), None)


def _named(name: str, question: Question) -> NamedMachine:
    """Return the machine of that name; "local" is the first GPU of this machine, or its CPU if it has none."""
    if name.casefold() != LOCAL or question.machine is None:
        machine = named_machine(name, question.catalog)
        if np.isinf(machine.device.memory_bytes):
            raise UsageError(
                f"{name}: a CPU's memory is that of its machine, which is not known",
                hint="name an instance, such as c7a.2xlarge, or local",
            )
        return machine
    cpu, *gpus = local_devices(question.machine, question.catalog)
    local = gpus[0] if gpus else cpu
    if local.device is None:
        raise UsageError(f"{name}: {local.name} cannot be predicted: {local.note}", hint="name another device")
    return NamedMachine(name=f"this machine's {local.name}", device=local.device, device_count=1)


def _on_offer(options: Options, catalog: Catalog) -> list[NamedMachine]:
    """Return one machine for each GPU and its memory, and all CPU instances, the cheapest first, within the limits."""
    selection = select_offers(
        catalog.offers, options=options, price_kind=price_kind_of(options), errors=catalog.price_errors
    )
    devices = fleet_of(selection.offers, gpus=catalog.gpus, cpus=catalog.cpus).devices
    if not devices and LOCAL in options.device:
        raise UsageError("--device local: the memory of offers is asked for", hint="write --on local")
    if not devices:
        unlisted = f"write --on {options.device[0]} if nobody rents it; " if options.device else ""
        hint = f"{unlisted}`advise rank` says why offers are left out"
        raise NothingFitsError("no offer within the limits has a device that is known", hint=hint)
    is_plan_asked = plan_gpus(options) > 1
    gpus = [device for device in devices if device.kind == "gpu"]
    if not is_plan_asked:
        gpus = [replace(device, gpu_count=1) for device in gpus]
    distinct = {(device.id, device.gpu_count, device.memory_bytes): device for device in gpus}
    return [
        *(
            NamedMachine(
                name=f"{device.gpu_count}x {device.name}" if is_plan_asked else device.name,
                device=device,
                device_count=device.gpu_count,
            )
            for device in distinct.values()
        ),
        *_cpu_instances(selection, catalog),
    ]


def _cpu_instances(selection: Selection, catalog: Catalog) -> Iterator[NamedMachine]:
    """Yield the distinct machines without a GPU, each named by its cheapest offer, and the cheapest first.

    Offers that may not be ranked, and those with doubtful prices, come last.
    """
    numbered = [(number, priced) for number, priced in enumerate(selection.priced) if priced.offer.gpu is None]
    by_price = sorted(
        numbered,
        key=lambda one: (one[0] >= selection.may_win_count, not one[1].is_trusted, one[1].price.usd_per_hour),
    )
    offers = [priced.offer for _, priced in by_price]
    fleet = fleet_of(offers, gpus=catalog.gpus, cpus=catalog.cpus)
    cheapest = {index: offer for offer, index in reversed(list(zip(offers, fleet.device_index.tolist(), strict=True)))}
    for index, device in enumerate(fleet.devices):
        offer = cheapest[index]
        yield NamedMachine(name=f"{offer.provider} {offer.instance}", device=device, device_count=1)


def device_memory(
    machine: NamedMachine,
    workload: Workload,
    *,
    precision: Precision,
    plan: Plan | None,
    batch: int,
    chunked: Workload | None = None,
) -> DeviceMemory:
    """Return the memory of the step on each device of a machine; `batch` is the total of its devices and passes.

    `chunked` is the same step with its logits in chunks, for the remedies.
    """
    device, plan = machine.device, plan or Plan()
    workload = workload.under(plan)
    (of_pass,) = pass_batches(np.array([batch]), plan).tolist()
    step = Step(
        workload=workload,
        batch=of_pass,
        width=width_of(precision, workload),
        kind=device.kind,
        plan=plan,
        samples=batch,
        chunked=chunked,
    )
    found = memory_of_one(workload, plan, batches=np.array([float(of_pass)]), width=step.width, kind=device.kind)
    total = found.total
    available_bytes = usable_bytes(device, workload)
    engine = workload.generation.engine if workload.generation else None
    most = engine.batch_limits(device).max_num_seqs if engine else MOST_BATCH
    safe, at_most = largest_batches(step, memory_bytes=available_bytes, most=most)
    return DeviceMemory(
        name=machine.name,
        device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=machine.device_count),
        memory_bytes=device.memory_bytes,
        usable_bytes=available_bytes,
        precision=precision,
        plan=None if plan == Plan() else plan,
        batch=batch,
        phase=workload.memory[int(found.moments[0])].phase,
        peak_bytes=float(total.mid[0]),
        peak_low_bytes=float(total.low[0]),
        peak_high_bytes=float(total.high[0]),
        verdict=verdict_of(total, memory_bytes=available_bytes),
        largest_batch=safe,
        largest_batch_at_most=at_most,
        terms=tuple(
            MemoryTerm(
                part=part,
                mid_bytes=float(spread.mid[0]),
                low_bytes=float(spread.low[0]),
                high_bytes=float(spread.high[0]),
                source=found.source_of(part),
            )
            for part, spread in found.parts.items()
            if spread.high[0] > 0
        ),
        remedies=tuple(
            _remedy(changed, peak_bytes=float(total.mid[0]), memory_bytes=available_bytes, most=most)
            for changed in remedies(step, device=device)
        ),
    )


def _remedy(changed: Remedied, *, peak_bytes: float, memory_bytes: float, most: int) -> Remedy:
    after = changed.step.peak
    return Remedy(
        name=changed.name,
        change=changed.change,
        batch=changed.step.batch,
        peak_bytes=float(after.mid[0]),
        saved_bytes=peak_bytes - float(after.mid[0]),
        verdict=verdict_of(after, memory_bytes=memory_bytes),
        largest_batch=largest_batches(changed.step, memory_bytes=memory_bytes, most=most)[0],
        extra_flops_ratio=changed.extra_flops_ratio,
    )
