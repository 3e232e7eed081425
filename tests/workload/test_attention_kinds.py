"""How engines hold and read other caches than keys and values per head: latents, states, an encoder's tokens."""

import pytest

from advisor.ops.evaluate import row_cost
from advisor.records.generation import CachedLayers
from tests.generations import rows, traced

pytest.importorskip("transformers")

PROMPT, OUTPUT = 512, 65
DECODES = OUTPUT - 1
SEEN = 544
"""The mean context of a decode pass: 512 of the prompt and 1 to 64 written, 544.5, rounded to an even number."""


def flops(workload, *, phase, op="", family=""):
    return sum(row.count * row_cost(row, batch=1).flops for row in rows(workload, phase=phase, op=op, family=family))


def test_latents_are_cached_once_for_all_heads_and_on_every_gpu():
    workload = traced("deepseek_v3")

    # 4 layers x (64 latent + 16 rotated) x 4 bytes, as traced in fp32.
    assert workload.generation.cached == (CachedLayers(token_bytes=4 * 80 * 4),)
    assert workload.memory[0].kv_cache.full == (0.0, 4 * 80 * 4 * (PROMPT + OUTPUT))
    assert workload.generation.cache_share(8) == 1.0
    assert workload.generation.kv_head_count == 1


def test_decode_attends_to_latents_with_the_expanding_matrices_absorbed():
    workload = traced("deepseek_v3")
    (attention,) = rows(workload, phase="decode", op="engine.latent_attention")
    queries, latents, rotated = attention.inputs

    assert queries.shape == ((0.0, 1.0), 8, 1, 64 + 16)
    assert latents.shape == ((0.0, 1.0), 1, SEEN, 64)
    assert rotated.shape == ((0.0, 1.0), 1, SEEN, 16)
    assert (queries.kept, latents.kept, rotated.kept) == (False, True, True)
    # 8 heads x 544 tokens x 2 FLOP x (80 for the score + 64 for the result), of 4 layers and 64 passes
    assert flops(workload, phase="decode", op="engine.latent_attention") == 4 * DECODES * 8 * SEEN * 2 * (80 + 64)
    # Keys are absorbed into the queries (32 x 64 for each head), values into the results (64 x 24).
    assert flops(workload, phase="decode", op="aten.bmm") == 4 * DECODES * 8 * 2 * 64 * (32 + 24)
    assert not [row for row in rows(workload, phase="decode") if row.module.endswith("kv_b_proj")]


def test_prompts_expand_the_latents():
    workload = traced("deepseek_v3")
    (expanding,) = [row for row in rows(workload, phase="prefill") if row.module.endswith("kv_b_proj")]

    assert expanding.inputs[1].shape == (64, 8 * (32 + 24))
    # 512 x 513 / 2 pairs of 8 heads, 2 FLOP x (48 wide keys + 24 wide values)
    assert flops(workload, phase="prefill", op="attention") == 4 * 8 * (512 * 513 / 2) * 2 * (48 + 24)


def test_state_spaces_keep_a_state_that_does_not_grow():
    # Mamba: 512 channels of 16 states, and 3 columns of the convolution's input; Mamba-2: 16 heads of 32 x 64, and
    # 3 columns of 512 + 2 groups x 2 x 64 channels; 4 layers, 4 bytes.
    expected = {"mamba": 4 * 4 * 512 * (16 + 3), "mamba2": 4 * 4 * (16 * 32 * 64 + 3 * (512 + 256))}
    for name, state_bytes in expected.items():
        for tokens in (65, 1000):
            workload = traced(name, output_tokens=tokens)
            assert workload.memory[0].kv_cache.full == (0.0, state_bytes)


def test_a_selective_scan_is_one_kernel_of_all_tokens():
    workload = traced("mamba")
    (scan,) = rows(workload, phase="prefill", op="engine.selective_scan")

    assert scan.count == 4
    # 8 FLOP for each of 512 tokens, 512 channels and 16 states
    assert row_cost(scan, batch=1).flops == 8 * 512 * 512 * 16
    (update,) = rows(workload, phase="decode", op="engine.state_update")
    assert update.inputs[0].kept
    cost = row_cost(update, batch=1)
    assert cost.flops == 8 * 512 * 16
    # The state is read and written, 512 x 16 x 4 bytes; the rest is values, result and step of 512, gate too, keys and
    # queries of 16.
    assert cost.read_bytes == 4 * (512 * 16 + 3 * 512 + 2 * 16)
    assert cost.write_bytes == 4 * (512 * 16 + 512)


def test_a_chunk_scan_multiplies_inside_and_between_chunks():
    (scan,) = rows(traced("mamba2"), phase="prefill", op="engine.chunk_scan")

    # For each of 512 tokens: 2 groups x 128 x 64 for queries x keys; 16 heads x 32 x (64.5 causal tokens of the chunk
    # + 64 into the state + 64 out of it); 2 FLOP each.
    assert row_cost(scan, batch=1).flops == 512 * 2 * (2 * 128 * 64 + 16 * 32 * (64.5 + 64 + 64))


def test_a_delta_rule_runs_in_chunks_and_its_other_layers_attend():
    workload = traced("qwen3_next")
    (rule,) = rows(workload, phase="prefill", op="engine.delta_rule")

    assert rule.count == 3
    assert sum(row.count for row in rows(workload, phase="prefill", op="attention")) == 1
    # 8 heads x 512 tokens x (chunks of 64 x (6 x 32 + 4 x 16) + 6 x 32 x 16 + 64^2 / 3)
    expected = 8 * 512 * (64 * (6 * 32 + 4 * 16) + 6 * 32 * 16 + 64 * 64 / 3)
    assert row_cost(rule, batch=1).flops == pytest.approx(expected)
    # One layer keeps 2 heads of 32 for keys and values; three a state of 8 x 32 x 16, and 3 columns of 2 x 128 + 128.
    states = 3 * (8 * 32 * 16 + 3 * 384) * 4
    assert workload.memory[0].kv_cache.full == (0.0, 2 * 2 * 32 * 4 * (PROMPT + OUTPUT) + states)
    # Two GPUs halve both; eight find 2 heads of keys, but 8 of states.
    kept = 2 * 2 * 32 * 4 * (PROMPT + OUTPUT)
    assert workload.generation.cache_share(8) == pytest.approx((kept / 2 + states / 8) / (kept + states))


def test_what_blocks_compute_from_parameters_alone_is_not_counted():
    """A Mamba layer's decay rates, -exp(A_log), do not change between passes."""
    assert not rows(traced("mamba"), phase="decode", op="aten.exp")


def test_an_encoder_runs_once_and_its_keys_are_read_by_every_pass():
    workload = traced("t5")
    generation = workload.generation

    assert (generation.encoder_tokens, generation.decoder_tokens) == (PROMPT, 1)
    # 2 decoder layers, 8 heads of 32, keys and values in 4 bytes: 1 + 65 tokens of its own, and 512 of the encoder.
    assert workload.memory[0].kv_cache.full == (0.0, 2 * 2 * 256 * 4 * (1 + OUTPUT + PROMPT))
    assert sum(row.count for row in rows(workload, phase="prefill", op="attention")) == 3 + 2 + 2
    own, crossed = sorted(rows(workload, phase="decode", op="attention"), key=lambda row: row.inputs[1].shape[2])
    assert crossed.inputs[1].shape == ((0.0, 1.0), 8, PROMPT, 32)
    # 1 start token, and 1 to 64 written before: 33.5 on average, rounded to an even number.
    assert own.inputs[1].shape == ((0.0, 1.0), 8, 34, 32)
    assert own.inputs[1].kept
    assert crossed.inputs[1].kept
    assert not [row for row in rows(workload, phase="decode") if row.module.startswith("encoder")]
    # Decode projects queries alone for the encoder's tokens: q, k, v, o and q, o of 256 x 256, and two of 256 x 512.
    weights = 2 * (6 * 256 * 256 + 2 * 256 * 512) + 256 * 1000
    assert flops(workload, phase="decode", family="matmul") == 2 * DECODES * weights
    # The encoder attends to all of its tokens: 3 layers x 8 heads x 512 x 512 x 2 x 64; the decoder's start token sees
    # itself and those.
    assert flops(workload, phase="prefill", op="attention") == (3 * 512 * 512 + 2 * (1 + 512)) * 8 * 2 * 64


def test_a_speech_model_reads_30_seconds_whatever_the_prompt():
    workload = traced("whisper", prompt_tokens=4)

    assert (workload.generation.encoder_tokens, workload.generation.decoder_tokens) == (1500, 4)
    assert workload.generation.prefill_tokens == 1504
    assert workload.memory[0].kv_cache.full == (0.0, 2 * 2 * 256 * 4 * (4 + OUTPUT + 1500))
    crossed = max(rows(workload, phase="decode", op="attention"), key=lambda row: row.inputs[1].shape[2])
    assert crossed.inputs[1].shape == ((0.0, 1.0), 8, 1500, 32)


def test_chunked_attention_sees_the_chunk_that_a_token_is_in():
    from advisor.workload.kv_cache import LayerWindow

    chunk = LayerWindow(token_count=512, is_chunked=True)
    assert [chunk.seen(tokens) for tokens in (1, 512, 513, 1024)] == [1, 512, 1, 512]
    # Two chunks of 512 x 513 / 2 pairs; a causal mask with n keys has n (n + 1) / 2 + (1024 - n) n.
    keys = chunk.prompt_length(1024)
    assert keys * (keys + 1) / 2 + (1024 - keys) * keys == pytest.approx(512 * 513, rel=0.002)
    assert chunk.prompt_length(512) == 512
    assert LayerWindow(token_count=512).prompt_length(1024) == 512
