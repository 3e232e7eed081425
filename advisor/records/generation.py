"""Defines a request to a served language model: its tokens and the storage format of the weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.device import Device
from advisor.records.engine import Engine, narrow_kernel

WeightFormat = Literal[
    "auto", "bf16", "fp8", "int8", "int4", "nf4", "nvfp4", "mxfp4", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"
]
"""Storage format of the weights of the repeated blocks; auto: in a question, as the model is published; in a served
workload, the precision that the model computes in. int4: AWQ and GPTQ; nf4: bitsandbytes; mxfp4: of experts alone; the
last five: GGUF, in which output and embedding are quantized too."""
CacheFormat = Literal["auto", "fp8", "q8_0"]
"""Storage format of the KV cache; auto: the precision that the model computes in."""

Sampling = Literal["truncated", "plain"]


_WITHOUT_KERNELS: Mapping[str, tuple[str, ...]] = {"vllm": ("Apple",)}
"""By engine: vendors whose GPUs it does not run on. vLLM's own releases run on Macs' CPUs alone (vLLM docs, "CPU")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLayers:
    """The cache of layers that cache alike, as traced in float32.

    - `token_bytes`: keys and values of one token, in all of these layers
    - `window_tokens`: the most tokens kept; None: all
    - `request_bytes`: what does not grow: states of recurrent layers, and keys and values of an encoder's tokens
    - `head_count`: heads that tensor-parallel GPUs divide; 1 where each GPU holds the whole cache (MLA)
    """

    token_bytes: float = 0.0
    window_tokens: int | None = None
    request_bytes: float = 0.0
    head_count: int = 1

    def size_bytes(self, token_count: float) -> float:
        """Return the bytes of one request with this many tokens."""
        kept = token_count if self.window_tokens is None else min(token_count, self.window_tokens)
        return self.token_bytes * kept + self.request_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Describes a step that generates one answer for each request in flight.

    One prefill pass reads the prompt and gives the first token; each other token is one decode pass.

    - `weights`, `kv_cache`: the storage formats that the workload's rows and memory assume
    - `published_weights`: the storage format of the published weights; auto: the precision that the model computes in
    - `head_count`: attention heads, which tensor-parallel GPUs divide evenly; None if not known
    - `kv_head_count`: heads of keys and values, or of the states of a model without attention
    - `cached`: what the layers cache
    - `encoder_tokens`: tokens that an encoder reads once per request; 0 without an encoder
    - `start_tokens`: tokens that the decoder reads before its first own token; None: the prompt
    - `most_tokens`: the longest context that the model takes, prompt and answer together; None if it is not known
    - `traced_tokens`: the prompt of the trace, whose rows of prefill are scaled to `prompt_tokens`; None: the same
    - `prefix_cached_tokens`: tokens of the prompt that the engine has in its prefix cache
    - `draft_tokens`: tokens that are drafted before each decode pass, which verifies them; 0: no speculative decoding
    - `acceptance_ratio`: the probability that a drafted token is accepted if those before it are
    - `draft_cost_ratio`: time of drafting one token over that of a decode pass of the model without drafts
    - `truncates_sampling`: tokens are sampled with top-k or top-p
    - `engine`: the engine that serves the model; None in a saved workload, which any engine may serve
    """

    prompt_tokens: int
    output_tokens: int
    weights: WeightFormat = "auto"
    kv_cache: CacheFormat = "auto"
    head_count: int | None = None
    kv_head_count: int = 1
    cached: tuple[CachedLayers, ...] = ()
    encoder_tokens: int = 0
    start_tokens: int | None = None
    truncates_sampling: bool = True
    engine: Engine | None = None
    prefix_cached_tokens: int = 0
    most_tokens: int | None = None
    traced_tokens: int | None = None
    draft_tokens: int = 0
    acceptance_ratio: float = 0.0
    draft_cost_ratio: float = 0.0
    published_weights: WeightFormat = "auto"

    @property
    def has_default_weights(self) -> bool:
        """Return whether the weights are stored as they are published."""
        return self.weights in ("auto", self.published_weights)

    @property
    def token_count(self) -> int:
        """Return the tokens of prompt and answer together."""
        return self.prompt_tokens + self.output_tokens

    @property
    def decode_count(self) -> int:
        """Return the number of decode passes."""
        return self.output_tokens - 1

    @property
    def tokens_per_pass(self) -> float:
        """Return the expected tokens of a request in a decode pass: (1 - a^(k + 1)) / (1 - a).

        k tokens are drafted, each is accepted with the probability a, and the pass gives one more (Leviathan et al.,
        Fast Inference from Transformers via Speculative Decoding, 2023, equation 1).
        """
        return sum(self.acceptance_ratio**accepted for accepted in range(self.draft_tokens + 1))

    @property
    def decode_passes(self) -> int:
        """Return the expected passes that give all tokens after the first."""
        return max(1, round(self.decode_count / self.tokens_per_pass))

    @property
    def decoder_tokens(self) -> int:
        """Return the tokens that the decoder reads in prefill."""
        return self.prompt_tokens if self.start_tokens is None else self.start_tokens

    @property
    def prefill_tokens(self) -> int:
        """Return the tokens that encoder and decoder read in prefill."""
        return self.encoder_tokens + self.decoder_tokens

    @property
    def new_tokens(self) -> int:
        """Return those of them that the prefix cache does not have."""
        return self.prefill_tokens - self.prefix_cached_tokens

    def cache_bytes(self, token_count: float) -> float:
        """Return the cache of one request whose decoder has this many tokens, as traced in float32."""
        return sum(layers.size_bytes(token_count) for layers in self.cached)

    def missing_kernels(self, device: Device) -> tuple[str, ...]:
        """Return what the engine has no kernels for on a device: "weights in fp8", "a KV cache in fp8", or nothing."""
        if self.engine is None:
            return ()
        if device.vendor in _WITHOUT_KERNELS.get(self.engine.name, ()):
            return ("any number",)
        asked = (
            ("weights", self.weights, self.engine.weight_kernels),
            ("a KV cache", self.kv_cache, self.engine.cache_kernels),
        )
        return tuple(
            f"{what} in {stored_in}"
            for what, stored_in, kernels in asked
            if stored_in not in ("auto", "bf16") and narrow_kernel(device, kernels, stored_in) is None
        )

    def cache_share(self, ways: int) -> float:
        """Return the part of a request's cache on each of `ways` tensor-parallel GPUs, which hold whole heads."""
        if not self.cached:  # saved by an earlier version
            return 1 / min(ways, self.kv_head_count)
        tokens = self.decoder_tokens + self.output_tokens
        held = sum(layers.size_bytes(tokens) / min(ways, layers.head_count) for layers in self.cached)
        return held / max(1.0, self.cache_bytes(tokens))
