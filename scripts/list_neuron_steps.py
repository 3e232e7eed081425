"""Writes steps on AWS Inferentia2 and Trainium1 from the tables that AWS publishes, as `advise validate` reads them.

    python scripts/list_neuron_steps.py --data ../shared/data/measured/neuron --out tests/data/measured/neuron

A step runs on one NeuronCore. A batch takes cores x batch / throughput, or its latency if only one is in flight.
The newest run of a model counts. `LEFT_OUT` names the models that are left out, with the reasons.
"""

import argparse
from collections import Counter
from pathlib import Path

from measurement_table import read_csv, write_rows

from advisor.records.measurement import TimedStep

SOURCE = "aws-neuron-sdk @ 81ce03ae, about-neuron/benchmarks"
CORES = {"inf2.xlarge": 2, "trn1.2xlarge": 2}
DEVICES = {"inf2.xlarge": "inferentia2-core", "trn1.2xlarge": "trainium1-core"}
TEXT = "input_ids=128:int64"
MODELS = {
    "albert-base-v2": ("hf:albert_base_v2.json", TEXT),
    "bert-base-uncased": ("hf:google-bert/bert-base-uncased", TEXT),
    "bert-large-uncased": ("hf:google-bert/bert-large-uncased", TEXT),
    "distilbert-base-uncased": ("hf:distilbert/distilbert-base-uncased", TEXT),
    "google/electra-base-discriminator": ("hf:electra_base.json", TEXT),
    "roberta-base": ("hf:FacebookAI/roberta-base", TEXT),
    "roberta-large": ("hf:FacebookAI/roberta-large", TEXT),
    "google/vit-base-patch16-224": ("hf:google/vit-base-patch16-224", ""),
    **{net: (f"torchvision:{net}", "") for net in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")},
    **{net: (f"torchvision:{net}", "") for net in ("vgg11", "vgg16")},
}
LEFT_OUT = {
    "xlm-roberta-base": "ran on two cores of the largest instance",
    "UNet": "the source does not say which U-Net",
    "deepmind/": "no config of a Perceiver ships with advise",
    "openai/clip": "the source does not say how many texts a call has",
    "Stable Diffusion": "a pipeline of many steps of three models",
    "PixArt": "a pipeline of many steps of three models",
    "t5-3b": "decoding, and tokens of input and output together",
    "google/flan-t5-xl": "decoding, and tokens of input and output together",
    "Llama": "decoding on all cores of the machine, by an engine of its own",
    "Mistral": "decoding on all cores of the machine, by an engine of its own",
    "CodeLlama": "decoding on all cores of the machine, by an engine of its own",
}


def main() -> None:
    """Write `steps.csv`, and say how many published rows were left out and why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    steps: dict[tuple[str, str, int], tuple[tuple[int, ...], TimedStep]] = {}
    left_out: Counter[str] = Counter()
    for row in read_csv(args.data / "neuron.csv"):
        if row["platform"] == "inf1" or row["kind"] == "training":
            left_out["Inferentia 1" if row["platform"] == "inf1" else "training, on 1 to 64 machines"] += 1
            continue
        if row["model"] not in MODELS:
            left_out[next(why for name, why in LEFT_OUT.items() if row["model"].startswith(name))] += 1
            continue
        model, inputs = MODELS[row["model"]]
        batch, device = int(row["batch_size"]), DEVICES[row["instance_type"]]
        step_s = CORES[row["instance_type"]] * batch / float(row["throughput_per_s"])
        if "ONE_BATCH_AT_A_TIME" in row["flags"]:
            step_s = float(row["latency_p50_s"])
        version = tuple(map(int, row["neuron_version"].split(".")))
        step = TimedStep(
            model=model, mode="inference", precision="amp-bf16", compile="compile", batch=batch, input=inputs,
            device=device, step_s=float(f"{step_s:.5g}"), source=f"{SOURCE}/{row['source_file']}",
        )  # fmt: skip
        key = (device, model, batch)
        if key not in steps or version > steps[key][0]:
            steps[key] = (version, step)
    kept = [step for _, step in steps.values()]
    write_rows(args.out / "steps.csv", sorted(kept, key=lambda one: (one.device, one.model, one.batch)))
    print(f"{len(kept)} steps of {len({step.model for step in kept})} models")
    for why, count in left_out.most_common():
        print(f"{count:4} left out: {why}")


if __name__ == "__main__":
    main()
