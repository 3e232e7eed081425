"""Traced Workloads to files and back: a request that was traced before is not traced again.

The name of a file is a hash of the request, the working folder, the tracer's own code, and the versions of torch and
the model libraries. In it stands what the trace read of the user's own; it holds as long as all of that is unchanged.
A file that was cut short, is forged or holds something else is ignored.
"""

import contextlib
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

import advisor.records.workload as records
from advisor.records.workload import Workload
from advisor.whole_file import replace_whole
from advisor.workload.file import workload_from_json
from advisor.workload.files_read import are_unchanged
from advisor.workload.spawn import RESULT_LIMIT_BYTES, ProfileRequest

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
    """The Workload that this request gave before, from the same files; or None."""
    try:
        file = _file(request)
        if not file.is_file():
            return None
        with gzip.open(file) as kept:
            entry = json.loads(kept.read(2 * RESULT_LIMIT_BYTES))
        return workload_from_json(entry["workload"], where=request.source) if are_unchanged(entry["files"]) else None
    except Exception:  # noqa: BLE001 - there is no end to what a forged file makes go wrong, and a trace mends all of it
        return None


def write(request: ProfileRequest, document: dict[str, Any], *, files: Mapping[str, str]) -> None:
    """Keep the Workload's JSON, made from `files`, in one step; a folder that cannot be written is let be."""
    with contextlib.suppress(OSError):
        file = _file(request)
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = {"files": files, "workload": document}
        replace_whole(gzip.compress(json.dumps(kept).encode(), compresslevel=1), file, mode=_OWN_FILE)


def forget_oldest() -> None:
    """Remove the Workloads written first, beyond those that are kept."""
    with contextlib.suppress(OSError):
        newest_first = sorted(folder().glob("*.json.gz"), key=lambda file: file.stat().st_mtime, reverse=True)
        for outdated in newest_first[_KEPT_COUNT:]:
            outdated.unlink(missing_ok=True)


def _file(request: ProfileRequest) -> Path:
    asked = {name: value for name, value in asdict(request).items() if name not in _NO_PART_OF_THE_TRACE}
    if request.source.partition(":")[0] not in _PACKAGES:  # of which each source is the same everywhere
        asked["folder"] = str(Path.cwd())
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    digest.update(_program_digest())
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


def _add_files(digest: "hashlib._Hash", files: Iterable[Path]) -> None:
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
