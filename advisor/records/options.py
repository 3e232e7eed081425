"""Every flag of `advise`, once: the command line, `recommend()` and the service read this record."""

from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.records.device import CompileMode, Layout
from advisor.records.workload import Attention, Mode

PrecisionChoice = Literal["auto", "fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
PriceChoice = Literal["on-demand", "spot", "commit-1y", "commit-3y"]
TierChoice = Literal["hyperscaler", "neocloud", "marketplace"]


def _flag(default: Any, help_text: str, *, metavar: str = "") -> Any:
    return field(default=default, metadata={"help": help_text, "metavar": metavar})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for. Empty tuples and None mean: no such limit."""

    mode: Mode = _flag("inference", "inference, or training: forward, loss, backward and optimizer")
    precision: PrecisionChoice = _flag(
        "auto", "auto: bf16 autocast where native, else fp16 autocast on tensor cores, else fp32"
    )
    batch: str = _flag("", "global batch: N | N,M | A..B | auto (the cheapest per device)", metavar="N|N,M|A..B|auto")
    input: tuple[str, ...] = _flag((), "input without the batch dimension: 3x224x224 or ids=1024:int64", metavar="SPEC")
    layout: Layout = _flag("nchw", "memory layout of images")
    compile: CompileMode = _flag("eager", "eager, or compile for torch.compile")
    attention: Attention = _flag(
        "auto", "auto: as the model has it; eager: its scores travel through memory; fused: one kernel where it has one"
    )
    samples: int | None = _flag(None, "job size in samples", metavar="N")
    epochs: int | None = _flag(None, "passes over --samples", metavar="N")
    steps: int | None = _flag(None, "job size in steps of the batch", metavar="N")
    provider: tuple[str, ...] = _flag((), "only these providers", metavar="NAME")
    region: tuple[str, ...] = _flag((), "only these regions", metavar="REGION|US|EU|JP")
    tier: tuple[TierChoice, ...] = _flag(
        (), "only these tiers; without it marketplaces are left out, unless named by --provider"
    )
    device: tuple[str, ...] = _flag((), "only cpu, gpu or these devices", metavar="cpu|gpu|NAME")
    price: PriceChoice = _flag("on-demand", "the price to pay")
    top: int = _flag(10, "rows shown", metavar="N")
    strict: bool = _flag(False, "fail if an operator has no formula")
    timeout: float = _flag(120.0, "seconds the model's file may take", metavar="SECONDS")
    profiles: str | None = _flag(None, "folder of profiles that win over ours", metavar="DIR")
    prices: tuple[str, ...] = _flag((), "price file that wins over ours", metavar="FILE")
