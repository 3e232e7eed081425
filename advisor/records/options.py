"""Every flag of `advise`, once: the command line, `recommend()` and the service read this record."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from advisor import units
from advisor.records.device import CompileMode, Layout
from advisor.records.generation import WeightFormat
from advisor.records.workload import Attention, Mode

PrecisionChoice = Literal["auto", "half", "fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
PriceChoice = Literal["on-demand", "spot", "commit-1y", "commit-3y"]
TierChoice = Literal["hyperscaler", "neocloud", "marketplace", "owned"]
DropPrices = Literal["none", "flagged", "old"]
ShardingChoice = Literal["auto", "none", "zero1", "zero2", "zero3"]
Objective = Literal["cost", "time", "cost-time"]

_PROVIDERS = {
    **dict.fromkeys(("amazon", "amazonwebservices", "ec2"), "aws"),
    **dict.fromkeys(("google", "googlecloud", "gce"), "gcp"),
    **dict.fromkeys(("microsoft", "microsoftazure"), "azure"),
    **dict.fromkeys(("lambdalabs", "lambdacloud"), "lambda"),
    **dict.fromkeys(("vast", "vastai"), "vast-ai"),
    "datacrunch": "verda",
}
"""What people call providers beside the names in price files; case and punctuation do not count."""


def provider_id(name: str) -> str:
    """`aws` of "Amazon"; a name that is no other's stays as it is."""
    return _PROVIDERS.get("".join(filter(str.isalnum, name.lower())), name)


def _flag(default: Any, help_text: str, *, metavar: str = "", parse: Callable[[str], Any] | None = None) -> Any:
    return field(default=default, metadata={"help": help_text, "metavar": metavar, "parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asks for. Empty tuples and None mean: no such limit."""

    mode: Mode = _flag("inference", "inference, or training: forward, loss, backward and optimizer")
    precision: PrecisionChoice = _flag(
        "auto",
        "auto: bf16 autocast where native, else fp16 autocast on tensor cores, else fp32; of --prompt-tokens half: the "
        "whole model in bf16 where native, else in fp16 on GPUs, else in fp32",
    )
    batch: str = _flag("", "global batch: N | N,M | A..B | auto (the cheapest per device)", metavar="N|N,M|A..B|auto")
    prompt_tokens: int | None = _flag(
        None, "of hf: a language model in service: the tokens of a request's prompt", metavar="N",
    )  # fmt: skip
    output_tokens: int | None = _flag(
        None, "the tokens of its answer, 2 or more", metavar="N",
        parse=partial(units.parse_count, least=2),
    )  # fmt: skip
    concurrency: str = _flag("", "requests in flight on one instance: N | N,M | A..B | auto", metavar="N|N,M|A..B|auto")
    weights: WeightFormat = _flag(
        "auto", "how the matrices of a language model's blocks are stored; auto: in its precision"
    )
    accumulate: int = _flag(1, "passes in which each GPU's batch runs before the optimizer steps", metavar="N")
    checkpoint_activations: bool = _flag(
        False, "backward computes again what forward did in repeated blocks, and keeps less of it"
    )
    gpus: int | None = _flag(None, "so many GPUs of each machine, no more and no fewer", metavar="N")
    max_gpus: int | None = _flag(None, "at most so many GPUs of each machine", metavar="N")
    max_machines: int = _flag(
        1, "in training, as many machines of one type where their network is known", metavar="N",
    )  # fmt: skip
    sharding: ShardingChoice = _flag(
        "auto", "what GPUs divide: none (DDP), zero1 optimizer state, zero2 and gradients, zero3 (FSDP) and parameters"
    )
    input: tuple[str, ...] = _flag((), "input without the batch dimension: 3x224x224 or ids=1024:int64", metavar="SPEC")
    layout: Layout = _flag("nchw", "memory layout of images")
    compile: CompileMode = _flag("eager", "eager, or compile for torch.compile")
    attention: Attention = _flag(
        "auto", "auto: as the model has it; eager: its scores travel through memory; fused: one kernel where it has one"
    )
    samples: int | None = _flag(None, "job size in samples", metavar="N")
    epochs: int | None = _flag(None, "passes over --samples", metavar="N")
    steps: int | None = _flag(None, "job size in steps of the batch", metavar="N")
    tokens: int | None = _flag(None, "job size in tokens; the model's input says how many a sample has", metavar="N")
    requests_per_day: int | None = _flag(
        None, "a service that is on all day: requests of one sample, spread evenly; costs are of a month", metavar="N"
    )
    requests_per_second: float | None = _flag(None, "the same by the second", metavar="N", parse=units.parse_positive)
    checkpoint_every: float | None = _flag(
        None, "time between checkpoints: an interrupted spot instance loses no more than that", metavar="TIME"
    )
    loader_s_per_sample: float | None = _flag(
        None, "how long one vCPU takes to load and prepare a sample: 0.004 or 4ms", metavar="TIME"
    )
    provider: tuple[str, ...] = _flag((), "only these providers", metavar="NAME", parse=provider_id)
    region: tuple[str, ...] = _flag((), "only these regions", metavar="REGION|US|EU|JP")
    tier: tuple[TierChoice, ...] = _flag(
        (), "only these tiers; without it marketplaces are left out, unless named by --provider"
    )
    device: tuple[str, ...] = _flag((), "only cpu, gpu, local or these devices", metavar="cpu|gpu|local|NAME")
    no_local: bool = _flag(False, "say nothing of the machine at hand: the answer is then the same on every machine")
    no_calibrate: bool = _flag(False, "do not time this machine on the first run, nor use what was timed before")
    measure: bool = _flag(False, "run some steps for real on this machine, and rest on what they took")
    price: PriceChoice = _flag("on-demand", "the price to pay")
    objective: Objective = _flag(
        "cost", "what the ranking is by; cost-time: by cost x time, and marks the Pareto front"
    )
    deadline: float | None = _flag(None, "the job is done by then, start-up included", metavar="TIME")
    max_usd: float | None = _flag(
        None, "the most that the job may cost, or a month of the service", metavar="USD", parse=units.parse_positive
    )
    max_hourly: float | None = _flag(
        None, "the most that an hour of all its instances may cost", metavar="USD", parse=units.parse_positive
    )
    max_latency: float | None = _flag(
        None, "the most that a step may take; in a service a request may wait for another step first", metavar="TIME"
    )
    max_ttft: float | None = _flag(None, "the most that a request's first token may take", metavar="TIME")
    max_tpot: float | None = _flag(None, "the most between two tokens of an answer, on average", metavar="TIME")
    min_throughput: float | None = _flag(
        None, "the fewest samples a second of one instance", metavar="N", parse=units.parse_positive
    )
    max_price_age: int = _flag(180, "older prices are marked OLD", metavar="DAYS", parse=units.parse_days)
    drop_prices: DropPrices = _flag(
        "flagged", "doubtful prices to leave out: none, flagged (STALE or SUSPECT), or old ones too"
    )
    currency: str = _flag(
        "USD", "currency of the text; its exchange rate stands in an overlay. JSON and CSV hold dollars", metavar="CODE"
    )
    top: int = _flag(10, "rows shown", metavar="N")
    strict: bool = _flag(False, "fail if an operator has no formula")
    timeout: float = _flag(120.0, "seconds the model's file may take", metavar="SECONDS")
    profiles: str | None = _flag(None, "folder of profiles that win over ours", metavar="DIR")
    prices: tuple[str, ...] = _flag((), "prices and terms that win over ours", metavar="FILE")
