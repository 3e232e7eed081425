"""Imports optional packages, or says what to install."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from advisor.errors import LoadError, did_you_mean

_TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
_TORCHVISION_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""Operators of torchvision's C++ library that its import looks up (torchvision/_meta_registrations.py)."""


def require(package: str) -> Any:
    """Import `package`; raise `LoadError` with the remedy if it is missing or does not work with this torch."""
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
    """Declares torchvision's operators just before its import, and leaves finding it to the other finders."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            declare_torchvision_operators()


def declare_operators_on_import() -> None:
    """Declare torchvision's operators as soon as the user's file imports it, directly or through another package."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def declare_torchvision_operators() -> None:
    """Make torchvision importable even if its C++ library was built for another torch, such as a CUDA build.

    timm and transformers import it too. A trace needs only shapes, and only detectors call these operators.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for file in Path(spec.origin).parent.glob("_C.*"):
        with suppress(OSError):  # torchvision ignores the error too
            torch.ops.load_library(str(file))
    for name, schema in _TORCHVISION_SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            _TORCHVISION.define(schema)


def known_name(name: str, *, names: Iterable[str], package: str) -> str:
    """Return `name` if `package` has such a model; otherwise raise `LoadError` with the closest names."""
    names = list(names)
    if name in names:
        return name
    hint = did_you_mean(name, names, otherwise=f"{package} knows {len(names)} models", most=3)
    raise LoadError(f"{package} has no model {name or 'with an empty name'}", hint=hint)
