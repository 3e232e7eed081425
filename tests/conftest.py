"""What every test needs before it imports torchvision, and the options of the attacks in tests/reliability."""

from pathlib import Path

import pytest
import torch

# The torchvision at hand may be built for another torch, and then lacks the C++ operators that its import looks up.
_TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
for _name, _schema in (
    ("nms", "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    ("qnms", "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
):
    if not hasattr(torch.ops.torchvision, _name):
        _TORCHVISION.define(_schema)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How often and from which seed tests/reliability attacks, and the page that gets its figures."""
    parser.addoption("--attack-seed", type=int, default=0, help="seed of every random case")
    parser.addoption("--attack-count", type=int, default=100, help="cases of each class of attack")
    parser.addoption("--attack-page", type=Path, default=None, help="page whose figures are replaced")
