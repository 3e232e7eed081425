"""A small part of the measured data, fitted anew: it gives what the shipped efficiencies say."""

from pathlib import Path

import numpy as np
import pytest
from fit_kind import measured_steps, template_of
from shipped_fit import ShippedFit, coefficients_of

from advisor.catalog.overlay import load_catalog
from advisor.fit.coefficients import starts
from advisor.fit.sample import sample_of
from advisor.predict.efficiency import efficiency_of
from advisor.predict.roofline import step_times
from advisor.records.device import DeviceKind

TABLES = Path(__file__).parents[1] / "data/measured"
MEASURED = TABLES / "neusight_e2e.csv"
DEVICES = frozenset({"v100-pcie-32gb", "a100-pcie-40gb"})


@pytest.mark.slow
def test_transformers_on_two_gpus_fitted_alone_are_predicted_as_with_the_shipped_efficiencies() -> None:
    steps = measured_steps(
        [MEASURED],
        wanted=lambda one: one.device in DEVICES and one.mode == "inference" and one.compile == "eager",
        timeout_s=120.0,
    )
    sample = sample_of(steps)
    fit = ShippedFit(sample, coefficients_of(sample, kind="gpu"), template=template_of("gpu"))
    refitted_s = fit.seconds(fit.solve(chosen=np.ones(len(steps), dtype=np.bool_)))
    shipped = load_catalog().efficiencies
    shipped_s = [
        step_times(
            step.kernels,
            kind="gpu",
            devices=[step.device],
            efficiencies=[efficiency_of(step.device, precision="fp32", efficiencies=shipped)],
        ).step_s[0, 0]
        for step in steps
    ]
    assert len(steps) == 18
    assert np.abs(refitted_s / sample.measured_s - 1).mean() < 0.06
    assert refitted_s == pytest.approx(shipped_s, rel=0.12)


@pytest.mark.parametrize(
    ("kind", "table", "model"),
    [
        ("gpu", "timm_train_amp_nhwc_rtx3090.csv", "timm:regnetx_002@224"),
        ("gpu", "timm_train_amp_nchw_rtx3090.csv", "timm:mobilenetv2_050@224"),
        ("cpu", "timm_infer_fp32_nchw_i9_10940x_compile.csv", "timm:mobilenetv2_050@224"),
    ],
)
def test_derivatives_by_the_chain_rule_are_those_of_finite_differences(
    kind: DeviceKind, table: str, model: str
) -> None:
    sample = sample_of(measured_steps([TABLES / table], wanted=lambda one: one.model == model, timeout_s=120.0))
    coefficients = coefficients_of(sample, kind=kind)
    fit = ShippedFit(sample, coefficients, template=template_of(kind))
    prior = starts(coefficients)
    slopes = fit.slopes(prior)
    for index, coefficient in enumerate(coefficients):
        moved = prior.copy()
        moved[index] += 1e-4
        expected = (np.log(fit.seconds(moved)) - np.log(fit.seconds(prior))) / 1e-4
        assert slopes[:, index] == pytest.approx(expected, abs=1e-4), coefficient.name
