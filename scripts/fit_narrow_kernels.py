"""Fits the ratios of an engine's kernels for fp8 and nvfp4 to published times, and writes them into its file.

    python scripts/fit_narrow_kernels.py --measured tests/data/measured/kernels --engine profiles/engines/vllm.yaml

A product in bf16 gives the shares of peak and bandwidth, the ramp over tokens, the overlap and the time of a kernel, as
`PassCosts` has them; one in a narrow format gives the ratios of `NarrowKernel` to these. Prints the errors of devices
left out of both; the root mean square of those of large products is the spread. nvfp4 was measured on one GPU, and its
spread is a guess.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from left_out_spread import rms
from measurement_table import read_csv
from scipy.optimize import least_squares

from advisor.catalog.overlay import load_catalog
from advisor.fit.files import number
from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.predict.capability import gpu_device
from advisor.predict.served_pass import (
    COEFFICIENTS,
    DeviceRates,
    PassWork,
    device_rates,
    half_unit,
    pass_times,
    with_costs,
)
from advisor.records.device import Device
from advisor.records.engine import Engine, NarrowUnit
from advisor.records.prediction import BoolArray, FloatArray
from advisor.records.price import Catalog

WIDE = ("compute_ratio", "token_ramp", "overlap_ratio", "memory_ratio", "kernel_s")
"""The coefficients of `PassCosts` that a product alone shows."""
WIDE_START = (0.8, 16.0, 0.6, 1.0, 2.5e-6)
NARROW = ("compute_ratio", "memory_ratio", "quantizing_kernels", "quantizing_flops")
NARROW_START = (0.8, 1.0, 1.0, 100.0)
ROBUST_SCALE = 0.2
"""Log error from which on a row counts linearly: a choice, near the mean error of the fit."""
LARGE_FLOPS = 1e10
"""Larger products take long enough that launches do not matter, whose errors are in the spread of services."""
DTYPES = {"bf16": "bfloat16", "fp8": "float8_e4m3fn", "nvfp4": "nvfp4"}
UNITS: dict[str, NarrowUnit] = {"fp8": "fp8", "nvfp4": "fp4"}
KERNELS = {"fp8": "fp8_w8a8", "nvfp4": "nvfp4_w4a4"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """Products of one format, with the rates of their devices; arrays are (rows,)."""

    devices: list[str]
    work: PassWork
    rates: DeviceRates
    faster: FloatArray
    """Peak of the format's unit over that of 16 bits."""
    step_s: FloatArray

    def log_errors(self, wide: Sequence[float], narrow: Sequence[float] = ()) -> FloatArray:
        """Return log(predicted / measured)."""
        costs = (
            dict.fromkeys(COEFFICIENTS, np.zeros(1))
            | {"attention_ratio": np.ones(1)}
            | {name: np.array(value) for name, value in zip(WIDE, wide, strict=True)}
        )
        rates = self.rates
        if narrow:
            compute, memory, kernels, flops = (np.array(value) for value in narrow)
            rates = replace(
                rates,
                narrow_flops_per_s=rates.flops_per_s * self.faster * compute,
                narrow_memory_ratio=memory,
                quantizing_kernels=kernels,
                quantizing_flops=flops,
            )
        found: FloatArray = np.log(pass_times(self.work, with_costs(rates, costs)).total_s / self.step_s)
        return found


def products_of(rows: Sequence[dict[str, str]], stored_in: str, catalog: Catalog, engine: Engine) -> Products:
    """Return the rows of one format as passes of one product."""
    chosen = [row for row in rows if row["format"] == stored_in]
    devices = [gpu_device(catalog.gpus[row["device"]]) for row in chosen]
    m, n, k = (np.array([float(row[name]) for row in chosen]) for name in "mnk")
    rates = device_rates(devices, ["bf16"] * len(devices), engine=engine, efficiencies=catalog.efficiencies)
    flat = DeviceRates(**{one.name: np.ravel(getattr(rates, one.name)) for one in fields(DeviceRates)})
    is_narrow = stored_in != "bf16"
    nothing, size = np.zeros(len(chosen)), ITEMSIZE_BYTES[DTYPES[stored_in]]
    work = {one.name: nothing for one in fields(PassWork)} | {
        "token_count": m,
        "kernel_count": nothing + 1,
        "outer_bytes": 2 * m * n,
        "narrow_inputs" if is_narrow else "inner_bytes": m * k * (1 if is_narrow else 2),
        "narrow_bytes" if is_narrow else "weight_bytes": size * n * k,
        "narrow_flops" if is_narrow else "product_flops": 2 * m * n * k,
    }
    if is_narrow:
        work |= {"narrow_weights": n * k, "narrow_kernels": nothing + 1}
    return Products(
        devices=[row["device"] for row in chosen],
        work=PassWork(**work),
        rates=flat,
        faster=np.array([_faster(device, UNITS.get(stored_in)) for device in devices]),
        step_s=np.array([float(row["step_s"]) for row in chosen]),
    )


def _faster(device: Device, unit: NarrowUnit | None) -> float:
    peaks = device.peak_flops_per_s
    return 1.0 if unit is None else peaks[unit] / peaks[half_unit(device)]


def solve(errors_of: object, start: Sequence[float], among: BoolArray) -> list[float]:
    """Return the coefficients with the least robust error of the rows `among`, a mask."""
    solved = least_squares(
        lambda point: errors_of(np.exp(point).tolist())[among],  # type: ignore[operator]
        np.log(start),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        bounds=(np.log(np.array(start) / 20), np.log(np.minimum(np.array(start) * 20, 1000.0))),
    )
    return [float(value) for value in np.exp(solved.x)]


def show(title: str, errors: FloatArray) -> None:
    """Print the mean absolute error, its median, the bias and the root mean square of the logarithm."""
    percent, bias = np.abs(np.expm1(errors)), errors.mean()
    sizes = f"mean {percent.mean():.1%}, median {np.median(percent):.1%}, bias {bias:+.2f}, rms {rms(errors):.2f}"
    print(f"{title}: {sizes}, n {len(errors)}")


def cache_ratio(folder: Path, catalog: Catalog) -> float:
    """Return the rate at which attention reads a cache in fp8 over that in bf16, the median of the GPUs; print both."""
    rows = read_csv(folder / "narrow_caches.csv")
    ratios = []
    for device in sorted({row["device"] for row in rows}):
        rates = {
            stored_in: np.median(
                [
                    float(row["cache_bytes"]) / float(row["step_s"])
                    for row in rows
                    if (row["device"], row["format"]) == (device, stored_in)
                ]
            )
            for stored_in in ("bf16", "fp8")
        }
        ratios.append(float(rates["fp8"] / rates["bf16"]))
        peak = catalog.gpus[device].memory_bytes_per_s
        print(
            f"caches on {device}: {rates['bf16'] / peak:.2f} of the bandwidth in bf16, {rates['fp8'] / peak:.2f} in fp8"
        )
    return float(np.median(ratios))


def with_value(text: str, kernel: str, key: str, value: float) -> str:
    """Return the engine's file with the value of a key of a kernel, or of another block."""
    block = re.search(rf"^( *){kernel}:\n(?:\1  .*\n)+", text, flags=re.MULTILINE)
    if block is None:
        raise ValueError(f"no kernel {kernel}")
    indent, lines = f"{block.group(1)}  ", block.group()
    line = f"{indent}{key}: {number(value)}\n"
    changed, count = re.subn(rf"^{indent}{key}: .*\n", line, lines, flags=re.MULTILINE)
    if not count:
        changed = lines.replace(f"{indent}log_spread:", f"{line}{indent}log_spread:")
    return text.replace(lines, changed)


def main() -> None:
    """Fit, print the errors and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with narrow_products.csv")
    parser.add_argument("--engine", type=Path, required=True, help="file of the engine, whose ratios are rewritten")
    arguments = parser.parse_args()
    catalog = load_catalog()
    engine = catalog.engines["vllm"]
    rows = read_csv(arguments.measured / "narrow_products.csv")
    bf16 = products_of(rows, "bf16", catalog, engine)
    everywhere = np.ones(len(bf16.devices), dtype=np.bool_)
    wide = solve(bf16.log_errors, WIDE_START, everywhere)
    print("bf16", dict(zip(WIDE, map(number, wide), strict=True)))
    show("bf16, fitted", bf16.log_errors(wide))
    text = arguments.engine.read_text(encoding="utf-8")
    for stored_in, kernel in KERNELS.items():
        narrow = products_of(rows, stored_in, catalog, engine)
        every = np.ones(len(narrow.devices), dtype=np.bool_)
        ratios = solve(lambda point, rows=narrow: rows.log_errors(wide, point), NARROW_START, every)
        print(stored_in, dict(zip(NARROW, map(number, ratios), strict=True)))
        errors = narrow.log_errors(wide, ratios)
        show(f"{stored_in}, fitted", errors)
        left_out, is_large = errors.copy(), narrow.work.narrow_flops > LARGE_FLOPS
        names = sorted(set(narrow.devices))
        for device in names if len(names) > 1 else ():
            is_own = np.array([one == device for one in narrow.devices])
            is_own_bf16 = np.array([one == device for one in bf16.devices])
            without = solve(bf16.log_errors, WIDE_START, ~is_own_bf16)
            found = solve(lambda point, rows=narrow, wide=without: rows.log_errors(wide, point), NARROW_START, ~is_own)
            left_out[is_own] = narrow.log_errors(without, found)[is_own]
            show(f"  bf16 on {device}, left out", bf16.log_errors(without)[is_own_bf16])
            show(f"  {stored_in} on {device}, left out", left_out[is_own])
            show(f"  {stored_in} on {device}, left out, from {LARGE_FLOPS:.0e} FLOP", left_out[is_own & is_large])
        for key, value in zip(NARROW, ratios, strict=True):
            text = with_value(text, kernel, key, value)
        if len(names) > 1:
            text = with_value(text, kernel, "log_spread", round(rms(left_out[is_large]), 2))
    text = with_value(text, "fp8", "memory_ratio", cache_ratio(arguments.measured, catalog))
    arguments.engine.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
