"""Where the shipped profiles are."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_profiles() -> Path:
    """The folder of shipped profiles: inside the package in a wheel, beside it in a checkout or an editable install."""
    for folder in (_PACKAGE / "profiles", _PACKAGE.parent / "profiles"):
        if (folder / "devices").is_dir():
            return folder
    raise FileNotFoundError(f"no profiles in or beside {_PACKAGE}: the installation is incomplete")


def starter_overlay() -> str:
    """The text of an overlay to start from, in which everything is commented out."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")
