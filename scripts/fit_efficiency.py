"""Fit the first efficiencies from measured operators: tables of times in, profiles/efficiency/*.yaml out.

`python scripts/fit_efficiency.py --data ../shared/data --out profiles/efficiency`

Sources: NeuSight's operators (fp32: P4, P100, T4, V100, A100), Vidur's (fp16: A40, A100), our own on one CPU. A ratio
is the median, over operators that one resource clearly bounds, of the time at the full peak or bandwidth over the
measured time.
"""

import argparse
import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.predict.efficiency import ANY
from advisor.predict.precision import MATRIX_FAMILIES
from advisor.predict.roofline import smooth_maximum
from advisor.records.prediction import BoolArray, FloatArray

DATE = "2026-11-21"
LAYOUT_ROWS = Path("tests/data/measured/timm_layouts.csv")
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
    generation: str
    precision: str
    dispatch_s: float
    launch_s: float
    device_log_spread: float
    overlap_ratio: float
    nchw_transposed_ratio: float
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


NARROWEST = 32
"""Products narrower than this waste most of a tile on fp32 cores: they are no measure of the bandwidth."""
NEUSIGHT_VECTOR_READS = {"add": 2, "div": 2, "mul": 2, "pow": 2}
NEUSIGHT_VECTOR_FAMILIES = {"ln": "norm", "softmax": "softmax"}


def neusight_operators(folder: Path) -> Iterator[Operator]:
    """NeuSight's fp32 operators, each timed alone with a synchronisation.

    That adds some 25 to 50 us; only operators six times as long as the shortest of their kind on the device are kept.
    """
    by_kind: dict[tuple[str, str], list[Operator]] = {}
    for row in rows_of(folder / "ops_matmul.csv.gz"):
        batch, m, n, k = (float(row[key]) for key in ("B", "M", "N", "K"))
        if min(m, n, k) < NARROWEST:
            continue
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


def fit_families(
    operators: Iterable[Operator], *, overlap_ratio: float, label: str, fewest: int = 20
) -> dict[str, Family]:
    """One entry for each family with `fewest` operators; a family that memory never bounds has pointwise's share."""
    members: dict[str, list[Operator]] = {}
    for one in operators:
        members.setdefault(one.family, []).append(one)
    streamed_ratio = Times.of(members["pointwise"], fewest=fewest).memory_ratio or 1.0
    return {
        family: fit_family(
            Times.of(measured, fewest=fewest), overlap_ratio=overlap_ratio, streamed_ratio=streamed_ratio, label=label
        )
        for family, measured in members.items()
        if len(measured) >= fewest
    }


CLEARLY = 4.0
"""How many times the other resource's time a bound is that leaves no doubt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """Ideal and measured times of several operators; `fewest` of them make a median."""

    fewest: int
    devices: NDArray[np.str_]
    compute_s: FloatArray
    memory_s: FloatArray
    measured_s: FloatArray

    @classmethod
    def of(cls, operators: Sequence[Operator], *, fewest: int = 20) -> "Times":
        """The operators' times as arrays."""
        return cls(
            fewest=fewest,
            devices=np.array([one.hardware.name for one in operators]),
            compute_s=np.array([one.compute_s for one in operators]),
            memory_s=np.array([one.memory_s for one in operators]),
            measured_s=np.array([one.measured_s for one in operators]),
        )

    @property
    def compute_ratio(self) -> float | None:
        """Share of the peak, where compute clearly bounds."""
        return self._share(self.compute_s, bounds=self.compute_s > CLEARLY * self.memory_s)

    @property
    def memory_ratio(self) -> float | None:
        """Share of the bandwidth, where memory clearly bounds."""
        return self._share(self.memory_s, bounds=self.memory_s > CLEARLY * self.compute_s)

    def _share(self, ideal_s: FloatArray, *, bounds: BoolArray) -> float | None:
        if bounds.sum() < self.fewest:
            return None
        return min(1.0, float(np.median(ideal_s[bounds] / self.measured_s[bounds])))


def fit_family(times: Times, *, overlap_ratio: float, streamed_ratio: float, label: str) -> Family:
    """Medians over the operators that a resource clearly bounds, and the spread of what is left."""
    compute_ratio, memory_ratio = times.compute_ratio or 1.0, times.memory_ratio or streamed_ratio
    predicted_s = smooth_maximum(times.compute_s / compute_ratio, times.memory_s / memory_ratio, overlap=overlap_ratio)
    never = "" if times.memory_ratio else "; memory_ratio as pointwise"
    return Family(
        compute_ratio=compute_ratio,
        memory_ratio=memory_ratio,
        log_spread=spread_of_sums(times.measured_s, without_offsets(times, predicted_s)),
        n=len(times.measured_s),
        source=f"{label}{never}",
    )


OPERATORS_PER_NET = 20
"""Distinct operators of one family in a usual net; their single errors average out."""


def without_offsets(times: Times, predicted_s: FloatArray) -> FloatArray:
    """The predictions scaled to each device's own median: its offset is a term of its own in the interval."""
    scaled_s = predicted_s.copy()
    for name in np.unique(times.devices):
        own = times.devices == name
        scaled_s[own] *= np.median(times.measured_s[own] / predicted_s[own])
    return scaled_s


def spread_of_sums(measured_s: FloatArray, predicted_s: FloatArray) -> float:
    """Root mean square of log(measured / predicted) over sums of 20 operators drawn at random."""
    draws = np.random.default_rng(0).integers(len(measured_s), size=(2000, OPERATORS_PER_NET))
    logs = np.log(measured_s[draws].sum(axis=1) / predicted_s[draws].sum(axis=1))
    return float(np.sqrt(np.mean(logs**2)))


def device_spread(operators: Sequence[Operator], families: Mapping[str, Family]) -> float:
    """Standard deviation of log(measured / predicted) between devices, of their medians for products and streams."""
    logs: dict[tuple[str, str], list[float]] = {}
    for one in operators:
        if one.family in ("matmul", "pointwise"):
            fit = families[one.family]
            predicted_s = max(one.compute_s / fit.compute_ratio, one.memory_s / fit.memory_ratio)
            logs.setdefault((one.hardware.name, one.family), []).append(float(np.log(one.measured_s / predicted_s)))
    return float(np.std([np.median(members) for members in logs.values() if len(members) >= 20], ddof=1))


def fit_overlap(operators: Sequence[Operator]) -> float:
    """The overlap that leaves the least median error over matrix products that neither resource clearly bounds."""
    times = Times.of([one for one in operators if one.family == "matmul"])
    compute_s = times.compute_s / (times.compute_ratio or 1.0)
    memory_s = times.memory_s / (times.memory_ratio or 1.0)
    between = (compute_s < CLEARLY * memory_s) & (memory_s < CLEARLY * compute_s)
    candidates = np.arange(0.0, 1.01, 0.05)
    errors = [
        np.median(np.abs(np.log(times.measured_s / smooth_maximum(compute_s, memory_s, overlap=overlap)))[between])
        for overlap in candidates
    ]
    return float(candidates[int(np.argmin(errors))])


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
            families[name] = replace(families[neighbour], n=0, source=f"as {neighbour}")
    return families


RTX_3090_MEMORY_BYTES_PER_S = 936e9


def transposed_ratio(path: Path, *, memory_ratio: float) -> float:
    """Median over nets of what NCHW takes longer than NHWC, over the time to read and write all that convolutions move.

    The rows are timm's AMP inference on an RTX 3090 (`scripts/list_timm_layouts.py`).
    """
    ratios = []
    for row in rows_of(path):
        longer_s = float(row["nchw_s"]) - float(row["nhwc_s"])
        all_s = 2 * float(row["conv_bytes"]) / (RTX_3090_MEMORY_BYTES_PER_S * memory_ratio)
        ratios.append(longer_s / all_s)
    return float(np.median(ratios))


def gpu_fits(data: Path, *, layout_rows: Path) -> Iterator[Fit]:
    """Efficiencies of GPUs: in fp32 by generation and for any other, in half (and TF32) for all.

    In half, convolutions, norms and softmax are taken to sustain the same shares as in fp32: Vidur has no convolution,
    and its norms are not PyTorch's kernels.
    """
    neusight, vidur = data / "measured/neusight", data / "measured/vidur_mlp_ops_fp16.csv.gz"
    fp32, half = list(neusight_operators(neusight)), list(vidur_operators(vidur))
    overlap_ratio = fit_overlap(half)
    dispatch_s, launch_s = neusight_dispatch_s(neusight), vidur_launch_s(vidur)
    any_fp32 = fit_families(fp32, overlap_ratio=overlap_ratio, label="NeuSight fp32")
    ampere_fp32 = fit_families(
        [one for one in fp32 if one.hardware.generation == "Ampere"],
        overlap_ratio=overlap_ratio,
        label="NeuSight fp32 on Ampere",
    )
    measured_half = fit_families(half, overlap_ratio=overlap_ratio, label="Vidur fp16")
    any_half = measured_half | {name: ampere_fp32[name] for name in ("conv", "norm", "softmax")}
    half_transposed_ratio = transposed_ratio(layout_rows, memory_ratio=any_half["pointwise"].memory_ratio)
    fp32_spread, half_spread = device_spread(fp32, any_fp32), device_spread(half, any_half)

    def fit(generation: str, precision: str, operators: Sequence[Operator], families: Mapping[str, Family]) -> Fit:
        is_fp32 = precision == "fp32"
        return Fit(
            name=f"gpu-{_file_part(generation)}-{'fp32' if is_fp32 else 'half'}",
            comment=f"GPUs of {_prose(generation)}, {'in fp32' if is_fp32 else 'on tensor cores'}",
            kind="gpu",
            generation=generation,
            precision=precision,
            dispatch_s=dispatch_s,
            launch_s=launch_s,
            device_log_spread=fp32_spread if is_fp32 else max(fp32_spread, half_spread),
            overlap_ratio=overlap_ratio,
            nchw_transposed_ratio=0.0 if is_fp32 else half_transposed_ratio,
            fitted_on=names_of(operators),
            source=(
                f"{'NeuSight' if is_fp32 else 'Vidur'}'s operators; dispatch: NeuSight's smallest additions; launch: "
                "Vidur's smallest kernels; overlap: Vidur's products; device spread: between the devices of "
                f"{'NeuSight' if is_fp32 else 'NeuSight or Vidur, the larger; NCHW: timm on the RTX 3090'}"
            ),
            families=with_neighbours(families),
        )

    for generation in ("Pascal", "Volta", "Turing", "Ampere"):
        members = [one for one in fp32 if one.hardware.generation == generation]
        families = fit_families(members, overlap_ratio=overlap_ratio, label="NeuSight fp32")
        yield fit(generation, "fp32", members, families)
    yield fit(ANY, "fp32", fp32, any_fp32)
    yield fit("Ampere", ANY, half, any_half)
    yield fit(ANY, ANY, half, any_half)


def _file_part(generation: str) -> str:
    return "any" if generation == ANY else generation.split(" Turin")[0].lower().replace(" ", "")


def _prose(generation: str) -> str:
    return "any other generation" if generation == ANY else generation


def names_of(operators: Iterable[Operator]) -> list[str]:
    """The devices that were measured."""
    return sorted({one.hardware.name for one in operators})


CPU_CACHE_BYTES = 32 * 2**20
"""L3 of the CPU that was measured; what fits there is no measure of the memory's bandwidth."""
CPU_LOG_SPREAD = 0.51
"""log(1.66): the rows, all of one core, cannot tell, so it is what they miss on another CPU with all its cores. Median
measured / predicted over 12 of timm's nets on an i9-10940X (14 cores x 3.3 GHz, 75 GB/s; batch 1, compiled): 1.66."""
CPU_PEAK_SHARES = {"float32": 1.0, "bfloat16": 2.0}
"""Peak by dtype over that of fp32: AVX512-BF16 multiplies two pairs at a time."""
MKL_WITHOUT_AVX512 = 2.0
"""On AMD, MKL takes its AVX2 path, half of what Zen 5's units can do: elsewhere the same share is of the full width."""


def cpu_operators(path: Path, *, dtypes: Sequence[str]) -> Iterator[Operator]:
    """Our own rows: those that compute clearly bounds, and those that move more than twice the cache."""
    for row in rows_of(path):
        if row["dtype"] not in dtypes:
            continue
        hardware = Hardware(
            name=row["cpu"],
            generation="Zen 5",
            peak_flops_per_s=float(row["fp32_flops_per_s"]) * CPU_PEAK_SHARES[row["dtype"]],
            memory_bytes_per_s=float(row["read_bytes_per_s"]),
        )
        one = operator(
            hardware,
            row["family"],
            flops=float(row["flops"]),
            moved_bytes=float(row["bytes"]),
            measured_s=float(row["least_s"]),
        )
        if one.compute_s > CLEARLY * one.memory_s or float(row["bytes"]) > 2 * CPU_CACHE_BYTES:
            yield one


def cpu_dispatch_s(path: Path) -> float:
    """Time of one module in a chain of those too small to compute anything."""
    (chain,) = (row for row in rows_of(path) if row["family"] == "dispatch")
    return float(chain["least_s"]) / int(chain["case"].removeprefix("modules "))


def cpu_fits(path: Path) -> Iterator[Fit]:
    """Efficiencies of CPUs, from one of Zen 5 as it is and, for any other, with matrix products on their full width."""
    streams = [one for one in cpu_operators(path, dtypes=["float32"]) if one.family not in MATRIX_FAMILIES]
    for precision, dtype in (("fp32", "float32"), (ANY, "bfloat16")):
        products = [one for one in cpu_operators(path, dtypes=[dtype]) if one.family in MATRIX_FAMILIES]
        measured = fit_families([*products, *streams], overlap_ratio=1.0, label=f"own, {dtype}", fewest=2)
        wider = {
            name: replace(
                family,
                compute_ratio=min(1.0, family.compute_ratio * MKL_WITHOUT_AVX512),
                source=f"{family.source}; as AVX2's share",
            )
            for name, family in measured.items()
            if dtype == "float32" and name in ("matmul", "attention")
        }
        for generation, families in (("Zen 5 Turin", measured), (ANY, measured | wider)):
            yield Fit(
                name=f"cpu-{_file_part(generation)}-{'fp32' if precision == 'fp32' else 'half'}",
                comment=f"CPUs of {_prose(generation)}, matrix products in {dtype}",
                kind="cpu",
                generation=generation,
                precision=precision,
                dispatch_s=cpu_dispatch_s(path),
                launch_s=0.0,
                device_log_spread=CPU_LOG_SPREAD,
                overlap_ratio=1.0,
                nchw_transposed_ratio=0.0,
                fitted_on=names_of(products),
                source="scripts/measure_cpu_ops.py on 1 machine, 1 core; a launch is part of the dispatch",
                families=with_neighbours(families),
            )


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
        'vendor: "*"',
        f'generation: "{fit.generation}"',
        f'precision: "{fit.precision}"',
        f"dispatch_s: {number(fit.dispatch_s)}",
        f"launch_s: {number(fit.launch_s)}",
        f"device_log_spread: {number(fit.device_log_spread)}",
        f"overlap_ratio: {number(fit.overlap_ratio)}",
        *([f"nchw_transposed_ratio: {number(fit.nchw_transposed_ratio)}"] if fit.nchw_transposed_ratio else []),
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
    parser.add_argument("--layout-rows", type=Path, default=LAYOUT_ROWS)
    parser.add_argument("--cpu-rows", type=Path, default=CPU_ROWS, help="what scripts/measure_cpu_ops.py wrote")
    arguments = parser.parse_args()
    gpus = gpu_fits(arguments.data, layout_rows=arguments.layout_rows)
    for fit in (*gpus, *cpu_fits(arguments.cpu_rows)):
        (arguments.out / f"{fit.name}.yaml").write_text(yaml_of(fit))
        print(f"{fit.name}: {sum(family.n for family in fit.families.values())} operators")


if __name__ == "__main__":
    main()
