"""Loads `timm:NAME[@SIZE]`: a model of timm's registry, without weights, at its own or the given image size.

It runs as in timm's own benchmark: training uses SGD, and in inference group norms stay in half under autocast.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError
from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import InputSpec
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources.classification import cross_entropy, sgd_with_momentum
from advisor.workload.sources.installed import known_name, require
from advisor.workload.sources.live import load_live
from advisor.workload.sources.python_file import build

SOURCE = {
    "usage": "timm:NAME[@SIZE]",
    "scheme": "timm",
    "package": "timm",
    "has_attention_forms": True,
}
_SWITCH = "_fast_norm"
_FAST_NORMS = "group norms stay in half under autocast, as in timm's benchmark (timm.layers.set_fast_norm)"


def load(reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Build timm's model `reference`, a name, or `NAME@SIZE` for square images of SIZE x SIZE pixels."""
    timm = require("timm")
    full_name, _, size_text = reference.partition("@")
    name, dot, tag = full_name.partition(".")  # `vit_base_patch16_224.augreg_in1k`: the tag selects weights
    known_name(name, names=timm.list_models(), package="timm")
    if size_text and not size_text.isdecimal():
        raise LoadError(f"timm:{reference}: {size_text} is not an image size", hint=f"write timm:{full_name}@384")
    size = int(size_text) if size_text else None
    with _attention_chosen(timm.layers, attention):
        model = _build(timm, name + dot + tag, size)
    notes = (_FAST_NORMS,) if mode == "inference" and _make_group_norms_fast(model) else ()
    channels, height, width = model.pretrained_cfg["input_size"]  # type: ignore[index]
    if size is not None:
        height = width = size

    def example_inputs(batch: int) -> torch.Tensor:
        return torch.rand(batch, channels, height, width)

    return load_live(
        model,
        example_inputs,
        specs=specs,
        name=reference,
        loss=cross_entropy,
        optimizer=sgd_with_momentum,
        notes=notes,
    )


def _make_group_norms_fast(model: nn.Module) -> bool:
    """Make group norms fast, as `timm.layers.set_fast_norm()` before building would; return True if there are any.

    timm's benchmark with torch 2.4 must have used this: ResNet-50 takes only 12 % longer with group norms than with
    batch norms, but in fp32 the group norms would move as many bytes as all other operators. Its layer norms show no
    such effect; most were torch's own.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm) and hasattr(module, _SWITCH)]
    for norm in norms:
        setattr(norm, _SWITCH, True)
    return bool(norms)


@contextmanager
def _attention_chosen(layers: Any, attention: Attention) -> Iterator[None]:
    """Set timm's process-wide attention switch, which models read when they are built, and restore it afterwards."""
    before, before_experimental = layers.use_fused_attn(), layers.use_fused_attn(experimental=True)
    if attention != "auto":
        layers.set_fused_attn(attention == "fused")
    try:
        yield
    finally:
        layers.set_fused_attn(before, experimental=before_experimental)


def _build(timm: Any, name: str, size: int | None) -> nn.Module:
    if size is not None:
        try:
            return build(lambda: timm.create_model(name, img_size=size), f"timm:{name}")
        except TypeError:
            pass  # a convolutional network takes any image size and has no such argument
    return build(lambda: timm.create_model(name), f"timm:{name}")
