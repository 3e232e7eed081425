"""Builds a wheel of this program as installed here, for rented machines, because no package index has it."""

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from advisor.errors import UsageError

_PROJECT = "device-advisor"
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLER_FILES = frozenset(("INSTALLER", "RECORD", "REQUESTED", "direct_url.json"))


def wheel_name() -> str:
    """Return the file name of the wheel; raise `UsageError` if the program is not installed."""
    return f"{_metadata_folder().stem}-py3-none-any.whl"


def write_wheel(folder: Path, *, profiles: Path) -> Path:
    """Write the package, its profiles and its metadata to a wheel; raise `OSError` if that fails."""
    info = _metadata_folder()
    files = {
        **dict(_files(_PACKAGE, under="advisor")),
        **dict(_files(profiles, under="advisor/profiles")),
        **dict(_files(info, under=info.name)),
    }
    wheel = folder / wheel_name()
    record = f"{info.name}/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(files.items()):
            content = file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            lines.append(f"{name},sha256={digest},{len(content)}\n")
            archive.writestr(name, content)
        archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    return wheel


def _metadata_folder() -> Path:
    try:
        distribution = metadata.distribution(_PROJECT)
    except metadata.PackageNotFoundError:
        message = f"{_PROJECT} is not installed here, so it cannot be packed for other machines"
        raise UsageError(message, hint="run `pip install .` in its folder") from None
    found = next(file for file in distribution.files or () if file.name == "METADATA")
    return Path(str(found.locate())).parent


def _files(folder: Path, *, under: str) -> Iterator[tuple[str, Path]]:
    """Yield names in the wheel and their files, except compiled files and those specific to this installation."""
    for file in folder.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts and file.name not in _INSTALLER_FILES:
            yield f"{under}/{file.relative_to(folder).as_posix()}", file
