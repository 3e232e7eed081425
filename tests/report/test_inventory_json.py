"""The devices at hand as JSON."""

import json

from advisor.report.inventory_json import render_inventory_json
from tests.report.test_inventory_text import inventory


def test_machine_and_devices_are_there_in_base_units() -> None:
    document = json.loads(render_inventory_json(inventory()))

    assert document["machine"]["memory_bytes"] == 32e9
    cpu, t4, unknown = document["devices"]
    assert (cpu["device"]["core_count"], t4["profile"]["id"], unknown["device"]) == (8.0, "t4", None)
    assert document["calibrated_at"] == {"t4": "2026-11-18T09:30:00+00:00"}
