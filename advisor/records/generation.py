"""A request to a language model in service: its tokens, and how an engine stores the weights that answer it."""

from dataclasses import dataclass
from typing import Literal

WeightFormat = Literal["auto", "bf16", "fp8", "int8", "int4"]
"""How the weights of the repeated blocks lie in memory; auto: in the precision of the rest, which all compute in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What makes a step the generation of one answer for each request in flight.

    The prompt is read in one pass (prefill), which gives the first token; each other is a pass of its own (decode).
    `weights` is how the workload's rows and memory have the blocks' weights. Attention has `head_count` heads (None:
    not known), which tensor parallel GPUs divide evenly, and `kv_head_count` of keys and values.
    """

    prompt_tokens: int
    output_tokens: int
    weights: WeightFormat = "auto"
    head_count: int | None = None
    kv_head_count: int = 1

    @property
    def token_count(self) -> int:
        """Of prompt and answer together."""
        return self.prompt_tokens + self.output_tokens

    @property
    def decode_count(self) -> int:
        """Passes of decode."""
        return self.output_tokens - 1
