"""Converts measured vLLM runs of cloud instances to rows of `advise validate`, one file for all of them.

    python scripts/list_served.py --data ../shared/data --out tests/data/measured/served

Instances of one shape (CPU or GPU, vCPUs, NUMA nodes) that ran the same requests become one row with their medians; of
the runs under load, at most `MOST_LOADS` of a shape and workload are kept, evenly over the requests in flight. Runs
that were cut off by the clock are left out, and so are devices without a profile.
"""

import argparse
import csv
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

COMMIT = "804d3c71"
MODELS = ("llama-8b", "qwen-0.5b", "smol-135m")
DEVICE_IDS = {
    "INTEL(R) XEON(R) PLATINUM 8573C": "intel-xeon-platinum-8573c",
    "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz": "intel-xeon-platinum-8370c",
    "AMD EPYC 9V74 80-Core Processor": "amd-epyc-9v74",
    "AMD EPYC 7763 64-Core Processor": "amd-epyc-7763",
    "AMD EPYC 7452 32-Core Processor": "amd-epyc-7452",
    "Neoverse-N2": "azure-cobalt-100",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA L40S": "l40s",
    "NVIDIA A10G": "a10g",
}
HOST_IDS = {
    "Standard_NC24ads_A100_v4": "amd-epyc-7v13",
    "Standard_NC48ads_A100_v4": "amd-epyc-7v13",
    "Standard_NC96ads_A100_v4": "amd-epyc-7v13",
    "a2-highgpu-1g": "intel-cascade-lake-2-2-ghz",
    "a2-highgpu-2g": "intel-cascade-lake-2-2-ghz",
    "a2-highgpu-8g": "intel-cascade-lake-2-2-ghz",
    "g5.16xlarge": "amd-epyc-7r32",
}
"""Host CPUs of GPU machines, as in profiles/prices. Vultr's are not published."""
MOST_LOADS = 4
MOST_HZ = 3.5e9
FLOPS_PER_TOKEN = {"llama-8b": 14e9, "qwen-0.5b": 0.7e9, "smol-135m": 0.21e9}
"""FLOP of the blocks for a token: two for each parameter outside the embedding."""
LEAST_LOAD = 2.5
"""Requests in flight from which on a mean, rounded to a whole number, says what the engine ran."""
COLUMNS = (
    "model", "engine", "sampling", "prompt_tokens", "output_tokens", "concurrency", "device", "host", "machine",
    "numa_nodes", "memory_bytes_per_s", "tensor_parallel", "ttft_s", "tpot_s", "tokens_per_s", "source",
)  # fmt: skip

Row = Mapping[str, str]


def main() -> None:
    """Write `vllm.csv` and the configs, and print what was left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse_args()
    source = arguments.data / "measured/sparecores_vllm"
    with gzip.open(source / "visible.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    arguments.out.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        config = json.loads((source / f"{model}.json").read_text(encoding="utf-8"))
        (arguments.out / f"{model}.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    left_out: Counter[str] = Counter()
    with (arguments.out / "vllm.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(served_rows(rows, left_out))
    print(dict(left_out))


def served_rows(rows: Iterable[Row], left_out: Counter[str]) -> list[dict[str, object]]:
    """Return the rows of `vllm.csv`, sorted; count in `left_out` what was not used, by reason."""
    rows = list(rows)
    impossible = {_key(row) for row in rows if _is_too_fast(row)}
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        reason = (
            "a machine that reads a prompt faster than its CPU can multiply"
            if _key(row) in impossible
            else _reason(row)
        )
        if reason:
            left_out[reason] += 1
            continue
        groups[tuple(row[name] for name in _SAME)].append(row)
    found = []
    for members in groups.values():
        alone = [row for row in members if row["strategy"] == "synchronous"]
        loaded = sorted((row for row in members if row["strategy"] != "synchronous"), key=_in_flight)
        step = max(1, -(-len(loaded) // MOST_LOADS))
        left_out["further loads of the same shape"] += len(loaded) - len(loaded[step - 1 :: step])
        found += [_served(alone)] if alone else []
        found += [_served([row]) for row in loaded[step - 1 :: step]]
    return sorted(found, key=lambda row: [str(row[name]) for name in COLUMNS])


_SAME = (
    "device", "vcpus", "threads_per_core", "numa_nodes", "node0_vcpus", "tensor_parallel", "data_parallel", "engine",
    "harness", "model", "sampling", "prompt_tokens", "output_tokens",
)  # fmt: skip


def _reason(row: Row) -> str:
    if row["device"] not in DEVICE_IDS:
        return f"no profile: {row['device']}"
    if row["is_censored"] == "1":
        return "cut off by the clock"
    if row["side"] == "cpu" and (row["tensor_parallel"] != "0" and row["harness"] != "3"):
        return "cores named by hand, several copies or nodes"
    if row["strategy"] != "synchronous" and _in_flight(row) < LEAST_LOAD:
        return "hardly more than one request in flight"
    if row["side"] == "cpu" and not row["dram_read_gb_per_s"]:
        return "bandwidth not measured"
    return ""


def _key(row: Row) -> tuple[str, ...]:
    return row["instance"], row["harness"]


def _is_too_fast(row: Row) -> bool:
    """Return whether a CPU without 16-bit units reads a prompt above its peak: two FMA of 512 bits in every cycle."""
    if row["isa"] not in ("avx512", "avx2") or row["strategy"] != "synchronous":
        return False
    cores = int(row["vcpus"]) / int(row["threads_per_core"])
    return FLOPS_PER_TOKEN[row["model"]] * int(row["prompt_tokens"]) / float(row["ttft_s"]) > cores * 64 * MOST_HZ


def _in_flight(row: Row) -> float:
    """Return the requests that the engine runs at once: those in flight, at most `max_num_seqs`."""
    most = float(row["max_num_seqs"] or 1e9) * float(row["data_parallel"] or 1)
    return max(1.0, min(float(row["in_flight"]), most))


def _served(rows: list[Row]) -> dict[str, object]:
    first, is_cpu = rows[0], rows[0]["side"] == "cpu"

    def middle(name: str, digits: int = 6) -> float:
        return round(median(float(row[name]) for row in rows), digits)

    machine = f"{first['vcpus']} vCPUs, {first['threads_per_core']} per core, {first['numa_nodes']} nodes"
    cores = int(first["vcpus"]) // int(first["threads_per_core"])
    is_alone = first["strategy"] == "synchronous"
    return {
        "model": f"hf:{first['model']}.json",
        "engine": first["engine"],
        "sampling": "truncated" if "top_" in first["sampling"] else "plain",
        "prompt_tokens": first["prompt_tokens"],
        "output_tokens": first["output_tokens"],
        "concurrency": 1 if is_alone else round(_in_flight(first)),
        "device": DEVICE_IDS[first["device"]] + (f"@{cores}" if is_cpu else ""),
        "host": HOST_IDS.get(first["instance"], ""),
        "machine": machine,
        "numa_nodes": first["numa_nodes"] if is_cpu else "",
        "memory_bytes_per_s": f"{median(float(row['dram_read_gb_per_s']) for row in rows) * 1e9:.4g}" if is_cpu else "",
        "tensor_parallel": "" if is_cpu else first["tensor_parallel"],
        # Under load it is mostly the wait for a place in the engine.
        "ttft_s": middle("ttft_s") if is_alone else "",
        "tpot_s": middle("tpot_s"),
        "tokens_per_s": middle("output_tokens_per_s", 3),
        "source": f"sc-inspector-data @ {COMMIT}, harness {first['harness']}",
    }


if __name__ == "__main__":
    main()
