"""Defines a request to a served language model: its tokens and the storage format of the weights."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.engine import Engine

WeightFormat = Literal["auto", "bf16", "fp8", "int8", "int4"]
"""Storage format of the weights of the repeated blocks; auto: the precision that the model computes in."""


Sampling = Literal["truncated", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Describes a step that generates one answer for each request in flight.

    One prefill pass reads the prompt and gives the first token; each other token is one decode pass.

    - `weights`: the storage format that the workload's rows and memory assume
    - `head_count`: attention heads, which tensor-parallel GPUs divide evenly; None if not known
    - `kv_head_count`: heads of keys and values
    - `truncates_sampling`: tokens are sampled with top-k or top-p
    - `engine`: the engine that serves the model; None in a saved workload, which any engine may serve
    """

    prompt_tokens: int
    output_tokens: int
    weights: WeightFormat = "auto"
    head_count: int | None = None
    kv_head_count: int = 1
    truncates_sampling: bool = True
    engine: Engine | None = None

    @property
    def token_count(self) -> int:
        """Return the tokens of prompt and answer together."""
        return self.prompt_tokens + self.output_tokens

    @property
    def decode_count(self) -> int:
        """Return the number of decode passes."""
        return self.output_tokens - 1
