"""Names the measurements that no decision on the predictions may be taken on.

One GPU, one CPU and one net in six of each table. `scripts/fit.py` leaves them out; with `--look` it predicts them, and
each such look is logged in docs/experiments.md.
"""

import re
from zlib import crc32

DEVICES = ("v100-", "intel-xeon-platinum-8380")
"""The beginnings of the ids of the GPU (all its boards) and of the CPU."""
ONE_NET_IN = 6


def net_of(model: str) -> str:
    """Return the source without its forms: "timm:vit_tiny@224" of "timm:vit_tiny+reparam@224"."""
    return re.sub(r"\+[^@]*", "", model)


def is_locked(device: str, model: str) -> bool:
    """Return whether measurements of the model on the device are in the lockbox. A net is locked in all tables."""
    return device.startswith(DEVICES) or crc32(f"lockbox {net_of(model)}".encode()) % ONE_NET_IN == 0
