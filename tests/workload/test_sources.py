import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from advisor.answers.measurement_file import family_of
from advisor.workload import sources
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.sources import has_scheme, kind_of, source_kinds, usages
from advisor.workload.spawn import ProfileRequest

TOY = '''"""Loads `toy:WIDTH`."""

from torch import nn

from advisor.workload.sources.live import load_live

SOURCE = {"usage": "toy:WIDTH", "scheme": "toy"}


def load(reference, *, mode, specs, attention="auto"):
    return load_live(nn.Linear(int(reference), 1), specs=specs, name=reference)
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "toy_source.py").write_text(TOY)
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    source_kinds.cache_clear()
    yield
    source_kinds.cache_clear()
    sys.modules.pop("advisor.workload.sources.toy_source", None)


@pytest.mark.usefixtures("toy")
def test_a_new_source_is_one_file() -> None:
    ProfileRequest(source="toy:3").check()
    assert "toy:WIDTH" in usages()
    assert family_of("toy:big_3") == "toy:big"
    loaded = sources.load("toy:3", mode="inference", specs=parse_input_specs(("3",)))
    assert loaded.model.in_features == 3


@pytest.mark.parametrize("kind", source_kinds(), ids=lambda kind: kind.usage)
def test_every_kind_has_a_scheme_or_a_suffix_and_loads(kind: sources.SourceKind) -> None:
    assert bool(kind.scheme) != bool(kind.suffix)
    assert kind_of(f"{kind.scheme}:x" if kind.scheme else f"x{kind.suffix}") == kind
    load = import_module(f"advisor.workload.sources.{kind.module}").load
    own = ["tokens"] if kind.takes_tokens else []
    assert list(inspect.signature(load).parameters) == ["reference", "mode", "specs", "attention", *own]


def test_a_source_has_the_kind_of_its_scheme_or_else_of_its_suffix() -> None:
    found = {source: kind_of(source) for source in SOURCES}
    assert {source: kind and kind.module for source, kind in found.items()} == SOURCES
    assert [source for source in SOURCES if has_scheme(source)] == ["timm:net.py", "hf:./llama"]


SOURCES = {
    "net.py": "python_file",
    "net.py::get(width=3)": "python_file",
    "./c:drive/net.py": "python_file",
    ":net.pt2": "exported",
    "timm:net.py": "timm",
    "hf:./llama": "huggingface",
    "weights.pt": None,
    "nothing:net": None,
}


def test_kinds_are_found_without_torch() -> None:
    program = "import sys; from advisor.workload.sources import usages; usages(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
