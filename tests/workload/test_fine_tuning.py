"""Fine-tuning of loaded models, against counts by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from advisor.errors import LoadError
from advisor.ops.evaluate import row_cost
from advisor.predict.step_memory import gradient_bytes, optimizer_rows
from advisor.records.fine_tuning import FineTuning, FineTuningMethod, OptimizerChoice, TrainerKernels
from advisor.records.workload import Phase, Workload
from advisor.workload import sources
from advisor.workload.fine_tuning import fine_tuned
from advisor.workload.sources.live import load_live
from advisor.workload.trace import trace

BATCH = 32
LAYERS, WIDTH, INNER, VOCABULARY, TOKENS = 2, 64, 128, 256, 16


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False))


def traced(how: FineTuning) -> Workload:
    loaded = load_live(two_layers(), torch.zeros(BATCH, 8))
    return trace(fine_tuned(loaded, how), mode="training", batch=None)


def matmul_flops(workload: Workload, phase: Phase) -> float:
    rows = [row for row in workload.rows if row.family == "matmul" and row.phase == phase]
    return sum(row.count * row_cost(row, batch=BATCH).flops for row in rows)


def state_bytes(workload: Workload) -> float:
    (row,) = optimizer_rows(workload)
    return float(row.attributes["state_bytes_per_element"]) * float(row.attributes["element_count"])  # type: ignore[arg-type]


def test_adapters_of_two_layers_are_counted_as_by_hand() -> None:
    found = traced(FineTuning(method="lora", rank=2, targets=("all-linear",)))
    # Weights 8 x 16 + 16 x 4 = 192 in bf16; adapters 2 (8 + 16) + 2 (16 + 4) = 88 in fp32.
    assert (found.parameter_count, found.parameter_bytes) == (280, 2 * 192 + 4 * 88)
    assert gradient_bytes(found) == 4 * 88
    # Two moments in fp32, and a count of steps for each of the four tensors.
    assert state_bytes(found) == pytest.approx(2 * 4 * 88 + 4 * 4)
    # Forward: two FLOP for each weight and adapter.
    assert matmul_flops(found, "forward") == BATCH * 2 * (192 + 88)
    # Backward: gradients of the adapters (88), through B (2 x 16 + 2 x 4), and in the second layer to its input through
    # the weights (64) and through A (2 x 16). Nothing is needed of the first layer's input and of frozen weights.
    assert matmul_flops(found, "backward") == BATCH * 2 * (88 + 40 + 64 + 32)
    assert found.is_half


def test_full_fine_tuning_in_16_bits_keeps_everything_in_16_bits() -> None:
    found = traced(FineTuning(method="full"))
    assert (found.parameter_count, found.parameter_bytes) == (192, 2 * 192)
    assert gradient_bytes(found) == 2 * 192
    assert state_bytes(found) == pytest.approx(2 * 2 * 192 + 2 * 4)
    assert traced(FineTuning(method="full", fp32_weights=True)).parameter_bytes == 4 * 192


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [
        ("adamw", 2 * 2 * 2**14),
        ("paged-adamw", 2 * 4 * 2**14),
        ("adamw-8bit", 2 * 2**14 + 2 * 4 * 2**14 / 256),
    ],  # a scale in fp32 for 256 moments
)
def test_moments_in_8_bits_take_a_byte_and_their_scales(optimizer: OptimizerChoice, moments: float) -> None:
    loaded = load_live(nn.Linear(128, 128, bias=False), torch.zeros(BATCH, 128))
    found = trace(fine_tuned(loaded, FineTuning(method="full", optimizer=optimizer)), mode="training", batch=None)
    assert state_bytes(found) == pytest.approx(moments, abs=4)
    assert not found.unknown_ops


def test_weights_in_4_bits_are_dequantized_in_forward_and_backward() -> None:
    found = traced(FineTuning(method="qlora", rank=2, targets=("all-linear",)))
    assert found.parameter_count == 280  # as with lora
    # 192 weights in half a byte; a byte for each 64 of a layer (2 + 1), and 4 for their scale in each layer.
    assert found.parameter_bytes == 192 / 2 + 3 + 2 * 4 + 4 * 88
    calls = dict.fromkeys(("forward", "backward"), 0)
    for row in found.rows:
        if row.op == "finetune.dequantize":
            calls[row.phase] += row.count
    assert calls == {"forward": 2, "backward": 1}  # the first layer's input needs no gradient
    assert not found.unknown_ops


def test_frozen_layers_do_not_keep_their_inputs() -> None:
    """The ReLU's result, 16 x 2 bytes, is kept by full fine-tuning for the second weight's gradient."""

    def kept(how: FineTuning) -> float:
        model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Sigmoid(), nn.Linear(16, 4, bias=False))
        loaded = load_live(model, torch.zeros(BATCH, 8))
        workload = trace(fine_tuned(loaded, how), mode="training", batch=None)
        line = next(line for line in workload.memory if line.phase in ("loss", "backward"))
        return line.activations.other[1]

    # Adapters on the last layer alone: its input is kept for A, as for the weight itself.
    assert kept(FineTuning(method="lora", rank=2, targets=("0",))) < kept(FineTuning(method="full"))


@pytest.mark.parametrize(
    ("targets", "said"), [(("q_prj",), "q_prj"), (("auto",), "auto")], ids=["unknown name", "no default"]
)
def test_layers_that_the_model_does_not_have_are_an_error(targets: tuple[str, ...], said: str) -> None:
    with pytest.raises(LoadError, match=said):
        traced(FineTuning(method="lora", targets=targets))


def config(tmp_path: Path) -> str:
    settings = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    }  # fmt: skip
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(settings))
    return f"hf:{file}"


def of_llama(tmp_path: Path, **how: Any) -> Workload:
    loaded = sources.load(config(tmp_path), mode="training", specs=(), tokens=TOKENS)
    return trace(fine_tuned(loaded, FineTuning(**{"method": "lora", **how})), mode="training", batch=None)


@pytest.mark.parametrize("kernels", ["torch", "liger"])
def test_two_batches_say_the_same_as_three(kernels: TrainerKernels, tmp_path: Path) -> None:
    loaded = sources.load(config(tmp_path), mode="training", specs=(), tokens=TOKENS)
    tuned = fine_tuned(loaded, FineTuning(method="lora", kernels=kernels))
    two, three = (
        trace(replace(tuned, is_affine=is_affine), mode="training", batch=None) for is_affine in (True, False)
    )
    assert (len(two.traced_batches), len(three.traced_batches)) == (2, 3)
    assert two == replace(three, traced_batches=two.traced_batches)


def test_default_targets_are_those_of_peft(tmp_path: Path) -> None:
    found = of_llama(tmp_path, rank=4)
    # q_proj 64 -> 64 and v_proj 64 -> 32 in each layer.
    assert gradient_bytes(found) == 4 * LAYERS * 4 * (64 + 64 + 64 + 32)


def test_blocks_hold_their_results_for_checkpointing(tmp_path: Path) -> None:
    (blocks,) = of_llama(tmp_path).blocks
    assert blocks.results.other[1] == LAYERS * TOKENS * WIDTH * 2  # bf16, though norms keep an fp32 copy


def test_each_adapter_keeps_a_copy_of_its_input_unless_the_weights_are_in_4_bits(tmp_path: Path) -> None:
    def kept(method: FineTuningMethod) -> float:
        (blocks,) = of_llama(tmp_path, method=method, targets=("q_proj", "k_proj", "v_proj")).blocks
        return blocks.kept.other[1]

    # Three adapters have one input: PEFT casts it to fp32 for each, and autocast casts these back to bf16.
    assert kept("lora") - kept("qlora") == LAYERS * 2 * TOKENS * WIDTH * 2


def mixture(tmp_path: Path, **how: Any) -> Workload:
    settings = {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": WIDTH,
        "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
        "vocab_size": VOCABULARY, "num_local_experts": 4, "num_experts_per_tok": 2,
    }  # fmt: skip
    (tmp_path / "mixture.json").write_text(json.dumps(settings))
    loaded = sources.load(f"hf:{tmp_path / 'mixture.json'}", mode="training", specs=(), tokens=TOKENS)
    return trace(fine_tuned(loaded, FineTuning(method="qlora", **how)), mode="training", batch=None)


def test_experts_are_in_4_bits_where_they_have_linear_layers_of_their_own(tmp_path: Path) -> None:
    # Four experts with gate, up and down of 64 x 128: two bytes a weight in one parameter of the layer, or half a
    # byte, one for each 64 weights, and for each of the 12 matrices 4 for the scale of these scales.
    weights = 4 * 3 * WIDTH * INNER
    stacked, separate = mixture(tmp_path), mixture(tmp_path, separate_experts=True)
    saved = 2 * weights - (weights / 2 + weights / 64 + 12 * 4)
    assert stacked.parameter_bytes - separate.parameter_bytes == saved
    assert any("experts" in note for note in stacked.assumptions)
    assert not any("16 bits" in note for note in separate.assumptions)
    # Of 16 tokens, each with two experts, each of the four experts has 8 a sample, in forward of two FLOP a weight.
    ups = sum(
        row.count * row_cost(row, batch=BATCH).flops
        for row in separate.rows
        if "experts" in row.module and row.family == "matmul" and row.phase == "forward"
    )
    assert ups == BATCH * 8 * 2 * weights


def test_what_is_not_quantized_may_be_in_fp32(tmp_path: Path) -> None:
    """As PEFT's `prepare_model_for_kbit_training` makes it: here embeddings, output layer and five norms."""
    in_16_bits, in_32_bits = (of_llama(tmp_path, method="qlora", fp32_weights=fp32) for fp32 in (False, True))
    others = 2 * VOCABULARY * WIDTH + 5 * WIDTH
    assert in_32_bits.parameter_bytes - in_16_bits.parameter_bytes == 2 * others
    (narrow,), (wide,) = in_16_bits.blocks, in_32_bits.blocks
    # Blocks hand on fp32, which autocast leaves as it is.
    assert (narrow.results.other[1], wide.results.full[1]) == (LAYERS * TOKENS * WIDTH * 2, LAYERS * TOKENS * WIDTH * 4)


def logits_made(workload: Workload) -> set[str]:
    """Return the dtypes of tensors with the logits of all tokens of a batch."""
    every = TOKENS * BATCH * VOCABULARY
    tensors = [one for row in workload.rows for one in row.outputs if row.family != "view"]
    sizes = [
        math.prod(dim if isinstance(dim, int) else dim[0] + dim[1] * BATCH for dim in one.shape) for one in tensors
    ]
    return {one.dtype for one, size in zip(tensors, sizes, strict=True) if size == every}


@pytest.mark.parametrize(
    ("kernels", "made"),
    [("torch", {"bfloat16", "float32"}), ("fused", {"bfloat16"}), ("liger", set())],
)
def test_kernels_of_losses_decide_which_logits_are_made(
    kernels: TrainerKernels, made: set[str], tmp_path: Path
) -> None:
    found = of_llama(tmp_path, kernels=kernels)
    assert logits_made(found) == made
    assert not found.unknown_ops


def test_fused_norms_keep_no_copies(tmp_path: Path) -> None:
    def kept(kernels: TrainerKernels) -> float:
        (blocks,) = of_llama(tmp_path, kernels=kernels).blocks
        return blocks.kept.full[1] + blocks.kept.other[1]

    assert kept("fused") < kept("torch")
