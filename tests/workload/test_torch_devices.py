"""GPUs as torch counts them, played by stand-ins."""

from types import SimpleNamespace

import pytest
import torch

from advisor.workload.torch_devices import gpu_uuid, torch_name


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest first, which the driver counts last."""
    found = [SimpleNamespace(uuid="b"), SimpleNamespace(uuid="a")]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found[index])


def test_a_gpu_is_found_by_its_uuid() -> None:
    assert torch_name("cuda:0", uuid="GPU-a") == "cuda:1"
    assert torch_name("cuda:1", uuid="GPU-b") == "cuda:0"


def test_one_that_torch_does_not_see_or_that_has_no_uuid_keeps_its_name() -> None:
    assert torch_name("cuda:0", uuid="GPU-c") == "cuda:0"
    assert torch_name("cpu", uuid=None) == "cpu"


def test_an_older_torch_names_no_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace())

    assert gpu_uuid(0) is None
