"""An optional package by name in, the imported package out, or what to install."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from advisor.errors import LoadError

_TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
_TORCHVISION_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""The operators of its C++ library that torchvision looks up on import (torchvision/_meta_registrations.py)."""


def require(package: str) -> Any:
    """Import `package`; raise `LoadError` with the remedy if it is not installed or does not fit this torch."""
    if find_spec(package) is None:
        raise LoadError(f"{package} is not installed", hint=f"pip install {package}")
    declare_torchvision_operators()
    try:
        return import_module(package)
    except (ImportError, RuntimeError) as error:
        culprit = "torchvision" if "torchvision" in str(error) else package  # timm imports it
        raise LoadError(
            f"{package} is installed but cannot be imported: {error}",
            hint=f"install the {culprit} that is built for torch {torch.__version__}",
        ) from error


class _BeforeTorchvision(MetaPathFinder):
    """Declares the operators once torchvision is asked for, and leaves finding it to the others."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            declare_torchvision_operators()


def declare_operators_on_import() -> None:
    """Declare torchvision's operators as soon as a file of the user's, or what it imports, imports it."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def declare_torchvision_operators() -> None:
    """Let a torchvision be imported whose C++ library is built for another torch, as beside a CPU build of torch.

    timm and transformers import it too. Shapes are all that a trace needs, and only detectors call these operators.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for file in Path(spec.origin).parent.glob("_C.*"):
        with suppress(OSError):  # torchvision lets it be in the same way
            torch.ops.load_library(str(file))
    for name, schema in _TORCHVISION_SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            _TORCHVISION.define(schema)


def known_name(name: str, *, names: Iterable[str], package: str) -> str:
    """`name`, if `package` has such a model; else raise `LoadError` with the nearest ones."""
    names = list(names)
    if name in names:
        return name
    close = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"{package} knows {len(names)} models"
    raise LoadError(f"{package} has no model {name or 'without a name'}", hint=hint)
