"""Finds a device or an exchange rate by a name that a person, a datasheet or torch uses, and the relatives of a CPU."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from statistics import median

from advisor.errors import UsageError
from advisor.records.device import Cpu, Gpu
from advisor.records.machine import LOCAL
from advisor.records.price import Catalog, ExchangeRate

_OTHER_DEVICES = ("cpu", "gpu", LOCAL)
"""The values of `--device` other than names of devices."""

_BRANDS = ("nvidia", "amd", "intel", "aws", "apple", "tesla", "geforce", "instinct", "radeon")
"""Optional words in names: torch reports "NVIDIA A100-SXM4-40GB" and "Tesla T4"."""

_LEADING_BRANDS = re.compile(rf"^(?:{'|'.join(_BRANDS)})+")

_DECORATION = re.compile(
    r"\((?:R|TM)\)|^\d+th Gen |\bCPU\b|@ [\d.]+ ?GHz$|\b\d+-Cores?\b|\bProcessor$", flags=re.IGNORECASE
)
"""Parts of the kernel's CPU names other than the model: "12th Gen Intel(R) Core(TM) i7-12700H"."""


_HERE = re.compile(r"cpu|mps|cuda(:\d+)?|xpu(:\d+)?")
"""torch's names of devices of this machine."""
_NOT_PREDICTED: Mapping[str, str] = {
    r"tpu|trillium|^v[56][ep]$": "no published step says what XLA's programs reach on Google's TPUs",
    r"gaudi|habana|hpu": "the published speeds of Intel's Gaudi are lower limits of unknown software",
    r"^arc|xpu|battlemage|alchemist": "too few steps on Intel's GPUs are published to know an interval",
    r"trainium[23]|trn[23]": "no step on one core of Trainium 2 or 3 is published; trainium1-core is predicted",
    r"inferentia1|inf1": "Inferentia 1 has another core than Inferentia2; inferentia2-core is predicted",
}
"""Why an accelerator has no profile, by what its normalized name contains."""
_NOT_PREDICTED_HINT = (
    "`--device gpu` ranks all GPUs on offer. With steps that you timed, write a profile and run `advise fit-device`: "
    "docs/accelerators.md, what is not predicted"
)

_BRACKETS = re.compile(r"[()]")
_MEMORY_WORD = re.compile(r"\b(\d+)GB\b")
_SIZE_OR_BUS = re.compile(r"\b(\d+GB|PCIe|SXM\d?)(?=\s|$)", flags=re.IGNORECASE)
_MEMORY_MISMATCH_RATIO = 0.15
"""Names of one card differ by up to 10 % (a B300 of 288 GB is sold as 262); different cards differ by 2x."""
_KEPT_NAMES = 4096
"""Names to keep in normalized form: the shipped profiles have 600, and every lookup compares with all of them."""


_NAMES: tuple[Callable[[Gpu | Cpu], tuple[str, ...]], ...] = (
    lambda device: (device.id,), lambda device: (device.name,), lambda device: device.aliases
)  # fmt: skip
"""An id wins over a name, and a name over an alias: "A100" is the alias of one card."""


def find_device(catalog: Catalog, name: str) -> Gpu | Cpu:
    """Return the device with this id, name or alias, as written by people, torch or /proc/cpuinfo.

    Ignore case and punctuation. Raise `UsageError` with the closest names if there is none.
    """
    found = _named_device(catalog, name)
    if found is None:
        raise _unknown_device_error(catalog, name)
    return found


def find_devices(catalog: Catalog, name: str) -> tuple[Gpu | Cpu, ...]:
    """Return the device with this id or name, else all devices whose id has all words of `name` ("A100": four cards).

    Look up aliases last. Raise `UsageError` with the closest names if there is none.
    """
    found = _named_devices(catalog, name)
    if not found:
        raise _unknown_device_error(catalog, name)
    return found


def _named_device(catalog: Catalog, name: str) -> Gpu | Cpu | None:
    devices = _devices(catalog)
    # Unchanged first: GCP's "Intel(R) Xeon(R) CPU @ 2.20GHz" consists of decoration only.
    for wanted in dict.fromkeys((_plain(name), _plain(_DECORATION.sub("", name)))):
        for names_of in _NAMES:
            for device in devices:
                if wanted in map(_plain, names_of(device)):
                    return device
    return None


def _named_devices(catalog: Catalog, name: str) -> tuple[Gpu | Cpu, ...]:
    devices, plain, words = _devices(catalog), _plain(name), _words(name)
    exact = [device for device in devices if plain in (_plain(device.id), _plain(device.name))]
    alike = [device for device in devices if words and words <= _words(device.id)]
    # "A100" means whole cards, "A100 1g.10gb" parts of them.
    found = exact or [device for device in alike if not _is_part(device)] or alike
    if not found and (named := _named_device(catalog, name)):
        found = [named]
    return tuple(found)


def _is_part(device: Gpu | Cpu) -> bool:
    return isinstance(device, Gpu) and device.part_of is not None


def _unknown_device_error(catalog: Catalog, name: str) -> UsageError:
    if _HERE.fullmatch(name.casefold()):
        return UsageError(f"{name!r} is a device of a machine, not of an offer", hint=f"this machine is called {LOCAL}")
    why = next((why for start, why in _NOT_PREDICTED.items() if re.search(start, _plain(name))), None)
    if why is not None:
        return UsageError(f"no profile describes the device {name!r}: {why}", hint=_NOT_PREDICTED_HINT)
    known = {_plain(known): device.id for device in _devices(catalog) for known in (device.id, device.name)}
    close = dict.fromkeys(known[match] for match in get_close_matches(_plain(name), known, n=3, cutoff=0.7))
    hint = f"did you mean {', '.join(close)}?" if close else "`advise devices --all` lists all that can be named"
    return UsageError(f"no profile describes the device {name!r}", hint=hint)


def _devices(catalog: Catalog) -> list[Gpu | Cpu]:
    return [*catalog.gpus.values(), *catalog.cpus.values()]


def find_rented_gpu(catalog: Catalog, name: str, *, memory_gib: float | None = None) -> Gpu | None:
    """Return the GPU that a provider means by `name` and memory, as in "A100 (40 GB SXM4)"; None if it is ambiguous.

    A memory size in the name counts like `memory_gib`. If several GPUs match, return the one that has the bare name as
    an alias.
    """
    plain = " ".join(_BRACKETS.sub(" ", name).split()).replace(" GB", "GB")
    in_name = _MEMORY_WORD.search(plain)
    memory_gib = memory_gib or (float(in_name[1]) if in_name else None)
    # Drop size and bus only if nothing matches the whole name, as in "A10 24GB PCIe".
    for wanted in (plain, " ".join(_SIZE_OR_BUS.sub(" ", plain).split())):
        devices = _named_devices(catalog, wanted)
        if not devices:
            continue
        found = [device for device in devices if isinstance(device, Gpu)]
        if memory_gib is not None:
            found = [gpu for gpu in found if abs(gpu.memory_bytes / 2**30 / memory_gib - 1) < _MEMORY_MISMATCH_RATIO]
        by_alias = [gpu for gpu in found if _plain(wanted) in map(_plain, gpu.aliases)]
        return next((candidates[0] for candidates in (found, by_alias) if len(candidates) == 1), None)
    return None


def exchange_rate_of(catalog: Catalog, currency: str) -> ExchangeRate | None:
    """Return the exchange rate from the overlays, or None for the dollar; raise `UsageError` if there is none."""
    if currency.upper() == "USD":
        return None
    for rate in catalog.exchange_rates:
        if rate.currency == currency.upper():
            return rate
    raise UsageError(
        f"--currency {currency}: no overlay has its exchange rate",
        hint=f"add `exchange_rates: {{{currency.upper()}: {{usd: ..., date: ...}}}}` to ./advisor.yaml",
    )


def overlay_notes(catalog: Catalog) -> tuple[str, ...]:
    """Return a note for each of the user's own files in force."""
    return tuple(f"overlay in force: {path}" for path in catalog.overlays)


def device_ids(catalog: Catalog, names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the devices that the names match; `cpu`, `gpu` and `local` are kept."""
    found: list[str] = []
    for name in names:
        try:
            found += [name] if name in _OTHER_DEVICES else [device.id for device in find_devices(catalog, name)]
        except UsageError as error:
            unknown = UsageError(f"--device {name}: {error.message}", hint=error.hint)
            raise _instance_error(catalog, name) or unknown from None
    return tuple(found)


def _instance_error(catalog: Catalog, name: str) -> UsageError | None:
    """Return an error for the name of an instance type used as a device, or None if it is not such a name."""
    wanted = name.casefold()
    offer = next((one for one in catalog.offers if wanted in (one.instance.casefold(), one.id.casefold())), None)
    if offer is None:
        return None
    device = offer.gpu or offer.cpu
    return UsageError(
        f"--device {name}: this is an instance type of {offer.provider}, and its device is {device}",
        hint=f"--device {device} ranks every instance with it; `advise explain SOURCE --on {offer.instance}` explains "
        "this one",
    )


@lru_cache(_KEPT_NAMES)
def _plain(name: str) -> str:
    """Return the normalized name: `NVIDIA GeForce RTX 3090`, `rtx-3090` and `GeForceRTX3090` all become rtx3090."""
    return _LEADING_BRANDS.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))


@lru_cache(_KEPT_NAMES)
def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower())) - frozenset(_BRANDS)


_GENERATIONS: Mapping[str, str] = {
    "AuthenticAMD 23 49": "Zen 2 Rome", "AuthenticAMD 23 113": "Zen 2 Matisse",
    "AuthenticAMD 25 1": "Zen 3 Milan", "AuthenticAMD 25 8": "Zen 3 Chagall", "AuthenticAMD 25 33": "Zen 3 Vermeer",
    "AuthenticAMD 25 17": "Zen 4 Genoa", "AuthenticAMD 25 24": "Zen 4 Storm Peak",
    "AuthenticAMD 25 97": "Zen 4 Raphael", "AuthenticAMD 25 160": "Zen 4c Bergamo",
    "AuthenticAMD 26 2": "Zen 5 Turin", "AuthenticAMD 26 17": "Zen 5c Turin Dense",
    "AuthenticAMD 26 68": "Zen 5 Granite Ridge",
    "GenuineIntel 6 79": "Broadwell",
    "GenuineIntel 6 106": "Ice Lake-SP", "GenuineIntel 6 143": "Sapphire Rapids",
    "GenuineIntel 6 207": "Emerald Rapids", "GenuineIntel 6 173": "Granite Rapids",
    "GenuineIntel 6 158": "Coffee Lake", "GenuineIntel 6 165": "Comet Lake", "GenuineIntel 6 167": "Rocket Lake",
    "GenuineIntel 6 151": "Alder Lake", "GenuineIntel 6 154": "Alder Lake",
    "GenuineIntel 6 183": "Raptor Lake", "GenuineIntel 6 186": "Raptor Lake",
    "0x41 0xd0c": "Neoverse N1", "0x41 0xd49": "Neoverse N2",
    "0x41 0xd40": "Neoverse V1", "0x41 0xd4f": "Neoverse V2",
}  # fmt: skip
"""Generation by CPUID or MIDR, from the Linux kernel's intel-family.h and cputype.h and AMD's revision guides."""
_SKYLAKE_SERVER = "GenuineIntel 6 85"
"""Two generations share this signature; only the second has AVX512-VNNI."""
_VENDORS: Mapping[str, str] = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
_WIDEST_FIRST = ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "sve", "asimd")
"""The instruction sets that determine the FLOP per core and cycle."""
_LEAST_COUNT = 3
"""The fewest CPUs for a meaningful median and spread."""


def generation_of(signature: str | None, *, isa: Collection[str]) -> str | None:
    """Return the generation as named in profiles, or None if it is unknown."""
    if signature == _SKYLAKE_SERVER:
        return "Cascade Lake" if "avx512_vnni" in isa else "Skylake-SP"
    return _GENERATIONS.get(signature or "")


def vendor_of(signature: str | None) -> str | None:
    """Return the vendor as named in profiles, or None for an Arm core, whose signature has no vendor."""
    return _VENDORS.get((signature or "").partition(" ")[0])


def relatives_of(
    cpus: Mapping[str, Cpu], *, signature: str | None, isa: Collection[str]
) -> tuple[tuple[Cpu, ...], str]:
    """Return the CPUs most similar to one with this signature and these instruction sets, and what they share.

    These are the CPUs of its generation, or else of its vendor with the same widest instruction set, or else of any
    vendor with that set; the first group with three or more CPUs is taken. Empty if there is no such group.
    """
    generation, vendor, widest = generation_of(signature, isa=isa), vendor_of(signature), _widest(isa)
    tests: tuple[tuple[str, Callable[[Cpu], bool]], ...] = (
        (f"of the {generation} generation", lambda cpu: cpu.generation == generation),
        (f"by {vendor} with {widest}", lambda cpu: cpu.vendor == vendor and _widest(cpu.isa) == widest),
        (f"with {widest}", lambda cpu: widest is not None and _widest(cpu.isa) == widest),
    )
    for words, is_like in tests:
        found = tuple(cpu for cpu in cpus.values() if is_like(cpu))
        if len(found) >= _LEAST_COUNT:
            return found, words
    return (), ""


def with_usual_cores(cpus: Mapping[str, Cpu]) -> dict[str, Cpu]:
    """Return the CPUs, each without `cores_per_socket` with as many as share such an L3 in its generation.

    The usual L3 per core is the median over the generation, or over all CPUs if no other of it has both figures; else a
    single core would have the L3 of the whole socket.
    """
    l3_per_core = {
        cpu.id: (cpu.generation, cpu.l3_bytes / cpu.cores_per_socket)
        for cpu in cpus.values()
        if cpu.l3_bytes and cpu.cores_per_socket
    }
    completed = dict(cpus)
    for cpu in cpus.values():
        if cpu.l3_bytes and not cpu.cores_per_socket and l3_per_core:
            alike = [share for generation, share in l3_per_core.values() if generation == cpu.generation]
            usual = median(alike or [share for _, share in l3_per_core.values()])
            completed[cpu.id] = replace(cpu, cores_per_socket=math.ceil(cpu.l3_bytes / usual))
    return completed


def _widest(isa: Collection[str]) -> str | None:
    return next((name for name in _WIDEST_FIRST if name in isa), None)
