"""Finds the profiled CPUs that are most similar to a CPU without a profile, or to one whose profile is incomplete."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from statistics import median

from advisor.records.device import Cpu

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
