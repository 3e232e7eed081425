"""Reads devices, efficiencies and the records of other files, and adds SpareCores' measurements to our devices."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TypeVar, get_args

from advisor.catalog.fields import RecordT, read_record
from advisor.catalog.strict_yaml import Node, read_documents
from advisor.errors import ProfileError, did_you_mean
from advisor.records.calibration import Calibration, CalibrationKey
from advisor.records.device import ANY, Cpu, Efficiency, Gpu, MeasuredBandwidth
from advisor.records.energy import CpuPowers
from advisor.records.engine import Engine, EngineIsa
from advisor.records.generation import CacheFormat, WeightFormat
from advisor.records.price import Offer

DeviceT = TypeVar("DeviceT", Gpu, Cpu)
_MAY_BE_ZERO = (
    "n", "log_spread", "device_log_spread", "workload_log_spread", "overlap_ratio", "dispatch_s", "backward_dispatch_s",
    "launch_s",
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
        _add(gpu, gpus, root)
    for entry in _entries(measured):
        if entry.key not in gpus:
            raise entry.error("unknown GPU", hint=did_you_mean(entry.key, gpus))
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
        _add(replace(cpu, source=f"{cpu.source}; SpareCores (CC BY-SA 4.0)") if seen else cpu, cpus, root)
    return cpus


def with_reported_names(cpus: Mapping[str, Cpu], *, file: Path) -> dict[str, Cpu]:
    """Return the CPUs with the names that `lscpu` reports as further aliases, from a file `reported name: id`."""
    named = dict(cpus)
    for entry in _entries(file):
        identifier = entry.text()
        if identifier not in cpus:
            raise entry.error(f"no profile describes {identifier!r}", hint=did_you_mean(identifier, cpus))
        named[identifier] = replace(named[identifier], aliases=(*named[identifier].aliases, entry.key))
    return named


def with_measured_bandwidth(cpus: Mapping[str, Cpu], offers: Iterable[Offer]) -> dict[str, Cpu]:
    """Return the CPUs, each with the median bandwidth of its measured instances of each size, unless it has its own."""
    found: dict[str, dict[float, dict[tuple[str, str], float]]] = {}
    for offer in offers:
        cpu = cpus.get(offer.cpu or "")
        if offer.gpu is None and cpu and not cpu.measured and offer.vcpus and offer.measured_read_bytes_per_s:
            cores = offer.vcpus / (offer.threads_per_core or cpu.threads_per_core or 1)
            by_instance = found.setdefault(cpu.id, {}).setdefault(cores, {})
            by_instance[offer.provider, offer.instance] = offer.measured_read_bytes_per_s
    measured = {
        identifier: tuple(
            MeasuredBandwidth(cores=cores, read_bytes_per_s=median(by_instance.values()))
            for cores, by_instance in sorted(sizes.items())
        )
        for identifier, sizes in found.items()
    }
    return {cpu.id: replace(cpu, measured=measured.get(cpu.id, cpu.measured)) for cpu in cpus.values()}


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


def read_engines(files: Iterable[Path]) -> dict[str, Engine]:
    """Return the inference engines by name.

    Raises `ProfileError` for one without limits of each kind, or without costs of a GPU and of AVX2.
    """
    engines = {}
    for root in _roots(files):
        engine = read_record(Engine, root, zero_allowed=("kernel_core_s", "all_reduce_s"))
        for key, formats in (("weight_kernels", WeightFormat), ("cache_kernels", CacheFormat)):
            for entry in root[key].entries():
                for one in entry["formats"].items(hint="write [fp8, int8]"):
                    one.choice(get_args(formats))
        kinds, sets = ("cpu", "gpu", "large_gpu"), get_args(EngineIsa)
        root["limits"].check_keys(kinds, required=kinds, hint=f"give those of {', '.join(kinds)}")
        root["costs"].check_keys(sets, required=("gpu", "avx2"), hint=f"the instruction sets are {', '.join(sets)}")
        engines[engine.name] = engine
    return engines


def read_measured_instances(file: Path) -> dict[tuple[str, str], MeasuredInstance]:
    """Return the measured instances in SpareCores' file, by (provider, type)."""
    return {
        (provider.key, instance.key): read_record(MeasuredInstance, instance)
        for provider in _entries(file)
        for instance in provider.entries()
    }


def read_single(record: type[RecordT], file: Path | None, *, zero_allowed: Collection[str] = ()) -> RecordT | None:
    """Return the one record of a file, or None without a file or if all of it is commented out.

    Raises `ProfileError` at the first invalid value, and at a second document.
    """
    roots = list(_roots([file] if file else []))
    if len(roots) > 1:
        raise roots[1].error("a second document", hint="put all keys into one document, without a line `---` between")
    return read_record(record, roots[0], zero_allowed=zero_allowed) if roots else None


def read_cpu_powers(file: Path | None) -> CpuPowers | None:
    """Return the watts of servers like `read_single`; raise `ProfileError` if none are for other CPUs."""
    powers = read_single(CpuPowers, file)
    if powers is not None and ANY not in powers.cpus:
        hint = "add one: it is used for every CPU without an entry"
        raise ProfileError(f"no entry {ANY!r}", where=f"{file}: cpus", hint=hint)
    return powers


def read_by_key(record: type[RecordT], file: Path | None, *, zero_allowed: Collection[str] = ()) -> dict[str, RecordT]:
    """Return the record of each key of the file; raise `ProfileError` at the first invalid value."""
    return {entry.key: read_record(record, entry, zero_allowed=zero_allowed) for entry in _entries(file)}


def _add(device: DeviceT, devices: dict[str, DeviceT], root: Node) -> None:
    if device.id in devices:
        raise root["id"].error(f"{device.id!r} is already the id of another file", hint="use a different id")
    devices[device.id] = device


def _roots(files: Iterable[Path]) -> Iterator[Node]:
    return (document.root for file in files for document in read_documents(file))


def _entries(file: Path | None) -> Iterator[Node]:
    """Yield the values at the top of a file."""
    return (entry for root in _roots([file] if file else []) for entry in root.entries())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header(CalibrationKey):
    """The header of a calibration file: the key and the other fields."""

    at: str
    n: int
    planned_count: int
    median_ape: float
    warnings: tuple[str, ...] = ()
    host_to_device_bytes_per_s: float | None = None
    precisions: tuple[str, ...] = ()


def read_calibration(file: Path) -> Calibration:
    """Return the calibration in a file; raise `ProfileError` if it is unreadable or invalid."""
    documents = read_documents(file)
    if len(documents) < 2:
        raise ProfileError("the file has no efficiencies", where=str(file), hint="calibrate again")
    first, *others = (document.root for document in documents)
    header = read_record(_Header, first, zero_allowed=("median_ape",))
    try:
        has_zone = datetime.fromisoformat(header.at).tzinfo is not None
    except ValueError:
        raise first["at"].error(f"{header.at!r} is not a date and time", hint="calibrate again") from None
    if not has_zone:
        raise first["at"].error(f"{header.at!r} has no time zone", hint="calibrate again")
    efficiencies = tuple(read_efficiency(root) for root in others)
    found = tuple(one.precision for one in efficiencies)
    if header.precisions and found != header.precisions:
        words = f"efficiencies of {', '.join(header.precisions)} should follow, but found {', '.join(found)}"
        raise first["precisions"].error(words, hint="the file is truncated: calibrate again")
    details = {name: getattr(header, name) for name in _Header.__annotations__ if name != "precisions"}
    key = CalibrationKey(**{field.name: getattr(header, field.name) for field in fields(CalibrationKey)})
    return Calibration(key=key, **details, efficiencies=efficiencies)
