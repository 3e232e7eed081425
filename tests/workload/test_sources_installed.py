"""Optional packages."""

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

    monkeypatch.setattr(installed, "find_spec", lambda name: name)
    monkeypatch.setattr(installed, "import_module", fail)
    with pytest.raises(LoadError, match=f"{package} is installed but cannot be imported") as caught:
        installed.require(package)
    assert caught.value.hint.startswith(f"install the {culprit} that is built for torch ")
