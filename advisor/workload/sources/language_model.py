"""Loads `hf:ID_OR_CONFIG` as a language model with a serving engine's attention and caches."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError, UsageError
from advisor.records.generation import Generation
from advisor.workload.kv_cache import ENGINE_ATTENTION, OMIT_TOKENS, LayerWindow, attend, layer_windows
from advisor.workload.own_attention import has_replacement
from advisor.workload.sources import huggingface
from advisor.workload.sources.published_weights import method_of, published_weights, quantization_of
from advisor.workload.sources.python_file import build

_CACHES = ("past_key_values", "cache_params")
"""The arguments of `forward` that take a cache."""
_NO_ENCODERS = (
    "of models with an encoder vLLM runs Whisper alone (vllm-project/vllm pull request 24907): predicted as if it ran "
    "this one too"
)
_EXPERTS = ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "num_selected_experts")
"""The names of the experts per token in configs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """A language model without weights: a decoder, in some models with an encoder."""

    name: str
    model: nn.Module
    generation: Generation
    """The request, with the figures of the model that its config gives."""
    width: int
    """Hidden size: the elements per token that blocks pass to each other."""
    windows: tuple[LayerWindow, ...]
    """The attention window of each decoder layer."""
    cache_argument: str
    """The argument of `forward` that takes the cache."""
    settings: Mapping[str, Any]
    """Other arguments of `forward`."""
    experts_per_token: int = 1
    notes: tuple[str, ...] = ()
    encoder: tuple[str, tuple[int, ...]] | None = None
    """The argument of the encoder's input, and the shape of a sample; an empty shape: the prompt's tokens."""

    def encoder_inputs(self, batch: int, tokens: int) -> dict[str, torch.Tensor]:
        """Return the encoder's input for a batch of requests with this many tokens."""
        name, shape = self.encoder or ("", ())
        made = torch.zeros((batch, *shape)) if shape else torch.zeros((batch, tokens), dtype=torch.long)
        return {name: made}


def load(reference: str, generation: Generation) -> LanguageModel:
    """Build the model of a config; raise `LoadError` if no engine's passes can be traced of it."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ENGINE_ATTENTION, attend)
    found = huggingface.read_config(reference, {"attn_implementation": ENGINE_ATTENTION})
    config, text = found.config, found.config.get_text_config(decoder=True)
    kind = _class_of(found.transformers, config, where=reference)
    takes = inspect.signature(kind.forward).parameters
    encoder = None
    if "decoder_input_ids" in takes:
        encoder = _encoder_of(config, kind, where=reference)
        if encoder[1]:
            generation = replace(generation, encoder_tokens=config.max_source_positions)
        else:
            generation = replace(generation, encoder_tokens=generation.prompt_tokens, start_tokens=1)
    generation = replace(
        generation,
        head_count=getattr(text, "num_attention_heads", None),
        most_tokens=huggingface.position_count(config),
        published_weights=published_weights(quantization_of(config)) or "auto",
    )
    _check_length(generation, where=reference)
    windows = layer_windows(config, where=reference)
    if not windows:
        raise LoadError(
            f"{reference}: the model has no layers", hint=f"give num_hidden_layers in its config, or {OMIT_TOKENS}"
        )
    config.use_cache = text.use_cache = True
    if not kind._can_set_attn_implementation():
        config._attn_implementation = "eager"  # `own_attention` replaces it
    return LanguageModel(
        name=found.name,
        model=build(lambda: kind(config if isinstance(config, kind.config_class) else text), reference),
        generation=generation,
        width=text.hidden_size,
        windows=windows,
        cache_argument=next(name for name in _CACHES if name in takes),
        settings={"logits_to_keep": 1} if "logits_to_keep" in takes else {},
        experts_per_token=next((value for name in _EXPERTS if (value := getattr(text, name, None))), 1),
        encoder=encoder,
        notes=tuple(_notes(config, kind, has_encoder=encoder is not None)),
    )


def _notes(config: Any, kind: Any, *, has_encoder: bool) -> Iterator[str]:
    """Yield what is assumed of the model."""
    if has_encoder and not kind.__name__.startswith("Whisper"):
        yield _NO_ENCODERS
    if not has_encoder and config.get_text_config(decoder=True) is not config:
        yield "prompts of text alone: images and sound are not counted"
    described = quantization_of(config)
    published = published_weights(described)
    if published is None:
        name = method_of(described) or "an unnamed format"
        yield f"its weights are published in {name}, but counted in 16 bits: choose --weights"
    elif published != "auto":
        yield (
            f"its weights are published in {published}, the default of --weights; an engine without kernels for it is "
            "predicted with weights in 16 bits"
        )


def _class_of(transformers: Any, config: Any, *, where: str) -> Any:
    """Return the class of a causal model, or of one with an encoder."""
    named = huggingface.named_architecture(config)
    kinds = [transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING]
    if config.is_encoder_decoder:
        kinds += [transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING]
    found = [mapping[type(config)] for mapping in kinds if type(config) in mapping]
    kind = next((one for one in found if one.__name__ == named), None if named or not found else found[0])
    if kind is None:
        raise LoadError(
            f"{where}: {named or type(config).__name__} is not a causal language model, nor one with an encoder",
            hint="omit --prompt-tokens and --output-tokens, or give the config of its text model",
        )
    takes_cache = {*_CACHES} & {*inspect.signature(kind.forward).parameters}
    if not takes_cache or not (kind._can_set_attn_implementation() or has_replacement(kind)):
        raise LoadError(
            f"{where}: {kind.__name__} has its own attention code: its decode cannot be traced as engines run it",
            hint=OMIT_TOKENS,
        )
    return kind


def _encoder_of(config: Any, kind: Any, *, where: str) -> tuple[str, tuple[int, ...]]:
    """Return the encoder's input as in `LanguageModel.encoder`."""
    if kind.main_input_name == "input_ids":
        return "input_ids", ()
    if kind.main_input_name == "input_features" and hasattr(config, "num_mel_bins"):
        return "input_features", (config.num_mel_bins, 2 * config.max_source_positions)  # a convolution halves them
    raise LoadError(f"{where}: the sizes of {kind.__name__}'s {kind.main_input_name} are not known", hint=OMIT_TOKENS)


def _check_length(generation: Generation, *, where: str) -> None:
    most, prompt, start = generation.most_tokens, generation.prompt_tokens, generation.start_tokens
    asked = generation.token_count if start is None else max(prompt, start + generation.output_tokens)
    if most is not None and asked > most:
        raise UsageError(
            f"{where} takes at most {most:,} tokens; prompt and output have {asked:,}",
            hint="reduce --prompt-tokens or --output-tokens",
        )
