"""Language models in service: prefill and decode, KV cache, windows, experts, and what cannot be served so."""

import json
from dataclasses import asdict

import pytest

from advisor.errors import LoadError, UsageError
from advisor.ops.evaluate import row_cost
from advisor.workload.file import workload_from_json, workload_to_json
from tests.generations import CONFIGS, rows, trace_config, traced
from tests.says import assert_says

pytest.importorskip("transformers")

PROMPT, OUTPUT = 512, 65
DECODES = OUTPUT - 1
BLOCK_WEIGHTS = 256 * 256 + 2 * 256 * 64 + 256 * 256 + 3 * 256 * 512
"""The small Llama's queries, keys and values of 2 heads of 32, output, and three feed-forward matrices."""
FAMILIES = ("llama", "mistral", "gemma2", "gemma3", "gpt2", "qwen2", "qwen3", "phi3", "mixtral", "qwen3_moe")


def flops(workload, *, phase, family, batch=1):
    return sum(row.count * row_cost(row, batch=batch).flops for row in rows(workload, phase=phase, family=family))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_models_is_traced_without_running_anything(name):
    workload = traced(name)

    assert workload.method == "fake"
    assert not workload.unknown_ops
    assert workload.batch_is_affine
    assert {row.phase for row in workload.rows} == {"prefill", "decode"}
    layer_count = CONFIGS[name].get("num_hidden_layers", 4)
    assert sum(row.count for row in rows(workload, phase="prefill", op="attention")) == layer_count
    assert sum(row.count for row in rows(workload, phase="decode", op="attention")) == layer_count * DECODES


def test_llama_3_8b_keeps_131072_bytes_for_each_token():
    # 2 (keys, values) x 32 layers x 8 heads x 128 wide x 2 bytes in half = 131,072 bytes; traced in fp32: twice that.
    workload = traced("llama3_8b", prompt_tokens=1024, output_tokens=256)

    assert workload.memory[0].kv_cache.full == (0.0, 2 * 131_072 * (1024 + 256))
    assert workload.parameter_count == 8_030_261_248


@pytest.mark.parametrize(
    ("method", "weights", "said"),
    [
        ("fp8", "fp8", ("published in fp8", "default of --weights")),
        ("new", "auto", ("published in new", "16 bits", "choose --weights")),
    ],
)
def test_a_model_that_is_published_in_fewer_bits_says_so(method, weights, said):
    config = json.dumps({**CONFIGS["llama"], "quantization_config": {"quant_method": method}})
    workload = trace_config(config, name="published", prompt_tokens=16, output_tokens=4)

    [note] = [note for note in workload.assumptions if "published" in note]
    assert_says(note, *said)
    assert workload.generation.published_weights == weights
    assert workload.parameter_bytes == traced("llama").parameter_bytes  # as an engine without kernels for it has them


def test_prompts_and_tokens_are_multiplied_with_every_weight():
    workload = traced("llama")

    # The prompt's tokens pass the 4 blocks, the last of them alone the output; later tokens pass both.
    head = 256 * 1000
    assert flops(workload, phase="prefill", family="matmul") == 2 * (PROMPT * 4 * BLOCK_WEIGHTS + head)
    assert flops(workload, phase="decode", family="matmul") == 2 * DECODES * (4 * BLOCK_WEIGHTS + head)
    assert flops(workload, phase="decode", family="matmul", batch=3) == 3 * 2 * DECODES * (4 * BLOCK_WEIGHTS + head)


def test_decode_attends_to_the_mean_context_with_the_heads_that_keys_have():
    # 512 of the prompt, and 1 to 64 written so far: 512 + 32.5, rounded to an even whole number: 544.
    (attention,) = rows(traced("llama"), phase="decode", op="attention")
    query, key, value = attention.inputs

    assert query.shape == ((0.0, 1.0), 8, 1, 32)
    assert key.shape == value.shape == ((0.0, 1.0), 2, 544, 32)
    assert not query.kept
    assert key.kept
    assert value.kept


def test_prompts_attend_to_what_comes_before():
    # 8 heads, 512 x 513 / 2 pairs, 2 FLOP x (32 + 32) each, 4 layers.
    expected = 4 * 8 * (512 * 513 / 2) * 2 * 64
    assert flops(traced("llama"), phase="prefill", family="attention") == expected


def test_a_token_is_written_into_the_cache_without_a_copy_of_the_rest():
    workload = traced("llama")
    written = rows(workload, phase="decode", op="aten.copy_")

    # Keys and values of 2 heads of 32 in fp32, of 4 layers and 64 passes.
    assert sum(row.count * row_cost(row, batch=1).write_bytes for row in written) == 2 * 2 * 32 * 4 * 4 * DECODES
    largest = max(row_cost(row, batch=1).write_bytes for row in rows(workload, phase="decode", family="copy"))
    assert largest <= 8 * 32 * 4  # no concatenation is longer than a token's queries
    assert not any(len(row.inputs) > 3 for row in rows(workload, phase="decode", op="attention"))  # nor is there a mask


def test_a_window_bounds_what_is_attended_to_and_kept():
    workload = traced("mistral", prompt_tokens=1024)

    # With a window of 512 the first 512 tokens see 1 to 512, the other 512 see 512 each.
    pairs = 512 * 513 / 2 + 512 * 512
    assert flops(workload, phase="prefill", family="attention") == 4 * 8 * pairs * 2 * 64
    (decode,) = rows(workload, phase="decode", op="attention")
    assert decode.inputs[1].shape == ((0.0, 1.0), 2, 512, 32)
    # 2 x 4 layers x 2 heads x 32 x 4 bytes of 512 tokens
    assert workload.memory[0].kv_cache.full == (0.0, 2 * 4 * 2 * 32 * 4 * 512)


def test_layers_with_and_without_a_window_stand_beside_each_other():
    workload = traced("gemma2", prompt_tokens=1024)

    # Two layers keep 512 tokens, two all 1024 + 65.
    assert workload.memory[0].kv_cache.full == (0.0, 2 * 2 * 32 * 4 * (2 * 512 + 2 * (1024 + 65)))
    assert sorted(row.inputs[1].shape[2] for row in rows(workload, phase="decode", op="attention")) == [512, 1056]


def test_fewer_heads_of_keys_keep_less():
    # 2 heads in the place of 8
    shared, own = (traced(name).memory[0].kv_cache.full[1] for name in ("llama", "llama_all_heads"))
    assert own == 4 * shared


def test_one_token_more_is_one_pass_of_decode_more():
    shorter, longer = (traced("llama", output_tokens=tokens) for tokens in (65, 66))
    calls = [
        sum(row.count for row in rows(workload, phase="decode", family="matmul")) for workload in (shorter, longer)
    ]

    assert calls[1] - calls[0] == calls[0] / DECODES
    assert rows(shorter, phase="prefill") == rows(longer, phase="prefill")


def test_products_of_one_input_are_launched_as_one():
    workload = traced("llama")
    joined = {
        row.module.rpartition(".")[2]
        for row in rows(workload, phase="decode", family="matmul")
        if any(operand.joined for operand in row.outputs)
    }
    assert joined == {"k_proj", "v_proj", "up_proj"}


def test_a_norm_is_one_kernel_that_goes_on_from_the_addition_before_it():
    norms = rows(traced("llama"), phase="decode", family="rms_norm")
    own = [row for row in norms if row.op == "engine.norm"]
    residuals = [row for row in norms if row.op == "aten.add"]

    # Two in each of 4 layers and one at the end, of which the first of all normalises what nothing was added to.
    assert sum(row.count for row in own) == (2 * 4 + 1) * DECODES
    assert sum(row.count for row in residuals) == 2 * 4 * DECODES
    assert sum(row.count for row in own if row.inputs[0].fused) == 2 * 4 * DECODES
    assert all(row.outputs[0].joined and row.module == "model.layers.*" for row in residuals)
    assert not rows(traced("llama"), phase="decode", family="reduction")


def test_what_is_added_to_is_read_again_after_the_layer():
    # All residuals are written for the next addition, but the last, which the last norm alone reads.
    residuals = rows(traced("llama"), phase="decode", op="aten.add", family="rms_norm")
    assert not any(operand.fused for row in residuals for operand in row.inputs)
    assert sorted((row.count, row.outputs[0].fused) for row in residuals) == [(DECODES, True), (7 * DECODES, False)]


def test_queries_and_keys_are_rotated_by_one_kernel_a_layer():
    (rotary,) = rows(traced("llama"), phase="prefill", family="rotary")
    # 8 heads of queries and 2 of keys, 32 wide, side by side.
    assert [operand.shape for operand in rotary.inputs] == [((0.0, 1.0), PROMPT, 256), ((0.0, 1.0), PROMPT, 64)]
    assert rotary.outputs == rotary.inputs
    assert rotary.count == 4
    assert not rows(traced("gpt2"), phase="prefill", family="rotary")


@pytest.mark.parametrize(("name", "tokens"), [("llama", 1.0), ("phi3", 1.0), ("mixtral", 2.0)])
def test_an_activation_and_its_gate_are_one_kernel(name, tokens):
    """In a mixture of 8 experts, two take every token, so the experts get twice the tokens."""
    (gate,) = rows(traced(name), phase="decode", family="gate")
    assert gate.op == "engine.gate"
    assert [operand.shape for operand in gate.inputs] == [gate.outputs[0].shape] * 2
    assert not any(operand.fused for operand in gate.inputs)
    assert gate.inputs[0].shape[0] == (0.0, tokens)
    assert gate.inputs[0].shape[-1] == 512
    assert not rows(traced(name), phase="decode", op="aten.silu")


def test_an_activation_without_a_gate_stays_as_it_is():
    workload = traced("gpt2")
    assert not rows(workload, phase="decode", family="gate")
    assert rows(workload, phase="decode", op="aten.tanh")


def test_decode_reads_the_experts_that_tokens_choose():
    products = rows(traced("mixtral"), phase="decode", op="aten._grouped_mm")
    up = max(products, key=lambda row: row_cost(row, batch=1).write_bytes)
    expert_bytes = 256 * 1024 * 4  # gate and up together

    def weights_read(batch):
        rows_bytes = 2 * batch * 256 * 4 + 8 * 4  # two choices of each token, and where experts begin
        return row_cost(up, batch=batch).read_bytes - rows_bytes

    # One token reads its 2 of 8 experts; of 4 tokens a given expert is chosen by none with (3/4)^4 = 0.3164.
    assert weights_read(1) == pytest.approx(2 * expert_bytes)
    assert weights_read(4) == pytest.approx(8 * (1 - 0.31640625) * expert_bytes)
    assert weights_read(1000) == pytest.approx(8 * expert_bytes)


def test_activations_are_those_of_a_chunk_of_prompts():
    workload = traced("llama")
    for line in workload.memory:
        assert line.phase == "prefill"
        assert all(part[1] == 0.0 for part in (line.activations.full, line.activations.low, line.activations.other))
    # 8192 tokens in one pass hold two results of feed-forward layers at least, 512 wide in fp32.
    assert max(sum(part[0] for part in asdict(line.activations).values()) for line in workload.memory) > 8192 * 512 * 4


def test_a_saved_generation_is_read_as_it_was():
    workload = traced("llama")
    document = json.loads(json.dumps(workload_to_json(workload)))

    assert workload_from_json(document) == workload
    assert document["generation"]["prompt_tokens"] == PROMPT


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "not a causal language model"),
        ({"model_type": "gpt2", "architectures": [5]}, "5 is not a causal language model"),
        ({"model_type": "llama", "num_hidden_layers": 0}, "no layers"),
        ({"model_type": "cpmant", "architectures": ["CpmAntForCausalLM"]}, "its own attention code"),
        ({"model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"]}, "DynamicIndexedLayer"),
    ],
)
def test_what_engines_run_otherwise_is_refused_with_what_to_do(config, message):
    with pytest.raises(LoadError, match=message) as refused:
        trace_config(json.dumps(config), name="other", prompt_tokens=16, output_tokens=4)
    assert "omit --prompt-tokens and --output-tokens" in refused.value.hint


def test_more_tokens_than_the_model_has_positions_for_are_refused():
    with pytest.raises(UsageError, match=r"\b1,024 tokens\b.*\b1,056\b"):
        traced("gpt2", prompt_tokens=1000, output_tokens=56)
