"""Lists the devices of this machine, and checks that every stage of a ranking works on it."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path

import platformdirs

from advisor.answers.ranking import rank
from advisor.calibrate.in_force import calibrations_in_force, is_of
from advisor.catalog.find import overlay_notes
from advisor.catalog.invariants import catalog_warnings
from advisor.devices.local_device import local_devices
from advisor.errors import AdvisorError
from advisor.files.whole_file import why_unwritable
from advisor.machine.this_machine import ask_torch, this_machine
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.device import Cpu, Gpu
from advisor.records.machine import Check, Inventory, Machine, TorchSeen
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.workload.sources import source_kinds
from advisor.workload.spawn import ChildFailure

OLDEST_TORCH = (2, 6)
"""As in pyproject.toml; pip does not check a torch that was installed another way."""
_SUPPORTED_PLATFORM = "linux"
_OPTIONAL_PACKAGES = {
    **{kind.package: f"models, {kind.usage}" for kind in source_kinds() if kind.package},
    "nvidia-ml-py": "memory and power limit of NVIDIA GPUs without starting nvidia-smi",
}
_TINY_MODEL = """import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
example_inputs = torch.zeros(8, 64)
"""


def take_inventory(
    catalog: Catalog,
    *,
    with_others: bool = False,
    read_machine: Callable[[], Machine] = this_machine,
    read_torch: Callable[[], TorchSeen] = ask_torch,
) -> Inventory:
    """List every device of this machine; `with_others` adds all other profiles, GPUs first. Nothing is timed."""
    machine, torch = read_machine(), read_torch()
    calibrations = calibrations_in_force(machine, catalog)
    devices = local_devices(machine, catalog)
    here = {local.profile.id for local in devices if local.profile}
    known: list[Gpu | Cpu] = [*catalog.gpus.values(), *catalog.cpus.values()] if with_others else []
    return Inventory(
        machine=machine,
        torch=torch,
        devices=devices,
        calibrated_at={
            one.key.device: one.at
            for one in calibrations.calibrations
            if any(local.device is not None and is_of(one, local.device) for local in devices)
        },
        others=tuple(profile for profile in known if profile.id not in here),
        notes=(
            *overlay_notes(catalog),
            *catalog_warnings(catalog, today=date.today()),
            *machine.notes,
            *_torch_notes(machine, torch),
            *calibrations.problems,
        ),
    )


def _torch_notes(machine: Machine, torch: TorchSeen) -> Iterator[str]:
    """Yield a note if torch could not be started, and one for each GPU that only torch or only the driver sees."""
    if torch.problem:
        yield f"torch could not be started: {torch.problem}"
        return
    found = {gpu.id for gpu in machine.gpus}
    for gpu in torch.gpus:
        if gpu.id not in found:
            yield (
                f"torch {torch.version} sees {gpu.id}, {gpu.name}, which the driver's own tools do not list: it is "
                "left out, nvidia-smi may say why"
            )
    seen = {gpu.id for gpu in torch.gpus}
    for gpu in machine.gpus:
        if gpu.id not in seen:
            yield f"torch {torch.version} does not see {gpu.id}, {gpu.name}: it is built without its driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages that `examine` runs; tests replace them."""

    load: Callable[[Options], Catalog] = catalog_of
    look: Callable[[Catalog], Inventory] = take_inventory
    trace: Callable[[str, Options], Workload] = lambda source, options: profile_source(source, options).workload


def examine(options: Options, *, stages: Stages | None = None) -> tuple[Check, ...]:
    """Run the whole path of `advise FILE` on a tiny model, and check optional parts."""
    return tuple(_checks(options, stages or Stages()))


def _checks(options: Options, stages: Stages) -> Iterator[Check]:
    is_tested = sys.platform == _SUPPORTED_PLATFORM
    yield Check(
        name="platform",
        state="ok" if is_tested else "missing",
        found=f"Python {sys.version.split()[0]} on {sys.platform}",
        remedy="" if is_tested else "only Linux is tested",
    )
    yield _check_cache(platformdirs.user_cache_path("advisor"))
    try:
        catalog = stages.load(options)
    except AdvisorError as error:
        yield _failed("profiles", error)
        return
    cards = [gpu for gpu in catalog.gpus.values() if not (gpu.part_of or gpu.stack or gpu.vendor == "Apple")]
    others = f"{len(catalog.gpus) - len(cards)} parts of GPUs, Macs and NeuronCores"
    counts = f"{len(cards)} GPUs (and {others}), {len(catalog.cpus)} CPUs, {len(catalog.offers):,} offers"
    yield Check(name="profiles", state="ok", found=counts)
    inventory = stages.look(catalog)
    torch = check_torch(inventory.torch.version, problem=inventory.torch.problem)
    yield torch
    if torch.state == "ok":
        yield from _check_model(options, catalog, stages)
    yield from _check_devices(inventory)
    for name, use in _OPTIONAL_PACKAGES.items():
        try:
            check = Check(name=name, state="ok", found=metadata.version(name))
        except metadata.PackageNotFoundError:
            check = Check(name=name, state="missing", found=f"optional: {use}", remedy=f"pip install {name}")
        is_to_fit = name == "torchvision" and (check.state, torch.state) == ("ok", "ok")
        yield _check_torchvision(check, options, stages) if is_to_fit else check


def _check_cache(folder: Path) -> Check:
    """Check that a file can be written in the cache folder."""
    if problem := why_unwritable(folder):
        remedy = "profiles are then read anew each time; XDG_CACHE_HOME names another folder"
        return Check(name="cache folder", state="missing", found=problem, remedy=remedy)
    return Check(name="cache folder", state="ok", found=str(folder))


def check_torch(version: str, *, problem: str) -> Check:
    """Check that torch starts in a child process and is a tested version."""
    remedy = f"pip install 'torch>={'.'.join(map(str, OLDEST_TORCH))}'"
    if not version:
        return Check(name="torch", state="fails", found=problem, remedy=remedy)
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_TORCH:
        return Check(name="torch", state="fails", found=f"{version} is too old", remedy=remedy)
    return Check(name="torch", state="ok", found=version)


def _check_model(options: Options, catalog: Catalog, stages: Stages) -> Iterator[Check]:
    """Trace a tiny model in a child process, then predict and rank every offer for it."""
    try:
        workload = _trace(_TINY_MODEL, options, stages)
    except AdvisorError as error:
        yield _failed("trace", error)
        return
    except ChildFailure as error:
        yield Check(name="trace", state="fails", found=str(error), remedy="report it with the lines above")
        return
    yield Check(name="trace", state="ok", found=f"a tiny model, {len(workload.rows)} operators")
    try:
        ranked = rank(question_of(workload, options, catalog=catalog))
    except AdvisorError as error:
        yield _failed("rank", error)
        return
    if ranked.best is None:
        remedy = "`advise prices validate` checks your own price files"
        yield Check(name="rank", state="fails", found="no offer can be ranked", remedy=remedy)
        return
    found = f"{len(ranked.quotes):,} instance types, {ranked.best.provider} {ranked.best.instance} first"
    yield Check(name="rank", state="ok", found=found)


def _failed(name: str, error: AdvisorError) -> Check:
    return Check(name=name, state="fails", found=error.message, remedy=error.hint)


def _trace(text: str, options: Options, stages: Stages) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "tiny.py")
        Path(source).write_text(text, encoding="utf-8")
        return stages.trace(source, options)


def _check_torchvision(installed: Check, options: Options, stages: Stages) -> Check:
    """Check that a file which imports torchvision can be traced; a build for another torch may fail to import."""
    try:
        _trace(f"import torchvision\n{_TINY_MODEL}", options, stages)
    except (AdvisorError, ChildFailure) as error:
        found = f"{installed.found} cannot be imported: {error}"
        remedy = "install the torchvision that is built for this torch"
        return Check(name=installed.name, state="missing", found=found, remedy=remedy)
    return installed


def _check_devices(inventory: Inventory) -> Iterator[Check]:
    """Check that each device here has a profile or a calibration to predict from."""
    for local in inventory.devices:
        found = f"{local.name}: {local.note}" if local.note else local.name
        calibrated_at = inventory.calibrated_at.get(local.device.id) if local.device else None
        if calibrated_at is not None or local.profile is not None:
            calibrated = f"; calibrated {calibrated_at[:10]}" if calibrated_at else ""
            yield Check(name=local.id, state="ok", found=f"{found}{calibrated}")
        else:
            remedy = "`advise calibrate` measures it" if local.device else ""
            yield Check(name=local.id, state="missing", found=found, remedy=remedy)
    for note in inventory.notes:
        yield Check(name="machine", state="note", found=note)
