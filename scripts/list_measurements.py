"""Converts published times of steps and operators to tables of measurements, one CSV file per source and regime.

    python scripts/list_measurements.py --data ../shared/data --out tests/data/measured

Reads the sources' tables below --data and writes CSV files and model configs into --out. The same data gives the same
bytes. Several rows of a source that measure the same step become one row with their median. Rows that do not identify
the step exactly (another architecture, several GPUs, an unknown input) are left out and listed in `dropped.csv`.
"""

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from measurement_table import (
    DEVICE_IDS,
    NEUSIGHT_COMMIT,
    Dropped,
    Table,
    merged,
    read_csv,
    write_dropped,
    write_rows,
)
from operator_measurements import (
    list_aiconfigurator,
    list_matmuls,
    list_neusight_operators,
    list_vidur,
    list_vidur_engine,
)

from advisor.records.device import CompileMode, Layout, Precision
from advisor.records.measurement import MeasuredMode, TimedStep
from advisor.workload.sources.installed import require

TIMM_COMMIT = "aa4b5850"
RYUJAEHUN_COMMIT = "3f47a9e2"
LAMIKR_COMMIT = "43d1613"
INTEL_COMMIT = "8c60c630"

TIMM_RESULTS = re.compile(
    r"benchmark-(?P<task>infer|train)-(?P<precision>amp|fp32)-(?P<layout>nchw|nhwc)"
    r"-pt(?P<torch>\d+)(?:-cu\d+)?-(?P<device>.+?)(?P<dynamo>-dynamo)?"
)
TIMM_TORCH = {"112": "1.12", "240": "2.4", "291": "2.9"}
TIMM_FAST_NORMS = {
    # AMP runs of inference with timm's norms in half (benchmark.py --fast-norm), and the norms that were timm's own.
    # On the RTX 4090 ResNet-50 takes 12 % longer with group norms than with batch norms, with torch 2.4 and 2.9 alike,
    # but 2.2 times as long on the RTX 5090. The tables of torch 2.4 are of timm 1.0.9: the first to have all their
    # nets, and 1.0.11 has others. The layers of its vision transformers had norms that the flag does not change.
    "pt240-cu124-rtx3090": "all but transformers'",
    "pt240-cu124-rtx4090": "all but transformers'",
    "pt291-cu128-4090": "all",
}
TIMM_REPARAMETERIZED = {"2.9"}
"""Releases of torch whose tables have branches and norms fused (benchmark.py --reparam): the published parameters of
RepVGG and RepViT are those of the fused nets."""
TIMM_RENAMED = {
    # Three sizes that timm's table of old names maps to one; their parameter counts differ.
    "ig_resnext101_32x16d": "resnext101_32x16d",
    "ig_resnext101_32x32d": "resnext101_32x32d",
}
TIMM_CHANGED = {
    # Names of another net today: the parameter count in timm 1.0.31 is not the published one.
    "ecaresnext50t_32x4d": "15.41 M parameters when measured, 25.05 M in timm 1.0.31",
    "ig_resnext101_32x48d": "828.41 M parameters when measured, a size that timm 1.0.31 does not have",
}

NEUSIGHT_CLASSES = {
    # The class that the authors build from a config (neusight/Tracing/trace.py), if the config names another.
    ("bert_large", "inference"): "BertForSequenceClassification",
    ("bert_large", "forward_backward"): "BertForPreTraining",
}

RYUJAEHUN_PRECISIONS: Mapping[str, Precision] = {"float": "fp32", "half": "fp16"}
RYUJAEHUN_COPY = "new_results"
"""Every row of this folder is also in results/2080ti(2), identical to the last digit."""
TF32_DEVICES: Mapping[str, Precision] = {"A100-SXM4-40GB": "tf32", "GeForce RTX 4060 TI 16GB": "cudnn-tf32"}
"""GPUs on which torch's default for fp32 was TF32: in matmuls and convolutions until 1.11, then in convolutions."""
LAMIKR_TORCH = {"AMD Radeon RX 7700S NO OPT": "2.3"}
"""Releases of torch that the results name; the RX 7700S was timed with stock 2.3.1 and with a build of its author."""

INTEL_INSTANCES = "4 cores/instance x10 instances, bs1"
INTEL_INSTANCE_COUNT = 10
"""Ten instances of 4 cores each fill the 40 cores of a Xeon 8380; the published throughput is their sum."""
INTEL_IMAGE_MODELS = {
    "Inception V3": "torchvision:inception_v3",
    "MobileNet V2": "torchvision:mobilenet_v2",
    "ResNet18": "torchvision:resnet18",
    "ResNet50": "torchvision:resnet50",
    "ResNeXt101_32x8d": "torchvision:resnext101_32x8d",
    "Se_ResNeXt50_32x4d": "timm:legacy_seresnext50_32x4d@224",  # timm's port of the package that Intel's example names
}
INTEL_TEXT_MODELS = {
    # The GLUE examples pad to 128 tokens (MAX_SEQ_LENGTH in their run_benchmark.sh).
    "BERT base": "bert_base",
    "BERT large": "bert_large",
    "CamemBERT base": "camembert_base",
    "DistilBERT base": "distilbert_base",
    "Roberta Base": "roberta_base",
    "SqueezeBERT": "squeezebert",
    "Xlm Roberta base": "xlm_roberta_base",
}
GLUE_TASK = re.compile(r"(?P<model>.+) (?:COLA|MRPC|QNLI|RTE|SST2|STSB)(?: QAT| FX)?")
GLUE_INPUT = "input_ids=128:int64 attention_mask=128:int64"

EXAMPLES = Path(__file__).parent / "data/deep_learning_examples.csv"
BERT_INPUT = "input_ids=384:int64"
EXAMPLE_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    # The vocabulary is filled up to a multiple of 8 (run_squad.py).
    "bert_base": {"model_type": "bert", "architectures": ["BertForQuestionAnswering"], "vocab_size": 30528},
    "bert_large": {
        "model_type": "bert",
        "architectures": ["BertForQuestionAnswering"],
        "vocab_size": 30528,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
    },
}
WAVEGLOW_VALUES = 8000
"""Values of a segment of audio, WaveGlow's sample."""
BERT_RAN, BERT_COUNTED = 101, 100
"""Steps of a BERT run, and those that its rate counts (run_squad.py); with torch 1.13 the first is no slower."""

DASHBOARD = Path(__file__).parent / "data/inductor_dashboard.csv"
DASHBOARD_TYPES = {
    # Class of transformers -> model_type of its config. All values are the defaults, as in benchmarks/dynamo.
    "AlbertForMaskedLM": "albert",
    "AlbertForQuestionAnswering": "albert",
    "BartForCausalLM": "bart",
    "BartForConditionalGeneration": "bart",
    "BertForMaskedLM": "bert",
    "BlenderbotForCausalLM": "blenderbot",
    "DebertaV2ForMaskedLM": "deberta-v2",
    "DistilBertForMaskedLM": "distilbert",
    "DistilBertForQuestionAnswering": "distilbert",
    "GPT2ForSequenceClassification": "gpt2",
    "LayoutLMForMaskedLM": "layoutlm",
    "M2M100ForConditionalGeneration": "m2m_100",
    "MBartForCausalLM": "mbart",
    "MBartForConditionalGeneration": "mbart",
    "MegatronBertForCausalLM": "megatron-bert",
    "MegatronBertForQuestionAnswering": "megatron-bert",
    "MobileBertForMaskedLM": "mobilebert",
    "MT5ForConditionalGeneration": "mt5",
    "OPTForCausalLM": "opt",
    "PegasusForCausalLM": "pegasus",
    "PegasusForConditionalGeneration": "pegasus",
    "PLBartForCausalLM": "plbart",
    "PLBartForConditionalGeneration": "plbart",
    "RobertaForCausalLM": "roberta",
    "T5ForConditionalGeneration": "t5",
    "TrOCRForCausalLM": "trocr",
    "XLNetLMHeadModel": "xlnet",
}
DASHBOARD_WITHOUT_LABELS = ("QuestionAnswering", "SequenceClassification")
"""Heads whose loss has a label for each sample, which takes no time; the others' have one for each token."""

ROBERTA: Mapping[str, Any] = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
INTEL_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    # All other values are the defaults of transformers, which are those of the published base model.
    "bert_base": {"model_type": "bert", "architectures": ["BertForSequenceClassification"]},
    "bert_large": {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
    },
    "camembert_base": {
        "model_type": "camembert",
        "architectures": ["CamembertForSequenceClassification"],
        "vocab_size": 32005,
        **ROBERTA,
    },
    "distilbert_base": {"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"]},
    "roberta_base": {
        "model_type": "roberta",
        "architectures": ["RobertaForSequenceClassification"],
        "vocab_size": 50265,
        **ROBERTA,
    },
    "squeezebert": {"model_type": "squeezebert", "architectures": ["SqueezeBertForSequenceClassification"]},
    "xlm_roberta_base": {
        "model_type": "xlm-roberta",
        "architectures": ["XLMRobertaForSequenceClassification"],
        "vocab_size": 250002,
        **ROBERTA,
    },
}


def timm_names() -> tuple[set[str], dict[str, str]]:
    """Return the architectures of the installed timm, and its names for those of older versions."""
    timm = require("timm")
    renamed = {old: new.partition(".")[0] for old, new in timm.models.get_deprecated_models().items() if new}
    return set(timm.list_models()), renamed | TIMM_RENAMED


@cache
def timm_forms(name: str) -> frozenset[str]:
    """Return what of a net `benchmark.py` can change.

    "all": it has norms of timm's; "all but transformers'": also outside the layers of a vision transformer; "reparam":
    it has branches to fuse.
    """
    import torch

    timm = require("timm")
    with torch.device("meta"):
        net = timm.create_model(name)
    modules = [*net.modules()]
    norms = [type(module) for module in modules if hasattr(module, "_fast_norm")]
    is_transformer = isinstance(net, timm.models.VisionTransformer)
    others = {*norms} - ({timm.layers.LayerNorm, timm.layers.RmsNorm} if is_transformer else set())
    fuses = any(hasattr(module, form) for module in modules for form in ("fuse", "reparameterize", "switch_to_deploy"))
    forms = {"all": norms, "all but transformers'": others, "reparam": fuses}
    return frozenset(form for form, has in forms.items() if has)


def list_timm(path: Path, *, names: set[str], renamed: Mapping[str, str]) -> Table:
    """Convert a timm table; its name gives precision, layout, torch and device. torch 1.12 had no fused attention."""
    regime = TIMM_RESULTS.fullmatch(path.stem)
    if regime is None:
        raise ValueError(f"{path}: not the name of a timm table")
    task, device, release = regime["task"], DEVICE_IDS[regime["device"]], TIMM_TORCH[regime["torch"]]
    half_norms = next((norms for host, norms in TIMM_FAST_NORMS.items() if task == "infer" and host in path.stem), "")
    rows, dropped = [], []
    for published in read_csv(path):
        old_name = published["model"]
        name = old_name if old_name in names else renamed.get(old_name, "")
        if old_name in TIMM_CHANGED:
            dropped.append(Dropped(file=path.name, model=old_name, reason=TIMM_CHANGED[old_name]))
        elif name not in names:
            dropped.append(Dropped(file=path.name, model=old_name, reason="timm has no such net any more"))
        else:
            forms = timm_forms(name)
            fast = "+fast-norm" if half_norms in forms else ""
            fused = "+reparam" if release in TIMM_REPARAMETERIZED and "reparam" in forms else ""
            rows.append(
                TimedStep(
                    model=f"timm:{name}@{published[f'{task}_img_size']}{fast}{fused}",
                    mode="inference" if task == "infer" else "training",
                    precision="amp-fp16" if regime["precision"] == "amp" else "fp32",
                    layout="nhwc" if regime["layout"] == "nhwc" else "nchw",
                    compile="compile" if regime["dynamo"] else "eager",
                    attention="eager" if release == "1.12" else "auto",
                    torch=release,
                    batch=int(published[f"{task}_batch_size"]),
                    device=device,
                    step_s=float(published[f"{task}_step_time"]) / 1e3,
                    source=f"timm {path.name} @ {TIMM_COMMIT}",
                )
            )
    host = regime["device"].removeprefix("cpu-")
    parts = ["timm", task, regime["precision"], regime["layout"], f"rtx{host}" if host.isdecimal() else host]
    marks = ["torch29"] * (release == "2.9") + ["compile"] * bool(regime["dynamo"])
    return Table(name="_".join([*parts, *marks]), rows=merged(rows), dropped=dropped)


def list_neusight(data: Path) -> tuple[Table, Table]:
    """Convert NeuSight's end-to-end labels: eager attention; forward and backward timed one after the other.

    The mixture of experts gets a separate table, because the work of its experts depends on the token values.
    """
    path = data / "measured/neusight/e2e_measured_and_predicted.csv"
    rows, dropped = [], []
    for published in read_csv(path):
        name, option = published["model_name"], published["option"]
        if option not in ("", "fusion"):
            dropped.append(Dropped(file=path.name, model=name, reason=f"four GPUs ({option})"))
            continue
        mode: MeasuredMode = "inference" if published["mode"] == "inf" else "forward_backward"
        rows.append(
            TimedStep(
                model=f"hf:neusight/{neusight_config_name(name, mode)}.json",
                mode=mode,
                precision="fp32",
                compile="compile" if option else "eager",
                attention="eager",
                batch=int(published["batch"]),
                input=neusight_input(name, int(published["seqlen"])),
                device=DEVICE_IDS[published["device"]],
                step_s=float(published["label_e2e_ms"]) / 1e3,
                source=f"NeuSight {path.name} @ {NEUSIGHT_COMMIT}",
            )
        )
    experts = [row for row in rows if "switch" in row.model]
    others = [row for row in rows if row not in experts]
    return (
        Table(name="neusight_e2e", rows=merged(others), dropped=dropped),
        Table(name="neusight_switch", rows=merged(experts), dropped=[]),
    )


def neusight_config_name(name: str, mode: str) -> str:
    """Return the name of the config's file; it contains the mode if the class depends on the mode."""
    return f"{name}_{mode}" if (name, mode) in NEUSIGHT_CLASSES else name


def neusight_input(name: str, token_count: int) -> str:
    """Return the inputs that the authors pass: token ids, for an encoder-decoder to both sides."""
    arguments = ("input_ids", "decoder_input_ids") if name.startswith("switch") else ("input_ids",)
    return " ".join(f"{argument}={token_count}:int64" for argument in arguments)


def neusight_configs(data: Path, rows: Iterable[TimedStep]) -> dict[str, dict[str, Any]]:
    """Return the configs of `rows` by file name, each with the class that was measured."""
    used = {row.model for row in rows}
    configs = {}
    for path in sorted((data / "measured/neusight/model_configs").glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        for mode in ("inference", "forward_backward"):
            name = neusight_config_name(path.stem, mode)
            if f"hf:neusight/{name}.json" in used:
                kind = NEUSIGHT_CLASSES.get((path.stem, mode))
                configs[name] = config | ({"architectures": [kind]} if kind else {})
    return configs


def list_ryujaehun(data: Path) -> Table:
    """Convert torchvision's nets on one desktop GPU: forward, loss and backward; "half" is the whole model in fp16."""
    path = data / "measured/ryujaehun_torchvision_gpus.csv"
    rows, dropped = [], []
    for published in read_csv(path):
        name, number = published["model"], published["precision"]
        if published["n_gpus"] != "1":
            dropped.append(Dropped(file=path.name, model=name, reason="several GPUs"))
        elif number not in RYUJAEHUN_PRECISIONS:
            dropped.append(Dropped(file=path.name, model=name, reason=f"precision {number}"))
        elif published["source_dir"] == RYUJAEHUN_COPY:
            dropped.append(Dropped(file=path.name, model=name, reason="a copy of results/2080ti(2)"))
        else:
            rows.append(torchvision_row(published, source=f"ryujaehun/pytorch-gpu-benchmark @ {RYUJAEHUN_COMMIT}"))
    return Table(name="ryujaehun", rows=merged(rows), dropped=dropped)


def list_lamikr(data: Path) -> Table:
    """Convert the same programs on AMD's Radeons and two GeForces."""
    rows = [
        replace(
            torchvision_row(published, source=f"lamikr/pytorch-gpu-benchmark @ {LAMIKR_COMMIT}, {published['gpu']}"),
            torch=LAMIKR_TORCH.get(published["gpu"], ""),
        )
        for published in read_csv(data / "measured/lamikr_amd_gpus.csv")
    ]
    return Table(name="lamikr", rows=merged(rows), dropped=[])


def torchvision_row(published: Mapping[str, str], *, source: str) -> TimedStep:
    """Return the row of a published time of ryujaehun's program."""
    number, gpu = published["precision"], published["gpu"]
    return TimedStep(
        model=f"torchvision:{published['model']}",
        mode="inference" if published["mode"] == "inference" else "forward_backward",
        precision=TF32_DEVICES.get(gpu, "fp32") if number == "float" else RYUJAEHUN_PRECISIONS[number],
        batch=int(published["batch_size"]),
        device=DEVICE_IDS[gpu],
        step_s=float(published["median_ms"]) / 1e3,
        source=source,
    )


def list_intel(data: Path) -> Table:
    """Convert Intel's fp32 baselines at batch 1, with ten instances on four cores each of a Xeon 8380."""
    path = data / "measured/intel_neural_compressor_cpu.csv"
    rows, dropped = [], []
    for published in read_csv(path):
        model, given = intel_model(published["model"])
        reason = intel_problem(published, model)
        if reason:
            dropped.append(Dropped(file=path.name, model=published["model"], reason=reason))
            continue
        rows.append(
            TimedStep(
                model=model,
                mode="inference",
                precision="fp32",
                attention="eager",
                batch=1,
                input=given,
                device="intel-xeon-platinum-8380@4",
                step_s=INTEL_INSTANCE_COUNT / float(published["tput_fp32"]),
                source=f"Intel Neural Compressor validated_model_list {published['inc_version']} @ {INTEL_COMMIT}",
            )
        )
    return Table(name="intel", rows=merged(rows), dropped=dropped)


def intel_problem(published: Mapping[str, str], model: str) -> str:
    """Return the reason why an Intel row is left out, or an empty string."""
    if published["example"] == "IPEX":
        return "Intel's extension, not plain PyTorch"
    if INTEL_INSTANCES not in published["hardware"]:
        return "instances that do not fill the socket"
    return "" if model else "architecture or length of the input not certain"


def intel_model(name: str) -> tuple[str, str]:
    """Return the model and input for one of Intel's names, or empty strings if either is uncertain."""
    if name in INTEL_IMAGE_MODELS:
        return INTEL_IMAGE_MODELS[name], ""
    glue = GLUE_TASK.fullmatch(name)
    if glue is not None and glue["model"] in INTEL_TEXT_MODELS:
        return f"hf:intel/{INTEL_TEXT_MODELS[glue['model']]}.json", GLUE_INPUT
    return "", ""


def list_examples() -> Table:
    """Return the rates of NVIDIA's examples that NVIDIA and a cloud published, as times of steps."""
    rows = [example_row(published) for published in read_csv(EXAMPLES)]
    return Table(name="deep_learning_examples", rows=merged(rows), dropped=[])


def example_row(published: Mapping[str, str]) -> TimedStep:
    """Return the row of a rate: of samples, of whole steps without the first, or of values of audio."""
    name, batch = published["model"], int(published["batch"])
    per_step = {"samples/s": batch, "steps/s": 1, "values/s": batch * WAVEGLOW_VALUES}[published["unit"]]
    is_bert = name.startswith("bert")
    ran = BERT_RAN / BERT_COUNTED if is_bert and published["unit"] == "samples/s" else 1.0
    if is_bert:
        model = f"hf:deep_learning_examples/{name}.json"
    else:
        model = f"timm:{name}@224" if name != "waveglow" else "deep_learning_examples/waveglow.py"
    return TimedStep(
        model=model,
        mode=cast("MeasuredMode", published["mode"]),
        precision=cast("Precision", published["precision"]),
        layout=cast("Layout", published["layout"]),
        attention="eager" if is_bert else "auto",
        torch=published["torch"],
        batch=batch,
        input=BERT_INPUT if is_bert else "",
        device=published["device"],
        step_s=per_step / (float(published["rate"]) * ran),
        source=published["source"],
    )


def list_dashboard() -> Table:
    """Return the latencies of inference that Intel publishes for torch's benchmarks on CPUs of AWS.

    `benchmarks/dynamo` passes labels, so that the loss is part of the step, and no mask. In 2023 neither timm nor
    transformers called fused attention.
    """
    rows = [
        TimedStep(
            model=published["model"]
            if ":" in published["model"]
            else f"hf:inductor_dashboard/{published['model']}.json",
            mode="inference",
            precision=cast("Precision", published["precision"]),
            compile=cast("CompileMode", published["compile"]),
            attention="eager" if published["torch"] == "2.0" else "auto",
            torch=published["torch"],
            batch=int(published["batch"]),
            input=dashboard_input(published["model"], published["tokens"]),
            device=published["device"],
            step_s=float(published["latency_ms"]) / 1e3,
            source=published["source"],
        )
        for published in read_csv(DASHBOARD)
    ]
    return Table(name="inductor_dashboard", rows=merged(rows), dropped=[])


def dashboard_input(model: str, tokens: str) -> str:
    """Return the inputs of one of transformers' classes; nets for images have none."""
    names = ["input_ids"] if tokens else []
    if model.startswith(("T5", "MT5", "M2M100", "PegasusForConditional")):  # the others derive these from the input
        names.append("decoder_input_ids")
    if tokens and not model.endswith(DASHBOARD_WITHOUT_LABELS):
        names.append("labels")
    return " ".join(f"{name}={tokens}:int64" for name in names)


def dashboard_configs() -> dict[str, dict[str, Any]]:
    """Return a config of default values for each class."""
    no_cache = {"use_cache": False}
    return {
        name: {
            "model_type": kind,
            "architectures": [name],
            **no_cache,
            **({"pad_token_id": 0} if kind == "gpt2" else {}),
        }
        for name, kind in DASHBOARD_TYPES.items()
    }


def write_configs(folder: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Write each config as NAME.json."""
    folder.mkdir(exist_ok=True)
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def write_measurements(data: Path, *, out: Path) -> dict[str, int]:
    """Write everything below `out`; return the row count of each CSV."""
    out.mkdir(parents=True, exist_ok=True)
    names, renamed = timm_names()
    neusight = list_neusight(data)
    tables = [
        *(list_timm(path, names=names, renamed=renamed) for path in sorted((data / "measured/timm").glob("*.csv"))),
        *neusight,
        list_ryujaehun(data),
        list_lamikr(data),
        list_neusight_operators(data),
        list_intel(data),
        list_vidur(data),
        list_vidur_engine(data),
        list_matmuls(),
        list_examples(),
        list_dashboard(),
        list_aiconfigurator(data),
    ]
    for table in tables:
        write_rows(out / f"{table.name}.csv", table.rows)
    dropped = [row for table in tables for row in table.dropped]
    write_dropped(out / "dropped.csv", dropped)
    write_configs(out / "neusight", neusight_configs(data, [row for table in neusight for row in table.rows]))
    write_configs(out / "intel", INTEL_CONFIGS)
    write_configs(out / "deep_learning_examples", EXAMPLE_CONFIGS)
    write_configs(out / "inductor_dashboard", dashboard_configs())
    return {table.name: len(table.rows) for table in tables} | {"dropped": len(dropped)}


def main() -> None:
    """Write the files and print the number of rows of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    arguments = parser.parse_args()
    for name, count in write_measurements(arguments.data, out=arguments.out).items():
        print(f"{name}: {count} rows")


if __name__ == "__main__":
    main()
