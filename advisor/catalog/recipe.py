"""Reads the configuration files of trainers: axolotl, LLaMA-Factory and torchtune.

The keys and their defaults are those of the trainers' own documentation (axolotl: docs/config-reference; LLaMA-Factory:
src/llamafactory/hparams; torchtune: recipes/configs). A key that changes time or memory must have a value that is
known; all others are listed as ignored.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from advisor.catalog.strict_yaml import Node, read_documents
from advisor.errors import ProfileError
from advisor.records.fine_tuning import OptimizerChoice, Recipe

_OPTIMIZERS: Mapping[str, OptimizerChoice] = {
    "adamw_torch": "adamw-foreach", "adamw_torch_fused": "adamw", "adamw_hf": "adamw-foreach",
    "adamw_bnb_8bit": "adamw-8bit", "adamw_8bit": "adamw-8bit", "paged_adamw_8bit": "paged-adamw-8bit",
    "paged_adamw": "paged-adamw", "paged_adamw_32bit": "paged-adamw",
    "torch.optim.AdamW": "adamw-foreach", "bitsandbytes.optim.AdamW8bit": "adamw-8bit",
    "bitsandbytes.optim.PagedAdamW": "paged-adamw", "bitsandbytes.optim.PagedAdamW8bit": "paged-adamw-8bit",
}  # fmt: skip
_TORCHTUNE_MODELS: Mapping[str, str] = {
    "llama2_7b": "meta-llama/Llama-2-7b-hf", "llama2_13b": "meta-llama/Llama-2-13b-hf",
    "llama2_70b": "meta-llama/Llama-2-70b-hf", "llama3_8b": "meta-llama/Meta-Llama-3-8B",
    "llama3_70b": "meta-llama/Meta-Llama-3-70B", "llama3_1_8b": "meta-llama/Llama-3.1-8B",
    "llama3_1_70b": "meta-llama/Llama-3.1-70B", "llama3_2_1b": "meta-llama/Llama-3.2-1B",
    "llama3_2_3b": "meta-llama/Llama-3.2-3B", "mistral_7b": "mistralai/Mistral-7B-v0.1",
    "qwen2_5_7b_base": "Qwen/Qwen2.5-7B", "qwen2_5_7b_instruct": "Qwen/Qwen2.5-7B-Instruct",
}  # fmt: skip
"""Builders of torchtune's models, without their prefix -> the model that has the same sizes."""
_TORCHTUNE_LAYERS = {"output_proj": "o_proj"}
_TORCHTUNE_MLP = ("gate_proj", "up_proj", "down_proj")
_FSDP_WORDS: Mapping[str, str | None] = {"full_shard": "zero3", "shard_grad_op": "zero2", "auto_wrap": None}
"""Words of `fsdp` in transformers' arguments -> the sharding."""
_HINT = "write the value that you mean as a flag, and remove the key"
_BITS_HINT = "remove the key for frozen weights in 16 bits, or write 4 bits"
_TRAINED_WHOLE = "modules that are trained whole beside LoRA are not predicted"
_OFFLOAD = "parameters or optimizer states in the host's memory are not predicted"
_ACCELERATE = "distributed_type"
"""A key of Accelerate's launch files."""


def read_recipe(path: Path) -> Recipe:
    """Read the file; raise `ProfileError` if it is not one of a trainer's, or a value that counts is not known."""
    documents = read_documents(path)
    if len(documents) != 1 or not isinstance(documents[0].values, Mapping):
        raise ProfileError("expected one document with keys", where=str(path), hint="name a trainer's YAML file")
    keys = _Keys(documents[0].root)
    for mark, read in _TRAINERS.items():
        if mark in documents[0].values:
            return read(keys)
    if _ACCELERATE in documents[0].values:
        raise ProfileError(
            "a launch file of Accelerate names no model",
            where=str(path),
            hint="name the script that it launches: `advise train.py --run --gpus N --sharding zero3`",
        )
    raise ProfileError(
        f"no trainer's file: none of the keys {', '.join(_TRAINERS)}",
        where=str(path),
        hint="name a file of axolotl, LLaMA-Factory or torchtune",
    )


class _Keys:
    """The keys of a file; notes which were read."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.known: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, by default `default`."""
        self.known.add(key)
        value = self.root.get(key, default).value
        return default if value is None else value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a key that is true or false; other values, such as auto, count as true."""
        return self.get(key, default) not in (False, "false", "no", "none", "disabled")

    def count(self, key: str) -> int | None:
        """Return a whole number above 0, or None without the key and for -1, which stands for no limit."""
        value = self.get(key)
        if value is None or value == -1:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.root[key].error(f"expected a whole number above 0, found {value!r}", hint=_HINT)
        return value

    def epochs(self, key: str) -> int | None:
        """Return a number of passes, which files also write as 3.0."""
        value = self.get(key)
        return int(value) if isinstance(value, float) and value.is_integer() and value > 0 else self.count(key)

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of names, or names between commas or blanks."""
        value = self.get(key, ())
        parts = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
            raise self.root[key].error(f"expected names, found {value!r}", hint="write a list of names")
        return tuple(part.strip() for part in parts)

    def below(self, key: str) -> "_Keys":
        """Return the keys below a key; none without it."""
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            raise self.root[key].error(f"expected keys and values, found {value!r}", hint="write `key: value` lines")
        return _Keys(self.root.get(key, {}))

    def refuse(self, key: str, problem: str) -> None:
        """Raise an error if the key has a value that is not empty, false or 0."""
        if self.get(key):
            raise self.root[key].error(problem, hint="remove the key for a prediction without it")

    def chosen(self, key: str, choices: Mapping[str, Any], default: str) -> Any:
        """Return what a value stands for; raise an error for one that is not known."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in choices:
            known = ", ".join(choices)
            raise self.root[key].error(f"{value!r} is not predicted", hint=f"one of {known}; or {_HINT}")
        return choices[value]

    def recipe(self, trainer: str, *, model: Any, batch: str, options: Mapping[str, Any]) -> Recipe:
        """Return the recipe; all keys that were not read are ignored, and LoRA's in a full fine-tuning."""
        if not isinstance(model, str):
            raise self.root.error(f"expected the model's name as text, found {model!r}", hint="name the model")
        micro_batch = self.count(batch)
        return Recipe(
            trainer=trainer,
            model=model,
            options={
                name: value
                for name, value in options.items()
                if value is not None and not (name.startswith("lora_") and options["finetune"] == "full")
            },
            batch=micro_batch,
            ignored=tuple(key for key in self.root.value if key not in self.known),
        )


def _axolotl(keys: _Keys) -> Recipe:
    method = keys.chosen("adapter", {"": "full", "lora": "lora", "qlora": "qlora"}, "")
    if keys.flag("load_in_4bit") and method == "lora":
        method = "qlora"
    if keys.flag("load_in_8bit"):
        raise keys.root["load_in_8bit"].error("weights in 8 bits are not predicted", hint=_BITS_HINT)
    targets = ("all-linear",) if keys.flag("lora_target_linear") else keys.names("lora_target_modules")
    is_liger = any("liger" in name.lower() for name in keys.names("plugins"))
    keys.refuse("lora_modules_to_save", _TRAINED_WHOLE)
    return keys.recipe(
        "axolotl",
        model=keys.get("base_model", ""),
        batch="micro_batch_size",
        options={
            "finetune": method,
            "lora_rank": keys.count("lora_r"),
            "lora_targets": targets or None,
            "sequence": keys.count("sequence_len"),
            "packing": keys.flag("sample_packing") or None,
            "accumulate": keys.count("gradient_accumulation_steps"),
            "epochs": keys.epochs("num_epochs"),
            "steps": keys.count("max_steps"),
            "optim": keys.chosen("optimizer", _OPTIMIZERS, "adamw_torch_fused"),
            "keep_activations": not keys.flag("gradient_checkpointing"),
            "trainer_kernels": "liger" if is_liger else None,
            "sharding": _sharding(keys),
            "compile": "compile" if keys.flag("torch_compile") else None,
        },
    )


def _llama_factory(keys: _Keys) -> Recipe:
    keys.chosen("stage", {"sft": "", "pt": ""}, "sft")
    method = keys.chosen("finetuning_type", {"lora": "lora", "full": "full"}, "lora")
    bits = keys.count("quantization_bit")
    if bits not in (None, 4):
        raise keys.root["quantization_bit"].error(f"weights in {bits} bits are not predicted", hint=_BITS_HINT)
    if method == "lora" and bits == 4:
        method = "qlora"
    targets = keys.names("lora_target") or ("all",)
    keys.refuse("additional_target", _TRAINED_WHOLE)
    kernels = "liger" if keys.flag("enable_liger_kernel") else "fused" if keys.flag("use_unsloth") else None
    return keys.recipe(
        "LLaMA-Factory",
        model=keys.get("model_name_or_path", ""),
        batch="per_device_train_batch_size",
        options={
            "finetune": method,
            "lora_rank": keys.count("lora_rank") or 8,
            "lora_targets": ("all-linear",) if "all" in targets else targets,
            "sequence": keys.count("cutoff_len") or 2048,
            "packing": keys.flag("packing") or None,
            "accumulate": keys.count("gradient_accumulation_steps"),
            "samples": keys.count("max_samples"),
            "epochs": keys.epochs("num_train_epochs"),
            "steps": keys.count("max_steps"),
            "optim": keys.chosen("optim", _OPTIMIZERS, "adamw_torch_fused"),
            "keep_activations": keys.flag("disable_gradient_checkpointing") or None,
            "trainer_kernels": kernels,
            "sharding": _sharding(keys),
        },
    )


def _torchtune(keys: _Keys) -> Recipe:
    model, optimizer = keys.below("model"), keys.below("optimizer")
    tokenizer, dataset = keys.below("tokenizer"), keys.below("dataset")
    builder = str(model.get("_component_", "")).rpartition(".")[2]
    method = next((kind for kind in ("qlora", "lora") if builder.startswith(f"{kind}_")), "full")
    layers = tuple(_TORCHTUNE_LAYERS.get(name, name) for name in model.names("lora_attn_modules"))
    layers += _TORCHTUNE_MLP if model.flag("apply_lora_to_mlp") else ()
    name = optimizer.chosen("_component_", _OPTIMIZERS, "torch.optim.AdamW")
    is_fused = name == "adamw-foreach" and optimizer.flag("fused")
    return keys.recipe(
        "torchtune",
        model=_TORCHTUNE_MODELS.get(builder.removeprefix(f"{method}_"), ""),
        batch="batch_size",
        options={
            "finetune": method,
            "lora_rank": model.count("lora_rank"),
            "lora_targets": layers or None,
            "sequence": tokenizer.count("max_seq_len"),
            "packing": dataset.flag("packed") or None,
            "accumulate": keys.count("gradient_accumulation_steps"),
            "epochs": keys.epochs("epochs"),
            "optim": "adamw" if is_fused else name,
            "keep_activations": not keys.flag("enable_activation_checkpointing"),
            "compile": "compile" if keys.flag("compile") else None,
        },
    )


def _sharding(keys: _Keys) -> str | None:
    """Return the sharding of DeepSpeed's file or of FSDP's keys; None without either."""
    stage, words = _deepspeed(keys), keys.names("fsdp")
    for word in words:
        if word not in _FSDP_WORDS:
            raise keys.root["fsdp"].error(f"{word!r} is not predicted", hint=f"one of {', '.join(_FSDP_WORDS)}")
    config = keys.below("fsdp_config")
    for offload in ("offload_params", "fsdp_offload_params"):
        config.refuse(offload, _OFFLOAD)
    if stage is not None:
        return stage
    chosen = next((_FSDP_WORDS[word] for word in words if _FSDP_WORDS[word]), None)
    return chosen or ("zero3" if words or config.root.value else None)


def _deepspeed(keys: _Keys) -> str | None:
    """Return the stage of ZeRO that the name of DeepSpeed's file says: `deepspeed_configs/zero2.json`."""
    value = str(keys.get("deepspeed", ""))
    if not value:
        return None
    name = Path(value).name
    if "offload" in name:
        raise keys.root["deepspeed"].error(_OFFLOAD, hint="name the file without offload")
    stage = re.search(r"(?:zero|stage|z)[-_]?([123])", name)
    if stage is None:
        raise keys.root["deepspeed"].error(f"the stage of ZeRO is not in the name {name!r}", hint="write --sharding")
    return f"zero{stage[1]}"


_TRAINERS: Mapping[str, Callable[[_Keys], Recipe]] = {
    "base_model": _axolotl,
    "model_name_or_path": _llama_factory,
    "model": _torchtune,
}
"""The key by which a trainer's file is known."""
