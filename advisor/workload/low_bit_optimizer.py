"""Stands in for optimizers of bitsandbytes and torchao, by their names in transformers' TrainingArguments."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

_KINDS = {"adamw": ("AdamW", 2), "ademamix": ("AdEMAMix", 3), "lion": ("Lion", 1), "rmsprop": ("RMSprop", 1)}
"""Name -> the class's name, and how many moments it keeps of a parameter; AdEMAMix has two averages of the gradient."""
_NAME = re.compile(rf"(paged_)?({'|'.join(_KINDS)})(_bnb|_torch)?(?:_(4|8|32)bit)?")
_OF_BITSANDBYTES_ALONE = ("ademamix", "lion")
_FP32_BITS = 32
_BLOCK = 256
"""Numbers with one scale in fp32 (optim/optimizer.py of bitsandbytes; transformers' `block_size` for torchao)."""
_LEAST_ELEMENTS = 4096
"""Smaller parameters keep their state in fp32 (optim/optimizer.py of bitsandbytes, optim/adam.py of torchao)."""


def low_bit_optimizer(name: str, model: nn.Module | None) -> type[Optimizer] | None:
    """Return a class for TrainingArguments' `optim`; None if it is neither bitsandbytes' nor torchao's.

    A step of it makes one pass over parameter and gradient. The arithmetic of the update is left out: it takes less
    time than reading the state. Paged state counts as on the GPU, where it is until memory is short.
    """
    matched = _NAME.fullmatch(name)
    if matched is None:
        return None
    paged, kind, package, bits = matched.groups()
    if not (paged or bits or package == "_bnb" or kind in _OF_BITSANDBYTES_ALONE):
        return None
    title, moments = _KINDS[kind]
    bits = int(bits or _FP32_BITS)
    in_fp32 = {} if model is None or package == "_torch" else _embedding_ratios(model)
    class_name = f"{'Paged' if paged else ''}{title}{'' if bits == _FP32_BITS else f'{bits}bit'}"
    return type(class_name, (_LowBitOptimizer,), {"moments": moments, "bits": bits, "fp32_ratios": in_fp32})


def _embedding_ratios(model: nn.Module) -> dict[torch.Size, float]:
    """Return how many of the parameters of each shape are embeddings, whose state transformers leaves in fp32."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    counts = Counter(parameter.shape for parameter in model.parameters())
    found = Counter(parameter.shape for parameter in model.parameters() if id(parameter) in embeddings)
    return {shape: count / counts[shape] for shape, count in found.items()}


class _LowBitOptimizer(Optimizer):
    moments: int
    bits: int
    fp32_ratios: Mapping[torch.Size, float]

    def __init__(self, parameters: Any, *, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if not self.state[parameter]:
                        self.state[parameter]["moments"] = self._moments(parameter)
                    parameter.add_(parameter.grad, alpha=-group["lr"])
        return loss

    def _moments(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return the bytes of a parameter's state, those of the scales included."""
        is_small = parameter.numel() < _LEAST_ELEMENTS
        fp32_ratio = 1.0 if is_small or self.bits == _FP32_BITS else self.fp32_ratios.get(parameter.shape, 0.0)
        low_bits = self.bits + _FP32_BITS / _BLOCK
        bits = fp32_ratio * _FP32_BITS + (1 - fp32_ratio) * low_bits
        count = math.ceil(self.moments * parameter.numel() * bits / 8)
        return torch.zeros(count, dtype=torch.uint8, device=parameter.device)
