"""Caches traced Workloads in files, so that the same request is not traced again.

The file name is a hash of the request, the working directory, the tracer's code, the Python environment, and the
versions of torch and the model libraries with their settings. The file also lists which files of the user and of
libraries and which environment variables the trace read, and is valid while these are unchanged. Truncated, forged or
otherwise invalid files are ignored.
"""

import contextlib
import gzip
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from advisor.files.own_code import code_digest
from advisor.files.whole_file import replace_whole
from advisor.records.workload import Workload
from advisor.workload.dependencies import are_all_known, are_unchanged
from advisor.workload.file import workload_from_json
from advisor.workload.model_config import SHIPPED, hub_cache
from advisor.workload.sources import kind_of, source_kinds
from advisor.workload.spawn import RESULT_LIMIT_BYTES, ProfileRequest

_CODE = ("errors.py", "files", "machine", "ops", "records", "units.py", "workload")
"""The packages of this program that a trace imports: this one and those below it in the contract in pyproject.toml."""
_KEPT_COUNT = 8192
"""Number of Workloads kept, 30 to 80 KB each, most of which is the names of 1,600 to 3,400 files of libraries. A fit on
all measured steps asks for about 4,000."""
_OWN_FILE = 0o600
"""Readable only by this user, because a workload shows how the model is built."""


def folder() -> Path:
    """Return the folder of this user's cached workloads."""
    return platformdirs.user_cache_path("advisor") / "workloads"


def read(request: ProfileRequest) -> Workload | None:
    """Return the cached Workload of this request, or None if there is none or what it read has changed.

    Scripts are not cached: they also read data, and run until their first step. Second counts are not, either.
    """
    if request.run or request.second_count:
        return None
    try:
        file = _file(request)
        if not file.is_file():
            return None
        with gzip.open(file) as kept:
            entry = json.loads(kept.read(2 * RESULT_LIMIT_BYTES))
        if not are_unchanged(entry["dependencies"]):
            return None
        return workload_from_json(entry["workload"], where=request.source)
    except Exception:  # noqa: BLE001 - an invalid file can fail in any way, and tracing again always works
        return None


def write(request: ProfileRequest, document: dict[str, Any], *, dependencies: Mapping[str, str]) -> None:
    """Store the Workload's JSON, made from `dependencies`, atomically.

    Nothing is stored for what `read` leaves out, if not all dependencies are known, or if the folder is not writable.
    """
    if request.run or request.second_count or not are_all_known(dependencies):
        return
    with contextlib.suppress(OSError):
        file = _file(request)
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = {"dependencies": dependencies, "workload": document}
        replace_whole(gzip.compress(json.dumps(kept).encode(), compresslevel=1), file, mode=_OWN_FILE)


def forget_oldest() -> None:
    """Remove the oldest Workloads beyond the number kept."""
    with contextlib.suppress(OSError):
        newest_first = sorted(folder().glob("*.json.gz"), key=lambda file: file.stat().st_mtime, reverse=True)
        for outdated in newest_first[_KEPT_COUNT:]:
            outdated.unlink(missing_ok=True)


def _file(request: ProfileRequest) -> Path:
    asked = asdict(request)
    del asked["timeout_s"]  # the trace does not depend on it
    kind = kind_of(request.source)
    if kind is None or kind.is_path:
        asked["folder"] = str(Path.cwd())
    prefixes = tuple(f"{package.upper()}_" for package in _packages())  # as TIMM_FUSED_ATTN, which timm reads on import
    asked["settings"] = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    asked["hub_cache"] = str(hub_cache())
    asked["python"] = [sys.prefix, sys.version, os.environ.get("PYTHONPATH", "")]  # another one finds other libraries
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    digest.update(_program_digest())
    return folder() / f"{digest.hexdigest()}.json.gz"


@cache
def _program_digest() -> bytes:
    """Return a digest of the code, shipped configs and package versions that turn a source into a Workload."""
    digest = hashlib.sha256(code_digest(*_CODE).encode())
    for package in _packages():
        with contextlib.suppress(metadata.PackageNotFoundError):
            digest.update(f"{package} {metadata.version(package)}\n".encode())
    for file in sorted(SHIPPED.glob("*.json")):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()


def _packages() -> list[str]:
    return ["torch", *sorted({kind.package for kind in source_kinds()} - {""})]
