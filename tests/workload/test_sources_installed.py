"""Optional packages."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from advisor.errors import LoadError
from advisor.workload.sources import installed
from advisor.workload.spawn import ProfileRequest, start_profile
from tests.says import assert_says


@pytest.mark.parametrize(
    ("package", "reason", "culprit"),
    [
        ("timm", "operator torchvision::nms does not exist", "torchvision"),  # timm imports torchvision
        ("timm", "undefined symbol", "timm"),
    ],
)
def test_the_hint_names_the_package_that_does_not_fit_this_torch(
    monkeypatch: pytest.MonkeyPatch, package: str, reason: str, culprit: str
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(reason)

    monkeypatch.setattr(installed, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(installed, "import_module", fail)
    with pytest.raises(LoadError, match=f"{package} .*cannot be imported") as caught:
        installed.require(package)
    assert_says(caught.value.hint, culprit, "torch")


@pytest.fixture
def other_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package at hand with its C++ library replaced by what no torch can load, for processes that are started."""
    torchvision = pytest.importorskip("torchvision")
    package = tmp_path / "packages/torchvision"
    package.mkdir(parents=True)
    for part in Path(torchvision.__file__).parent.iterdir():
        if not part.name.startswith(("_C.", "__pycache__")):
            (package / part.name).symlink_to(part)
    (package / "_C.so").write_bytes(b"built for another torch")
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}{os.pathsep}{root}")
    return package


def test_a_torchvision_that_is_built_for_another_torch_still_gives_its_models(other_torchvision: Path) -> None:
    code = (
        "from advisor.workload.sources.installed import require\n"
        "torchvision = require('torchvision')\n"
        f"assert torchvision.__path__ == [{str(other_torchvision)!r}], torchvision.__path__\n"
        "print(type(torchvision.models.get_model('alexnet')).__name__)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "AlexNet\n", run.stderr


@pytest.mark.parametrize("run", [False, True])
def test_a_file_and_a_script_may_import_it_too(other_torchvision: Path, tmp_path: Path, run: bool) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "import torch, torchvision\n"
        f"assert torchvision.__path__ == [{str(other_torchvision)!r}], torchvision.__path__\n"
        "model = torchvision.models.alexnet(weights=None)\n"
        "example_inputs = torch.zeros(2, 3, 224, 224)\n"
        "if __name__ == '__main__':\n"
        "    model(example_inputs)\n"
    )
    with start_profile(ProfileRequest(source=str(path), run=run)) as child:
        assert child.answer()["workload"]["parameter_count"] == 61_100_840  # as torchvision's documentation says
