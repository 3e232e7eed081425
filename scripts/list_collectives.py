"""Converts measured collectives of GPUs in one machine to a table, a message size out of two.

    python scripts/list_collectives.py --data ../shared/data --out tests/data/measured/collectives.csv

NCCL: nccl-tests, one process for all GPUs, without a CUDA graph. vLLM: its all-reduce inside a CUDA graph; those
without one are left out.
"""

import argparse
import csv
from pathlib import Path

from measurement_table import DEVICE_IDS, read_csv
from operator_measurements import AICONFIGURATOR_COMMIT

COLUMNS = ("device", "software", "operation", "gpus", "message_bytes", "step_s", "source")


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=Path, required=True, help="table to write")
    given = parser.parse_args()
    with given.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in read_csv(given.data / "measured/aiconfigurator/communication.csv.gz"):
            power = int(row["message_bytes"]).bit_length() - 1
            if row["algorithm"] == "vllm_eager" or power % 2:
                continue
            software = "vllm" if row["algorithm"] == "vllm_graph" else "nccl"
            source = f"ai-dynamo/aiconfigurator @ {AICONFIGURATOR_COMMIT}, {row['library']} {row['library_version']}"
            step_s = f"{float(row['step_s']):.4g}"
            device = DEVICE_IDS[row["gpu"]]
            writer.writerow([device, software, row["op"], row["gpus"], row["message_bytes"], step_s, source])


if __name__ == "__main__":
    main()
