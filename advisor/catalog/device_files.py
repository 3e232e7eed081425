"""Reads device and efficiency files, and adds SpareCores' measurements to the built-in devices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.catalog.fields import read_mapping, read_record, read_text
from advisor.catalog.strict_yaml import Document, did_you_mean, read_documents
from advisor.records.device import ANY, Cpu, Efficiency, Gpu


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
    for document in _documents(files):
        gpu = read_record(Gpu, document, (), document.values)
        _refuse_repeated(gpu.id, among=gpus, document=document)
        gpus[gpu.id] = gpu
    for document in read_documents(measured) if measured else ():
        for identifier, values in read_mapping(document, (), document.values).items():
            if identifier not in gpus:
                raise document.error((identifier,), "unknown GPU", hint=did_you_mean(identifier, known=gpus))
            seen = read_record(MeasuredGpu, document, (identifier,), values)
            gpu = gpus[identifier]
            gpus[identifier] = replace(
                gpu,
                memory_bytes=seen.visible_memory_bytes or gpu.memory_bytes,
                tdp_w=seen.power_limit_w or gpu.tdp_w,
                host_to_device_bytes_per_s=seen.host_to_device_bytes_per_s or gpu.host_to_device_bytes_per_s,
            )
    return gpus


def read_cpus(files: Iterable[Path], *, measured: Path | None) -> dict[str, Cpu]:
    """Return CPUs by id; keys missing in a CPU's own file are taken from SpareCores' file `measured`."""
    measured_cpus: Mapping[str, Any] = {}
    for document in read_documents(measured) if measured else ():
        measured_cpus = read_mapping(document, (), document.values)
    cpus: dict[str, Cpu] = {}
    for document in _documents(files):
        values = read_mapping(document, (), document.values)
        seen = measured_cpus.get(str(values.get("id")), {})
        cpu = read_record(Cpu, document, (), {**seen, **values})
        _refuse_repeated(cpu.id, among=cpus, document=document)
        cpus[cpu.id] = replace(cpu, source=f"{cpu.source}; SpareCores (CC BY-SA 4.0)") if seen else cpu
    return cpus


def with_reported_names(cpus: Mapping[str, Cpu], *, file: Path) -> dict[str, Cpu]:
    """Return the CPUs with the names that `lscpu` reports as further aliases, from a file `reported name: id`."""
    named = dict(cpus)
    for document in read_documents(file):
        for name, value in read_mapping(document, (), document.values).items():
            identifier = read_text(document, (name,), value)
            if identifier not in cpus:
                message = f"no profile describes {identifier!r}"
                raise document.error((name,), message, hint=did_you_mean(identifier, known=cpus))
            named[identifier] = replace(named[identifier], aliases=(*named[identifier].aliases, name))
    return named


def read_efficiencies(files: Iterable[Path]) -> list[Efficiency]:
    """Return the fitted efficiencies, in the order of the files."""
    return [read_efficiency(document) for document in _documents(files)]


def read_efficiency(document: Document) -> Efficiency:
    """Return the fitted efficiency in a document; raise `ProfileError` if it is invalid."""
    zero_allowed = (
        "n",
        "log_spread",
        "device_log_spread",
        "workload_log_spread",
        "overlap_ratio",
        "dispatch_s",
        "launch_s",
    )
    efficiency = read_record(Efficiency, document, (), document.values, zero_allowed=zero_allowed)
    if ANY not in efficiency.families:
        hint = "add one: it is used for every family without an entry"
        raise document.error(("families",), f"no entry {ANY!r}", hint=hint)
    return efficiency


def read_measured_instances(file: Path) -> dict[tuple[str, str], MeasuredInstance]:
    """Return the measured instances in SpareCores' file, by (provider, type)."""
    return {
        (provider, name): read_record(MeasuredInstance, document, (provider, name), values)
        for document in read_documents(file)
        for provider, types in read_mapping(document, (), document.values).items()
        for name, values in read_mapping(document, (provider,), types).items()
    }


def _documents(files: Iterable[Path]) -> Iterable[Document]:
    return (document for file in files for document in read_documents(file))


def _refuse_repeated(identifier: str, *, among: Mapping[str, object], document: Document) -> None:
    if identifier in among:
        raise document.error(("id",), f"{identifier!r} is already the id of another file", hint="use a different id")
