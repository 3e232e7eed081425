"""Tells the family of architectures that a model's source belongs to: `timm:vit`, `hf:gpt2`."""

import json
import re
from pathlib import Path

from advisor.files.regular_file import read_regular_file
from advisor.workload.sources import kind_of

_NAME = re.compile(r"(?:tf_)?([a-z]+?)(?=v?\d|_|\W|$)", re.IGNORECASE)
"""A name up to its first underscore, digit or version: `vit_base`, `resnet50`, `efficientnetv2_s`; timm marks weights
ported from TensorFlow with `tf_`."""
_SIZED = re.compile(r"([a-z_]+?)(?:_\d+)+")
"""An operator and its sizes, in a file of operators: `linear_512_2048`."""


def family_of(source: str) -> str:
    """Return the kind of source, and the architecture that the model's name, config or file name gives."""
    kind = kind_of(source)
    if kind is not None and kind.scheme:
        reference = source.removeprefix(f"{kind.scheme}:")
        if kind.is_path:
            return f"{kind.scheme}:{_model_type(Path(reference))}"
        match = _NAME.match(reference)
        return f"{kind.scheme}:{match[1].lower() if match else reference}"
    path, sizes, name = source.partition("::")
    if sizes and (operator := _SIZED.fullmatch(name)):
        return f"file:{operator[1]}"
    return f"file:{Path(path).stem}"


def _model_type(path: Path) -> str:
    """Return the config's `model_type`, or the file's name if it cannot be read; the row then fails with the reason."""
    config = path / "config.json" if path.is_dir() else path
    try:
        return str(json.loads(read_regular_file(config))["model_type"])
    except (OSError, ValueError, LookupError, TypeError):
        return path.stem
