from dataclasses import replace
from pathlib import Path

import pytest

from advisor.catalog.device_files import read_cpus, read_gpus
from advisor.catalog.device_text import device_yaml
from advisor.records.price import Catalog


def test_every_shipped_device_reads_as_it_was_written(shipped: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "device.yaml"
    for gpu in shipped.gpus.values():
        file.write_text(device_yaml(gpu, comments=()))
        assert read_gpus([file], measured=None) == {gpu.id: gpu}
    for cpu in shipped.cpus.values():
        file.write_text(device_yaml(cpu, comments=()))
        assert read_cpus([file], measured=None) == {cpu.id: cpu}


def test_odd_texts_and_numbers_read_as_they_were_written(shipped: Catalog, tmp_path: Path) -> None:
    odd = replace(
        shipped.gpus["t4"],
        aliases=("no", "1e9", 'a "b" #c', "Ü: [x]"),
        notes="two\nlines\tand a \\",
        sustained_compute_ratio=0.1 + 0.2,
        tdp_w=123456.789e-3,
        boost_hz=1.23456789e9,
    )
    file = tmp_path / "odd.yaml"
    file.write_text(device_yaml(odd, comments=("one", "two")))
    assert file.read_text().startswith("# one\n# two\nid: ")
    assert read_gpus([file], measured=None) == {"t4": odd}


@pytest.mark.parametrize(
    ("value", "text"), [(2**35, "34359738368"), (1.413e13, "1.413e+13"), (0.526, "0.526"), (70.0, "70")]
)
def test_numbers_are_short(shipped: Catalog, value: float, text: str) -> None:
    lines = device_yaml(replace(shipped.gpus["t4"], boost_hz=float(value)), comments=()).splitlines()
    assert f"boost_hz: {text}" in lines


def test_what_is_not_known_is_left_out(shipped: Catalog) -> None:
    text = device_yaml(replace(shipped.gpus["t4"], tdp_w=None, aliases=(), notes=""), comments=())
    assert not any(key in text for key in ("tdp_w", "aliases", "notes", "null"))
