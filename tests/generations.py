"""Small language models by their configs, and what was traced of them in service; each is traced once."""

import json
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from advisor.records.generation import Generation
from advisor.records.workload import Row, Workload

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "configs"
_SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_SMALL, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "llama_all_heads": {
        **_SMALL,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_key_value_heads": 8,
    },
    "mistral": {
        **_SMALL,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": 512,
    },
    "gemma2": {**_SMALL, "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "sliding_window": 512},
    "gemma3": {
        **_SMALL,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": 512,
        "num_hidden_layers": 6,
    },
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 256,
        "n_head": 8,
        "n_layer": 4,
        "vocab_size": 1000,
    },
    "qwen2": {**_SMALL, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {**_SMALL, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "phi3": {**_SMALL, "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": 0},
    "mixtral": {
        **_SMALL,
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen3_moe": {
        **_SMALL,
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 128,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "first_k_dense_replace": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 24,
        "vocab_size": 1000,
    },
    "mamba": {
        "model_type": "mamba",
        "architectures": ["MambaForCausalLM"],
        "hidden_size": 256,
        "state_size": 16,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
    },
    "mamba2": {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": 256,
        "state_size": 64,
        "head_dim": 32,
        "num_heads": 16,
        "n_groups": 2,
        "chunk_size": 128,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
    },
    "qwen3_next": {
        **_SMALL,
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 16,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
    },
    "t5": {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": 256,
        "d_kv": 32,
        "d_ff": 512,
        "num_heads": 8,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "vocab_size": 1000,
    },
    "whisper": {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "d_model": 256,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 512,
        "decoder_ffn_dim": 512,
        "num_mel_bins": 80,
        "vocab_size": 1000,
        "pad_token_id": 0,
    },
}


def traced(name: str, *, prompt_tokens: int = 512, output_tokens: int = 65) -> Workload:
    """One of `CONFIGS`, or of the examples' configs, in service."""
    text = json.dumps(CONFIGS[name]) if name in CONFIGS else (EXAMPLES / f"{name}.json").read_text()
    return trace_config(text, name=name, prompt_tokens=prompt_tokens, output_tokens=output_tokens)


@cache
def trace_config(config: str, *, name: str, prompt_tokens: int, output_tokens: int) -> Workload:
    """The model of a config in service."""
    model = language_model(config, name=name, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    from advisor.workload.generation_trace import trace_generation

    return trace_generation(model)


def language_model(config: str, *, name: str, prompt_tokens: int, output_tokens: int) -> Any:
    """The model of a config, without weights, and its request."""
    generation = Generation(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of the package's own import
        from advisor.workload.sources import load_language_model

        file = Path(folder) / f"{name}.json"
        file.write_text(config)
        return load_language_model(f"hf:{file}", generation)


def quiet_transformers() -> Any:
    """The package, imported without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from advisor.workload.sources.huggingface import quiet_transformers

        return quiet_transformers()


def rows(workload: Workload, *, phase: str, op: str = "", family: str = "") -> list[Row]:
    """The rows of one phase, or of one operator or family in it."""
    return [row for row in workload.rows if row.phase == phase and op in ("", row.op) and family in ("", row.family)]
