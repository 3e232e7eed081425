"""A small part of the measured data, fitted anew: it gives what the shipped efficiencies say."""

from pathlib import Path

import numpy as np
import pytest

from advisor.catalog.load import load_catalog
from advisor.fit.coefficients import coefficients_of
from advisor.fit.sample import sample_of
from advisor.fit.solve import Fit
from advisor.fitting import measured_steps, template_of
from advisor.predict.efficiency import efficiency_of
from advisor.predict.roofline import step_times

MEASURED = Path(__file__).parents[1] / "data/measured/neusight_e2e.csv"
DEVICES = frozenset({"v100-pcie-32gb", "a100-pcie-40gb"})


def test_transformers_on_two_gpus_fitted_alone_are_predicted_as_with_the_shipped_efficiencies() -> None:
    steps = measured_steps(
        [MEASURED],
        wanted=lambda one: one.device in DEVICES and one.mode == "inference" and one.compile == "eager",
        timeout_s=120.0,
    )
    sample = sample_of(steps)
    fit = Fit(sample, coefficients_of(sample, kind="gpu"), template=template_of("gpu"))
    refitted_s = fit.seconds(fit.solve(chosen=np.ones(len(steps), dtype=np.bool_)))
    shipped = load_catalog().efficiencies
    shipped_s = [
        step_times(
            step.kernels,
            kind="gpu",
            devices=[step.device],
            efficiencies=[efficiency_of(step.device, precision="fp32", efficiencies=shipped)],
        ).mid_s[0, 0]
        for step in steps
    ]
    assert len(steps) == 18
    assert np.abs(refitted_s / sample.measured_s - 1).mean() < 0.06
    assert refitted_s == pytest.approx(shipped_s, rel=0.12)
