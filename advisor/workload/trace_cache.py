"""Traced Workloads to files and back: a request that was traced before is not traced again.

The name of a file is a hash of everything the trace depends on, so nothing ever has to be declared outdated: the
request, the local files its source names, the tracer's own code, and the versions of torch and the model libraries.
A file that was cut short or holds something else is ignored.
"""

import contextlib
import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

import advisor.records.workload as records
from advisor.errors import LoadError
from advisor.records.workload import Workload
from advisor.whole_file import replace_whole
from advisor.workload.file import workload_from_json
from advisor.workload.spawn import ProfileRequest

_PACKAGES = ("torch", "torchvision", "timm", "transformers")
_ROOMS = tuple(Path(__file__).resolve().parents[1] / name for name in ("ops", "workload"))
_KEPT_COUNT = 8192
"""Workloads kept, of some 10 KB each."""
_OWN_FILE = 0o600
"""For this user alone: the workload of a model shows how it is built."""
_NO_PART_OF_THE_TRACE = ("timeout_s",)


def folder() -> Path:
    """Where this user's workloads are kept."""
    return platformdirs.user_cache_path("advisor") / "workloads"


def read(request: ProfileRequest) -> Workload | None:
    """The Workload that this request gave before, or None."""
    try:
        with gzip.open(_file(request)) as file:
            return workload_from_json(json.load(file), where=request.source)
    except (OSError, EOFError, ValueError, LoadError):
        return None


def write(request: ProfileRequest, document: dict[str, Any]) -> None:
    """Keep the Workload's JSON in one step; a folder that cannot be written is let be."""
    file = _file(request)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(gzip.compress(json.dumps(document).encode(), compresslevel=1), file, mode=_OWN_FILE)


def forget_oldest() -> None:
    """Remove the Workloads written first, beyond those that are kept."""
    with contextlib.suppress(OSError):
        newest_first = sorted(folder().glob("*.json.gz"), key=lambda file: file.stat().st_mtime, reverse=True)
        for outdated in newest_first[_KEPT_COUNT:]:
            outdated.unlink(missing_ok=True)


def _file(request: ProfileRequest) -> Path:
    asked = {name: value for name, value in asdict(request).items() if name not in _NO_PART_OF_THE_TRACE}
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    digest.update(_program_digest())
    _add_files(digest, _local_files(request.source))
    return folder() / f"{digest.hexdigest()}.json.gz"


@cache
def _program_digest() -> bytes:
    """Of the code and the packages that turn a source into a Workload."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest.update(f"{package} {metadata.version(package)}\n".encode())
    _add_files(digest, [Path(records.__file__), *(file for room in _ROOMS for file in sorted(room.rglob("*.py")))])
    return digest.digest()


def _local_files(source: str) -> list[Path]:
    """What of the user's own a source reads: a config, or a Python file with those it may import from its folder."""
    scheme, _, reference = source.partition(":")
    if scheme == "hf":
        path = Path(reference)
        return [path / "config.json" if path.is_dir() else path]
    path = Path(source.partition("::")[0])
    return sorted(path.parent.glob("*.py")) if path.suffix == ".py" else [path]


def _add_files(digest: "hashlib._Hash", files: Iterable[Path]) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # `torchvision:resnet50` is no file
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)}\n".encode())
            digest.update(content)
