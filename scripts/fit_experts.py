"""Fits the compute throughput of an engine's grouped matmuls of experts to published times, and writes it to its file.

    python scripts/fit_experts.py --measured tests/data/measured/kernels --engine profiles/engines/vllm.yaml

A layer of experts costs what it costs inside a pass: the work that `predict.served_pass.pass_work` counts of a traced
layer, and `PassCosts` as they are fitted to services of dense models. Routing is balanced
(`ops.matmul.chosen_expert_count`). Prints the errors of GPUs left out, whose root mean square is the spread of models
with experts.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
from fit_narrow_kernels import show, solve, with_value
from left_out_spread import rms
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
LAYER_KERNELS = 7
"""Choosing experts, sorting tokens by expert (two), two grouped matmuls, the activation, the weighted sum."""
HIDDEN_MOVES, INNER_MOVES = 3, 6
"""How often an element of the hidden size, and of an expert's, is read or written for each token and expert."""
HALF_BYTES = ITEMSIZE_BYTES["bfloat16"]
MANY_TOKENS = 16.0
"""Tokens per expert from which a layer counts as one with many."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpertLayers:
    """Layers of experts, with the rates of their devices; arrays are (rows,)."""

    devices: FloatArray
    formats: FloatArray
    tokens_per_expert: FloatArray
    work: PassWork
    rates: EngineRates
    step_s: FloatArray

    def log_errors(self, ratio: Sequence[float]) -> FloatArray:
        """Return log(predicted / measured)."""
        rates = replace(self.rates, expert_compute_ratio=np.array(ratio[0]), pass_s=np.zeros(1))
        found: FloatArray = np.log(pass_times(self.work, rates).total_s / self.step_s)
        return found

    def of(self, *, device: str, stored_in: str | None = None) -> BoolArray:
        """Return which rows are of a device, and in a format."""
        found: BoolArray = self.devices == device
        return found if stored_in is None else found & (self.formats == stored_in)


def expert_layers(rows: Sequence[dict[str, str]], catalog: Catalog) -> ExpertLayers:
    """Return the rows of `experts.csv`."""
    engine = catalog.engines["vllm"]

    @cache
    def rates_of(device: str, weights: WeightFormat) -> EngineRates:
        return engine_rates(
            [gpu_device(catalog.gpus[device])],
            ["bf16"],
            engine=engine,
            efficiencies=catalog.efficiencies,
            weights=weights,
        )

    parts, rates, tokens_per_expert = [], [], []
    for row in rows:
        weights: WeightFormat = "auto" if row["format"] == "bf16" else row["format"]  # type: ignore[assignment]
        tokens, hidden, inner, count, chosen = (
            float(row[name]) for name in ("tokens", "hidden", "intermediate", "experts", "chosen")
        )
        read = count * (1 - (1 - chosen / count) ** tokens) * MATRICES * hidden * inner
        flops = 2 * tokens * chosen * MATRICES * hidden * inner
        work = {
            "token_count": tokens,
            "kernel_count": LAYER_KERNELS,
            "expert_flops": flops,
            "inner_bytes": HALF_BYTES * tokens * (chosen * (HIDDEN_MOVES * hidden + INNER_MOVES * inner) + hidden),
        }
        if weights == "auto":
            work |= {"product_flops": flops, "weight_bytes": HALF_BYTES * read}
        else:
            work |= {"narrow_flops": flops, "narrow_bytes": stored_bits(weights) / 8 * read, "narrow_weights": read}
            work |= {"narrow_inputs": tokens * (hidden + chosen * inner), "narrow_kernels": 2.0}
        parts.append(work)
        rates.append(rates_of(row["device"], weights))
        tokens_per_expert.append(tokens * chosen / count)
    return ExpertLayers(
        devices=np.array([row["device"] for row in rows]),
        formats=np.array([row["format"] for row in rows]),
        tokens_per_expert=np.array(tokens_per_expert),
        work=PassWork(**{one.name: np.array([part.get(one.name, 0.0) for part in parts]) for one in fields(PassWork)}),
        rates=EngineRates(
            **{
                one.name: np.concatenate([np.ravel(getattr(rate, one.name)) for rate in rates])
                for one in fields(EngineRates)
            }
        ),
        step_s=np.array([float(row["step_s"]) for row in rows]),
    )


def show_groups(layers: ExpertLayers, errors: FloatArray) -> None:
    """Print the errors by device and format, with few and with many tokens per expert."""
    is_many = layers.tokens_per_expert >= MANY_TOKENS
    for device, stored_in in sorted(set(zip(layers.devices.tolist(), layers.formats.tolist(), strict=True))):
        is_one = layers.of(device=device, stored_in=stored_in)
        few, many = (np.expm1(np.mean(errors[is_one & some])) for some in (~is_many, is_many))
        show(f"  {stored_in} on {device}, few tokens per expert {few:+.0%}, many {many:+.0%}", errors[is_one])


def main() -> None:
    """Fit, print the errors and write the ratio and the spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with experts.csv")
    parser.add_argument("--engine", type=Path, required=True, help="file of the engine, whose ratio is rewritten")
    arguments = parser.parse_args()
    layers = expert_layers(read_csv(arguments.measured / "experts.csv"), load_catalog())
    as_others = layers.log_errors((1.0,))
    show("as other matmuls", as_others)
    ratio = solve(layers.log_errors, START, np.ones(len(layers.devices), dtype=np.bool_))
    show(f"fitted, ratio {number(ratio[0])}", layers.log_errors(ratio))
    show_groups(layers, layers.log_errors(ratio))
    left_out = np.zeros(len(layers.devices))
    for device in sorted(set(layers.devices)):
        is_own = layers.of(device=device)
        without = solve(layers.log_errors, START, ~is_own)
        left_out[is_own] = layers.log_errors(without)[is_own]
        show(f"  {device} as other matmuls", as_others[is_own])
        show(f"  {device} left out, ratio {number(without[0])}", left_out[is_own])
    show("left out", left_out)
    text = arguments.engine.read_text(encoding="utf-8")
    text = with_value(text, "experts", "compute_ratio", ratio[0])
    text = with_value(text, "experts", "log_spread", round(rms(left_out), 2))
    arguments.engine.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
