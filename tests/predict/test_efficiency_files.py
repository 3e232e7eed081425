"""The shipped efficiencies say what they were fitted on, and there is one to fall back on for every kind of device."""

import pytest

from advisor.catalog.load import load_catalog
from advisor.fit.files import file_name, yaml_text
from advisor.predict.efficiency import ANY
from advisor.records.device import Efficiency

EFFICIENCIES = load_catalog().efficiencies


@pytest.mark.parametrize("efficiency", EFFICIENCIES, ids=file_name)
def test_every_file_names_its_devices_and_is_as_the_fit_writes_it(efficiency: Efficiency) -> None:
    assert efficiency.fitted_on
    assert yaml_text(efficiency).startswith("# ")


def test_every_kind_of_device_has_a_fallback() -> None:
    fallbacks = {one.kind for one in EFFICIENCIES if (one.vendor, one.generation, one.precision) == (ANY, ANY, ANY)}
    assert fallbacks == {"cpu", "gpu"}
