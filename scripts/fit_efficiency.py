"""Fit the first efficiencies from measured operators: tables of times in, profiles/efficiency/*.yaml out.

`python scripts/fit_efficiency.py --data ../shared/data --out profiles/efficiency`

Sources: NeuSight's operators (fp32: P4, P100, T4, V100, A100), Vidur's (fp16: A40, A100), our own on one CPU. A ratio is the
median, over operators that one resource clearly bounds, of the time at the full peak or bandwidth over the measured time.
"""

import argparse
import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from advisor.predict.roofline import smooth_maximum

DATE = "2026-11-21"
CPU_ROWS = Path("tests/data/measured/own/cpu_ops.csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Published figures of a device that was measured: profiles/devices/gpu."""

    name: str
    generation: str
    peak_flops_per_s: float
    memory_bytes_per_s: float


NEUSIGHT = {
    "Tesla P4": Hardware(name="P4", generation="Pascal", peak_flops_per_s=5.7e12, memory_bytes_per_s=192e9),
    "Tesla P100-PCIE-16GB": Hardware(
        name="P100", generation="Pascal", peak_flops_per_s=9.53e12, memory_bytes_per_s=732e9
    ),
    "Tesla V100-PCIE-32GB": Hardware(
        name="V100", generation="Volta", peak_flops_per_s=14.13e12, memory_bytes_per_s=897e9
    ),
    "Tesla T4": Hardware(name="T4", generation="Turing", peak_flops_per_s=8.14e12, memory_bytes_per_s=320e9),
    "NVIDIA A100-PCIE-40GB": Hardware(
        name="A100-40GB", generation="Ampere", peak_flops_per_s=19.49e12, memory_bytes_per_s=1555e9
    ),
    "NVIDIA A100 80GB PCIe": Hardware(
        name="A100-80GB", generation="Ampere", peak_flops_per_s=19.49e12, memory_bytes_per_s=1935e9
    ),
}
VIDUR = {
    "a40": Hardware(name="A40", generation="Ampere", peak_flops_per_s=149.7e12, memory_bytes_per_s=696e9),
    "a100": Hardware(name="A100-80GB", generation="Ampere", peak_flops_per_s=311.9e12, memory_bytes_per_s=2039e9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One measured operator call; its family, and its time with nothing but the peak or the bandwidth to limit it."""

    hardware: Hardware
    family: str
    compute_s: float
    memory_s: float
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One entry of `families` in an efficiency file."""

    compute_ratio: float
    memory_ratio: float
    log_spread: float
    n: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One efficiency file."""

    name: str
    comment: str
    kind: str
    vendor: str
    generation: str
    precision: str
    dispatch_s: float
    launch_s: float
    device_log_spread: float
    overlap_ratio: float
    fitted_on: Sequence[str]
    source: str
    families: Mapping[str, Family] = field(default_factory=dict)


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file, compressed or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        yield from csv.DictReader(lines)


def operator(hardware: Hardware, family: str, *, flops: float, moved_bytes: float, measured_s: float) -> Operator:
    """An operator with its ideal times on that hardware."""
    return Operator(
        hardware=hardware,
        family=family,
        compute_s=flops / hardware.peak_flops_per_s,
        memory_s=moved_bytes / hardware.memory_bytes_per_s,
        measured_s=measured_s,
    )


NEUSIGHT_VECTOR_READS = {"add": 2, "div": 2, "mul": 2, "pow": 2}
NEUSIGHT_VECTOR_FAMILIES = {"ln": "norm", "softmax": "softmax"}


def neusight_operators(folder: Path) -> Iterator[Operator]:
    """NeuSight's fp32 operators, each timed alone with a synchronisation.

    That adds some 25 to 50 us; only operators six times as long as the shortest of their kind on the device are kept.
    """
    by_kind: dict[tuple[str, str], list[Operator]] = {}
    for row in rows_of(folder / "ops_matmul.csv.gz"):
        batch, m, n, k = (float(row[key]) for key in ("B", "M", "N", "K"))
        weight = k * n * (batch if row["op"] == "bmm" else 1)
        one = operator(
            NEUSIGHT[row["device"]],
            "matmul",
            flops=2 * batch * m * n * k,
            moved_bytes=4 * (batch * m * k + weight + batch * m * n),
            measured_s=float(row["latency_ms"]) * 1e-3,
        )
        by_kind.setdefault((row["device"], row["op"]), []).append(one)
    for row in rows_of(folder / "ops_conv.csv.gz"):
        batch, c_in, c_out, kernel, size, stride, padding = (
            float(row[key])
            for key in ("B", "Input_Channel", "Output_Channel", "Kernel_Size", "Input_Size", "Stride", "Padding")
        )
        out = (size + 2 * padding - kernel) // stride + 1
        one = operator(
            NEUSIGHT[row["device"]],
            "conv",
            flops=2 * batch * c_out * out**2 * c_in * kernel**2,
            moved_bytes=4 * (batch * c_in * size**2 + c_out * c_in * kernel**2 + batch * c_out * out**2),
            measured_s=float(row["latency_ms"]) * 1e-3,
        )
        by_kind.setdefault((row["device"], "conv"), []).append(one)
    for row in rows_of(folder / "ops_vector.csv.gz"):
        elements = float(row["B"]) * float(row["H"])
        one = operator(
            NEUSIGHT[row["device"]],
            NEUSIGHT_VECTOR_FAMILIES.get(row["op"], "pointwise"),
            flops=elements,
            moved_bytes=4 * elements * (NEUSIGHT_VECTOR_READS.get(row["op"], 1) + 1),
            measured_s=float(row["latency_ms"]) * 1e-3,
        )
        by_kind.setdefault((row["device"], row["op"]), []).append(one)
    for operators in by_kind.values():
        shortest_s = min(one.measured_s for one in operators)
        yield from (one for one in operators if one.measured_s > 6 * shortest_s)


def neusight_dispatch_s(folder: Path) -> float:
    """Median over the devices of the time that the smallest additions take: all of it is the host's."""
    by_device: dict[str, list[float]] = {}
    for row in rows_of(folder / "ops_vector.csv.gz"):
        if row["op"] == "add":
            by_device.setdefault(row["device"], []).append(float(row["latency_ms"]) * 1e-3)
    return float(np.median([np.quantile(times, 0.05) for times in by_device.values()]))


def vidur_operators(path: Path) -> Iterator[Operator]:
    """Vidur's fp16 operators of language models, kernel times; those above 20 us, five times its clock's error."""
    for row in rows_of(path):
        hardware = VIDUR[row["gpu"]]
        for family, column, flops, elements in vidur_work(row):
            measured_s = float(row[column]) * 1e-3
            if measured_s > 20e-6:
                yield operator(hardware, family, flops=flops, moved_bytes=2 * elements, measured_s=measured_s)


def vidur_work(row: Mapping[str, str]) -> Iterator[tuple[str, str, float, float]]:
    """Family, column, FLOP and moved elements of each operator in the row; tensor parallelism splits the widths."""
    tokens, width, inner, split = (
        float(row[key]) for key in ("num_tokens", "n_embd", "n_expanded_embd", "num_tensor_parallel_workers")
    )
    heads, kv_heads = float(row["n_head"]), float(row["n_kv_head"])
    inner /= split
    up = inner * (2 if row["use_gated_mlp"] == "True" else 1)
    qkv = width / heads * (heads + 2 * kv_heads) / split
    for column, k, n in (
        ("attn_pre_proj_ms", width, qkv),
        ("attn_post_proj_ms", width / split, width),
        ("mlp_up_proj_ms", width, up),
        ("mlp_down_proj_ms", inner, width),
    ):
        yield "matmul", column, 2 * tokens * k * n, tokens * k + k * n + tokens * n
    yield "norm", "input_layernorm_ms", tokens * width, 2 * tokens * width
    yield "pointwise", "add_ms", tokens * width, 3 * tokens * width
    yield "pointwise", "mlp_act_ms", tokens * inner, tokens * (up + inner)


def vidur_launch_s(path: Path) -> float:
    """Kernel time of the smallest activations and additions, which move next to nothing."""
    times = [float(row[column]) * 1e-3 for row in rows_of(path) for column in ("add_ms", "mlp_act_ms")]
    return float(np.quantile(times, 0.01))


def fit_family(operators: Sequence[Operator], *, overlap_ratio: float, source: str) -> Family:
    """Medians over the operators that compute or memory clearly bounds, and the spread of what is left."""
    compute_s = np.array([one.compute_s for one in operators])
    memory_s = np.array([one.memory_s for one in operators])
    measured_s = np.array([one.measured_s for one in operators])
    compute_ratio = bounded_ratio(compute_s, measured_s, compute_s > 4 * memory_s)
    memory_ratio = bounded_ratio(memory_s, measured_s, memory_s > 4 * compute_s)
    predicted_s = smooth_maximum(compute_s / compute_ratio, memory_s / memory_ratio, overlap=overlap_ratio)
    return Family(
        compute_ratio=compute_ratio,
        memory_ratio=memory_ratio,
        log_spread=spread_of_sums(measured_s, predicted_s),
        n=len(operators),
        source=source,
    )


def bounded_ratio(ideal_s: np.ndarray, measured_s: np.ndarray, chosen: np.ndarray) -> float:
    """The median share that the chosen operators reach, at most 1; where there are fewer than 20, nothing bounds: 1."""
    if chosen.sum() < 20:
        return 1.0
    return min(1.0, float(np.median(ideal_s[chosen] / measured_s[chosen])))


OPERATORS_PER_NET = 20
"""Distinct operators of one family in a usual net; their single errors average out."""


def spread_of_sums(measured_s: np.ndarray, predicted_s: np.ndarray) -> float:
    """Root mean square of log(measured / predicted) over sums of 20 operators drawn at random, each with equal weight."""
    draws = np.random.default_rng(0).integers(len(measured_s), size=(2000, OPERATORS_PER_NET))
    relative = (measured_s / predicted_s)[draws].mean(axis=1)
    return float(np.sqrt(np.mean(np.log(relative) ** 2)))


def device_spread(operators: Sequence[Operator], families: Mapping[str, Family]) -> float:
    """Standard deviation, over devices, of the mean over families of a device's median log(measured / ratio's)."""
    offsets = []
    for name in sorted({one.hardware.name for one in operators}):
        medians = []
        for family, fit in families.items():
            logs = [
                np.log(one.measured_s / max(one.compute_s / fit.compute_ratio, one.memory_s / fit.memory_ratio))
                for one in operators
                if one.hardware.name == name and one.family == family
            ]
            if len(logs) >= 20:
                medians.append(float(np.median(logs)))
        if medians:
            offsets.append(float(np.mean(medians)))
    return float(np.std(offsets, ddof=1))


def fit_overlap(operators: Sequence[Operator]) -> float:
    """The overlap that leaves the least median error over matrix products that neither resource clearly bounds."""
    products = [one for one in operators if one.family == "matmul"]
    fit = fit_family(products, overlap_ratio=1.0, source="")
    compute_s = np.array([one.compute_s for one in products]) / fit.compute_ratio
    memory_s = np.array([one.memory_s for one in products]) / fit.memory_ratio
    measured_s = np.array([one.measured_s for one in products])
    between = (compute_s < 4 * memory_s) & (memory_s < 4 * compute_s)
    candidates = np.arange(0.0, 1.01, 0.05)
    errors = [
        np.median(np.abs(np.log(measured_s / smooth_maximum(compute_s, memory_s, overlap=overlap)))[between])
        for overlap in candidates
    ]
    return float(candidates[int(np.argmin(errors))])


def by_family(operators: Iterable[Operator]) -> dict[str, list[Operator]]:
    """The operators of each family."""
    families: dict[str, list[Operator]] = {}
    for one in operators:
        families.setdefault(one.family, []).append(one)
    return families


NEIGHBOURS = {
    "conv": "matmul", "attention": "matmul", "rnn": "matmul", "softmax": "norm", "reduction": "norm", "loss": "softmax",
    "*": "pointwise",
}  # fmt: skip
"""The measured family that stands in for one without data; "*" is every family not listed."""


def with_neighbours(measured: Mapping[str, Family]) -> dict[str, Family]:
    """The measured families and those that borrow from a neighbour, which their source says."""
    families = dict(measured)
    for name, neighbour in NEIGHBOURS.items():
        if name not in families:
            lender = families[neighbour]
            families[name] = Family(
                compute_ratio=lender.compute_ratio,
                memory_ratio=lender.memory_ratio,
                log_spread=lender.log_spread,
                n=0,
                source=f"as {neighbour}",
            )
    return families


def gpu_fits(data: Path) -> Iterator[Fit]:
    """Efficiencies of GPUs: fp32 by generation and for any, half (and TF32) for Ampere and for any."""
    neusight, vidur = data / "measured/neusight", data / "measured/vidur_mlp_ops_fp16.csv.gz"
    fp32, half = list(neusight_operators(neusight)), list(vidur_operators(vidur))
    dispatch_s, launch_s = neusight_dispatch_s(neusight), vidur_launch_s(vidur)
    overlap_ratio = fit_overlap(fp32)

    def fit(name: str, comment: str, operators: Sequence[Operator], *, generation: str, precision: str) -> Fit:
        is_fp32 = precision == "fp32"
        label = "NeuSight operators, fp32" if is_fp32 else "Vidur operators, fp16"
        families = {
            family: fit_family(members, overlap_ratio=overlap_ratio, source=label)
            for family, members in by_family(operators).items()
            if len(members) >= 20
        }
        return Fit(
            name=name,
            comment=comment,
            kind="gpu",
            vendor="*",
            generation=generation,
            precision=precision,
            dispatch_s=dispatch_s,
            launch_s=launch_s,
            device_log_spread=spread_within if generation != "*" else spread_between,
            overlap_ratio=overlap_ratio,
            fitted_on=sorted({one.hardware.name for one in operators}),
            source=(
                f"{label}; dispatch: NeuSight's smallest additions; launch: Vidur's smallest kernels; device spread: "
                + ("A40 against A100" if generation != "*" else "P4, P100, V100, T4, A100")
            ),
            families=with_neighbours(families),
        )

    all_families = {
        family: fit_family(members, overlap_ratio=overlap_ratio, source="") for family, members in by_family(fp32).items()
    }
    half_families = {
        family: fit_family(members, overlap_ratio=overlap_ratio, source="") for family, members in by_family(half).items()
    }
    spread_between = device_spread(fp32, all_families)
    spread_within = device_spread(half, half_families)
    for generation in ("Pascal", "Volta", "Turing", "Ampere"):
        members = [one for one in fp32 if one.hardware.generation == generation]
        yield fit(
            f"gpu-{generation.lower()}-fp32", f"{generation} in fp32", members, generation=generation, precision="fp32"
        )
    yield fit("gpu-any-fp32", "A GPU of any other generation in fp32", fp32, generation="*", precision="fp32")
    yield fit("gpu-ampere-any", "Ampere on tensor cores", half, generation="Ampere", precision="*")
    yield fit("gpu-any-any", "A GPU of any other generation on tensor cores", half, generation="*", precision="*")


def number(value: float) -> str:
    """Three significant digits, never in a form that YAML reads as text."""
    text = f"{value:.3g}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+03d}" if exponent else text


def yaml_of(fit: Fit) -> str:
    """The efficiency file, one line per family."""
    lines = [
        f"# {fit.comment}: what operators sustain of peak and bandwidth.",
        "# Written by scripts/fit_efficiency.py; ratios are medians, spreads are of log(measured / predicted).",
        f"kind: {fit.kind}",
        f'vendor: "{fit.vendor}"',
        f'generation: "{fit.generation}"',
        f'precision: "{fit.precision}"',
        f"dispatch_s: {number(fit.dispatch_s)}",
        f"launch_s: {number(fit.launch_s)}",
        f"device_log_spread: {number(fit.device_log_spread)}",
        f"overlap_ratio: {number(fit.overlap_ratio)}",
        f"fitted_on: [{', '.join(fit.fitted_on)}]",
        f"date: {DATE}",
        f'source: "{fit.source}"',
        "families:",
    ]
    for name, family in fit.families.items():
        key = f'"{name}"' if name == "*" else name
        values = (
            f"compute_ratio: {number(family.compute_ratio)}",
            f"memory_ratio: {number(family.memory_ratio)}",
            f"log_spread: {number(family.log_spread)}",
            f"n: {family.n}",
            f'source: "{family.source}"',
        )
        lines.append(f"  {key}: {{{', '.join(values)}}}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every efficiency file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/")
    parser.add_argument("--out", type=Path, required=True, help="folder for the efficiency files")
    arguments = parser.parse_args()
    for fit in gpu_fits(arguments.data):
        (arguments.out / f"{fit.name}.yaml").write_text(yaml_of(fit))
        print(f"{fit.name}: {sum(family.n for family in fit.families.values())} operators")


if __name__ == "__main__":
    main()
