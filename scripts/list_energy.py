"""Converts measured watts, CPU watts and grid intensities to the tables of the power fit and to profiles/energy.

    python scripts/list_energy.py --data ../shared/data

Writes tests/data/measured/energy/served.csv and kernels.csv, which `scripts/fit_power.py` fits, and
profiles/energy/cpu_power.yaml and grid.yaml, which the catalog reads.
"""

import argparse
import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, pstdev

from advisor.catalog.overlay import load_catalog

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tests" / "data" / "measured" / "energy"
PROFILES = ROOT / "profiles" / "energy"
SERVED_SOURCE = "ml-energy/leaderboard @ 0cd52dab"
KERNEL_SOURCE = "ai-dynamo/aiconfigurator @ 095f58a5"
CONFIGS = {
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3-14B": "qwen3-14b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3-30b-a3b",
    "google/gemma-3-12b-it": "gemma-3-12b",
    "google/gemma-3-27b-it": "gemma-3-27b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Llama-3.1-70B-Instruct": "llama-3.1-70b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.1-70b",
}
TEXT_TASKS = ("gpqa", "lm-arena-chat")
PROMPT_TOKENS = 256
"""The source does not give the length of prompts; those of text tasks are short beside the answers."""
SETTLED_S = 0.95
"""The shortest run whose mean power is used. NVML's figure is itself a mean over up to a second."""
HALF_BYTES = 2
SERVED_COLUMNS = (
    "model", "engine", "sampling", "prompt_tokens", "output_tokens", "concurrency", "device", "machine",
    "tensor_parallel", "tpot_s", "tokens_per_s", "watts_per_gpu", "source",
)  # fmt: skip
KERNEL_COLUMNS = ("device", "family", "flops", "bytes", "step_s", "watts", "power_limit_w", "source")

CPU_ROWS = {
    "Broadwell": ("aws", "Broadwell"),
    "Skylake-SP": ("aws", "Skylake"),
    "Cascade Lake": ("aws", "Cascade Lake"),
    "Coffee Lake": ("aws", "Coffee Lake"),
    "Ice Lake-SP": ("aws", "Ice Lake"),
    "Sapphire Rapids": ("aws", "Sapphire Rapids"),
    "Emerald Rapids": ("aws", "Emerald Rapids"),
    "Granite Rapids": ("aws", "Granite Rapids"),
    "Zen 2 Rome": ("aws", "EPYC 2nd Gen"),
    "Zen 3 Milan": ("aws", "EPYC 3rd Gen"),
    "Zen 4 Genoa": ("any", "EPYC 4th Gen"),
    "Zen 5 Turin": ("any", "EPYC 5th Gen"),
    "Neoverse N1": ("any", "Neoverse N1 (Ampere Altra)"),
}
"""The row of each generation. Not used: the published EPYC 5th Gen (averages 1,039 servers of all vendors), EPYC 4th
Gen (includes small 8xx4 servers), Gravitons (copies of EPYC 2nd Gen), Google's maxima (kW subtracted from W), older
Azure rows."""
NEAREST = {
    "Zen 3 Milan-X": "Zen 3 Milan",
    "Zen 4 Genoa-X": "Zen 4 Genoa",
    "Zen 4c Bergamo": "Zen 4 Genoa",
    "Zen 5c Turin Dense": "Zen 5 Turin",
    "Cascade/Ice Lake": "Cascade Lake",
    "Neoverse N2": "Neoverse N1",
    "Neoverse V1": "Neoverse N1",
    "Neoverse V2": "Neoverse N1",
}
"""Generations without measurements, and the measured one closest to each."""
MODELS_IN_FAMILIES = {"EPYC 9654": "EPYC 4th Gen", "EPYC 9655": "EPYC 5th Gen"}
"""Single CPUs and their families, for the spread of one server around the mean of its family."""


def main() -> None:
    """Write the two tables and the two profiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published tables")
    data = parser.parse_args().data
    _write(TABLES / "served.csv", SERVED_COLUMNS, served_rows(_rows(data / "measured/energy/ml_energy_llm.csv")))
    _write(TABLES / "kernels.csv", KERNEL_COLUMNS, kernel_rows(data / "measured/aiconfigurator"))
    PROFILES.mkdir(exist_ok=True)
    (PROFILES / "grid.yaml").write_text(grid_text(_rows(data / "carbon/grid.csv")), encoding="utf-8")
    (PROFILES / "cpu_power.yaml").write_text(cpu_text(_rows(data / "carbon/cpu_watts.csv")), encoding="utf-8")


def _rows(file: Path) -> list[dict[str, str]]:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _write(file: Path, columns: Sequence[str], rows: Sequence[dict[str, object]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def served_rows(rows: Sequence[dict[str, str]]) -> list[dict[str, object]]:
    """Return the runs of text tasks in bf16, of models with a config, whose GPUs share one copy of the model."""
    used = [
        row
        for row in rows
        if row["model_id"] in CONFIGS
        and row["task"] in TEXT_TASKS
        and row["precision"] == "bfloat16"
        and row["num_gpus"] == row["tensor_parallel"]
    ]
    answers: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in used:
        answers[row["model_id"], row["task"]].append(float(row["mean_output_tokens"]))
    return [
        {
            "model": f"hf:configs/{CONFIGS[row['model_id']]}.json",
            "engine": "vllm",
            "sampling": "truncated",
            "prompt_tokens": PROMPT_TOKENS,
            "output_tokens": round(median(answers[row["model_id"], row["task"]])),
            "concurrency": max(1, round(float(row["mean_batch_size"]))),
            "device": "h100-sxm5-80gb",
            "machine": f"{row['model_id']}, {row['task']}",
            "tensor_parallel": row["tensor_parallel"],
            "tpot_s": row["itl_p50_s"],
            "tokens_per_s": row["output_tokens_per_s"],
            "watts_per_gpu": row["watts_per_gpu"],
            "source": SERVED_SOURCE,
        }
        for row in used
    ]


def kernel_rows(folder: Path) -> list[dict[str, object]]:
    """Return the kernels in bf16 that ran long enough for a settled power."""
    found: list[dict[str, object]] = []
    for family in ("gemm", "attention_prefill", "attention_decode"):
        for row in _rows(folder / f"{family}_power.csv.gz"):
            if row["ran_as"] != "bfloat16" or row.get("kv_dtype", "bfloat16") != "bfloat16":
                continue
            if float(row["run_s"]) < SETTLED_S or row["timing"] != "graph":
                continue
            flops, moved_bytes = kernel_work(family, row)
            found.append(
                {
                    "device": row["gpu"].removesuffix("_sxm"),
                    "family": family,
                    "flops": f"{flops:.6g}",
                    "bytes": f"{moved_bytes:.6g}",
                    "step_s": row["step_s"],
                    "watts": row["power_w"],
                    "power_limit_w": row["power_limit_w"],
                    "source": KERNEL_SOURCE,
                }
            )
    return found


def kernel_work(family: str, row: dict[str, str]) -> tuple[float, float]:
    """Return FLOP and bytes of a call, by the formulas that the source gives."""
    if family == "gemm":
        m, n, k = (float(row[name]) for name in "mnk")
        return 2 * m * n * k, HALF_BYTES * (n * k + m * k + m * n)
    batch, heads, kv_heads, size = (float(row[name]) for name in ("batch", "heads", "kv_heads", "head_dim"))
    if family == "attention_decode":
        tokens = min(float(row["kv_tokens"]), float(row["window"]) or math.inf)
        return 4 * batch * heads * size * tokens, 2 * HALF_BYTES * batch * kv_heads * size * tokens
    seq, window = float(row["seq"]), float(row["window"]) or math.inf
    seen = min(seq, window)
    pairs = seen * (seen + 1) / 2 + (seq - seen) * seen
    return 4 * batch * heads * size * pairs, 2 * HALF_BYTES * batch * (heads + kv_heads) * size * seq


def cpu_text(rows: Sequence[dict[str, str]]) -> str:
    """Return the file of CPU watts."""
    by_family = {(row["provider"], row["cpu_family"]): row for row in rows}
    most = {family: float(by_family["any", family]["max_watts_per_thread"]) for family in (
        *MODELS_IN_FAMILIES, *MODELS_IN_FAMILIES.values())}  # fmt: skip
    own_spread = _rms([math.log(most[model] / most[family]) for model, family in MODELS_IN_FAMILIES.items()])
    per_core = {}
    for generation, key in CPU_ROWS.items():
        row = by_family[key]
        threads = int(row["threads_per_core_of_servers"])
        per_core[generation] = (
            threads * float(row["min_watts_per_thread"]),
            threads * float(row["max_watts_per_thread"]),
            row["servers"],
        )
    unmeasured_spread = math.hypot(own_spread, pstdev(math.log(high) for _, high, _ in per_core.values()))
    lines = [CPU_HEAD.format(vcpus=f"{_usual_vcpus():g}")]
    for generation, (low, high, servers) in sorted(per_core.items()):
        lines.append(_cpu_line(generation, low, high, own_spread, f"mean of {servers} servers"))
    for generation, nearest in sorted(NEAREST.items()):
        low, high, _ = per_core[nearest]
        lines.append(_cpu_line(generation, low, high, unmeasured_spread, f"not measured: as {nearest}"))
    low, high = median(one[0] for one in per_core.values()), median(one[1] for one in per_core.values())
    lines.append(_cpu_line('"*"', low, high, unmeasured_spread, "not measured: median of the others"))
    return "".join(lines)


def _cpu_line(generation: str, low: float, high: float, spread: float, source: str) -> str:
    return (
        f"  {generation}: {{idle_w_per_core: {low:.4g}, busy_w_per_core: {high:.4g}, log_spread: {spread:.2f}, "
        f'source: "{source}"}}\n'
    )


def _rms(errors: Sequence[float]) -> float:
    return math.sqrt(sum(error**2 for error in errors) / len(errors))


def _usual_vcpus() -> float:
    """Return the median vCPUs for each GPU of the offers that give both."""
    offers = load_catalog().offers
    return median(offer.vcpus / offer.gpu_count for offer in offers if offer.gpu_count and offer.vcpus)


CPU_HEAD = """\
# Watts of a server for each physical core, at the wall (CPU, memory, fans, power supply), at active idle and full load.
# Written by scripts/list_energy.py. Means over SPECpower_ssj2008 results (SPECpower-2026-03-09.csv and
# output/coefficients-aws-use.csv in cloud-carbon-footprint/ccf-coefficients @ b0032d92, Apache-2.0). An integer load
# in Java: AVX-512 and AMX kernels draw more. log_spread: of one server around the mean of its family (EPYC 9654, 9655);
# for generations that were not measured, combined with the spread between families.
#
# unknown_vcpus_per_gpu: the median vCPUs per GPU of the offers that give both; assumed for the others.
unknown_vcpus_per_gpu: {vcpus}
cpus:
"""


def grid_text(rows: Sequence[dict[str, str]]) -> str:
    """Return the file of grid intensities: one figure for each place, Google's of 2024 where there is one."""
    preferred = [row for row in rows if row["preferred"] == "1"]
    of_place = {row["place"]: row for row in preferred if row["place"] and row["provider"] == "gcp"}
    logs = [
        math.log(float(row["gco2_per_kwh"]) / float(of_place[row["place"]]["gco2_per_kwh"]))
        for row in preferred
        if row["place"] in of_place and row["provider"] != "gcp"
    ]
    lines = [GRID_HEAD.format(count=len(logs), spread=f"{_rms(logs):.2f}")]
    lines += _grid_lines(preferred, of_place)
    return "".join(lines)


def _grid_lines(rows: Sequence[dict[str, str]], of_place: dict[str, dict[str, str]]) -> Iterator[str]:
    for row in sorted(rows, key=lambda row: (row["provider"], row["region"])):
        used = of_place.get(row["place"], row)
        year = f"year: {used['year']}, " if used["year"] else ""
        what = used["original_source"] + ("" if used is row else f", as for {used['provider']} {used['region']}")
        yield (
            f"  {row['provider']}/{row['region']}: {{gco2_per_kwh: {float(used['gco2_per_kwh']):g}, {year}"
            f'pue: {float(row["pue"]):g}, place: "{row["place"] or row["location"]}", '
            f'source: "{what}"}}\n'
        )


GRID_HEAD = """\
# Grams of CO2 equivalent for a kWh from the grid of a cloud region, and the power usage effectiveness (PUE) of its data
# centres. Written by scripts/list_energy.py. Location-based: annual averages of the local grid, without certificates or
# power purchase contracts; hour and season move the real value by a factor of two and more. A region that is missing
# has no figure, and its CO2 is left blank. A place with several figures has one, Google's of 2024, so that providers
# there are compared by their machines and not by their sources. Without `year`, the source does not state one.
#
# source: who published the figure. Taken, all under Apache-2.0, from GoogleCloudPlatform/region-carbon-info @ 49f3f26b
# (data/yearly/2024.csv: Google's), cloud-carbon-footprint/ccf-coefficients @ b0032d92 (data/grid-emissions-factors-*)
# and, for japaneast, cloud-carbon-footprint/cloud-carbon-footprint @ b7a049c7. The last also has the PUE (packages/*/
# src/domain/*FootprintEstimationConstants.ts): means of a provider's fleet, and of some regions of GCP.
#
# log_spread: how far {count} older figures of such places are from Google's, as a standard deviation of the logarithm.
log_spread: {spread}
regions:
"""


if __name__ == "__main__":
    main()
