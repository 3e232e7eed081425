"""Model files of users, as several tests write them."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

ONE_LAYER = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x)

    example_inputs = torch.zeros(4, 3)
"""
TWO_LAYERS = """
    import torch
    from torch import nn

    def get_model():
        return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))

    def example_inputs(batch=16):
        return torch.zeros(batch, 512)
"""

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a user's file into an empty working folder; gives its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "net.py") -> str:
        Path(name).write_text(dedent(text), encoding="utf-8")
        return name

    return write_file
