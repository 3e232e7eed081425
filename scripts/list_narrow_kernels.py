"""Converts published times of kernels in narrow formats to the tables from which their ratios are fitted.

    python scripts/list_narrow_kernels.py --data ../shared/data --out tests/data/measured/kernels

Writes `narrow_products.csv`, products (m, k) by a weight (n, k) in bf16, fp8 and nvfp4, one shape in four of those from
`LEAST_WEIGHTS` on, and `narrow_caches.csv`, attention of one query token per request over KV caches of `LEAST_BYTES`
and more in bf16 and fp8. In fp8 and nvfp4 the time includes quantizing the product's input. `experts.csv` has layers of
experts on one GPU with all of their experts: choosing experts, the products, activation and weighted sum.
"""

import argparse
from pathlib import Path
from zlib import crc32

from measurement_table import DEVICE_IDS, read_csv
from operator_measurements import AICONFIGURATOR_COMMIT, AICONFIGURATOR_EVERY

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
EXPERT_FORMATS = {"bfloat16": "bf16", "fp8_block": "fp8", "int4_wo": "int4", "w4a16_mxfp4": "mxfp4"}
LEAST_WEIGHTS = 1 << 20
"""Smaller products are bound by launches, and their weights stay in the cache."""
LEAST_BYTES = 1e8
"""Smaller caches of keys and values fit a B200's L2 (126 MB), or are bound by launches."""


def products(data: Path) -> list[str]:
    """Return the lines of the table of products."""
    lines = ["device,format,m,n,k,step_s"]
    for row in read_csv(data / "measured/aiconfigurator/gemm.csv.gz"):
        m, n, k = (int(row[name]) for name in "mnk")
        is_drawn = crc32(f"{m} {n} {k}".encode()) % AICONFIGURATOR_EVERY == 0
        if row["dtype"] in FORMATS and row["ran_as"] != "float16" and is_drawn and n * k >= LEAST_WEIGHTS:
            lines.append(f"{DEVICE_IDS[row['gpu']]},{FORMATS[row['dtype']]},{m},{n},{k},{row['step_s']}")
    return lines


def caches(data: Path) -> list[str]:
    """Return the lines of the table of attention in decode: heads 128 wide, without a window."""
    lines = ["device,format,cache_bytes,step_s"]
    for row in read_csv(data / "measured/aiconfigurator/attention_decode.csv.gz"):
        wide = 1 if row["kv_dtype"] == "fp8" else 2
        cache_bytes = 2 * wide * int(row["batch"]) * int(row["kv_heads"]) * int(row["head_dim"]) * int(row["kv_tokens"])
        is_plain = row["head_dim"] == "128" and row["window"] == "0" and row["gpu"] != "a100_sxm"
        if is_plain and cache_bytes >= LEAST_BYTES:
            lines.append(f"{DEVICE_IDS[row['gpu']]},{FORMATS[row['kv_dtype']]},{cache_bytes},{row['step_s']}")
    return lines


def experts(data: Path) -> list[str]:
    """Return the lines of the table of layers of experts, by kernels that vLLM chooses for published models.

    Left out: parts of a layer, Nemotron's experts of two matrices, fp8 with one scale for a matrix (a kernel that no
    published model here takes), and Marlin's mxfp4 where gpt-oss has another kernel.
    """
    lines = ["device,format,tokens,hidden,intermediate,experts,chosen,routing,step_s"]
    for row in read_csv(data / "measured/aiconfigurator/moe.csv.gz"):
        is_whole = row["ep"] == "1" and row["hidden"] != "2688" and row["topk"] != "22"
        is_chosen = row["dtype"] != "w4a16_mxfp4" or "gptoss" in row["kernel"]
        if is_whole and is_chosen and row["dtype"] in EXPERT_FORMATS:
            intermediate = int(row["intermediate"]) // int(row["tp"])
            lines.append(
                f"{DEVICE_IDS[row['gpu']]},{EXPERT_FORMATS[row['dtype']]},{row['tokens']},{row['hidden']},"
                f"{intermediate},{row['experts']},{row['topk']},{row['routing']},{row['step_s']}"
            )
    return lines


def main() -> None:
    """Write the tables and print their lengths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    arguments = parser.parse_args()
    for name, lines in (
        ("narrow_products", products(arguments.data)),
        ("narrow_caches", caches(arguments.data)),
        ("experts", experts(arguments.data)),
    ):
        (arguments.out / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(lines) - 1} rows, ai-dynamo/aiconfigurator @ {AICONFIGURATOR_COMMIT}")


if __name__ == "__main__":
    main()
