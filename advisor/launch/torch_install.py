"""The device of an instance in, the shell line that installs torch for it out."""

from advisor.records.answer import QuotedDevice

_INDEX = "https://download.pytorch.org/whl"
_BEFORE_TURING = ("p100-", "p4", "v100-")
"""Pascal and Volta: torch's builds for CUDA 12.6 are the last with kernels for them (pytorch/pytorch#172352)."""


def torch_install(device: QuotedDevice) -> str:
    """PyPI's own build for Linux brings CUDA; a CPU needs none of its gigabytes."""
    if device.kind == "cpu":
        return f"pip install torch --index-url {_INDEX}/cpu"
    if device.id.startswith(_BEFORE_TURING):
        return f"pip install torch --index-url {_INDEX}/cu126"
    return "pip install torch"
