"""Quotes of machines that engines know, and a task on one of them."""

from dataclasses import replace
from typing import Any

from advisor.answers import launch_file
from advisor.catalog.overlay import load_catalog
from advisor.records.answer import Quote, QuotedDevice
from advisor.records.device import DeviceKind
from advisor.records.launch_task import LaunchMachine, LaunchTask
from advisor.records.scale import Plan
from tests.report import toys

GPUS = load_catalog().gpus


def quote(instance: str, *, device: str, provider: str = "aws", kind: DeviceKind = "gpu", **changes: Any) -> Quote:
    of_toys = toys.quote(instance, kind=kind, device=device, usd=0.42, provider=provider)
    return replace(of_toys, device=QuotedDevice(id=device, name=device.upper(), kind=kind, count=1), **changes)


A10G = quote("g5.xlarge", device="a10g")
GRAVITON = quote("c8g.xlarge", device="aws-graviton4", kind="cpu", architecture="arm")
GOOGLE_T4 = quote("n1-standard-4+nvidia-tesla-t4", device="t4", provider="gcp", region="us-central1")
LAMBDA_A10 = quote("NVIDIA A10 24GB PCIe", device="a10", provider="lambda", tier="neocloud", region="global")
SALAD = quote("RTX 3090 24GB PCIe", device="rtx-3090", provider="salad", tier="marketplace", region="global")
FOUR_GPUS = replace(
    quote("g5.48xlarge", device="a10g"),
    device=QuotedDevice(id="a10g", name="A10G", kind="gpu", count=8),
    gpus_used=4,
    plan=Plan(data=4),
    scaling_efficiency_ratio=0.9,
)
"""Four of the eight GPUs of a machine."""
TWO_MACHINES = replace(FOUR_GPUS, gpus_used=16, instance_count=2, plan=Plan(machines=2, data=16, sharding="zero3"))


MI300X = replace(
    quote("Standard_ND96isr_MI300X_v5", device="mi300x", provider="azure", region="eastus"),
    device=QuotedDevice(id="mi300x", name="MI300X", kind="gpu", count=8),
    gpus_used=8,
)


def machine_of(of: Quote) -> LaunchMachine:
    return launch_file.machine_of(of, GPUS)


def task(of: Quote = A10G, **changes: Any) -> LaunchTask:
    values: dict[str, Any] = {
        "name": "train",
        "machine": machine_of(of),
        "setup": ("pip install torch",),
        "script": "train.py",
        "python": "3.11",
        "folder": ".",
        "idle_minutes": 10,
    }
    return LaunchTask(**(values | changes))
