"""Configuration files of trainers: what they set, and values that are not predicted."""

from pathlib import Path
from typing import Any

import pytest

from advisor.catalog.recipe import read_recipe
from advisor.errors import ProfileError
from advisor.question.recipe import resolved
from advisor.records.fine_tuning import Recipe
from advisor.records.options import GivenOptions, Options

AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 4
optimizer: paged_adamw_8bit
gradient_checkpointing: true
deepspeed: deepspeed_configs/zero2.json
plugins:
  - axolotl.integrations.liger.LigerPlugin
"""
LLAMA_FACTORY = """
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: lora
lora_target: q_proj,v_proj
cutoff_len: 1024
max_samples: 1000
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
num_train_epochs: 3.0
bf16: true
"""
TORCHTUNE = """
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: true
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 2048
optimizer:
  _component_: torch.optim.AdamW
  fused: true
batch_size: 2
epochs: 1
enable_activation_checkpointing: false
"""


def recipe(tmp_path: Path, text: str) -> Recipe:
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    return read_recipe(file)


def test_a_file_of_axolotl_says_how_it_fine_tunes(tmp_path: Path) -> None:
    found = recipe(tmp_path, AXOLOTL)
    assert (found.trainer, found.model, found.batch) == ("axolotl", "meta-llama/Llama-3.1-8B", 2)
    assert found.ignored == ("lora_alpha",)
    assert found.options == {
        "finetune": "qlora", "lora_rank": 32, "lora_targets": ("all-linear",), "sequence": 4096, "packing": True,
        "accumulate": 4, "epochs": 4, "optim": "paged-adamw-8bit", "keep_activations": False,
        "trainer_kernels": "liger", "sharding": "zero2",
    }  # fmt: skip


def test_the_paged_optimizer_of_qlora_recipes_has_moments_in_fp32(tmp_path: Path) -> None:
    found = recipe(tmp_path, AXOLOTL.replace("paged_adamw_8bit", "paged_adamw_32bit"))
    assert found.options["optim"] == "paged-adamw"


def test_a_file_of_llama_factory_says_how_it_fine_tunes(tmp_path: Path) -> None:
    found = recipe(tmp_path, LLAMA_FACTORY)
    assert (found.trainer, found.model, found.batch) == ("LLaMA-Factory", "Qwen/Qwen2.5-7B", 1)
    assert found.options == {
        "finetune": "lora", "lora_rank": 8, "lora_targets": ("q_proj", "v_proj"), "sequence": 1024,
        "accumulate": 8, "samples": 1000, "epochs": 3, "optim": "adamw",
    }  # fmt: skip


def test_a_full_fine_tuning_has_no_adapters(tmp_path: Path) -> None:
    llama_factory = LLAMA_FACTORY.replace("finetuning_type: lora\nlora_target: q_proj,v_proj", "finetuning_type: full")
    torchtune = TORCHTUNE.replace("lora_llama3_1_8b", "llama3_1_8b")
    for text in (llama_factory, AXOLOTL.replace("adapter: qlora", "adapter: ''"), torchtune):
        found = recipe(tmp_path, text)
        assert found.options["finetune"] == "full"
        assert not {"lora_rank", "lora_targets"} & found.options.keys()


def test_a_file_of_torchtune_says_how_it_fine_tunes(tmp_path: Path) -> None:
    found = recipe(tmp_path, TORCHTUNE)
    assert (found.trainer, found.model, found.batch) == ("torchtune", "meta-llama/Llama-3.1-8B", 2)
    layers = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert found.options == {
        "finetune": "lora", "lora_rank": 8, "lora_targets": layers, "sequence": 2048, "epochs": 1, "optim": "adamw",
        "keep_activations": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (AXOLOTL.replace("paged_adamw_8bit", "lion_8bit"), "recipe.yaml:13: optimizer"),
        (AXOLOTL.replace("lora_r: 32", "lora_r: many"), "recipe.yaml:5: lora_r"),
        (AXOLOTL.replace("load_in_4bit", "load_in_8bit"), "recipe.yaml:3: load_in_8bit"),
        (AXOLOTL + "\nfsdp: [full_shard, offload]", "fsdp: 'offload' is not predicted"),
        (AXOLOTL + "\nfsdp: hybrid_shard auto_wrap", "fsdp: 'hybrid_shard' is not predicted"),
        (AXOLOTL + "\nfsdp_config:\n  offload_params: true", "offload_params: parameters or"),
        (AXOLOTL.replace("zero2.json", "zero3_bf16_cpuoffload_all.json"), "deepspeed: parameters or"),
        (AXOLOTL + "\nlora_modules_to_save: [embed_tokens, lm_head]", "lora_modules_to_save: modules that"),
        (LLAMA_FACTORY.replace("sft", "dpo"), "recipe.yaml:3: stage"),
        (TORCHTUNE.replace("lora_rank: 8", "lora_rank: eight"), "lora_rank: expected a whole number"),
        (TORCHTUNE.replace("max_seq_len: 2048", "max_seq_len: -4"), "max_seq_len: expected a whole number"),
        ("model: resnet50", "recipe.yaml:1: model"),
        (TORCHTUNE + "dataset: [alpaca]", "recipe.yaml:16: dataset"),
        ("instances: {}", "recipe.yaml"),
        ("distributed_type: FSDP", "recipe.yaml: a launch file of Accelerate"),
    ],
)
def test_a_value_that_is_not_predicted_is_named_with_its_line(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ProfileError) as caught:
        recipe(tmp_path, text)
    assert named in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("lines", "sharding"),
    [
        ("fsdp: [shard_grad_op, auto_wrap]", "zero2"),
        ("fsdp: full_shard auto_wrap", "zero3"),
        ("fsdp_config:\n  reshard_after_forward: true", "zero3"),
        ("deepspeed: /home/xyz2/configs/zero3.json", "zero3"),
        ("deepspeed: ds_z2_config.json", "zero2"),
    ],
)
def test_the_sharding_is_that_of_the_keys_or_of_the_name_of_the_file(tmp_path: Path, lines: str, sharding: str) -> None:
    assert recipe(tmp_path, f"{LLAMA_FACTORY}\n{lines}").options["sharding"] == sharding


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(AXOLOTL)
    given: dict[str, Any] = {"lora_rank": 8, "samples": 100, "gpus": 2}
    source, options, notes = resolved(str(file), Options(**given))
    assert source == "hf:meta-llama/Llama-3.1-8B"
    assert (options.lora_rank, options.sequence, options.epochs) == (8, 4096, 4)
    assert options.batch == "16"  # 2 sequences x 4 passes x 2 GPUs
    assert len(notes) == 2
    defaults: dict[str, Any] = {"lora_rank": 16, "accumulate": 1, "optim": "adamw"}
    _, options, notes = resolved(str(file), GivenOptions(**defaults, given=frozenset(defaults)))
    assert (options.lora_rank, options.accumulate, options.optim) == (16, 1, "adamw")
    assert options.batch == "2"
    assert "--accumulate, --lora-rank, --optim" in notes[0]
    _, options, _ = resolved(str(file), Options())
    assert options.epochs is None  # nothing says how many samples an epoch has
