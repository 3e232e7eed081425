"""GPUs as torch counts them, played by stand-ins."""

import json
from types import SimpleNamespace

import pytest
import torch

from advisor.workload.torch_devices import device_problem, gpu_uuid, main, synchronizer, torch_name


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


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch with MPS and without CUDA, made by hand."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12 * 10**9)


@pytest.mark.usefixtures("mac")
def test_the_gpu_of_a_mac_is_listed_with_the_memory_that_torch_may_use(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    (gpu,) = json.loads(capsys.readouterr().out)["gpus"]
    assert (gpu["id"], gpu["memory_bytes"]) == ("mps", 12e9)


@pytest.mark.usefixtures("mac")
def test_the_gpu_of_a_mac_can_be_timed_and_is_waited_for() -> None:
    mps = torch.device("mps")

    assert device_problem(mps) == ""
    assert synchronizer(mps) is torch.mps.synchronize


def test_mps_where_there_is_none_cannot_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)

    assert "no MPS device" in device_problem(torch.device("mps"))
