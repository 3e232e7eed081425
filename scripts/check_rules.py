"""Checks the rules for GPU kernels that were found in a few nets: the errors of such nets with each rule and without.

    python scripts/check_rules.py --measured tests/data/measured

The rules were found on an RTX 3090 and an RTX 4090. On the RTX 5090, of a generation that no rule was chosen on, each
has to help. Prints the mean of |log(measured / predicted)| by rule and table, without the lockbox. The shipped
efficiencies predict, since of 6,700 rows that they were fitted to few are of these nets.
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np
from lockbox import is_locked

from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, predict_runs, prepare
from advisor.catalog.overlay import load_catalog
from advisor.predict import kernel_time, lowering, products
from advisor.records.measurement import PredictedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule, the beginnings of the names of nets that it is about, and the values of constants that switch it off."""

    name: str
    nets: tuple[str, ...]
    without: Mapping[tuple[ModuleType, str], object]


_DEPTHWISE = ("convmixer", "edgenext", "fastvit", "focalnet", "mixnet", "tf_mixnet")
_DIRECT = ((products, "_TORCH_DIRECT_RATIO"), (products, "_CUDNN_DIRECT_RATIO"))
RULES = (
    Rule(name="direct depthwise kernels", nets=_DEPTHWISE, without=dict.fromkeys(_DIRECT, 0.0)),
    Rule(name="a rate for each library", nets=_DEPTHWISE, without=dict.fromkeys(_DIRECT, 1.0)),
    Rule(
        name="cuDNN has 7 x 7",
        nets=("caformer", "convformer", *_DEPTHWISE),
        without={(products, "_WRITTEN_FOR_NHWC"): frozenset({1.0, 3.0, 5.0})},
    ),
    Rule(name="upsampling waits", nets=("efficientformerv2",), without={(kernel_time, "LOAD_S"): 0.0}),
    Rule(
        name="transposing copies",
        nets=("poolformer", "resnet50_gn", "resnetv2_50d_gn", "efficientnet_b0_g8_gn", "efficientnet_b3_g"),
        without={(lowering, "_NHWC_COPY_RATIO"): 1.0},
    ),
)


def main() -> None:
    """Print a line for every rule and table of which a prediction depends on the rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    runs = dict(_runs(parser.parse_args().measured))
    for rule in RULES:
        for table, all_of_table in runs.items():
            of_rule = [run for run in all_of_table if _name(run).startswith(rule.nets)]
            kept = _errors(of_rule)
            with ExitStack() as stack:
                for (module, constant), value in rule.without.items():
                    stack.enter_context(patch.object(module, constant, value))
                dropped = _errors(of_rule)
            moved = [name for name in kept if abs(kept[name] - dropped[name]) > 1e-3]
            if moved:
                means = [np.mean([abs(errors[name]) for name in moved]) for errors in (kept, dropped)]
                print(f"{rule.name}: {table}: n {len(moved)}, {means[0]:.2f} with it, {means[1]:.2f} without")


def _runs(folder: Path) -> Iterator[tuple[str, list[Run]]]:
    """Yield the runs of nets that any rule is about, by table of timm's inference."""
    nets = tuple(net for rule in RULES for net in rule.nets)
    catalog = load_catalog()
    for file in sorted(folder.glob("timm_infer_amp_*.csv")):
        asked = [one for one in read_measurements(file) if not is_locked(one.device, one.model)]
        asked = [one for one in asked if one.model.removeprefix("timm:").startswith(nets)]
        yield file.stem, [run for run in prepare(asked, catalog, timeout_s=120.0) if isinstance(run, Run)]


def _name(run: Run) -> str:
    return run.measurement.model.removeprefix("timm:")


def _errors(runs: list[Run]) -> dict[str, float]:
    """Return log(measured / predicted) of every run, by the name of its net."""
    rows = [row for row in predict_runs(runs, load_catalog()) if isinstance(row, PredictedRow)]
    return {row.measurement.model: float(np.log(row.measurement.step_s / row.predicted_s)) for row in rows}


if __name__ == "__main__":
    main()
