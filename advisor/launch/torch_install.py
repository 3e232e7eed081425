"""Makes the shell line that installs torch for the device of an instance."""

from advisor.records.answer import QuotedDevice

_INDEX = "https://download.pytorch.org/whl"
_BEFORE_TURING = ("p100-", "p4", "v100-")
"""Pascal and Volta; the builds of torch for CUDA 12.6 are the last with kernels for them (pytorch/pytorch#172352)."""


def torch_install(device: QuotedDevice) -> str:
    """Return the install command; the default build from PyPI includes gigabytes of CUDA, which a CPU does not need."""
    if device.kind == "cpu":
        return f"pip install torch --index-url {_INDEX}/cpu"
    if device.id.startswith(_BEFORE_TURING):
        return f"pip install torch --index-url {_INDEX}/cu126"
    return "pip install torch"
