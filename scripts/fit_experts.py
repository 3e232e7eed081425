"""Fits the compute throughput of an engine's products of experts to published times, and writes it into its file.

    python scripts/fit_experts.py --measured tests/data/measured/kernels --engine profiles/engines/vllm.yaml

A layer of experts costs what it costs inside a pass: `PassCosts` as they are fitted to services, and `LAYER_KERNELS`
kernels. Each expert that some token chose is read once, as if routing were balanced (`ops.matmul.chosen_expert_count`).
Prints the errors of GPUs left out; their mean is the spread of models with experts.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from fit_narrow_kernels import show, solve, with_value
from measurement_table import read_csv

from advisor.catalog.overlay import load_catalog
from advisor.fit.files import number
from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.predict.capability import gpu_device
from advisor.predict.served_pass import EngineRates, PassWork, engine_rates, pass_times
from advisor.predict.weights import stored_bits
from advisor.records.generation import WeightFormat
from advisor.records.prediction import BoolArray, FloatArray
from advisor.records.price import Catalog

START = (0.5,)
MATRICES = 3
"""Gate, up and down."""
LAYER_KERNELS = 6
"""Choosing experts, sorting tokens by expert, two products, the activation, the weighted sum."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpertLayers:
    """Layers of experts, with the rates of their devices; arrays are (rows,)."""

    devices: FloatArray
    formats: FloatArray
    work: PassWork
    rates: EngineRates
    step_s: FloatArray

    def log_errors(self, ratio: Sequence[float]) -> FloatArray:
        """Return log(predicted / measured)."""
        rates = replace(self.rates, expert_compute_ratio=np.array(ratio[0]), pass_s=np.zeros(1))
        found: FloatArray = np.log(pass_times(self.work, rates).total_s / self.step_s)
        return found

    def on(self, device: str) -> BoolArray:
        """Return which rows are of a device."""
        found: BoolArray = self.devices == device
        return found


def expert_layers(rows: Sequence[dict[str, str]], catalog: Catalog) -> ExpertLayers:
    """Return the rows of `experts.csv`."""
    engine, parts, rates = catalog.engines["vllm"], [], []
    for row in rows:
        weights: WeightFormat = "auto" if row["format"] == "bf16" else row["format"]  # type: ignore[assignment]
        tokens, hidden, inner, count, chosen = (
            float(row[name]) for name in ("tokens", "hidden", "intermediate", "experts", "chosen")
        )
        is_narrow, size_bytes = weights != "auto", ITEMSIZE_BYTES["bfloat16"]
        read = count * (1 - (1 - chosen / count) ** tokens) * MATRICES * hidden * inner
        flops = 2 * tokens * chosen * MATRICES * hidden * inner
        work = dict.fromkeys((one.name for one in fields(PassWork)), 0.0) | {
            "token_count": tokens,
            "kernel_count": LAYER_KERNELS,
            "expert_flops": flops,
            "inner_bytes": size_bytes * tokens * chosen * (2 * hidden + MATRICES * inner),
        }
        if is_narrow:
            work |= {"narrow_flops": flops, "narrow_bytes": stored_bits(weights) / 8 * read, "narrow_weights": read}
            work |= {"narrow_inputs": tokens * hidden, "narrow_kernels": 2.0}
        else:
            work |= {"product_flops": flops, "weight_bytes": size_bytes * read}
        parts.append(work)
        device = gpu_device(catalog.gpus[row["device"]])
        rates.append(
            engine_rates([device], ["bf16"], engine=engine, efficiencies=catalog.efficiencies, weights=weights)
        )
    return ExpertLayers(
        devices=np.array([row["device"] for row in rows]),
        formats=np.array([row["format"] for row in rows]),
        work=PassWork(**{one.name: np.array([part[one.name] for part in parts]) for one in fields(PassWork)}),
        rates=EngineRates(
            **{
                one.name: np.concatenate([np.ravel(getattr(rate, one.name)) for rate in rates])
                for one in fields(EngineRates)
            }
        ),
        step_s=np.array([float(row["step_s"]) for row in rows]),
    )


def main() -> None:
    """Fit, print the errors and write the ratio and the spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with experts.csv")
    parser.add_argument("--engine", type=Path, required=True, help="file of the engine, whose ratio is rewritten")
    arguments = parser.parse_args()
    layers = expert_layers(read_csv(arguments.measured / "experts.csv"), load_catalog())
    show("as other products", layers.log_errors((1.0,)))
    ratio = solve(layers.log_errors, START, np.ones(len(layers.devices), dtype=np.bool_))
    show(f"fitted, ratio {number(ratio[0])}", layers.log_errors(ratio))
    left_out = np.zeros(len(layers.devices))
    for device in sorted(set(layers.devices)):
        is_own = layers.on(device)
        without = solve(layers.log_errors, START, ~is_own)
        left_out[is_own] = layers.log_errors(without)[is_own]
        show(f"  {device} left out, ratio {number(without[0])}", left_out[is_own])
    show("left out", left_out)
    for stored_in in sorted(set(layers.formats)):
        show(f"  {stored_in}", left_out[layers.formats == stored_in])
    text = arguments.engine.read_text(encoding="utf-8")
    text = with_value(text, "experts", "compute_ratio", ratio[0])
    text = with_value(text, "experts", "log_spread", round(float(np.abs(np.expm1(left_out)).mean()), 2))
    arguments.engine.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
