"""The power of GPUs, fitted to measured watts, and the tables that it is fitted to."""

from dataclasses import replace

import fit_power
import numpy as np
import pytest
from fit_power import PRIORS, Row, fitted, kernel_rows, served_rows
from list_energy import cpu_text, grid_text, kernel_work

from advisor.catalog.overlay import load_catalog
from advisor.cost.power import load_ratios

CATALOG = load_catalog()
SHIPPED = CATALOG.billing.energy.gpu


def row(device: str, compute: float, memory: float, overhead: float, power_ratio: float) -> Row:
    return Row(
        device=device, what="by hand", shares=(compute, memory, overhead), power_ratio=power_ratio, limit_w=500.0
    )


def test_a_fit_finds_the_coefficients_that_the_rows_were_made_with() -> None:
    assert SHIPPED is not None
    made = replace(SHIPPED, idle_ratio=0.1, compute_ratio=0.7, memory_ratio=0.45, overhead_ratio=0.25, most_ratio=0.96)
    random = np.random.default_rng(1)
    rows = []
    for place, shares in enumerate(random.uniform(0.0, 1.0, (200, 3))):
        loads = load_ratios(made, [np.array(share) for share in shares])
        rows.append(row(f"gpu{place % 2}", *shares, power_ratio=0.1 + float(sum(loads))))
    found = fitted(rows, idle_ratio=0.1)
    for name in PRIORS:
        assert getattr(found, name) == pytest.approx(getattr(made, name), rel=0.1), name


def test_a_gpu_with_many_rows_weighs_no_more_than_one_with_few() -> None:
    many = [row("many", 0.0, 1.0, 0.0, 0.5)] * 400
    few = [row("few", 0.0, 1.0, 0.0, 0.8)] * 4
    found = fitted([*many, *few], idle_ratio=0.1)
    # between 0.5 and 0.8 in the middle of the logarithms, 0.63
    assert 0.1 + found.memory_ratio == pytest.approx(0.63, abs=0.05)


def test_the_kernels_of_a_gpu_are_predicted_by_the_shipped_coefficients() -> None:
    assert SHIPPED is not None
    rows = list(kernel_rows(CATALOG))
    errors = [abs(fit_power._predicted(one, SHIPPED) / one.power_ratio - 1) for one in rows]
    assert len(rows) == 490
    assert np.mean(errors) < 0.15
    assert all(0 <= share <= 1 for one in rows for share in one.shares)


@pytest.mark.slow
def test_the_bars_hold_for_a_gpu_that_is_left_out_and_the_shipped_fit_is_current() -> None:
    assert SHIPPED is not None
    rows = [*served_rows(CATALOG), *kernel_rows(CATALOG)]
    for device in ("b200", "h100-sxm5-80gb"):
        others = fitted([one for one in rows if one.device != device], idle_ratio=SHIPPED.idle_ratio)
        own = [one for one in rows if one.device == device]
        predicted = [fit_power._predicted(one, others) for one in own]
        watts = [abs(ratio / one.power_ratio - 1) for ratio, one in zip(predicted, own, strict=True)]
        energy = [
            abs(ratio * one.limit_w * one.gpus * one.predicted_s_per_token / one.joule_per_token - 1)
            for ratio, one in zip(predicted, own, strict=True)
            if one.joule_per_token and one.predicted_s_per_token
        ]
        assert np.mean(watts) < 0.2, device
        assert not energy or np.mean(energy) < 0.25, device
    final = fitted(rows, idle_ratio=SHIPPED.idle_ratio)
    for name in PRIORS:
        assert getattr(final, name) == pytest.approx(getattr(SHIPPED, name), rel=0.02), name


def test_the_work_of_a_kernel_is_that_of_the_sources_formulas() -> None:
    product = kernel_work("gemm", {"m": "2", "n": "3", "k": "5"})
    assert product == (60, 2 * (15 + 10 + 6))
    of_attention = {"batch": "2", "heads": "4", "kv_heads": "1", "head_dim": "8", "window": "0"}
    # 4 FLOP for each of 2 x 4 heads x 8 x 10 tokens; keys and values of 2 bytes
    assert kernel_work("attention_decode", {**of_attention, "kv_tokens": "10"}) == (4 * 640, 2 * 2 * 2 * 8 * 10)
    # 3 tokens see 1 + 2 + 3; with a window of 2 they see 1 + 2 + 2
    assert kernel_work("attention_prefill", {**of_attention, "seq": "3"})[0] == 4 * 64 * 6
    assert kernel_work("attention_prefill", {**of_attention, "seq": "3", "window": "2"})[0] == 4 * 64 * 5


def test_a_grid_at_a_place_of_google_takes_googles_figure() -> None:
    common = {"pue": "1.1", "location": "", "original_source": "someone", "preferred": "1"}
    rows = [
        {**common, "provider": "aws", "region": "a", "place": "P", "gco2_per_kwh": "400", "year": ""},
        {**common, "provider": "gcp", "region": "g", "place": "P", "gco2_per_kwh": "200", "year": "2024"},
        {**common, "provider": "aws", "region": "b", "place": "", "gco2_per_kwh": "50", "year": ""},
        {**common, "provider": "gcp", "region": "g", "place": "P", "gco2_per_kwh": "9", "year": "", "preferred": "0"},
    ]
    text = grid_text(rows)
    assert "aws/a: {gco2_per_kwh: 200, year: 2024" in text
    assert "aws/b: {gco2_per_kwh: 50, pue" in text
    assert text.count("gcp/g") == 1
    assert "log_spread: 0.69" in text  # log(400 / 200)


def test_a_cpu_without_its_own_row_is_not_filled_in_silence() -> None:
    with pytest.raises(KeyError):
        cpu_text([])
