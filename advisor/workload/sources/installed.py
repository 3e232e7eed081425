"""An optional package by name in, the imported package out, or what to install."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from advisor.errors import LoadError


def require(package: str) -> Any:
    """Import `package`; raise `LoadError` with the remedy if it is not installed or does not fit this torch."""
    if find_spec(package) is None:
        raise LoadError(f"{package} is not installed", hint='pip install "device-advisor[models]"')
    try:
        return import_module(package)
    except (ImportError, RuntimeError) as error:
        culprit = "torchvision" if "torchvision" in str(error) else package  # timm imports it
        raise LoadError(
            f"{package} is installed but cannot be imported: {error}",
            hint=f"install the {culprit} that is built for torch {torch.__version__}",
        ) from error


def known_name(name: str, *, names: Iterable[str], package: str) -> str:
    """`name`, if `package` has such a model; else raise `LoadError` with the nearest ones."""
    names = list(names)
    if name in names:
        return name
    close = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"{package} knows {len(names)} models"
    raise LoadError(f"{package} has no model {name or 'without a name'}", hint=hint)
