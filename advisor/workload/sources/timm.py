"""Loads `timm:NAME[@SIZE]`: a model of timm's registry, without weights, at its own or the given image size.

`+fast-norm` and `+reparam` after it build the model as the flags of that name of timm's benchmark.py do.
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
from advisor.workload.patching import switched
from advisor.workload.sources.classification import cross_entropy, sgd_with_momentum
from advisor.workload.sources.installed import known_name, require
from advisor.workload.sources.live import load_live
from advisor.workload.sources.python_file import build

SOURCE = {
    "usage": "timm:NAME[@SIZE][+reparam]",
    "scheme": "timm",
    "package": "timm",
    "has_attention_forms": True,
}
_FORMS = {
    "fast-norm": "timm's norms stay in half under autocast (timm.layers.set_fast_norm)",
    "reparam": "branches and norms are fused for inference (timm.utils.reparameterize_model)",
}
"""The flags of timm's benchmark.py that change what a net runs, with what each does."""


def load(reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Build timm's model `reference`, a name, or `NAME@SIZE` for square images of SIZE x SIZE pixels."""
    timm = require("timm")
    net, *forms = reference.split("+")
    full_name, _, size_text = net.partition("@")
    # In `vit_base_patch16_224.augreg_in1k` the tag selects weights.
    known_name(full_name.partition(".")[0], names=timm.list_models(), package="timm")
    if size_text and not size_text.isdecimal():
        raise LoadError(f"timm:{reference}: {size_text} is not an image size", hint=f"write timm:{full_name}@384")
    for form in forms:
        if form not in _FORMS or (form == "reparam" and mode == "training"):
            known = " and ".join(f"+{known}" for known in _FORMS)
            raise LoadError(f"timm:{reference}: no +{form} in {mode}", hint=f"{known} exist, +reparam in inference")
    size = int(size_text) if size_text else None
    layers, fast_norm = timm.layers, "fast-norm" in forms
    # Models read these switches of the process when they are built.
    with _attention_chosen(layers, attention), switched(layers.is_fast_norm, layers.set_fast_norm, fast_norm):
        model = _build(timm, full_name, size, fused="reparam" in forms)
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
        notes=tuple(_FORMS[form] for form in forms),
    )


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


def _build(timm: Any, name: str, size: int | None, *, fused: bool) -> nn.Module:
    def made(**settings: Any) -> Any:
        model = timm.create_model(name, **settings)
        return timm.utils.reparameterize_model(model.eval(), inplace=True) if fused else model

    if size is not None:
        try:
            return build(lambda: made(img_size=size), f"timm:{name}")
        except TypeError:
            pass  # a convolutional network takes any image size and has no such argument
    return build(made, f"timm:{name}")
