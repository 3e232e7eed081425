"""Defines how a published model is fine-tuned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

FineTuningMethod = Literal["full", "lora", "qlora"]
"""Train all weights, adapters beside frozen weights, or adapters beside frozen weights in 4 bits."""
FineTuningChoice = Literal["none", "full", "lora", "qlora"]
OptimizerChoice = Literal["adamw", "adamw-foreach", "adamw-8bit", "paged-adamw", "paged-adamw-8bit"]
TrainerKernels = Literal["torch", "fused", "liger"]
"""Kernels of norms, rotary embeddings, gated activations and losses: torch's, one fused kernel each (Unsloth), or these
with an output layer that never holds all logits (Liger)."""


DEFAULT_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """How a model is fine-tuned.

    - `rank`: rank of the adapters
    - `targets`: names of the layers with adapters; "auto": those that PEFT chooses; "all-linear": all but the output
    - `sequence`: tokens of a sample
    - `fp32_weights`: the weights are held in fp32, as under autocast, not in bf16
    - `fp32_shards`: each GPU holds its shard of the trained weights in fp32, and FSDP gathers it in 16 bits
    - `fp32_logits`: a fused loss takes an fp32 copy of the logits, as before transformers 4.45
    - `separate_experts`: experts have linear layers of their own, as before transformers 5, and run one after the other
    - `reentrant`: checkpoints are reentrant, as transformers' were by default before version 5; None if not known
    - `trained_count`: number of trained parameters, known after the trace
    """

    method: FineTuningMethod
    rank: int = 16
    targets: tuple[str, ...] = ("auto",)
    sequence: int | None = None
    optimizer: OptimizerChoice = "adamw"
    kernels: TrainerKernels = "torch"
    fp32_weights: bool = False
    fp32_shards: bool = False
    fp32_logits: bool = False
    separate_experts: bool = False
    reentrant: bool | None = None
    trained_count: int = 0

    @property
    def tokens(self) -> int:
        """The most tokens of a sample."""
        return self.sequence or DEFAULT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The settings in a trainer's configuration file.

    - `model`: path or id of the model; "" if the file names none that is known
    - `options`: values by the names of `Options`
    - `batch`: sequences of one GPU in one pass
    - `ignored`: keys that change neither time nor memory, or that are not known
    """

    trainer: str
    model: str
    options: Mapping[str, Any]
    batch: int | None
    ignored: tuple[str, ...]
