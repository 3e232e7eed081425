"""Prepares a loaded model for fine-tuning: 16-bit weights, frozen or in 4 bits, with low-rank adapters.

The layers are those of PEFT (Hu et al., LoRA, 2021; `peft/tuners/lora/layer.py`) and bitsandbytes (Dettmers et al.,
QLoRA, 2023; `bitsandbytes/autograd/_functions.py`, `MatMul4Bit`).
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from advisor.errors import LoadError, did_you_mean
from advisor.records.fine_tuning import FineTuning, OptimizerChoice
from advisor.workload.loaded import Inputs, LoadedModel
from advisor.workload.trainer_kernels import applied, with_trainer_kernels

_DTYPE = torch.bfloat16
_DEFAULT_TARGETS = (
    ("q_proj", "v_proj"), ("query_key_value",), ("query", "value"), ("c_attn",), ("q", "v"), ("qkv_proj",), ("Wqkv",),
    ("q_lin", "v_lin"), ("qkv",), ("in_proj", "x_proj"), ("to_q", "to_k", "to_v", "to_out.0"),
)  # fmt: skip
"""Layers that PEFT adapts by default (`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`), and the attention of
diffusers' models; the first names that a model has count."""
_ALL_LINEAR = "all-linear"
_WEIGHTS_BLOCK = 64
"""Weights with a scale of their own in bitsandbytes' NF4; the scales have 8 bits, and 32 bits for 256 of them."""
_SCALES_BLOCK = 256
_MOMENTS_BLOCK = 256
"""Moments with a scale of their own (bitsandbytes: `Optimizer2State`)."""
_LEAST_8BIT = 4096
"""Parameters with fewer elements keep their moments in fp32 (bitsandbytes: `min_8bit_size`)."""
_ADAPTER_SCALE = 2.0
"""Any number: the adapter's output is scaled by alpha / rank."""

_LIBRARY = torch.library.Library("finetune", "FRAGMENT")
_LIBRARY.define("dequantize(Tensor packed, Tensor scales, int rows, int columns) -> Tensor")
_LIBRARY.impl(
    "dequantize",
    lambda packed, scales, rows, columns: torch.empty((rows, columns), dtype=_DTYPE, device=packed.device),
    "CompositeExplicitAutograd",
)
_LIBRARY.define(
    "adamw_8bit(Tensor(a!) parameter, Tensor gradient, Tensor(b!) first, Tensor(c!) second, Tensor(d!) scales) -> ()"
)
_LIBRARY.impl("adamw_8bit", lambda *_: None, "CompositeExplicitAutograd")


def fine_tuned(loaded: LoadedModel, fine_tuning: FineTuning) -> LoadedModel:
    """Return the model with its weights in bf16, and with frozen weights and adapters if the method has them.

    Raises `LoadError` if the model has none of the layers to adapt.
    """
    model, method = loaded.model, fine_tuning.method
    output = _output_layer(model)
    experts = _children(model, _has_stacked_experts)
    if fine_tuning.separate_experts:
        for owner, name, module in experts:
            setattr(owner, name, SeparateExperts(module))
    if not fine_tuning.fp32_weights:
        _cast(model)
        loaded = replace(loaded, make_inputs=_casting(loaded.make_inputs))
    if method != "full":
        targets = {id(layer) for layer in _targets(model, fine_tuning.targets, output=output)}
        model.requires_grad_(requires_grad=False)
        for owner, name, layer in _children(model, _is_linear):
            base = QuantizedLinear(layer) if method == "qlora" and layer is not output else layer
            if id(layer) in targets:
                base = AdaptedLinear(base, *_sizes(layer), rank=fine_tuning.rank)
            setattr(owner, name, base)
    loaded = replace(
        loaded,
        frees_output=True,
        optimizer=loaded.optimizer or OPTIMIZERS[fine_tuning.optimizer],
        notes=(*loaded.notes, *_notes(model, fine_tuning, has_experts=bool(experts))),
    )
    if fine_tuning.kernels == "torch":
        return loaded
    return with_trainer_kernels(loaded, fine_tuning, output=output)


class AdaptedLinear(nn.Module):
    """A linear layer with a low-rank adapter: W x + s B A x. The adapter has fp32 weights, used in the input's dtype.

    PEFT keeps adapters of 16-bit models in fp32 (`autocast_adapter_dtype`), and autocast casts them. PEFT also casts
    the input to fp32, and autocast casts it back, so every adapter keeps its own copy of the input. With weights in
    4 bits PEFT copies the base layer's output instead (`peft/tuners/lora/bnb.py`).
    """

    def __init__(self, base: nn.Module, in_features: int, out_features: int, *, rank: int) -> None:
        super().__init__()
        self.base_layer = base
        device = next(base.parameters()).device
        self.lora_A = nn.Parameter(torch.empty((rank, in_features), device=device))
        self.lora_B = nn.Parameter(torch.empty((out_features, rank), device=device))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Add the adapter's output to that of the base layer."""
        result: torch.Tensor = self.base_layer(states)
        if isinstance(self.base_layer, QuantizedLinear):
            own = states
            result = result.clone()
        else:
            own = states.to(self.lora_A.dtype).to(states.dtype)
        narrow = functional.linear(own, self.lora_A.to(states.dtype))
        wide = functional.linear(narrow, self.lora_B.to(states.dtype))
        return result + wide * _ADAPTER_SCALE


class QuantizedLinear(nn.Module):
    """A frozen linear layer with weights in NF4, dequantized at each use."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.columns, self.rows = _sizes(layer)
        count = self.columns * self.rows
        scale_count = math.ceil(count / _WEIGHTS_BLOCK)
        sizes = {"packed": count // 2, "scales": scale_count + 4 * math.ceil(scale_count / _SCALES_BLOCK)}
        device = next(layer.parameters()).device
        for name, size in sizes.items():
            packed = nn.Parameter(torch.empty(size, dtype=torch.uint8, device=device), requires_grad=False)
            packed.weight_count = count if name == "packed" else 0  # type: ignore[attr-defined]
            self.register_parameter(name, packed)
        self.bias = layer.bias

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Multiply with the dequantized weights; the result has the dtype of `states` (bitsandbytes: `Linear4bit`)."""
        narrow = states.to(_DTYPE)
        product = applied(_QuantizedProduct, narrow, self.packed, self.scales, self.rows, self.columns)
        result: torch.Tensor = product if self.bias is None else product + self.bias.to(_DTYPE)
        return result.to(states.dtype)


class SeparateExperts(nn.Module):
    """Experts that run one after the other, each with its own linear layers, as before transformers 5."""

    def __init__(self, experts: Any) -> None:
        super().__init__()
        count, width, inner = experts.down_proj.shape
        device = experts.down_proj.device

        def linear(columns: int, rows: int) -> nn.Linear:
            return nn.Linear(columns, rows, bias=False, device=device, dtype=experts.down_proj.dtype)

        self.gates = nn.ModuleList(linear(width, inner) for _ in range(count))
        self.ups = nn.ModuleList(linear(width, inner) for _ in range(count))
        self.downs = nn.ModuleList(linear(inner, width) for _ in range(count))
        self.activation = experts.act_fn

    def forward(self, states: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Add up the outputs of each token's chosen experts; states (tokens, width), chosen (tokens, choices).

        All experts are assumed to be chosen equally often.
        """
        result = torch.zeros_like(states)
        choices = chosen.flatten().argsort().chunk(len(self.gates))
        for choice, gate, up, down in zip(choices, self.gates, self.ups, self.downs, strict=True):
            token = choice // chosen.shape[-1]
            own = states[token]
            outputs = down(self.activation(gate(own)) * up(own)) * shares.flatten()[choice, None]
            result.index_add_(0, token, outputs.to(states.dtype))
        return result


class _QuantizedProduct(torch.autograd.Function):
    """Dequantizes in forward and again in backward, and keeps only the packed weights."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, packed: Any, scales: Any, rows: int, columns: int) -> torch.Tensor:
        ctx.save_for_backward(packed, scales)
        ctx.sizes = rows, columns
        return functional.linear(states, torch.ops.finetune.dequantize(packed, scales, rows, columns))

    @staticmethod
    def backward(ctx: Any, gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        packed, scales = ctx.saved_tensors
        return gradients @ torch.ops.finetune.dequantize(packed, scales, *ctx.sizes), None, None, None, None


class AdamW8bit(torch.optim.Optimizer):
    """AdamW with moments in 8 bits (bitsandbytes: `AdamW8bit`); small parameters keep theirs in fp32."""

    least_8bit: float = _LEAST_8BIT

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it never calls a closure
        """Update every parameter that has a gradient."""
        for parameter in (one for group in self.param_groups for one in group["params"] if one.grad is not None):
            state = self.state[parameter]
            if not state:
                is_small = parameter.numel() < self.least_8bit
                for moment in ("first", "second"):
                    state[moment] = torch.empty_like(parameter, dtype=torch.float32 if is_small else torch.uint8)
                scale_count = 0 if is_small else 2 * math.ceil(parameter.numel() / _MOMENTS_BLOCK)
                state["scales"] = torch.empty(scale_count, device=parameter.device)
            torch.ops.finetune.adamw_8bit(parameter, parameter.grad, state["first"], state["second"], state["scales"])


class AdamW32bit(AdamW8bit):
    """AdamW with moments in fp32 whatever the weights are (bitsandbytes: `AdamW32bit`)."""

    least_8bit = math.inf


OPTIMIZERS: Mapping[OptimizerChoice, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": partial(torch.optim.AdamW, fused=True),
    "adamw-foreach": torch.optim.AdamW,
    "adamw-8bit": AdamW8bit,
    "paged-adamw": AdamW32bit,
    "paged-adamw-8bit": AdamW8bit,
}
"""`adamw` is the default of transformers' Trainer since version 5, "adamw_torch_fused", and `adamw-foreach` the earlier
one, "adamw_torch", which holds intermediate results as large as the parameters."""


def _notes(model: nn.Module, fine_tuning: FineTuning, *, has_experts: bool) -> Iterator[str]:
    """Yield what is trained, and what stays in 16 bits although it was asked for in 4."""
    if fine_tuning.sequence is None:
        yield f"sequences of at most {fine_tuning.tokens} tokens assumed: --sequence is not given"
    trained = f"{sum(one.numel() for one in model.parameters() if one.requires_grad):,} parameters are trained"
    if fine_tuning.method == "full":
        yield f"fine-tuning: {trained}"
        return
    stored = "4 bits (NF4)" if fine_tuning.method == "qlora" else "bf16"
    yield f"adapters of rank {fine_tuning.rank}: {trained}, the others frozen in {stored}"
    if has_experts and fine_tuning.method == "qlora" and not fine_tuning.separate_experts:
        yield (
            "experts stay in 16 bits: bitsandbytes quantizes linear layers, and since transformers 5 a layer's experts "
            "are one parameter"
        )


def _children(model: nn.Module, is_wanted: Callable[[nn.Module], bool]) -> list[tuple[nn.Module, str, Any]]:
    """Return the owner of each wanted module, its name there, and the module."""
    return [
        (owner, name, child) for owner in model.modules() for name, child in owner.named_children() if is_wanted(child)
    ]


def _has_stacked_experts(module: nn.Module) -> bool:
    """Return True for a module with all experts in one parameter, as in transformers 5."""
    stacked = module._parameters.get("gate_up_proj"), module._parameters.get("down_proj")
    return all(one is not None and one.dim() == 3 for one in stacked) and not getattr(module, "has_bias", False)


def _cast(model: nn.Module) -> None:
    """Give all fp32 parameters the 16-bit dtype, without reading them; tied ones stay tied."""
    cast: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.dtype is torch.float32:
                if id(parameter) not in cast:
                    cast[id(parameter)] = nn.Parameter(torch.empty_like(parameter, dtype=_DTYPE))
                module._parameters[name] = cast[id(parameter)]


def _casting(make_inputs: Callable[[int], Inputs]) -> Callable[[int], Inputs]:
    """Return the function with its fp32 tensors, such as images, in the weights' dtype."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(_DTYPE) if tensor.dtype is torch.float32 else tensor

    return lambda batch: pytree.tree_map_only(torch.Tensor, cast, make_inputs(batch))


def _is_linear(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"  # transformers' for GPT-2


def _sizes(layer: Any) -> tuple[int, int]:
    """Return the input and output features of a linear layer."""
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)


def _output_layer(model: Any) -> Any:
    """Return the layer that computes the logits of a transformers model, or None."""
    return model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None


def _targets(model: nn.Module, names: Sequence[str], *, output: Any) -> list[nn.Module]:
    """Return the layers to adapt; raise `LoadError` if there are none of a name."""
    named = {name: layer for name, layer in model.named_modules() if _is_linear(layer) and layer is not output}
    last_names = sorted({name.rpartition(".")[2] for name in named})

    def matching(wanted: Collection[str]) -> list[nn.Module]:
        return [layer for name, layer in named.items() if any(f".{name}".endswith(f".{one}") for one in wanted)]

    if tuple(names) == (_ALL_LINEAR,):
        return list(named.values())
    if tuple(names) == ("auto",):
        found = next((layers for wanted in _DEFAULT_TARGETS if (layers := matching(wanted))), [])
        if not found:
            raise LoadError(
                "--lora-targets auto: the model has none of the layers that PEFT adapts by default",
                hint=f"name the layers to adapt, or all-linear: the model has {', '.join(last_names) or 'none'}",
            )
        return found
    for name in names:
        if not matching([name]):
            hint = did_you_mean(name, last_names, otherwise=f"the model has {', '.join(last_names)}")
            raise LoadError(f"--lora-targets {name}: the model has no such linear layer", hint=hint)
    return matching(names)
