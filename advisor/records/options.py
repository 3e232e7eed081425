"""Defines every flag of `advise` once, for the command line, `recommend()` and the service."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast, get_args

from advisor import units
from advisor.errors import UsageError
from advisor.records.device import Architecture, CompileMode, Layout
from advisor.records.fine_tuning import FineTuningChoice, OptimizerChoice, TrainerKernels
from advisor.records.generation import CacheFormat, Sampling, WeightFormat
from advisor.records.price import Tier
from advisor.records.workload import Attention, Mode

PrecisionChoice = Literal["auto", "half", "fp32", "cudnn-tf32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
PriceChoice = Literal["on-demand", "spot", "commit-1y", "commit-3y"]
DropPrices = Literal["none", "flagged", "old"]
ShardingChoice = Literal["auto", "none", "zero1", "zero2", "zero3"]
Objective = Literal["cost", "time", "cost-time", "co2"]

Statistic = Literal["mean", "p50", "p90", "p95", "p99"]
"""The statistic that a limit on token times bounds: the mean, or a percentile over the requests of a service."""
PERCENTILES: tuple[Statistic, ...] = get_args(Statistic)[1:]
"""The percentiles of token times that a service quotes, and that can have limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """The longest time that a statistic may take."""

    seconds: float
    of: Statistic = "mean"


def time_limit(text: str) -> TimeLimit:
    """Read `300ms`, a limit on the mean, or one on a percentile, such as `p99:300ms`."""
    name, colon, time = text.rpartition(":")
    of = cast(Statistic, name.strip().lower() or "mean")
    if of not in get_args(Statistic) or (colon and not name.strip()):
        percentiles = ", ".join(f"{one}:300ms" for one in PERCENTILES)
        raise UsageError(f"{text:.40}: no such statistic", hint=f"write 300ms for the mean, or {percentiles}")
    return TimeLimit(seconds=units.parse_duration_s(time), of=of)


_PROVIDERS = {
    **dict.fromkeys(("amazon", "amazonwebservices", "ec2"), "aws"),
    **dict.fromkeys(("google", "googlecloud", "gce"), "gcp"),
    **dict.fromkeys(("microsoft", "microsoftazure"), "azure"),
    **dict.fromkeys(("lambdalabs", "lambdacloud"), "lambda"),
    **dict.fromkeys(("vast", "vastai"), "vast-ai"),
    "datacrunch": "verda",
}
"""Other common names of providers, mapped to the names in price files; case and punctuation are ignored."""


def provider_id(name: str) -> str:
    """Return the provider's name in price files: `aws` for "Amazon"; an unknown name is returned unchanged."""
    return _PROVIDERS.get("".join(filter(str.isalnum, name.lower())), name)


def _flag(default: Any, help_text: str, *, metavar: str = "", parse: Callable[[str], Any] | None = None) -> Any:
    return field(default=default, metadata={"help": help_text, "metavar": metavar, "parse": parse})


def _serving_flag(default: Any, help_text: str, *, metavar: str = "", parse: Callable[[str], Any] | None = None) -> Any:
    """Return the field of a flag that only a served language model takes."""
    metadata = {"help": f"LLM serving: {help_text}", "metavar": metavar, "parse": parse, "is_of_serving": True}
    return field(default=default, metadata=metadata)


def _tuning_flag(default: Any, help_text: str, *, metavar: str = "", parse: Callable[[str], Any] | None = None) -> Any:
    """Return the field of a flag that only the fine-tuning of a model takes."""
    metadata = {"help": f"fine-tuning: {help_text}", "metavar": metavar, "parse": parse, "is_of_fine_tuning": True}
    return field(default=default, metadata=metadata)


_share = partial(units.parse_ratio, least=1e-3, most=1.0)
"""Reads a share; smaller ones make no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Hold the values of all flags. An empty tuple or None means no such limit."""

    mode: Mode = _flag(
        "inference", "inference, or training (forward, loss, backward and optimizer); with --run, what the script does"
    )
    precision: PrecisionChoice = _flag(
        "auto",
        "auto: for each device and batch the cheaper of torch's default fp32 (cudnn-tf32: TF32 in convolutions and "
        "recurrent layers, where the GPU has it) and autocast (bf16 if native, else fp16 on tensor cores); with "
        "--prompt-tokens, same as half: the whole model in bf16 if native, else in fp16 on GPUs, else in fp32. With "
        "--run and without this flag, as the script runs",
    )
    batch: str = _flag(
        "",
        "global batch size (over all GPUs); auto: the cheapest for each device, none above the smallest whose "
        "throughput is within 2% of the best unless a limit needs it (default: auto in inference, the source's own "
        "batch in training)",
        metavar="N|N,M|A..B|auto",
    )
    prompt_tokens: int | None = _flag(None, "LLM serving (hf: models): prompt tokens per request", metavar="N")
    output_tokens: int | None = _flag(
        None,
        "LLM serving: output tokens per request, at least 2",
        metavar="N",
        parse=partial(units.parse_count, least=2),
    )
    cached_prompt_tokens: int | None = _serving_flag(
        None,
        "tokens of each prompt that the engine has in its prefix cache: their prefill is saved, their memory is not",
        metavar="N",
    )
    concurrency: str = _serving_flag(
        "", "requests in flight per instance; auto: the cheapest for each device", metavar="N|N,M|A..B|auto"
    )
    weights: WeightFormat = _serving_flag(
        "auto",
        "storage format of the weights, if the engine has kernels for it on the device; auto: as the model is "
        "published. int4: AWQ or GPTQ; nf4: bitsandbytes; mxfp4: only the experts; q8_0 to q4_0: GGUF, with --engine "
        "llama.cpp",
    )
    kv_cache: CacheFormat = _serving_flag("auto", "storage format of the KV cache; auto: the model's precision")
    draft_tokens: int | None = _serving_flag(
        None,
        "speculative decoding: tokens drafted before each pass, which verifies them; needs --acceptance-rate",
        metavar="N",
    )
    acceptance_rate: float | None = _serving_flag(
        None,
        "speculative decoding: probability that a drafted token is accepted if those before it are: 0.7 or 70%",
        metavar="RATIO",
        parse=_share,
    )
    draft_cost: float | None = _serving_flag(
        None,
        "speculative decoding: time of drafting one token relative to a pass of the model; by default drafts are "
        "looked up in no time (n-grams)",
        metavar="RATIO",
        parse=_share,
    )
    sampling: Sampling = _serving_flag(
        "truncated",
        "how tokens are drawn: truncated (top-k or top-p, as most models' generation_config asks), or plain",
    )
    engine: str = _serving_flag("vllm", "inference engine to predict, a file of profiles/engines", metavar="NAME")
    tensor_parallel: int | None = _serving_flag(None, "GPUs that share each layer of a copy of the model", metavar="N")
    pipeline_parallel: int | None = _serving_flag(None, "stages of layers in a copy of the model", metavar="N")
    expert_parallel: int | None = _serving_flag(
        None, "copies of the attention layers that divide the experts of a mixture of experts", metavar="N"
    )
    finetune: FineTuningChoice = _flag(
        "none",
        "fine-tune a published model as trainers do, with weights in bf16: full, lora (adapters beside frozen "
        "weights), or qlora (frozen weights in 4 bits); activations are recomputed",
    )
    lora_rank: int = _tuning_flag(16, "rank of the adapters", metavar="N")
    lora_targets: tuple[str, ...] = _tuning_flag(
        ("auto",),
        "layers with adapters: auto (those that PEFT chooses), all-linear, or names such as q_proj,v_proj",
        metavar="auto|all-linear|NAME",
    )
    sequence: int | None = _tuning_flag(
        None, "tokens per sequence (hf: models), 2048 or the model's limit by default", metavar="N"
    )
    packing: bool = _tuning_flag(
        False,
        "pack several samples into each sequence; needs --mean-tokens or --lengths if the job is given in --samples. "
        "With --lengths also without fine-tuning: no padding",
    )
    mean_tokens: float | None = _tuning_flag(
        None, "mean tokens of a sample of the data set, for --packing", metavar="N", parse=units.parse_positive
    )
    optim: OptimizerChoice = _tuning_flag(
        "adamw",
        "adamw (one fused kernel), adamw-foreach (a loop over operators), adamw-8bit (bitsandbytes), or paged-adamw "
        "and paged-adamw-8bit, whose state is in host memory",
    )
    trainer_kernels: TrainerKernels = _tuning_flag(
        "torch",
        "torch: as transformers; fused: one kernel for each norm, rotation and loss (Unsloth); liger: the same, and "
        "logits only in chunks",
    )
    keep_activations: bool = _tuning_flag(False, "do not recompute activations (no gradient checkpointing)")
    model_config: str | None = _flag(
        None, "config of the model that a trainer's YAML file fine-tunes, if it cannot be found by name", metavar="FILE"
    )
    accumulate: int = _flag(1, "gradient accumulation: micro-batches per GPU in one optimizer step", metavar="N")
    checkpoint_activations: bool = _flag(
        False, "recompute the activations of repeated blocks in the backward pass, which saves memory"
    )
    gpus: int | None = _flag(None, "use exactly N GPUs per machine", metavar="N")
    max_gpus: int | None = _flag(None, "use at most N GPUs per machine", metavar="N")
    max_machines: int = _flag(
        1,
        "training and LLM serving: use at most N machines of one type together, if their network's speed is known",
        metavar="N",
    )
    sharding: ShardingChoice = _flag(
        "auto",
        "what GPUs shard: none (DDP), zero1: optimizer state, zero2: also gradients, zero3 (FSDP): also parameters",
    )
    lengths: str | None = _flag(
        None,
        "lengths of the sequences (hf: models, or the first dimension of --input): a file with one per line, a column "
        "of a CSV file, or the mean and 95th percentile of a log-normal distribution; each batch is padded to its "
        "longest",
        metavar="FILE[:COLUMN]|MEAN,P95",
    )
    input: tuple[str, ...] = _flag(
        (), "shape of an input without the batch dimension: 3x224x224 or ids=1024:int64", metavar="SPEC"
    )
    layout: Layout = _flag("nchw", "memory layout of images")
    compile: CompileMode = _flag("eager", "eager, or compile (torch.compile); with --run, what the script does")
    attention: Attention = _flag(
        "auto",
        "auto: as the model sets it; eager: scores are written to memory; fused: one kernel, where the model has one",
    )
    samples: int | None = _flag(None, "job size in samples, as in 50000, 200k, 1.5M or 1e6", metavar="N")
    epochs: int | None = _flag(None, "passes over --samples", metavar="N")
    steps: int | None = _flag(
        None,
        "job size in steps of --batch, or of the source's own batch size if --batch is not one number",
        metavar="N",
    )
    tokens: int | None = _flag(None, "job size in tokens; the model's input gives the tokens per sample", metavar="N")
    requests_per_day: int | None = _flag(
        None,
        "always-on service: requests per day, one sample each, arriving at random; costs are per month",
        metavar="N",
    )
    requests_per_second: float | None = _flag(
        None, "always-on service: requests per second", metavar="N", parse=units.parse_positive
    )
    checkpoint_every: float | None = _flag(
        None, "time between checkpoints: the most work that a spot interruption can lose", metavar="TIME"
    )
    loader_s_per_sample: float | None = _flag(
        None, "time one vCPU needs to load and prepare a sample: 0.004 or 4ms", metavar="TIME"
    )
    loader_workers: int | None = _flag(
        None,
        "processes that load data, at most and by default one per vCPU; 0: each step waits until its batch is loaded",
        metavar="N",
        parse=partial(units.parse_count, least=0),
    )
    provider: tuple[str, ...] = _flag((), "only these providers", metavar="NAME", parse=provider_id)
    region: tuple[str, ...] = _flag(
        (), "only these regions; `global` for lists without regions, as of most GPU clouds", metavar="REGION|US|EU|JP"
    )
    tier: tuple[Tier, ...] = _flag(
        (), "only these tiers; by default all but marketplaces, which --provider can also name"
    )
    device: tuple[str, ...] = _flag(
        (), "only these devices; cpu or gpu: all of a kind; local: this machine", metavar="cpu|gpu|local|NAME"
    )
    arch: tuple[Architecture, ...] = _flag(
        (), "only machines with such a CPU: x86 (64 bits), or Arm (Graviton, Axion, Cobalt, Altra, Grace)"
    )
    instance: tuple[str, ...] = _flag((), "only these instance types, or offers by id", metavar="NAME")
    no_local: bool = _flag(False, "ignore this machine, so that the answer is the same on every machine")
    no_calibrate: bool = _flag(False, "do not calibrate this machine on the first run, and ignore earlier calibrations")
    measure: bool = _flag(False, "time some real steps on this machine, and base the prediction on them")
    price: PriceChoice = _flag("on-demand", "which price to use")
    objective: Objective = _flag(
        "cost",
        "how to rank; cost-time: by cost x time, with the Pareto front marked; co2: by the CO2 of the job, where known",
    )
    deadline: float | None = _flag(None, "time limit of the job, start-up included", metavar="TIME")
    max_usd: float | None = _flag(
        None, "limit on the cost of the job, or of a month of the service", metavar="USD", parse=units.parse_positive
    )
    max_hourly: float | None = _flag(
        None, "limit on the hourly price of all instances of the job", metavar="USD", parse=units.parse_positive
    )
    max_co2: float | None = _flag(
        None,
        "limit on the CO2 of the job, or of a month of the service, in kg; offers whose CO2 is not known are left out",
        metavar="KG",
        parse=units.parse_positive,
    )
    max_latency: float | None = _flag(
        None,
        "limit on the time of a step, or, in LLM serving, of a whole request; for a service of another model use --p99",
        metavar="TIME",
    )
    p99: float | None = _flag(
        None,
        "service: limit on the 99th percentile of a request's latency, with the wait in the queue, for requests that "
        "arrive at random (Poisson)",
        metavar="TIME",
    )
    max_utilization: float = _flag(
        0.7,
        "service: largest share of its capacity that the load may use: 0.7 or 70%, from 1% to 95%",
        metavar="RATIO",
        parse=partial(units.parse_ratio, least=units.LEAST_UTILIZATION, most=units.MOST_UTILIZATION),
    )
    max_ttft: TimeLimit | None = _serving_flag(
        None,
        "limit on the time to first token at the concurrency of the ranking; with a prefix p50:, p90:, p95: or "
        "p99:, on that percentile of requests that arrive at random at --requests-per-second",
        metavar="[pNN:]TIME",
        parse=time_limit,
    )
    max_tpot: TimeLimit | None = _serving_flag(
        None,
        "limit on the mean time between two output tokens of a request, as for --max-ttft",
        metavar="[pNN:]TIME",
        parse=time_limit,
    )
    api_usd_per_mtok: str = _serving_flag(
        "",
        "price of an API with this model, in dollars per million input, output and cached input tokens, or its "
        "name in api_prices.yaml; the answer says from how many requests per day a service of your own is cheaper",
        metavar="IN,OUT[,CACHED]|NAME",
    )
    min_throughput: float | None = _flag(
        None, "minimum throughput of one instance, in samples per second", metavar="N", parse=units.parse_positive
    )
    max_price_age: int = _flag(180, "mark prices older than this as OLD", metavar="DAYS", parse=units.parse_days)
    drop_prices: DropPrices = _flag(
        "flagged", "doubtful prices to leave out: none, flagged (STALE or SUSPECT), or old (OLD ones too)"
    )
    currency: str = _flag(
        "USD",
        "currency of text output; needs exchange_rates in a file of --prices. Formats for programs stay in dollars",
        metavar="CODE",
    )
    top: int = _flag(10, "rows to show", metavar="N")
    strict: bool = _flag(False, "fail if an operator has no formula")
    timeout: float = _flag(120.0, "timeout for loading and tracing the model", metavar="TIME")
    profiles: str | None = _flag(None, "folder of profiles that override the built-in ones", metavar="DIR")
    prices: tuple[str, ...] = _flag((), "prices and terms that override the built-in ones", metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions(Options):
    """The flags, and the names of the fields that the user has set, also to their defaults, in `given`."""

    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions(GivenOptions):
    """The flags for a script's job: what the script sets for itself counts, except for the fields in `given`."""


TAKES_COMMAS = frozenset({"lora_targets", "provider", "region", "tier", "device", "arch", "instance"})
"""Fields that take names with commas between them; file names and input specifications may contain commas."""
NOT_SERVED = {
    **dict.fromkeys(("profiles", "prices"), "the service reads no files for a request"),
    **dict.fromkeys(
        ("input", "lengths", "attention", "timeout", "prompt_tokens", "output_tokens"), "it is fixed in the workload"
    ),
    **dict.fromkeys(
        ("finetune", "model_config", "lora_rank", "lora_targets", "sequence", "optim", "trainer_kernels"),
        "it is fixed in the workload",
    ),
    **dict.fromkeys(("no_local", "no_calibrate"), "the service never uses a local machine"),
}
"""Fields that a request to the service may not set, with the reasons."""
NOT_IN_PYTHON = frozenset({"input", "timeout"})
"""Fields about sources: in Python the example inputs are at hand, and the model runs in the caller's own process."""
OF_MEMORY = (
    "mode", "precision", "batch", "prompt_tokens", "output_tokens", "concurrency", "weights", "kv_cache", "engine",
    "draft_tokens", "acceptance_rate", "draft_cost", "tensor_parallel", "pipeline_parallel", "expert_parallel",
    "finetune", "lora_rank", "lora_targets", "sequence", "optim", "trainer_kernels", "keep_activations",
    "model_config",
    "lengths", "input", "attention", "provider", "region", "tier", "arch", "instance", "device", "price",
    "max_price_age", "drop_prices", "top", "timeout", "profiles", "prices",
)  # fmt: skip
"""The fields that say whether a step fits a device's memory."""
OF_PRICES = ("provider", "region", "tier", "arch", "instance", "device", "price", "max_price_age", "top")
"""The fields that select prices."""
