"""Compares predicted with published training on several GPUs: MosaicML's MPT, NeuSight's rows and a cloud's ResNet-50.

    python scripts/check_scale.py --data ../shared/data --out tests/data/scale

Reads the published tables below --data and `scripts/data/resnet50_by_gpus.csv`, writes `neusight.csv`, `mosaicml.csv`
and `resnet50.csv` into --out, and prints the errors.
NeuSight's rows are predicted without changes. MosaicML's kernels of 2023 are slower than today's, by one factor for its
attention in Triton and another for all other kernels. Both factors are fitted on every fifth row, and the errors are
those of the other rows.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import mpt_model
import numpy as np
import torch
from scipy.optimize import least_squares

from advisor.answers.validation import without_optimizer
from advisor.catalog.overlay import load_catalog
from advisor.predict.capability import gpu_device
from advisor.predict.precision import width_of
from advisor.predict.step_time import predict
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.price import Catalog
from advisor.records.scale import Plan
from advisor.records.workload import Workload
from advisor.scale.links import fabric_of
from advisor.scale.parallel_step import Alone, spread_step
from advisor.scale.sharded_memory import memory_of_one
from advisor.scale.traffic import traffic_of
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.sources.huggingface import load as load_config
from advisor.workload.sources.live import load_live
from advisor.workload.sources.timm import load as load_timm
from advisor.workload.trace import trace

DEVICES = {"a100_80gb": "a100-sxm4-80gb", "a100_40gb": "a100-sxm4-40gb"}
GPUS_PER_MACHINE = 8
NETWORK_BYTES_PER_S = 1600e9 / 8
"""Network bandwidth of a machine, from the table's titles."""
FITTED_EVERY = 5
ATTENTION = ("attention", "attention_backward")
NEUSIGHT_PLANS = {
    # A global batch of 4 on 4 GPUs; pp4_1 is one micro-batch through four stages.
    "dp4": Plan(data=4),
    "tp4": Plan(tensor=4),
    "pp4_1": Plan(pipeline=4),
}
RESNET50 = Path(__file__).parent / "data/resnet50_by_gpus.csv"
"""Images per second of one program (DDP, synthetic images, batch per GPU) on 1, 2, 4 and 8 GPUs of a machine."""
GPT2_LARGE = Path(__file__).parents[1] / "tests" / "data" / "measured" / "neusight" / "gpt2_large.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published step: its workload, device, parallel plan and measured time."""

    name: str
    workload: Workload
    device: Device
    plan: Plan
    pass_batch: int
    precision: Precision
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Slowdown of kernels relative to today's, as ratios of their times."""

    attention: float = 1.0
    all: float = 1.0


def main() -> None:
    """Trace, fit the two slowdowns, predict, write the tables and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    given = parser.parse_args()
    catalog = load_catalog(profiles=None, prices=[])
    args = (catalog.efficiencies, Kernels())
    neusight = [row_of(case, step_s(case, *args)) for case in neusight_cases(given.data / "measured", catalog)]
    cases = list(mosaicml_cases(given.data / "measured" / "mosaicml_mpt_training.csv", catalog))
    kernels = fitted_kernels(cases[FITTED_EVERY - 1 :: FITTED_EVERY], catalog.efficiencies)
    mosaicml = [
        row_of(case, step_s(case, catalog.efficiencies, kernels))
        | memory_of(case)
        | {"fitted": "yes" if number % FITTED_EVERY == FITTED_EVERY - 1 else ""}
        for number, case in enumerate(cases)
    ]
    resnet50 = list(scaling_rows(catalog))
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "neusight.csv", neusight)
    write(given.out / "resnet50.csv", resnet50)
    write(given.out / "mosaicml.csv", mosaicml)
    for row in neusight:
        print(f"NeuSight {row['name']}: {float(row['error']):+.1%}")
    off = [float(row["predicted_efficiency"]) - float(row["measured_efficiency"]) for row in resnet50]
    print(f"ResNet-50 with DDP: efficiency off by {np.mean(off):+.1%} in the mean, {min(off):+.1%} to {max(off):+.1%}")
    print(
        f"times of MosaicML's kernels relative to today's: "
        f"attention {kernels.attention:.2f}, all others {kernels.all:.2f}"
    )
    predicted = [row for row in mosaicml if not row["fitted"]]
    errors = np.abs([float(row["error"]) for row in predicted])
    print(f"{len(predicted)} rows not fitted: mean {errors.mean():.1%}, median {np.median(errors):.1%}")
    for verdict in ("ran_fits", "eightfold_fits", "unsharded_fits"):
        print(f"{verdict}: {sum(row[verdict] == 'yes' for row in mosaicml)} of {len(mosaicml)}")


def mosaicml_cases(path: Path, catalog: Catalog) -> Iterator[Case]:
    """Yield the rows of the table. FSDP computes in half precision in both of the table's precisions."""
    workloads: dict[tuple[str, int], Workload] = {}
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            size, length, gpus = row["Model"], int(row["SeqLen (T)"]), int(row["# GPUs"])
            passes, pass_batch = int(row["GradAccum"]), int(row["MicroBatchSize"])
            if (size, length) not in workloads:
                workloads[size, length] = mpt_workload(size, length)
            device = gpu_device(catalog.gpus[DEVICES[row["GPU"]]], gpu_count=GPUS_PER_MACHINE)
            rate = float(row["Throughput (T/s/GPU)"])
            yield Case(
                name=f"{row['GPU']} {size} {length} x {gpus}",
                workload=workloads[size, length],
                device=replace(device, network_bytes_per_s=NETWORK_BYTES_PER_S),
                plan=Plan(
                    machines=gpus // GPUS_PER_MACHINE,
                    data=gpus,
                    sharding="zero3",
                    accumulate=passes,
                    checkpoint_activations=row["Activation Checkpointing"] == "True",
                ),
                pass_batch=pass_batch,
                precision="bf16",
                measured_s=passes * pass_batch * length / rate,
            )


def mpt_workload(size: str, length: int) -> Workload:
    """Trace a training step of one of the table's models."""
    with torch.device("meta"):
        model = mpt_model.build(size, length)
    loaded = load_live(
        model,
        lambda batch: torch.zeros(batch, length, dtype=torch.long),
        name=f"mpt-{size}-{length}",
        loss=mpt_model.loss,
        optimizer=mpt_model.optimizer,
    )
    return trace(loaded, mode="training", batch=None)


def neusight_cases(folder: Path, catalog: Catalog) -> Iterator[Case]:
    """Yield forward and backward passes of GPT-2 large in fp32 on four A100 with NVLink."""
    specs = parse_input_specs(("input_ids=1024:int64",))
    loaded = load_config(str(GPT2_LARGE), mode="training", specs=specs, attention="eager")
    workload = without_optimizer(trace(loaded, mode="training", batch=None))
    with (folder / "neusight" / "e2e_measured_and_predicted.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            plan = NEUSIGHT_PLANS.get(row["option"])
            if plan is not None:
                yield Case(
                    name=f"{row['model_name']} {row['option']}",
                    workload=workload,
                    device=gpu_device(catalog.gpus["a100-sxm4-40gb"], gpu_count=4),
                    plan=plan,
                    pass_batch=int(row["batch"]) // plan.data,
                    precision="fp32",
                    measured_s=float(row["label_e2e_ms"]) / 1e3,
                )


def scaling_rows(catalog: Catalog) -> Iterator[dict[str, str]]:
    """Yield the measured and the predicted scaling efficiency of ResNet-50 under DDP for each number of GPUs."""
    workload = trace(load_timm("resnet50", mode="training", specs=()), mode="training", batch=None)
    with RESNET50.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            rates = {gpus: float(row[str(gpus)]) for gpus in (1, 2, 4, 8) if row[str(gpus)]}
            cases = {
                gpus: Case(
                    name=f"{row['device']} {row['precision']} x {gpus}",
                    workload=workload,
                    device=gpu_device(catalog.gpus[row["device"]], gpu_count=gpus),
                    plan=Plan(data=gpus),
                    pass_batch=int(row["batch"]),
                    precision=cast("Precision", row["precision"]),
                    measured_s=int(row["batch"]) * gpus / rate,
                )
                for gpus, rate in rates.items()
            }
            predicted = {gpus: step_s(case, catalog.efficiencies, Kernels()) for gpus, case in cases.items()}
            for gpus, case in cases.items():
                if gpus > 1:
                    yield {
                        "name": case.name,
                        "measured_efficiency": f"{cases[1].measured_s / case.measured_s:.3f}",
                        "predicted_efficiency": f"{predicted[1] / predicted[gpus]:.3f}",
                    }


def step_s(case: Case, efficiencies: Sequence[Efficiency], kernels: Kernels) -> float:
    """Predict the step with slower kernels."""
    device = replace(
        case.device,
        host_to_device_bytes_per_s=None,
        sustained_compute_ratio=case.device.sustained_compute_ratio / kernels.all,
        sustained_memory_ratio=case.device.sustained_memory_ratio / kernels.all,
    )
    batches = np.array([case.pass_batch])
    slower = [with_slower_attention(one, kernels.attention / kernels.all) for one in efficiencies]
    alone = predict(case.workload, devices=[device], efficiencies=slower, batches=batches, precision=case.precision)
    if alone.part_ratio is None:
        raise ValueError("the parts of the step were not counted")
    spread = spread_step(
        Alone(step_s=alone.step_s, work_s=alone.part_ratio * alone.step_s),
        case.plan,
        traffic=traffic_of(case.workload, batches=batches.astype(np.float64), width=width_of(case.precision)),
        fabric=fabric_of([case.device], case.plan),  # PCIe is the link of most cards
    )
    return float(spread.step_s[0, 0])


def with_slower_attention(efficiency: Efficiency, ratio: float) -> Efficiency:
    """Return the efficiency with fused attention that takes `ratio` times as long."""
    families = dict(efficiency.families)
    fallback = families.get("attention", families.get("matmul", families["*"]))
    for family in ATTENTION:
        entry = families.get(family, fallback)
        families[family] = replace(
            entry, compute_ratio=entry.compute_ratio / ratio, memory_ratio=entry.memory_ratio / ratio
        )
    return replace(efficiency, families=families)


def fitted_kernels(cases: Sequence[Case], efficiencies: Sequence[Efficiency]) -> Kernels:
    """Fit the two slowdowns to the cases, with an arctangent loss that limits the weight of outliers."""

    def errors(logs: Any) -> list[float]:
        attention, everything = np.exp(logs)
        kernels = Kernels(attention=float(attention), all=float(everything))
        return [float(np.log(step_s(case, efficiencies, kernels) / case.measured_s)) for case in cases]

    found = least_squares(errors, np.zeros(2), loss="arctan", f_scale=0.2, diff_step=0.01)
    return Kernels(attention=float(np.exp(found.x[0])), all=float(np.exp(found.x[1])))


def memory_of(case: Case) -> dict[str, str]:
    """Predict the step's memory per GPU, and whether it fits: as published, at 8 times the batch, and unsharded.

    The sharded runs computed norms in 16 bits too (llm-foundry: `low_precision_layernorm`), which is the lower bound.
    """
    memory_bytes = case.device.memory_bytes

    def peak_bytes(plan: Plan, batch: int) -> float:
        batches = np.array([float(batch)])
        total = memory_of_one(case.workload, plan, batches=batches, width="autocast").total
        return float((total.low if plan.sharding == "zero3" else total.mid)[0])

    ran = peak_bytes(case.plan, case.pass_batch)
    eightfold = peak_bytes(replace(case.plan, checkpoint_activations=False), 8 * case.pass_batch)
    unsharded = peak_bytes(replace(case.plan, sharding="none"), case.pass_batch)
    largest_bytes = 80 * 2**30
    return {
        "peak_gb": f"{ran / 1e9:.1f}",
        "memory_gb": f"{memory_bytes / 1e9:.1f}",
        "ran_fits": yes(ran <= memory_bytes),
        "eightfold_fits": yes(eightfold <= largest_bytes),
        "unsharded_fits": yes(unsharded <= largest_bytes),
    }


def yes(claim: bool) -> str:
    """Return "yes" or "no"."""
    return "yes" if claim else "no"


def row_of(case: Case, predicted_s: float) -> dict[str, str]:
    """Return a row of a table."""
    return {
        "name": case.name,
        "passes": str(case.plan.accumulate),
        "pass_batch": str(case.pass_batch),
        "checkpoints": yes(case.plan.checkpoint_activations),
        "measured_s": f"{case.measured_s:.4g}",
        "predicted_s": f"{predicted_s:.4g}",
        "error": f"{case.measured_s / predicted_s - 1:.4f}",
    }


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Write a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
