"""Loads `torchvision:NAME`: a model of torchvision's registry, without weights, with inputs of its usual size."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from advisor.records.workload import Attention, Mode
from advisor.workload.input_spec import InputSpec
from advisor.workload.loaded import LoadedModel
from advisor.workload.sources.classification import cross_entropy, sgd_with_momentum
from advisor.workload.sources.installed import known_name, require
from advisor.workload.sources.live import load_live
from advisor.workload.sources.python_file import build

SOURCE = {
    "usage": "torchvision:NAME",
    "scheme": "torchvision",
    "package": "torchvision",
}
_VIDEO_FRAMES = 16
"""Frames of a clip in torchvision's video references (references/video_classification, --clip-len)."""
_DENSE = frozenset({"detection", "segmentation", "optical_flow"})
"""Categories of models that are not classifiers."""
_DETECTION_SIZE = (800, 1066)
"""A 640 x 480 image after the detection models' own resizing (their min_size 800)."""


def load(reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Build torchvision's model `reference`."""
    models = require("torchvision").models
    name = known_name(reference, names=models.list_models(), package="torchvision")
    builder = models.get_model_builder(name)
    category = builder.__module__.removeprefix("torchvision.models.").partition(".")[0]
    arguments: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        arguments["weights_backbone"] = None  # otherwise the weights are downloaded
    if category in ("inception", "googlenet"):
        arguments["init_weights"] = False  # otherwise these models warn
    model = build(lambda: builder(**arguments), f"torchvision:{name}")
    height, width = _image_size(models, name, model, category)

    def example_inputs(batch: int) -> Any:
        if category == "detection":
            return ([torch.rand(3, height, width) for _ in range(batch)],)
        if category == "optical_flow":
            return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width)
        if category == "video":
            return torch.rand(batch, 3, _VIDEO_FRAMES, height, width)
        return torch.rand(batch, 3, height, width)

    if category not in _DENSE:
        return load_live(model, example_inputs, specs=specs, name=name, loss=cross_entropy, optimizer=sgd_with_momentum)
    return load_live(model, example_inputs, specs=specs, name=name)


def _image_size(models: Any, name: str, model: nn.Module, category: str) -> tuple[int, int]:
    """Return (height, width): the model's fixed size, or else the size its published weights were evaluated on."""
    if category == "detection":
        return _DETECTION_SIZE
    if isinstance(getattr(model, "image_size", None), int):
        return model.image_size, model.image_size  # type: ignore[return-value]
    if category == "optical_flow":
        return 520, 960  # the size torchvision's optical-flow presets are documented with
    transforms = next(iter(models.get_model_weights(name))).transforms
    size = transforms.keywords.get("crop_size") or transforms.keywords.get("resize_size")
    return (size, size) if isinstance(size, int) else tuple(size)
