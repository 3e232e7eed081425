import pytest

from advisor.launch.shell_lines import torch_install
from tests.launch.toys import quote


@pytest.mark.parametrize(
    ("device", "index"),
    [
        ("v100-sxm2-16gb", " --index-url https://download.pytorch.org/whl/cu126"),
        ("p4", " --index-url https://download.pytorch.org/whl/cu126"),
        ("t4", ""),
        ("b200", ""),
    ],
)
def test_a_gpu_takes_a_build_that_has_kernels_for_it(device: str, index: str) -> None:
    assert torch_install(quote("m", device=device).device) == f"pip install torch{index}"


def test_a_cpu_is_spared_cuda() -> None:
    device = quote("m", device="amd-epyc-9r14", kind="cpu").device
    assert torch_install(device) == "pip install torch --index-url https://download.pytorch.org/whl/cpu"
