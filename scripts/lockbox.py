"""Names the measurements that no decision on the predictions may be taken on.

One GPU, one CPU and one net in six of each table. `scripts/fit.py` leaves them out; with `--look` it predicts them, and
each such look is logged in docs/internals/experiments.md.
"""

import re
from zlib import crc32

SERVED_DEVICES = ("amd-epyc-7452", "a10g")
"""The CPU and the GPU of served language models in the lockbox."""
ONE_SHAPE_IN = 6
DEVICES = ("v100-", "intel-xeon-platinum-8380")
"""The beginnings of the ids of the GPU (all its boards) and of the CPU."""
ONE_NET_IN = 6


def net_of(model: str) -> str:
    """Return the source without its forms: "timm:vit_tiny@224" of "timm:vit_tiny+reparam@224"."""
    return re.sub(r"\+[^@]*", "", model)


def is_locked(device: str, model: str) -> bool:
    """Return whether measurements of the model on the device are in the lockbox. A net is locked in all tables."""
    return device.startswith(DEVICES) or crc32(f"lockbox {net_of(model)}".encode()) % ONE_NET_IN == 0


def is_served_locked(device: str, machine: str) -> bool:
    """Return whether services on this device, or on CPU machines of this shape, are locked for `fit_engine.py`."""
    plain, cores = device.partition("@")[::2]
    is_shape = bool(cores) and crc32(f"served {plain} {machine}".encode()) % ONE_SHAPE_IN == 0
    return plain in SERVED_DEVICES or is_shape
