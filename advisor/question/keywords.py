"""The keywords of the public functions; written by `scripts/write_keywords.py`, do not edit."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import torch
    from torch import nn


class Keywords(TypedDict, total=False):
    """The model's functions, then the flags of `advise`; text is read as on the command line."""

    loss: "Callable[[Any, Any], torch.Tensor] | None"
    optimizer: "Callable[[Iterable[Any]], torch.optim.Optimizer] | None"
    train_step: "Callable[[nn.Module, Any], Any] | None"
    mode: Literal["inference", "training"]
    precision: Literal["auto", "half", "fp32", "cudnn-tf32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"]
    batch: int | str
    prompt_tokens: int | str | None
    output_tokens: int | str | None
    cached_prompt_tokens: int | str | None
    concurrency: int | str
    weights: Literal[
        "auto", "bf16", "fp8", "int8", "int4", "nf4", "nvfp4", "mxfp4", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"
    ]
    kv_cache: Literal["auto", "fp8", "q8_0"]
    draft_tokens: int | str | None
    acceptance_rate: float | str | None
    draft_cost: float | str | None
    sampling: Literal["truncated", "plain"]
    engine: str
    tensor_parallel: int | str | None
    pipeline_parallel: int | str | None
    expert_parallel: int | str | None
    finetune: Literal["none", "full", "lora", "qlora"]
    lora_rank: int | str
    lora_targets: str | Sequence[str]
    sequence: int | str | None
    packing: bool
    mean_tokens: float | str | None
    optim: Literal["adamw", "adamw-foreach", "adamw-8bit", "paged-adamw", "paged-adamw-8bit"]
    trainer_kernels: Literal["torch", "fused", "liger"]
    keep_activations: bool
    model_config: str | None
    accumulate: int | str
    checkpoint_activations: bool
    gpus: int | str | None
    max_gpus: int | str | None
    max_machines: int | str
    sharding: Literal["auto", "none", "zero1", "zero2", "zero3"]
    lengths: str | None
    layout: Literal["nchw", "nhwc"]
    compile: Literal["eager", "compile"]
    attention: Literal["auto", "eager", "fused"]
    samples: int | str | None
    epochs: int | str | None
    steps: int | str | None
    tokens: int | str | None
    requests_per_day: int | str | None
    requests_per_second: float | str | None
    checkpoint_every: float | str | None
    loader_s_per_sample: float | str | None
    loader_workers: int | str | None
    provider: str | Sequence[str]
    region: str | Sequence[str]
    tier: str | Sequence[str]
    device: str | Sequence[str]
    arch: str | Sequence[str]
    instance: str | Sequence[str]
    no_local: bool
    no_calibrate: bool
    price: Literal["on-demand", "spot", "commit-1y", "commit-3y"]
    objective: Literal["cost", "time", "cost-time", "co2"]
    deadline: float | str | None
    max_usd: float | str | None
    max_hourly: float | str | None
    max_co2: float | str | None
    max_latency: float | str | None
    p99: float | str | None
    max_utilization: float | str
    max_ttft: float | str | None
    max_tpot: float | str | None
    api_usd_per_mtok: str
    min_throughput: float | str | None
    max_price_age: int | str
    drop_prices: Literal["none", "flagged", "old"]
    currency: str
    top: int | str
    strict: bool
    profiles: str | Path | None
    prices: str | Path | Sequence[str | Path]


class RankKeywords(Keywords, total=False):
    """The keywords of `recommend`, which alone can measure."""

    measure: bool
