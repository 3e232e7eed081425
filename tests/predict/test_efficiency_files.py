"""The shipped efficiencies say what they were fitted on, and there is one to fall back on for every kind of device."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from shipped_fit import file_name

from advisor.calibrate.own_efficiencies import WHOLE_STEPS
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.predict.efficiency import efficiency_of
from advisor.predict.lowering import lower
from advisor.predict.roofline import step_times
from advisor.predict.row_work import count_rows
from advisor.records.device import ANY, Device, DeviceKind, Efficiency
from tests.predict.toys import device, operand, row, workload

FILES = Path(__file__).parents[2] / "profiles/efficiency"
EFFICIENCIES = load_catalog().efficiencies
OF_MAKE_FIT = [one for one in EFFICIENCIES if one.vendor != "AWS"]
"""Without those of NeuronCores, which are fitted with priors of their own (scripts/fit_neuron.py)."""


@pytest.mark.parametrize("efficiency", EFFICIENCIES, ids=file_name)
def test_every_file_is_as_the_fit_writes_it(efficiency: Efficiency) -> None:
    assert (FILES / file_name(efficiency)).read_text(encoding="utf-8") == yaml_text(efficiency)


@pytest.mark.parametrize("efficiency", OF_MAKE_FIT, ids=file_name)
def test_a_precision_that_no_step_of_a_generation_was_timed_in_is_as_unsure_as_an_unseen_generation(
    efficiency: Efficiency,
) -> None:
    [of_all] = [
        one
        for one in EFFICIENCIES
        if (one.kind, one.precision, one.vendor, one.generation) == (efficiency.kind, efficiency.precision, ANY, ANY)
    ]
    assert of_all.fitted_on
    assert efficiency.fitted_on or efficiency.unseen_log_spread >= of_all.unseen_log_spread


def test_every_file_is_read() -> None:
    assert {file_name(efficiency) for efficiency in EFFICIENCIES} == {file.name for file in FILES.iterdir()}


@pytest.mark.parametrize("efficiency", OF_MAKE_FIT, ids=file_name)
def test_what_was_fitted_of_products_holds_for_every_generation_at_that_precision(efficiency: Efficiency) -> None:
    """No generation's file leaves out a family that others were measured with: it would compute at its whole peak."""
    of_all = [
        one for one in EFFICIENCIES if (one.kind, one.precision, one.vendor, one.generation) == (
            efficiency.kind, efficiency.precision, ANY, ANY,
        )
    ]  # fmt: skip
    assert efficiency.generation == WHOLE_STEPS or all(set(one.families) <= set(efficiency.families) for one in of_all)


def test_every_kind_of_device_has_a_fallback() -> None:
    fallbacks = {one.kind for one in EFFICIENCIES if (one.vendor, one.generation, one.precision) == (ANY, ANY, ANY)}
    assert fallbacks == {"cpu", "gpu"}


@pytest.mark.parametrize(
    ("kind", "vendor", "generation"),
    [("gpu", "NVIDIA", "Ampere"), ("gpu", "AMD", "CDNA 1.0"), ("cpu", "AMD", "Zen 5 Turin")],
)
def test_less_is_known_of_other_generations_and_least_of_other_vendors(
    kind: DeviceKind, vendor: str, generation: str
) -> None:
    known, of_vendor, of_none = (
        log_spread(device(kind=kind, vendor=name, generation=one))
        for name, one in ((vendor, generation), (vendor, "Next"), ("Other", "Next"))
    )
    assert 0.99 * known < of_vendor  # NVIDIA's generations are alike
    assert of_vendor < 0.9 * of_none if kind == "gpu" else of_vendor <= of_none  # so are AMD's and Intel's CPUs


@pytest.mark.parametrize("efficiency", [one for one in OF_MAKE_FIT if one.generation != WHOLE_STEPS], ids=file_name)
def test_no_coefficient_lies_at_a_bound_of_its_prior(efficiency: Efficiency) -> None:
    """One that does says that the form is wrong there, or that it should not be fitted."""
    at_bounds = []
    for field in fields(Efficiency):
        prior = field.metadata.get("priors", {}).get(efficiency.kind)
        if prior is not None and not 1.001 * prior.low < getattr(efficiency, field.name) < 0.999 * prior.high:
            at_bounds.append(field.name)
    assert not at_bounds


@pytest.mark.parametrize(("kind", "most"), [("gpu", 60), ("cpu", 25)])
def test_few_coefficients_are_shared_by_all_devices_of_a_kind(kind: DeviceKind, most: int) -> None:
    """Distinct ratios of the families, of all precisions, the fields with a prior, and the types of memory."""
    fitted = [one for one in EFFICIENCIES if one.kind == kind and one.generation == ANY and one.vendor == ANY]
    ratios = {
        (name, getattr(family, name))
        for one in fitted
        for family in one.families.values()
        for name in ("compute_ratio", "memory_ratio")
        if family.n
    }
    scalars = {
        (field.name, getattr(one, field.name))
        for one in fitted
        for field in fields(Efficiency)
        if kind in field.metadata.get("priors", {})
    }
    types = {name for one in fitted for name in one.memory_type_ratios}
    # Compute ratios are products of a family's and a precision's, so there are fewer coefficients than ratios.
    assert len({value for name, value in ratios if name == "memory_ratio"}) + len(scalars) + len(types) < most


def log_spread(one: Device) -> float:
    """The spread of the time of a product in fp32."""
    a = operand(512, 512)
    counts = count_rows(workload(row("aten.mm", (a, a), (a,), family="matmul")), batches=np.array([1.0]), width="full")
    times = step_times(
        lower(counts, kind=one.kind, precision="fp32"),
        kind=one.kind,
        devices=[one],
        efficiencies=[efficiency_of(one, precision="fp32", efficiencies=EFFICIENCIES)],
    )
    return float(times.own_log_spread[0, 0])
