"""Locates the built-in profiles and the starter overlay."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_profiles() -> Path:
    """Return the folder of built-in profiles: inside the package in a wheel, beside it in a checkout."""
    for folder in (_PACKAGE / "profiles", _PACKAGE.parent / "profiles"):
        if (folder / "devices").is_dir():
            return folder
    raise FileNotFoundError(f"no profiles in or beside {_PACKAGE}: the installation is incomplete")


def starter_overlay() -> str:
    """Return the text of a starter overlay in which everything is commented out."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")
