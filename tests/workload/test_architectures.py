"""Every architecture of transformers that is served: its cache, and the weights and FLOP of a decode pass.

Each is built with four layers of its config's own sizes; the figures are worked out from the config.
"""

import json
import math
from typing import Any

import numpy as np
import pytest
from torch import nn

from advisor.errors import TraceError
from advisor.predict.served_pass import pass_work
from advisor.scale.served_model import part_of_generation
from tests.generations import language_model, quiet_transformers

pytest.importorskip("transformers")

PROMPT, OUTPUT = 60, 9
SEEN = 64
"""The mean context of a decode pass: 60 of the prompt and 1 to 8 written, 64.5, rounded to an even number."""
LAYERS = 4
_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers")
_PER_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type")

QUICK = """
llama gemma2 gpt_oss falcon bloom mpt gptj deepseek_v3 kimi_linear mamba mamba2 falcon_mamba qwen3_next jamba
bamba falcon_h1 lfm2
"""
SLOW = """
afmoe apertus arcee aria_text axk1 beam bert bert-generation biogpt bitnet camembert codegen cohere cohere2
cohere2_moe ctrl cwm data2vec-text diffllama doge electra ernie ernie4_5 ernie4_5_moe exaone4 exaone_moe
flex_olmo flint gemma gemma3_text glm glm4 glm4_moe glm4_moe_lite gpt-sw3 gpt2 gpt_bigcode gpt_neox granite
granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hy_v3 hyperclovax internlm3
iquestcoder jais2 kolibri1 mellum minicpm3 minimax_m2 minimax_m3_vl_text ministral3 mistral mixtral nanochat
olmo olmo2 olmo3 olmo_hybrid olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text
qwen3_5_text qwen3_moe roberta roberta-prelayernorm roc_bert seed_oss smollm3 solar_open stablelm starcoder2
vaultgemma xlm-roberta xlm-roberta-xl youtu
"""


def small_config(name: str) -> str:
    """The config of an architecture with four layers, as JSON."""
    transformers = quiet_transformers()
    kind = transformers.CONFIG_MAPPING[name]
    config = kind().to_dict()
    config = {key: value for key, value in config.items() if key not in _PER_LAYER}
    config.update({key: min(LAYERS, config[key]) for key in _COUNTS if isinstance(config.get(key), int)})
    return json.dumps(
        {**config, "architectures": [transformers.MODEL_FOR_CAUSAL_LM_MAPPING[kind].__name__]}, default=str
    )


def expected_cache(config: Any) -> tuple[float, float]:
    """Return the elements that a request keeps for each token, and however many tokens it has."""
    name, layers = (
        config.model_type,
        getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers,
    )
    attending = sum(layer in ("full_attention", "sliding_attention", "hybrid") for layer in layers)
    recurrent = sum(layer in ("linear_attention", "hybrid", "conv") for layer in layers)
    if getattr(config, "kv_lora_rank", None):
        width = config.kv_lora_rank + config.qk_rope_head_dim
        token = attending * width
    elif attending:
        heads = config.num_attention_heads
        kv_heads = 1 if name == "falcon" else getattr(config, "num_key_value_heads", None) or heads
        token = attending * 2 * kv_heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    else:
        token = 0
    return token, recurrent * (state_numel(config) if recurrent else 0)


def state_numel(config: Any) -> float:
    """Return the elements of the state of one recurrent layer: the columns of its convolution, and the recurrence."""
    name = config.model_type
    if name in ("mamba", "falcon_mamba"):
        return config.intermediate_size * (config.conv_kernel - 1 + config.state_size)
    if name == "jamba":
        return config.mamba_expand * config.hidden_size * (config.mamba_d_conv - 1 + config.mamba_d_state)
    if name == "mamba2":
        width = config.expand * config.hidden_size
        return width * config.state_size + (width + 2 * config.n_groups * config.state_size) * (config.conv_kernel - 1)
    if name in ("bamba", "granitemoehybrid", "falcon_h1"):
        width = config.mamba_d_ssm if name == "falcon_h1" else config.mamba_expand * config.hidden_size
        channels = width + 2 * config.mamba_n_groups * config.mamba_d_state
        return width * config.mamba_d_state + channels * (config.mamba_d_conv - 1)
    if name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"):
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        return values * config.linear_key_head_dim + (2 * keys + values) * (config.linear_conv_kernel_dim - 1)
    if name == "kimi_linear":
        width = config.linear_num_heads * config.linear_head_dim
        return width * config.linear_head_dim + 3 * width * (config.linear_conv_kernel_dim - 1)
    raise ValueError(name)


def attention_flops(config: Any) -> float:
    """Return the FLOP of a decode pass's attention: scores and their product with the values."""
    layers = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    attending = sum(layer in ("full_attention", "sliding_attention", "hybrid") for layer in layers)
    if not attending:
        return 0.0
    heads = config.num_attention_heads
    if getattr(config, "kv_lora_rank", None):  # scores of latent and rotated key, result of the latent
        widths = 2 * config.kv_lora_rank + config.qk_rope_head_dim
    else:
        widths = 2 * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    return attending * heads * SEEN * 2.0 * widths


def active_parameters(language: Any) -> tuple[float, float]:
    """Return the parameters that a pass over one token reads, and those of them that it multiplies with.

    It reads a row of the embeddings, and the experts that it chooses. Matrices have two dimensions; a convolution has
    three, and experts have them side by side.
    """
    model = language.model
    output = model.get_output_embeddings()
    looked_up = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)} - {id(output.weight)}
    read = multiplied = 0.0
    for name, parameter in model.named_parameters():
        if id(parameter) in looked_up:
            continue
        is_expert = ".experts." in name
        share = language.experts_per_token / parameter.shape[0] if is_expert else 1.0
        read += share * parameter.numel()
        if parameter.dim() >= 2 and "conv" not in name and "A_log" not in name:
            multiplied += share * parameter.numel()
    return read, multiplied


@pytest.mark.parametrize("name", [*QUICK.split(), *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW.split())])
def test_an_architecture_keeps_reads_and_computes_what_its_config_says(name: str) -> None:
    from advisor.workload.generation_trace import trace_generation

    language = language_model(small_config(name), name=name, prompt_tokens=PROMPT, output_tokens=OUTPUT)
    workload = trace_generation(language)
    config = language.model.config.get_text_config(decoder=True)

    assert workload.method == "fake"
    assert workload.batch_is_affine
    assert not workload.unknown_ops
    token, request = expected_cache(config)
    cached = workload.generation.cached if workload.generation else ()
    assert sum(one.token_bytes for one in cached) == 4 * token
    assert sum(one.request_bytes for one in cached) == 4 * request
    assert workload.memory[0].kv_cache.full[1] == 4 * (token * (PROMPT + OUTPUT) + request)
    work = pass_work(
        part_of_generation(workload, "decode"), batches=np.ones(1), width="half", tokens=1, truncates=False
    )
    read, multiplied = active_parameters(language)
    assert math.isclose(float(work.weight_bytes[0]), 2 * read, rel_tol=0.01)
    flops = float(work.product_flops[0] + work.attention_flops[0])
    assert math.isclose(flops, 2 * multiplied + attention_flops(config), rel_tol=0.03)


@pytest.mark.parametrize("name", ["recurrent_gemma", "minimax"])
def test_states_outside_an_engines_cache_are_refused_with_what_to_do(name: str) -> None:
    from advisor.workload.generation_trace import trace_generation

    language = language_model(small_config(name), name=name, prompt_tokens=8, output_tokens=4)
    with pytest.raises(TraceError) as refused:
        trace_generation(language)
    assert "omit --prompt-tokens and --output-tokens" in refused.value.hint
