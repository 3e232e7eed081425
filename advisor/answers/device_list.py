"""Lists the devices of this machine with their profiles and calibrations."""

from collections.abc import Callable, Iterator
from datetime import date

from advisor.calibrate.in_force import calibrations_in_force, is_of
from advisor.catalog.find import overlay_notes
from advisor.catalog.invariants import catalog_warnings
from advisor.devices.local_device import local_devices
from advisor.machine.this_machine import ask_torch, this_machine
from advisor.records.device import Cpu, Gpu
from advisor.records.machine import Inventory, Machine, TorchSeen
from advisor.records.price import Catalog


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
    """Yield a note if torch does not answer, and one for each GPU that only torch or only the driver sees."""
    if torch.problem:
        yield f"torch does not answer: {torch.problem}"
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
