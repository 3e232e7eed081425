"""The lockbox is frozen: what it holds does not depend on the table, the form of a net or the order of rows."""

import csv
from pathlib import Path

import pytest
from lockbox import is_locked, net_of

TABLES = sorted((Path(__file__).parent / "data/measured").glob("timm_*.csv"))


def test_all_forms_of_a_net_are_locked_together() -> None:
    assert net_of("timm:levit_192@224+reparam") == net_of("timm:levit_192+fast-norm@224") == "timm:levit_192@224"


def test_a_gpu_and_a_cpu_are_locked_with_all_their_models() -> None:
    for device in ("v100-pcie-32gb", "v100-sxm2-16gb", "intel-xeon-platinum-8380@4"):
        assert is_locked(device, "timm:resnet50@224")
        assert is_locked(device, "hf:gpt2_large.json")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_about_one_net_in_six_of_each_table_is_locked(table: Path) -> None:
    with table.open(encoding="utf-8") as file:
        nets = {net_of(row["model"]) for row in csv.DictReader(file)}
    locked = {net for net in nets if is_locked("rtx-3090", net)}
    assert len(locked) / len(nets) == pytest.approx(1 / 6, abs=0.04)
