"""Converts published fine-tuning runs to rows of `advise validate`.

    python scripts/list_tuning_runs.py --data ../shared/data --out tests/data/measured/fine_tuning

Writes `fms_a100.csv`; the configs of the models lie beside it. Rows of mixtures of experts have no packing, and the
tokens of their samples are those of the first batch: their step time counts for these. A run that failed counts as out
of memory.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

COMMIT = "876e2ed6"
CONFIGS = {
    "NousResearch/Llama-2-70b-hf": "llama_2_70b",
    "TheBloke/Llama-2-70B-GPTQ": "llama_2_70b",
    "TechxGenus/Meta-Llama-3-8B-GPTQ": "llama_3_8b",
    "meta-llama/Meta-Llama-3-8B": "llama_3_8b",
    "bigcode/gpt_bigcode-santacoder": "santacoder",
    "ibm/PowerLM-3b": "powerlm_3b",
    "mistralai/Mistral-7B-v0.1": "mistral_7b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral_8x7b",
    "ibm-granite/granite-3.0-3b-a800m-instruct": "granite_3.0_3b_a800m",
}
METHODS = {"full": "full", "moe-full": "full", "lora": "lora", "qlora-bnb": "qlora", "gptq-lora": "qlora"}
FUSED_QKV = {"santacoder"}
"""Models with one layer, `c_attn`, for queries, keys and values; PEFT ignores the other published names in them, and
this name in other models."""
POSITIONS = {"santacoder": 2048}
SEPARATE_EXPERTS = {"mixtral_8x7b"}
COLUMNS = (
    "model", "finetune", "lora_rank", "lora_targets", "sequence", "trainer_kernels", "optim", "fp32_logits",
    "separate_experts", "reentrant", "precision", "batch", "accumulate", "device", "gpus", "sharding",
    "step_s", "peak_bytes", "ran_out", "source",
)  # fmt: skip


def main() -> None:
    """Write the table, and print the models without a config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=Path, required=True, help="folder for the table")
    arguments = parser.parse_args()
    found = arguments.data / "measured/finetuning/fms_a100_80gb.csv"
    with found.open(newline="") as file:
        published = list(csv.DictReader(file))
    unknown = sorted({row["model_id"] for row in published} - CONFIGS.keys())
    if unknown:
        print("no config of", ", ".join(unknown))
    rows = list(converted(row for row in published if row["model_id"] in CONFIGS))
    with (arguments.out / "fms_a100.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    print(f"{len(rows)} of {len(published)} runs")


def converted(published: Iterator[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the rows of `advise validate`."""
    for row in published:
        config, count = CONFIGS[row["model_id"]], int(row["num_gpus"])
        has_adapters = row["method"] not in ("full", "moe-full")
        # Under FSDP with autocast, accelerate holds trained weights in fp32 (`Accelerator.prepare_model`); frozen ones,
        # and all on one GPU, stay in the dtype that they are loaded in.
        is_mixed = row["autocast"] != "none" and count > 1 and not has_adapters
        # PEFT's `prepare_model_for_kbit_training` converts what is not quantized to fp32; under FSDP it is left out.
        is_mixed = is_mixed or (row["framework_config"] == "baseline-peft-bnb" and count == 1)
        is_packed = row["packing"] == "1"
        sequence = POSITIONS.get(config) or int(float(row["max_seq_len"] if is_packed else row["tokens_per_sample"]))
        yield {
            "model": f"hf:configs/{config}.json",
            "finetune": METHODS[row["method"]],
            "lora_rank": row["lora_r"],
            "lora_targets": " ".join(targets(row["lora_targets"], config)) if has_adapters else "",
            "sequence": str(sequence),
            "trainer_kernels": "liger" if row["liger"] == "1" else "fused" if row["fused_ops"] == "1" else "torch",
            "optim": "adamw-foreach",
            "fp32_logits": "1",
            "separate_experts": "1" if config in SEPARATE_EXPERTS else "",
            "reentrant": "1",
            "precision": "amp-bf16" if is_mixed else "bf16",
            "batch": row["batch_per_device"],
            "accumulate": row["grad_accum_steps"],
            "device": "a100-sxm4-80gb",
            "gpus": row["num_gpus"],
            "sharding": "zero3" if row["sharding"] == "fsdp-full-shard" else "none",
            "step_s": row["step_s"],
            "peak_bytes": row["peak_bytes"],
            "ran_out": "1" if row["status"] == "failed" else "",
            "source": f"foundation-model-stack/fms-acceleration {COMMIT} {row['source_file']}",
        }


def targets(published: str, config: str) -> list[str]:
    """Return the published names that the model has."""
    return [name for name in published.split() if (name == "c_attn") == (config in FUSED_QKV)]


if __name__ == "__main__":
    main()
