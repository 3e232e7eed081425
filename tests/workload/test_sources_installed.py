"""Optional packages."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from advisor.errors import LoadError
from advisor.workload.sources import installed


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
    with pytest.raises(LoadError, match=f"{package} is installed but cannot be imported") as caught:
        installed.require(package)
    assert caught.value.hint.startswith(f"install the {culprit} that is built for torch ")


def test_a_torchvision_that_is_built_for_another_torch_still_gives_its_models(tmp_path: Path) -> None:
    """The package at hand with its C++ library replaced by what no torch can load, in a process of its own."""
    torchvision = pytest.importorskip("torchvision")
    package = tmp_path / "torchvision"
    package.mkdir()
    for part in Path(torchvision.__file__).parent.iterdir():
        if not part.name.startswith(("_C.", "__pycache__")):
            (package / part.name).symlink_to(part)
    (package / "_C.so").write_bytes(b"built for another torch")
    code = (
        "from advisor.workload.sources.installed import require\n"
        "torchvision = require('torchvision')\n"
        f"assert torchvision.__path__ == [{str(package)!r}], torchvision.__path__\n"
        "print(type(torchvision.models.get_model('alexnet')).__name__)"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert run.stdout == "AlexNet\n", run.stderr
