"""Reads devices, efficiencies, billing rules and price errors, and adds SpareCores' measurements to our devices."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from advisor.catalog.fields import read_record
from advisor.catalog.strict_yaml import Node, did_you_mean, read_documents
from advisor.records.billing import BillingRule, ExtraCosts, StartUp
from advisor.records.device import ANY, Cpu, Efficiency, Gpu
from advisor.records.price import PriceErrors, PriceSource, PriceSpread

_MAY_BE_ZERO = (
    "n", "log_spread", "device_log_spread", "workload_log_spread", "overlap_ratio", "dispatch_s", "launch_s"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGpu:
    """Values of a GPU seen on cloud instances: usable memory (less ECC and reserves), power limit, copy rate."""

    visible_memory_bytes: float | None = None
    power_limit_w: float | None = None
    host_to_device_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredInstance:
    """SpareCores' measurements of one instance type; `cpu` is a reported name or an id."""

    cpu: str | None = None
    vcpus: int | None = None
    gpu: str | None = None
    gpu_count: int = 0
    threads_per_core: int | None = None
    read_bytes_per_s: float | None = None
    host_to_device_bytes_per_s: float | None = None


def read_gpus(files: Iterable[Path], *, measured: Path | None) -> dict[str, Gpu]:
    """Return GPUs by id; values in SpareCores' file `measured` replace the datasheet's."""
    gpus: dict[str, Gpu] = {}
    for root in _roots(files):
        gpu = read_record(Gpu, root)
        _refuse_repeated(gpu.id, among=gpus, root=root)
        gpus[gpu.id] = gpu
    for entry in _entries(measured):
        if entry.key not in gpus:
            raise entry.error("unknown GPU", hint=did_you_mean(entry.key, known=gpus))
        seen = read_record(MeasuredGpu, entry)
        gpu = gpus[entry.key]
        gpus[entry.key] = replace(
            gpu,
            memory_bytes=seen.visible_memory_bytes or gpu.memory_bytes,
            tdp_w=seen.power_limit_w or gpu.tdp_w,
            host_to_device_bytes_per_s=seen.host_to_device_bytes_per_s or gpu.host_to_device_bytes_per_s,
        )
    return gpus


def read_cpus(files: Iterable[Path], *, measured: Path | None) -> dict[str, Cpu]:
    """Return CPUs by id; keys missing in a CPU's own file are taken from SpareCores' file `measured`."""
    measured_cpus = {entry.key: entry.value for entry in _entries(measured)}
    cpus: dict[str, Cpu] = {}
    for root in _roots(files):
        own = {entry.key: entry.value for entry in root.entries()}
        seen = measured_cpus.get(str(own.get("id")), {})
        cpu = read_record(Cpu, replace(root, value={**seen, **own}))
        _refuse_repeated(cpu.id, among=cpus, root=root)
        cpus[cpu.id] = replace(cpu, source=f"{cpu.source}; SpareCores (CC BY-SA 4.0)") if seen else cpu
    return cpus


def with_reported_names(cpus: Mapping[str, Cpu], *, file: Path) -> dict[str, Cpu]:
    """Return the CPUs with the names that `lscpu` reports as further aliases, from a file `reported name: id`."""
    named = dict(cpus)
    for entry in _entries(file):
        identifier = entry.text()
        if identifier not in cpus:
            raise entry.error(f"no profile describes {identifier!r}", hint=did_you_mean(identifier, known=cpus))
        named[identifier] = replace(named[identifier], aliases=(*named[identifier].aliases, entry.key))
    return named


def read_efficiencies(files: Iterable[Path]) -> list[Efficiency]:
    """Return the fitted efficiencies, in the order of the files."""
    return [read_efficiency(root) for root in _roots(files)]


def read_efficiency(root: Node) -> Efficiency:
    """Return the fitted efficiency in a document; raise `ProfileError` if it is invalid."""
    efficiency = read_record(Efficiency, root, zero_allowed=_MAY_BE_ZERO)
    if ANY not in efficiency.families:
        hint = "add one: it is used for every family without an entry"
        raise root["families"].error(f"no entry {ANY!r}", hint=hint)
    return efficiency


def read_measured_instances(file: Path) -> dict[tuple[str, str], MeasuredInstance]:
    """Return the measured instances in SpareCores' file, by (provider, type)."""
    return {
        (provider.key, instance.key): read_record(MeasuredInstance, instance)
        for provider in _entries(file)
        for instance in provider.entries()
    }


def read_billing_rules(file: Path) -> dict[str, BillingRule]:
    """Return the billing rule of each provider; raise `ProfileError` at the first invalid value."""
    return {entry.key: read_record(BillingRule, entry, zero_allowed=("minimum_s",)) for entry in _entries(file)}


def read_price_errors(file: Path) -> PriceErrors:
    """Return the errors of listed prices; raise `ProfileError` at the first invalid value."""
    (root,) = _roots([file])
    root.check_keys([field.name for field in fields(PriceErrors)])

    def read(node: Node) -> PriceSpread:
        return read_record(PriceSpread, node, zero_allowed=("log_spread", "n"))

    return PriceErrors(
        drift={entry.key: read(entry) for entry in root.get("drift", {}).entries()},
        listing={entry.key: read(entry) for entry in root.get("listing", {}).entries()},
        trusted=read(root["trusted"]) if "trusted" in root else None,
    )


def read_price_sources(file: Path) -> dict[str, PriceSource]:
    """Return where each provider publishes its prices."""
    return {entry.key: read_record(PriceSource, entry) for entry in _entries(file)}


def read_start_ups(file: Path) -> dict[str, StartUp]:
    """Return the start-up times of each cloud, from SpareCores' file."""
    return {entry.key: read_record(StartUp, entry) for entry in _entries(file)}


def read_extra_costs(file: Path) -> ExtraCosts:
    """Return the prices of disks and egress, and the size of the packages for GPUs."""
    (root,) = _roots([file])
    return read_record(ExtraCosts, root, zero_allowed=("usd_per_month", "usd_per_tb", "free_bytes"))


def _roots(files: Iterable[Path]) -> Iterator[Node]:
    return (document.root for file in files for document in read_documents(file))


def _entries(file: Path | None) -> Iterator[Node]:
    """Yield the values at the top of a file."""
    return (entry for root in _roots([file] if file else []) for entry in root.entries())


def _refuse_repeated(identifier: str, *, among: Mapping[str, object], root: Node) -> None:
    if identifier in among:
        raise root["id"].error(f"{identifier!r} is already the id of another file", hint="use a different id")
