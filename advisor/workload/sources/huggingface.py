"""Loads `hf:ID_OR_CONFIG`, a Hugging Face model, from its config alone: no weights, downloads or remote code."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError, TraceError, did_you_mean
from advisor.files.regular_file import read_regular_file
from advisor.records.workload import Attention, Mode
from advisor.workload.import_hooks import patched_on_import
from advisor.workload.input_spec import InputSpec
from advisor.workload.inputs import tensors_not_given
from advisor.workload.loaded import LoadedModel, own_loss
from advisor.workload.model_config import find_config
from advisor.workload.patching import Patch, patched
from advisor.workload.sources.installed import require
from advisor.workload.sources.live import load_live
from advisor.workload.sources.python_file import build

SOURCE = {
    "usage": "hf:ID_OR_CONFIG",
    "scheme": "hf",
    "package": "transformers",
    "is_path": True,
    "has_attention_forms": True,
    "takes_tokens": True,
}
_TOKENS = 512
_TRAINERS_BATCH = 8
"""The default of transformers' TrainingArguments, `per_device_train_batch_size`."""
_IMAGE_SIZE = 224
_AUDIO_SAMPLES = 16_000
"""One second at the 16 kHz that speech models take."""
_ATTENTION = {"eager": "eager", "fused": "sdpa"}
"""Forms of attention -> transformers' names for them."""
_UNNEEDED = (
    "is_accelerate_available", "is_scipy_available", "is_sklearn_available", "is_torch_distributed_available",
    "is_torchvision_available",
)  # fmt: skip
"""transformers' tests for packages that it needs for image processing, losses of detectors and several processes."""
_BASES = ("video_utils", "PreTrainedModel", "GenerationMixin")
"""Names that the modules of models import from transformers."""
_SAMPLE_LABELS = ("next_sentence_label", "sentence_order_label")
"""Labels of pretraining with one class for each sample (BERT, ALBERT), without which such models return no loss."""
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")

Makers = dict[str, Callable[[int], torch.Tensor]]
"""Argument name -> function that makes it for a batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundConfig:
    """A config as the installed transformers reads it, with the model's name."""

    config: Any
    name: str
    path: Path
    transformers: Any


def load(
    reference: str,
    *,
    mode: Mode,
    specs: Sequence[InputSpec],
    attention: Attention = "auto",
    tokens: int | None = None,
) -> LoadedModel:
    """Build the model of an id, a `config.json` or its folder; in training mode with the model's own loss.

    Text has `tokens` tokens, or as many as the model takes if they are fewer; the batch is then a trainer's.
    """
    found = read_config(reference, {"attn_implementation": _ATTENTION[attention]} if attention in _ATTENTION else {})
    config, name = found.config, found.name
    kind = _model_class(found.transformers, config, found.path)
    model = build(lambda: kind(config), reference)
    if specs:
        return load_live(model, specs=specs, name=name)
    makers, note = _inputs(model, config, found.path, tokens=tokens)
    if mode == "inference" and kind.can_generate():
        note += "; a sample is one forward pass: for generated text, add --prompt-tokens and --output-tokens"
    labels = _labels(model, makers) if mode == "training" else {}

    def example_inputs(batch: int) -> dict[str, torch.Tensor]:
        return {argument: make(batch) for argument, make in (makers | labels).items()}

    def trainers_inputs(batch: int = _TRAINERS_BATCH) -> dict[str, torch.Tensor]:
        return example_inputs(batch)

    loaded = load_live(
        model,
        trainers_inputs if tokens else example_inputs,
        name=name,
        loss=_loss_for(model, tuple(labels)) if labels else None,
        notes=(note,),
    )
    return replace(loaded, is_affine=tokens is not None)


def quiet_transformers() -> Any:
    """Return the transformers package, set to stay quiet, and without packages that take as long to import as torch."""
    with patched_on_import({"transformers.utils.import_utils": _listed_once}):
        transformers = require("transformers")
        transformers.logging.set_verbosity_error()
        places = (transformers.utils, transformers.utils.import_utils)
        with patched((place, name, lambda *_: False) for place in places for name in _UNNEEDED if hasattr(place, name)):
            for name in _BASES:
                getattr(transformers, name, None)  # imports it; older releases lack some
    return transformers


def _listed_once(module: Any) -> Iterator[Patch]:
    """Let transformers read its own files once: its cache holds fewer folders than it has, so it reads all twice."""
    function = "create_import_structure_from_path"
    read = getattr(getattr(module, function, None), "__wrapped__", None)
    if read is not None:
        yield module, function, cache(read)


def read_config(reference: str, settings: Mapping[str, Any]) -> FoundConfig:
    """Read the config of an id, a file or a folder; `settings` override its own values."""
    path, config_path = Path(reference), find_config(reference)
    own = _settings(config_path)
    transformers = quiet_transformers()
    return FoundConfig(
        config=_config(transformers, {**own, **settings}, config_path),
        name=(path if path.is_dir() else path.with_suffix("")).resolve().name if path.exists() else reference,
        path=config_path,
        transformers=transformers,
    )


def position_count(config: Any) -> int | None:
    """Return the most tokens that the model takes, or None if its config does not say."""
    return min(_limits(getattr(config, "text_config", config)), default=None)


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise LoadError(f"there is no config {path}", hint="give a folder with a config.json, or the JSON file")
    try:
        settings = json.loads(read_regular_file(path))
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}", hint="check the path and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path}: {error}", hint="a config must be a JSON object") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("model_type"), str):
        raise LoadError(f"{path} has no model_type", hint="give the config.json of a transformers model")
    # `auto_map` names code to download and run; only the classes of the installed transformers are used.
    return {key: value for key, value in settings.items() if key not in ("auto_map", "dtype", "torch_dtype")}


def _config(transformers: Any, settings: Mapping[str, Any], path: Path) -> Any:
    model_type = settings["model_type"]
    known = transformers.CONFIG_MAPPING
    if model_type not in known:
        otherwise = "remote code is never run; write a FILE.py that builds the model"
        raise LoadError(
            f"{path}: transformers {transformers.__version__} has no model_type {model_type}",
            hint=did_you_mean(model_type, known, otherwise=otherwise),
        )
    config = known[model_type].from_dict(dict(settings))
    config.use_cache = False  # one forward pass over the whole input
    return config


def named_architecture(config: Any) -> str:
    """Return the class that a config names first, or "" if it names none."""
    named = config.architectures or ""
    return named if isinstance(named, str) else str(named[0])


def _model_class(transformers: Any, config: Any, path: Path) -> Any:
    """Return the class that `architectures` names, or the base model if it names none."""
    architecture = named_architecture(config)
    if not architecture:
        return transformers.MODEL_MAPPING[type(config)]
    kind = getattr(transformers, architecture, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise LoadError(
            f"{path}: transformers {transformers.__version__} has no model {architecture}",
            hint="remote code is never run; write a FILE.py that builds the model, or remove `architectures`",
        )
    return kind


def _inputs(model: Any, config: Any, path: Path, *, tokens: int | None) -> tuple[Makers, str]:
    """Return functions that make the forward's arguments, and a note on the assumed sizes."""
    forward = inspect.signature(model.forward).parameters
    text = getattr(config, "text_config", config)
    vision = getattr(config, "vision_config", config)
    main = model.main_input_name

    def unknown_shape(name: str) -> LoadError:
        return LoadError(
            f"{path}: the shape of {type(model).__name__}'s input {name} is unknown",
            hint=f"pass --input {name}=SIZExSIZE:DTYPE",
        )

    def shape_of_images() -> tuple[int, ...]:
        if not hasattr(vision, "num_channels"):
            raise unknown_shape("pixel_values")
        return _image_shape(vision)

    if main == "input_ids":
        token_count = min([tokens or _TOKENS, *_limits(text)])
        makers = {"input_ids": _token_maker(token_count, text.vocab_size)}
        note = f"input of {token_count} tokens{'' if tokens else ' assumed'}"
        if "return_loss" in forward and "pixel_values" in forward:  # two towers, as in CLIP
            makers["pixel_values"] = _image_maker(shape_of_images())
    elif main == "pixel_values":
        image = shape_of_images()
        makers = {"pixel_values": _image_maker(image)}
        note = f"images of {' x '.join(map(str, image))} assumed"
    elif main == "input_features":
        shape = (config.num_mel_bins, 2 * config.max_source_positions)  # a convolution halves the frames
        makers = {"input_features": lambda batch: torch.rand(batch, *shape)}
        note = f"{shape[1]} frames of {shape[0]} mel bins assumed"
    elif main == "input_values":
        makers = {"input_values": lambda batch: torch.rand(batch, _AUDIO_SAMPLES)}
        note = f"{_AUDIO_SAMPLES} audio samples assumed"
    else:
        raise unknown_shape(main)
    if config.is_encoder_decoder and "decoder_input_ids" in forward:
        decoded_count = min([tokens or _TOKENS, *_limits(config)])
        makers["decoder_input_ids"] = _token_maker(decoded_count, config.vocab_size)
    return makers, note


def _labels(model: nn.Module, makers: Makers) -> Makers:
    """Return functions that make the labels for the model's own loss; empty if the labels' form is unknown."""
    architecture = type(model).__name__
    if architecture.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining")):
        forward = inspect.signature(model.forward).parameters
        of_samples = dict.fromkeys((name for name in _SAMPLE_LABELS if name in forward), _class_maker)
        return {"labels": makers["input_ids"], **of_samples} if "input_ids" in makers else {}
    if architecture.endswith("ForConditionalGeneration") and "decoder_input_ids" in makers:
        return {"labels": makers["decoder_input_ids"]}
    if architecture.endswith("ForTokenClassification"):
        return {"labels": lambda batch: torch.zeros_like(makers["input_ids"](batch))}
    if architecture.endswith("Classification"):
        return {"labels": _class_maker}
    if architecture.endswith("ForQuestionAnswering"):
        return {"start_positions": _class_maker, "end_positions": _class_maker}
    return {}


def _loss_for(model: nn.Module, labels: Sequence[str]) -> Callable[[Any, Any], torch.Tensor]:
    """Return the function that takes the loss from the model's output, which raises `TraceError` if there is none."""

    def loss(output: Any, batch: Mapping[str, Any]) -> torch.Tensor:
        found = own_loss(output)
        if found is None:
            raise TraceError(
                f"{type(model).__name__} computes no loss from {', '.join(labels)} alone",
                hint=f"pass all its inputs with --input, those of its loss too{tensors_not_given(model, batch)}",
            )
        return found

    return loss


def _limits(config: Any) -> list[int]:
    """Return the numbers of positions in the config; some model families write -1 or 0 for no limit."""
    return [value for name in _POSITIONS if isinstance(value := getattr(config, name, None), int) and value > 0]


def _image_shape(config: Any) -> tuple[int, int, int]:
    size = getattr(config, "image_size", None) or _IMAGE_SIZE
    height, width = (size, size) if isinstance(size, int) else size
    return config.num_channels, height, width


def _image_maker(shape: Sequence[int]) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.rand(batch, *shape)


def _token_maker(token_count: int, vocabulary: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.randint(vocabulary, (batch, token_count))


def _class_maker(batch: int) -> torch.Tensor:
    return torch.zeros(batch, dtype=torch.long)
