"""Writes the task files that calibrate rented instances and bring the calibrations back."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from difflib import get_close_matches
from pathlib import Path

from advisor import units
from advisor.answers.launch_file import task_name, task_text
from advisor.calibrate.collection import BACK
from advisor.errors import UsageError
from advisor.launch.engines import skypilot
from advisor.launch.own_wheel import wheel_name
from advisor.launch.shell_lines import torch_install
from advisor.records.answer import QuotedDevice
from advisor.records.launch_task import FleetTask, LaunchMachine, LaunchTask
from advisor.records.price import Catalog, Offer, Price, Rejection, TorchWheel

_ENGINE = "skypilot"
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
    offer, price = _cheapest(_offers_of(name, catalog))
    machine = LaunchMachine(
        provider=offer.provider,
        tier=offer.tier,
        region=offer.region,
        instance=offer.instance,
        device=_device(offer, catalog),
        price_kind=price.kind,
    )
    if problem := skypilot.why_not(machine):
        raise UsageError(f"--fleet {name}: SkyPilot cannot launch it: {problem}", hint="calibrate on it by hand")
    task = LaunchTask(
        name=task_name(f"{offer.provider}-{offer.instance}"),
        machine=machine,
        setup=tuple(_setup(machine.device, offer.wheel)),
        script=f"-m advisor calibrate --time-budget {budget_s:g}s",
        python=_python(),
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
    return FleetTask(name=task.name, text=task_text(task, engine=_ENGINE, comments=comments))


def _offers_of(name: str, catalog: Catalog) -> list[Offer]:
    offers = [offer for offer in catalog.offers if _named(offer) == name.casefold()]
    if offers:
        return offers
    for unusable in catalog.rejected:
        if _named(unusable) == name.casefold():
            raise UsageError(f"--fleet {name}: {unusable.reason}", hint="name another instance")
    known = {f"{offer.provider}:{offer.instance}" for offer in catalog.offers if offer.provider in skypilot.PROVIDERS}
    close = ", ".join(get_close_matches(name, known, n=3))
    providers = ", ".join(sorted(skypilot.PROVIDERS))
    hint = f"did you mean {close}?" if close else f"write PROVIDER:INSTANCE; SkyPilot rents from {providers}"
    raise UsageError(f"--fleet {name}: no such offer", hint=hint)


def _named(offer: Offer | Rejection) -> str:
    return f"{offer.provider}:{offer.instance}".casefold()


def _cheapest(offers: Sequence[Offer]) -> tuple[Offer, Price]:
    """Return the offer with the cheapest on-demand price; prices without a STALE or SUSPECT mark come first."""
    priced = [(offer, price) for offer in offers for price in offer.prices if price.kind == "on_demand"]
    if not priced:
        raise UsageError(f"--fleet {offers[0].provider}:{offers[0].instance}: no on-demand price", hint="name another")
    return min(priced, key=lambda one: (one[1].stale or one[1].suspect, one[1].usd_per_hour, one[0].region))


def _device(offer: Offer, catalog: Catalog) -> QuotedDevice:
    if offer.gpu is not None:
        return QuotedDevice(id=offer.gpu, name=catalog.gpus[offer.gpu].name, kind="gpu", count=offer.gpu_count)
    cpu = catalog.cpus[offer.cpu or ""]  # `build_offers` rejects offers that have neither
    return QuotedDevice(id=cpu.id, name=cpu.name, kind="cpu", count=1)


def _setup(device: QuotedDevice, wheel: TorchWheel | None) -> Iterator[str]:
    """Return the commands that install a recent Python, torch for the device, and this program from its wheel."""
    extras = "[nvidia]" if device.kind == "gpu" else ""
    yield "pip install uv"
    yield f"uv venv --python {_python()} {_VENV}"
    yield f"uv {torch_install(device, wheel)} --python {_VENV}/bin/python"
    yield f"uv pip install './{wheel_name()}{extras}' --python {_VENV}/bin/python"


def _python() -> str:
    """Return the version of Python that runs here."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
