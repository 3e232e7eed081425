"""Loads `hf:CONFIG_DIR_OR_JSON` as a language model with a serving engine's attention and KV cache."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from advisor.errors import LoadError, UsageError
from advisor.records.generation import Generation
from advisor.workload.kv_cache import ENGINE_ATTENTION, LayerWindow, attend, layer_windows
from advisor.workload.sources import huggingface
from advisor.workload.sources.python_file import build

_CAUSAL = ("ForCausalLM", "LMHeadModel")
"""Endings of the names of causal architectures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """A causal language model without weights."""

    name: str
    model: nn.Module
    width: int
    """Hidden size: the elements per token that blocks pass to each other."""
    head_count: int
    """Number of query heads."""
    windows: tuple[LayerWindow, ...]
    """The attention window of each layer."""
    experts_per_token: int = 1
    notes: tuple[str, ...] = ()


def load(reference: str, generation: Generation) -> LanguageModel:
    """Build the model of a config; raise `LoadError` if it is not causal or its attention cannot be replaced."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ENGINE_ATTENTION, attend)
    found = huggingface.read_config(reference, {"attn_implementation": ENGINE_ATTENTION})
    config = found.config
    kind = _causal_class(found.transformers, config, where=reference)
    _check_length(config, generation, where=reference)
    windows = layer_windows(config, where=reference)
    config.use_cache = True
    return LanguageModel(
        name=found.name,
        model=build(lambda: kind(config), reference),
        width=config.hidden_size,
        head_count=config.num_attention_heads,
        windows=windows,
        experts_per_token=getattr(config, "num_experts_per_tok", None) or 1,
    )


def _causal_class(transformers: Any, config: Any, *, where: str) -> Any:
    named = (config.architectures or [""])[0]
    kinds: Mapping[Any, Any] = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) not in kinds or (named and not named.endswith(_CAUSAL)):
        raise LoadError(
            f"{where}: {named or type(config).__name__} is not a causal language model",
            hint="omit --prompt-tokens and --output-tokens, or give the config of its text model",
        )
    kind = kinds[type(config)]
    takes = inspect.signature(kind.forward).parameters
    if not kind._can_set_attn_implementation() or not {"past_key_values", "logits_to_keep"} <= set(takes):
        raise LoadError(
            f"{where}: {kind.__name__} has its own attention code: its decode cannot be traced as engines run it",
            hint="omit --prompt-tokens and --output-tokens to rank one forward pass over a prompt",
        )
    return kind


def _check_length(config: Any, generation: Generation, *, where: str) -> None:
    most = huggingface.position_count(config)
    asked = generation.token_count
    if most is not None and asked > most:
        raise UsageError(
            f"{where} takes at most {most:,} tokens; prompt and output have {asked:,}",
            hint="reduce --prompt-tokens or --output-tokens",
        )
