from dataclasses import replace

import pytest

from advisor.ops.matmul import CHOSEN_EXPERTS
from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.predict.weights import narrower, with_kv_cache, with_weights
from advisor.records.generation import CachedLayers, Generation, WeightFormat
from advisor.records.workload import Row, StoredBytes, Workload
from tests.predict.toys import memory_line, operand, row, workload

GENERATION = Generation(prompt_tokens=8, output_tokens=2)
DATA, RESULT = operand((0.0, 1.0), 10), operand((0.0, 1.0), 20)


def product(module: str, *, phase: str = "prefill") -> Row:
    """A bias of 20, and a matrix of 10 x 20: 800 bytes in fp32."""
    made = row("aten.addmm", (operand(20), DATA, operand(10, 20)), (RESULT,), family="matmul", phase=phase)  # type: ignore[arg-type]
    return Row(**{name: getattr(made, name) for name in Row.__dataclass_fields__} | {"module": module})


def model() -> Workload:
    """Two products in a block and one outside of any; 3 x 880 bytes of parameters."""
    return workload(
        product("layers.*.up"),
        product("layers.*.up", phase="decode"),
        product("lm_head"),
        memory=(memory_line(parameters=StoredBytes(full=(2640.0, 0.0))),),
        generation=GENERATION,
    )


def dtypes(changed: Row) -> list[str]:
    return [one.dtype for one in changed.inputs]


def test_matrices_of_blocks_are_stored_narrower_in_every_phase() -> None:
    inside, decode, outside = with_weights(model(), "int8").rows

    assert dtypes(inside) == dtypes(decode) == ["float32", "float32", "int8"]
    assert dtypes(outside) == ["float32", "float32", "float32"]


def test_memory_holds_them_once_as_they_are_stored() -> None:
    # 800 bytes of fp32 are 200 values: 200 bytes in int8, 400 in bf16, 200 x (0.5 + 2.5 / 128) in int4, 200 x (0.5 +
    # 1 / 64 + 1 / 4096) in nf4, 200 x (0.5 + 1 / 16) in nvfp4.
    stored = {
        weights: with_weights(model(), weights).memory[0].parameters
        for weights in ("fp8", "int8", "bf16", "int4", "nf4", "nvfp4")
    }
    assert all(each.full == (1840.0, 0.0) for each in stored.values())
    assert [each.other[0] for each in stored.values()] == [200.0, 200.0, 400.0, 103.90625, 103.173828125, 112.5]


def test_mxfp4_is_of_experts_alone() -> None:
    # 8 experts of 10 x 20 values: 800 bytes of fp32 each, 4.25 bits a value.
    made = row("aten._grouped_mm", (DATA, operand(8, 10, 20)), (RESULT,), family="matmul", phase="prefill")
    experts = replace(made, module="layers.*.experts", attributes={CHOSEN_EXPERTS: 2})
    parameters = StoredBytes(full=(8 * 800.0 + 880, 0.0))
    mixture = workload(
        experts, product("layers.*.up"), memory=(memory_line(parameters=parameters),), generation=GENERATION
    )
    changed = with_weights(mixture, "mxfp4")

    assert [dtypes(one)[-1] for one in changed.rows] == ["mxfp4", "float32"]
    assert changed.memory[0].parameters.full == (880.0, 0.0)
    assert changed.memory[0].parameters.other == (8 * 200 * 4.25 / 8, 0.0)


@pytest.mark.parametrize("published", ["fp8", "int4", "bf16"])
def test_published_weights_are_stored_anew_in_another_format(published: WeightFormat) -> None:
    anew, at_once = with_weights(with_weights(model(), published), "int8"), with_weights(model(), "int8")
    assert (anew.rows, anew.memory) == (at_once.rows, at_once.memory)


def test_a_format_of_experts_alone_saves_nothing_without_experts() -> None:
    assert not narrower(model(), ["mxfp4"])
    assert not narrower(model(), ["bf16"])
    assert narrower(model(), ["mxfp4", "fp8"]) == {"fp8": with_weights(model(), "fp8")}
    assert not narrower(with_weights(model(), "int4"), ["fp8"])


def test_blocks_of_gguf_take_their_bits() -> None:
    # 32 weights: fp16 scale with 16 or 32 bytes. 256 weights: two fp16, 12 bytes of scales, 4 or 5 bits each; or one
    # fp16, 16 scales of a byte, 6 bits each.
    bits = {name: 8 * ITEMSIZE_BYTES[name] for name in ("q4_0", "q8_0", "q4_k", "q5_k", "q6_k")}
    assert bits == {"q4_0": 4.5, "q8_0": 8.5, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625}
    assert 8 * ITEMSIZE_BYTES["q4_k/q6_k"] == (4.5 + 6.5625) / 2


def gguf_model(*, is_tied: bool) -> Workload:
    """The same with a sensitive matrix in the block, and an embedding of 10 x 20, which may be the output's matrix."""
    matrices = 3 if is_tied else 4
    return workload(
        row("aten.embedding", (operand(10, 20),), (RESULT,), family="embedding", phase="prefill"),
        product("layers.*.up"),
        product("layers.*.down_proj"),
        product("lm_head"),
        memory=(memory_line(parameters=StoredBytes(full=(matrices * 800.0 + 240.0, 0.0))),),
        generation=GENERATION,
    )


def test_gguf_gives_more_bits_to_some_matrices_and_quantizes_output_and_embedding() -> None:
    embedding, up, down, output = with_weights(gguf_model(is_tied=False), "q4_k_m").rows
    assert [changed.inputs[-1].dtype for changed in (embedding, up, down, output)] == [
        "q4_k",
        "q4_k",
        "q4_k/q6_k",
        "q6_k",
    ]
    # 200 weights each: 112.5 bytes in q4_k, 164.0625 in q6_k, the mean of both in half of the layers each.
    apart, tied = (with_weights(gguf_model(is_tied=one), "q4_k_m").memory[0].parameters for one in (False, True))
    assert apart.full == tied.full == (240.0, 0.0)
    assert apart.other[0] == 2 * 112.5 + 138.28125 + 164.0625
    assert tied.other[0] == 112.5 + 138.28125 + 164.0625


@pytest.mark.slow
def test_llama_takes_as_much_in_gguf_as_its_published_files() -> None:
    # Llama 3 8B: Q4_K_M 4.58 GiB, Q5_K_M 5.33, Q6_K 6.14, Q8_0 7.95 (llama.cpp, tools/quantize/README.md).
    pytest.importorskip("transformers")
    from tests.generations import traced

    for weights, gib in (("q4_k_m", 4.58), ("q5_k_m", 5.33), ("q6_k", 6.14), ("q8_0", 7.95)):
        parameters = with_weights(traced("llama3_8b"), weights).memory[0].parameters  # type: ignore[arg-type]
        assert (parameters.full[0] / 2 + parameters.other[0]) / 2**30 == pytest.approx(gib, abs=0.01), weights


def test_a_cache_in_fp8_takes_half_and_states_stay() -> None:
    # A request keeps 4 bytes x 100 elements for each of 10 tokens, and a state of 1,000 bytes: 4,000 of 5,000 bytes in
    # fp32 become 1,000 in fp8. Queries and the state of a recurrent layer keep their dtype.
    generation = Generation(
        prompt_tokens=8,
        output_tokens=2,
        cached=(CachedLayers(token_bytes=400.0), CachedLayers(request_bytes=1000.0)),
    )
    kept = operand((0.0, 1.0), 10, 100, kept=True)
    served = workload(
        row("attention", (DATA, kept, kept), (DATA,), family="attention", phase="decode"),
        row("engine.state_update", (kept, DATA), (DATA,), family="scan", phase="decode"),
        memory=(memory_line(kv_cache=StoredBytes(full=(0.0, 5000.0))),),
        generation=generation,
    )
    narrow = with_kv_cache(served, "fp8")
    cache = narrow.memory[0].kv_cache
    assert (cache.full, cache.other) == ((0.0, pytest.approx(1000.0)), (0.0, pytest.approx(1000.0)))
    assert dtypes(narrow.rows[0]) == ["float32", "float8_e4m3fn", "float8_e4m3fn"]
    assert dtypes(narrow.rows[1]) == ["float32", "float32"]
    assert with_kv_cache(served, "auto") == served
    assert with_kv_cache(narrow, "auto") == with_kv_cache(narrow, "fp8") == narrow


def test_auto_leaves_them_as_they_are() -> None:
    assert with_weights(model(), "auto") == model()
    narrow = with_weights(model(), "int4")
    assert with_weights(narrow, "auto") == with_weights(narrow, "int4") == narrow


def test_a_step_that_generates_nothing_is_left_alone() -> None:
    assert with_weights(workload(), "int4") == workload()
