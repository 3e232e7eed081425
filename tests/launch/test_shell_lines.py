import pytest

from advisor.launch.shell_lines import torch_install
from advisor.records.price import TorchWheel
from tests.launch.toys import quote


@pytest.mark.parametrize(
    ("wheel", "index"),
    [(TorchWheel(torch="2.14", cuda="12.6"), " --index-url https://download.pytorch.org/whl/cu126"), (None, "")],
)
def test_a_gpu_takes_the_wheel_that_it_needs(wheel: TorchWheel | None, index: str) -> None:
    assert torch_install(quote("m", device="v100-sxm2-16gb").device, wheel) == f"pip install torch{index}"


def test_a_cpu_is_spared_cuda() -> None:
    device = quote("m", device="amd-epyc-9r14", kind="cpu").device
    assert torch_install(device, None) == "pip install torch --index-url https://download.pytorch.org/whl/cpu"
