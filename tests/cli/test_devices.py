"""`advise devices` on the machine that runs the tests."""

import json
from collections.abc import Callable

from tests.cli.conftest import Result

Advise = Callable[..., Result]


def test_the_cpu_of_this_machine_is_listed(advise: Advise) -> None:
    result = advise("devices", "-o", "json")

    document = json.loads(result.out)
    assert (result.code, result.err) == (0, "")
    assert document["devices"][0]["id"] == "cpu"
    assert document["machine"]["thread_count"] >= 1
    assert document["others"] == []


def test_all_adds_every_device_with_a_profile(advise: Advise) -> None:
    assert "rtx-4090" in advise("devices", "--all").out
