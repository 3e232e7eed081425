"""Small /proc and /sys trees in a folder, as the kernel has them."""

from pathlib import Path

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7763 64-Core Processor
flags\t\t: fpu sse4_2 fma avx avx2 {flags}

processor\t: 1
model name\t: another
"""


def write(root: Path, **files: str) -> Path:
    """Write files whose names have "__" for "/": `proc__meminfo`."""
    for name, text in files.items():
        put(root, name.replace("__", "/"), text)
    return root


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def put_siblings(root: Path, *groups: tuple[int, ...]) -> None:
    """CPUs that share a core."""
    for group in groups:
        for cpu in group:
            listed = ",".join(map(str, group))
            put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", listed)


def put_cache(
    root: Path, cpu: int, *, level: int, kib: int, shared: str, kind: str = "Unified", index: int = 2
) -> None:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
    put(root, f"{folder}/level", str(level))
    put(root, f"{folder}/size", f"{kib}K")
    put(root, f"{folder}/shared_cpu_list", shared)
