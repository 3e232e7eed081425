"""Writes the task files that run the user's script on the best instance, or calibrate rented instances."""

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from types import ModuleType

from advisor import units
from advisor.calibrate.collection import BACK
from advisor.catalog.yaml_text import yaml_text
from advisor.cost.quotes import quoted_fields
from advisor.errors import NothingFitsError, UsageError, did_you_mean
from advisor.launch.engines import engine_module, skypilot
from advisor.launch.launchable import own_type
from advisor.launch.own_wheel import wheel_name
from advisor.launch.packages import packages_of
from advisor.launch.shell_lines import pip_install, torch_install
from advisor.records.answer import Job, Quote, QuotedDevice, Recommendation
from advisor.records.device import Gpu
from advisor.records.launch_task import FleetTask, LaunchMachine, LaunchTask, TaskFile
from advisor.records.price import Catalog, Offer, TorchWheel
from advisor.records.rejection import Rejection
from advisor.records.script import Script
from advisor.report.amounts import interval_text
from advisor.report.quote_columns import instance_label
from advisor.report.quote_notes import covered_cost, scaling_notes
from advisor.workload.script_source import ScriptSource

_SETUP_S = 3600
"""Time for installing packages and fetching data before a task that overruns its prediction is ended."""
_LONGEST_NAME = 40
_NAMED_PATHS = 3
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of Python that runs here, and is installed there."""
_COMMENT_WIDTH = 78
_REQUIREMENTS = "requirements.txt"


def check_launchable(source: str) -> None:
    """Raise `UsageError` for a source that is not a script in the current folder."""
    script = _script(source)
    if not source.endswith(".py") and "::" not in source:
        raise UsageError(f"--emit: {source} is no Python file to run on a machine", hint="name your script")
    if not script.is_file():
        raise UsageError(f"--emit: {script}: no such file", hint="name your script")
    if not script.resolve().is_relative_to(Path.cwd()):
        hint = "run advise in a folder that holds the script and what it needs: that is copied to the machine"
        raise UsageError(f"--emit: {script} is not in this folder", hint=hint)


def task_file(
    recommendation: Recommendation,
    *,
    engine: str,
    gpus: Mapping[str, Gpu],
    source: str,
    script_args: Sequence[str],
    idle_minutes: int,
    port: int,
    file: Path | None,
    today: date,
    captured: Script | None = None,
    image: str = "",
) -> TaskFile:
    """Return the file of `engine` for the best instance, or the first that it can launch; `file` is its future path.

    `gpus` are the profiles of the catalog, by id. For a service, the script listens on `port`. The current folder is
    copied to the machine, or is in the `image`. The packages that the code imports and those of `requirements.txt` are
    installed there. `captured` has the settings of a script that was run, and what it reads. Raises `NothingFitsError`
    if the engine can launch none.
    """
    job = recommendation.job
    is_service = job.requests_per_day is not None
    module = engine_module(engine)
    quote, notes = _first_launchable(recommendation, engine=engine, gpus=gpus)
    machine = machine_of(quote, gpus)
    if is_service:
        machine = replace(machine, instance_count=1)
    path = _script(source).resolve()
    script = path.relative_to(Path.cwd())
    folder = os.path.relpath(Path.cwd(), file.resolve().parent) if file else "."
    requirements = Path(_REQUIREMENTS)
    packages = packages_of(ScriptSource(path).imports, requirements=requirements)
    max_usd, deadline_s = job.limits.max_usd_per_hour, job.limits.deadline_s
    if deadline_s is None and not job.assumed:
        deadline_s = quote.job_s.high + _SETUP_S
    task = LaunchTask(
        name=task_name(script.stem),
        machine=machine,
        setup=(
            torch_install(quote.device, quote.wheel, packages.of_torch),
            *((pip_install(packages.others),) if packages.others else ()),
            *((f"pip install -r {_REQUIREMENTS}",) if requirements.is_file() else ()),
        ),
        script=shlex.join((str(script), *script_args)),
        python=_PYTHON,
        folder=folder,
        idle_minutes=idle_minutes,
        variables=() if captured is None else captured.reads.variables,
        port=port if is_service else None,
        replica_count=quote.instance_count if is_service else 1,
        max_duration_s=None if is_service else deadline_s,
        max_usd_per_hour=None if max_usd is None else max_usd / quote.instance_count,
        alternatives=tuple(_alternatives(recommendation, quote, module=module, gpus=gpus)),
        image=image,
    )
    command = module.command(task)
    several = () if is_service else _doubts_about_several(quote)
    doubts = [*_doubts(quote, captured, script_args=script_args), *several, *packages.doubts]
    comments = [
        f"Written by advise on {today.isoformat()}: `{command} FILE` runs it.",
        *_prediction(quote, job),
        *module.comments(task),
        *(f"Check: {doubt}." for doubt in doubts),
    ]
    text = task_text(task, module=module, comments=comments)
    return TaskFile(text=text, command=command, notes=(*notes, *doubts))


def _doubts(quote: Quote, captured: Script | None, *, script_args: Sequence[str]) -> Iterator[str]:
    """Yield differences from the predicted job, and files and variables that the machine may lack."""
    here = Path.cwd()
    outside = [arg for arg in script_args if Path(arg).is_absolute() and Path(arg).exists()]
    if captured is None:
        yield f"a step of the model was priced, not the script (--run): it has to run at batch {quote.batch:,}"
    else:
        if captured.precision_on(quote.device.kind) is None:
            yield f"{quote.precision} was priced, as --precision says: the script has to run in it"
        if quote.compile != captured.compile:
            yield f"{quote.compile} was priced, as --compile says, but the script runs {captured.compile}"
        outside += captured.reads.outside
        if captured.reads.variables:
            yield f"the script reads {', '.join(captured.reads.variables)} from the environment"
    away = sorted({path for path in outside if not Path(path).resolve().is_relative_to(here)})
    if away:
        more = f" and {len(away) - _NAMED_PATHS:,} more" if len(away) > _NAMED_PATHS else ""
        yield f"the script reads outside this folder, which alone is copied: {', '.join(away[:_NAMED_PATHS])}{more}"


def _doubts_about_several(quote: Quote) -> Iterator[str]:
    """Yield what a script needs to use several GPUs together, and machines the network that was priced."""
    if quote.gpus_used > 1:
        yield (
            f"`torchrun` starts {quote.gpus_used} processes: the script has to divide the work among them with "
            "torch.distributed, or each does all of it"
        )
    if quote.instance_count > 1 and quote.provider == "aws":
        yield (
            "the network was priced at EFA's rate, which NCCL reaches through aws-ofi-nccl (AWS's images for deep "
            "learning have it) and pods with the resource vpc.amazonaws.com/efa; otherwise it uses TCP"
        )


def task_text(task: LaunchTask, *, module: ModuleType, comments: Sequence[str]) -> str:
    """Return the text of the task file of an engine's module, with comments on top."""
    wrap = partial(textwrap.wrap, width=_COMMENT_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    wrapped = [line for comment in comments for line in wrap(comment)]
    return yaml_text(module.task_values(task), comments=wrapped)


def _script(source: str) -> Path:
    return Path(source.partition("::")[0])


def task_name(stem: str) -> str:
    """Return a name that all engines accept: lower case, digits and hyphens after a letter."""
    name = re.sub("[^a-z0-9]+", "-", stem.lower()).strip("-")
    return (name if name[:1].isalpha() and len(name) > 1 else f"job-{name}")[:_LONGEST_NAME].strip("-")


def machine_of(quote: Quote, gpus: Mapping[str, Gpu]) -> LaunchMachine:
    """Return the machines to rent for a quote; `gpus` are profiles by id."""
    gpu = gpus.get(quote.device.id)
    return LaunchMachine(
        **quoted_fields(quote, LaunchMachine),
        gpu_vendor=gpu.vendor if gpu else "",
        has_part=gpu is not None and gpu.part_of is not None,
    )


def _first_launchable(
    recommendation: Recommendation, *, engine: str, gpus: Mapping[str, Gpu]
) -> tuple[Quote, tuple[str, ...]]:
    """Return the best quote or the first that the engine can launch, of those that may lead; a note says which."""
    module, quotes = engine_module(engine), recommendation.quotes

    def why_not(quote: Quote) -> str:
        reason: str = module.why_not(machine_of(quote, gpus))
        return reason

    ranked = sorted(
        enumerate(quotes, start=1), key=lambda one: (one[1] is not recommendation.best, not one[1].may_lead)
    )
    for place, quote in ranked:
        if why_not(quote):
            continue
        best = ranked[0][1]
        if quote is best:
            return quote, ()
        return quote, (
            f"{engine} cannot launch the best, {_named(best)}: {why_not(best)}. The task is for "
            f"number {place}, {_named(quote)}: {units.format_usd(quote.job_usd.mid)} instead of "
            f"{units.format_usd(best.job_usd.mid)}",
        )
    if not quotes:
        raise NothingFitsError(
            "no instance does this job within the limits", hint="`advise rank` lists the reason for each offer"
        )
    rented = f"--provider {','.join(sorted(module.PROVIDERS))} ranks what it rents from"
    has_part = machine_of(quotes[0], gpus).has_part
    raise NothingFitsError(
        f"{engine} can launch none of the {len(quotes):,} ranked instances: {why_not(quotes[0])}",
        hint="rank whole GPUs too, or write the file for kubernetes or karpenter" if has_part else rented,
    )


def _alternatives(
    recommendation: Recommendation, quote: Quote, *, module: ModuleType, gpus: Mapping[str, Gpu]
) -> Iterator[LaunchMachine]:
    """Yield, by rank, the machines of other types that run the same commands on as many devices as that of `quote`."""

    def needs(other: Quote) -> tuple[object, ...]:
        install = torch_install(other.device, other.wheel)
        counts = (other.device.kind, other.device.count, other.gpus_used, other.instance_count)
        return (other.provider, other.region, other.price_kind, *counts, install)

    wanted = needs(quote)
    for other in recommendation.quotes:
        if other.instance != quote.instance and other.may_lead and needs(other) == wanted:
            machine = machine_of(other, gpus)
            if not module.why_not(machine):
                yield machine


def _named(quote: Quote) -> str:
    return f"{quote.provider} {instance_label(quote)}"


def _prediction(quote: Quote, job: Job) -> Iterator[str]:
    """Return the prediction as comments for the file."""
    is_service = job.requests_per_day is not None
    time = f"{interval_text(quote.step_s)} per step" if is_service else interval_text(quote.job_s)
    device = quote.device.name if quote.device.kind == "cpu" else f"{quote.device.count}x {quote.device.name}"
    yield (
        f"{_named(quote)} ({device}) in {quote.region}: predicted {time} at batch {quote.batch:,}, "
        f"{quote.precision}, {quote.compile}."
    )
    for note in scaling_notes(quote, job):
        yield note[0].upper() + note[1:]
    yield f"Predicted cost: {covered_cost(quote, job, rate=None)}"
    if job.assumed:
        yield "No job size was given: your script takes as long as it takes."
    if quote.price_kind.startswith("commit"):
        yield "The price is that of a commitment, which you must hold."
    if own_type(quote) is None:
        yield "The machine is asked for by its GPU: compare what you are offered with the above before you confirm."


_IDLE_MINUTES = 10
_VENV = "~/advise-venv"
"""SkyPilot's images have their own Python, which may be too old for this program."""
_KEPT = ".cache/advisor/calibrations/"
"""The folder of calibrations in a home folder on Linux (`calibrate.store.folder`)."""
PROGRAM = "program"
"""The subfolder that holds only the wheel of this program; it is copied to each machine."""


def fleet_tasks(
    names: Sequence[str], catalog: Catalog, *, folder: Path, budget_s: float, today: date
) -> tuple[FleetTask, ...]:
    """Return a task for each `PROVIDER:INSTANCE`, on demand in its cheapest region; `folder` holds the fleet's files.

    Raises `UsageError`, with the nearest names, for one that is not on offer or that SkyPilot cannot launch.
    """
    if not names:
        raise UsageError("--fleet names no machine", hint="write PROVIDER:INSTANCE, such as aws:g6.xlarge")
    program = (folder / PROGRAM).resolve()
    return tuple(_task(name, catalog, program=program, budget_s=budget_s, today=today) for name in dict.fromkeys(names))


def fleet_commands(tasks: Sequence[FleetTask], *, folder: Path) -> Iterator[str]:
    """Yield shell lines: rent each machine, copy its calibration back, end it; then collect all calibrations."""
    for task in tasks:
        yield f"sky launch -y -c {task.name} {shlex.quote(str(folder / f'{task.name}.yaml'))}"
        yield f"rsync -a {task.name}:{_KEPT} {shlex.quote(str(folder / BACK / task.name))}/"
        yield f"sky down -y {task.name}"
    yield f"advise calibrate --collect {shlex.quote(str(folder))}"


def _task(name: str, catalog: Catalog, *, program: Path, budget_s: float, today: date) -> FleetTask:
    offers = _offers_of(name, catalog)
    priced = [(offer, price) for offer in offers for price in offer.prices if price.kind == "on_demand"]
    if not priced:
        raise UsageError(f"--fleet {offers[0].provider}:{offers[0].instance}: no on-demand price", hint="name another")
    # Prices without a STALE or SUSPECT mark come first.
    offer, price = min(priced, key=lambda one: (one[1].stale or one[1].suspect, one[1].usd_per_hour, one[0].region))
    machine = LaunchMachine(
        provider=offer.provider,
        tier=offer.tier,
        region=offer.region,
        instance=offer.instance,
        device=_device(offer, catalog),
        price_kind=price.kind,
        gpu_vendor=catalog.gpus[offer.gpu].vendor if offer.gpu else "",
        architecture=offer.architecture,
        vcpus=offer.vcpus,
    )
    if problem := skypilot.why_not(machine):
        raise UsageError(f"--fleet {name}: SkyPilot cannot launch it: {problem}", hint="calibrate on it by hand")
    task = LaunchTask(
        name=task_name(f"{offer.provider}-{offer.instance}"),
        machine=machine,
        setup=tuple(_setup(machine.device, offer.wheel)),
        script=f"-m advisor calibrate --time-budget {budget_s:g}s",
        python=_PYTHON,
        folder=str(program),
        idle_minutes=_IDLE_MINUTES,
        interpreter=f"{_VENV}/bin/python",
    )
    comments = (
        f"Written by advise on {today.isoformat()}: `{skypilot.command(task)} FILE` runs it.",
        f"Calibrates {offer.provider} {offer.instance} in {offer.region}, {units.format_usd(price.usd_per_hour)} an "
        f"hour as of {price.date}; some minutes of setup, and {units.format_duration(budget_s)} for each device.",
        *skypilot.comments(task),
    )
    return FleetTask(name=task.name, text=task_text(task, module=skypilot, comments=comments))


def _offers_of(name: str, catalog: Catalog) -> list[Offer]:
    def is_named(offer: Offer | Rejection) -> bool:
        return f"{offer.provider}:{offer.instance}".casefold() == name.casefold()

    if offers := list(filter(is_named, catalog.offers)):
        return offers
    for unusable in catalog.rejected:
        if is_named(unusable):
            raise UsageError(f"--fleet {name}: {unusable.reason}", hint="name another instance")
    known = {f"{offer.provider}:{offer.instance}" for offer in catalog.offers if offer.provider in skypilot.PROVIDERS}
    otherwise = f"write PROVIDER:INSTANCE; SkyPilot rents from {', '.join(sorted(skypilot.PROVIDERS))}"
    hint = did_you_mean(name, known, otherwise=otherwise, most=3)
    raise UsageError(f"--fleet {name}: no such offer", hint=hint)


def _device(offer: Offer, catalog: Catalog) -> QuotedDevice:
    if offer.gpu is not None:
        return QuotedDevice(id=offer.gpu, name=catalog.gpus[offer.gpu].name, kind="gpu", count=offer.gpu_count)
    cpu = catalog.cpus[offer.cpu or ""]  # `build_offers` rejects offers that have neither
    return QuotedDevice(id=cpu.id, name=cpu.name, kind="cpu", count=1)


def _setup(device: QuotedDevice, wheel: TorchWheel | None) -> Iterator[str]:
    """Return the commands that install a recent Python, torch for the device, and this program from its wheel."""
    extras = "[nvidia]" if device.kind == "gpu" else ""
    yield "pip install uv"
    yield f"uv venv --python {_PYTHON} {_VENV}"
    yield f"uv {torch_install(device, wheel)} --python {_VENV}/bin/python"
    yield f"uv pip install './{wheel_name()}{extras}' --python {_VENV}/bin/python"
