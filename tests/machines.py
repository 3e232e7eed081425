"""Machines made by hand, so that no test depends on the one it runs on."""

from typing import Any

from advisor.records.machine import LocalGpu, Machine

ZEN_3_ISA = ("sse4_2", "avx", "avx2", "fma")


def machine(**changes: Any) -> Machine:
    """Eight cores of an AMD EPYC 7763, a CPU with a profile, and no GPU."""
    values: dict[str, Any] = {
        "cpu_name": "AMD EPYC 7763 64-Core Processor",
        "cpu_signature": "AuthenticAMD 25 1",
        "isa": ZEN_3_ISA,
        "core_count": 8.0,
        "thread_count": 16,
        "base_hz": None,
        "boost_hz": None,
        "l2_bytes": 4 * 2**20,
        "l3_bytes": 32 * 2**20,
        "memory_bytes": 32e9,
        "is_virtual": False,
        "gpus": (),
        "notes": (),
    }
    return Machine(**(values | changes))


def gpu(name: str, **changes: Any) -> LocalGpu:
    return LocalGpu(**({"id": "cuda:0", "name": name} | changes))
