"""Finds the packages that a program's imports need, with the versions installed here."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from advisor.files.regular_file import read_regular_file

_OF_TORCH = ("torch", "torchvision", "torchaudio")
"""Packages whose builds must match; PyTorch's indexes have all of them."""
_RELEASE = re.compile(r"\d+(\.\d+)*(\.?(rc|post)\d+)?")
_REQUIRED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """Requirements for pip: torch and its companions, then the others. `doubts` are imports without a known package."""

    of_torch: tuple[str, ...]
    others: tuple[str, ...]
    doubts: tuple[str, ...]


def packages_of(modules: Sequence[str], *, requirements: Path) -> Packages:
    """Return the packages of the modules, without those that the requirements file names; torch is always first."""
    listed = set(_listed(requirements))
    found: dict[str, str] = {}
    doubts = []
    by_module = metadata.packages_distributions()
    for module in sorted({"torch", *modules}):
        names = sorted(set(by_module.get(module, ())))
        if len(names) > 1:
            doubts.append(f"{module} is of several packages here ({', '.join(names)})")
        elif not names:
            doubts.append(
                f"{module} is imported, but no package installed here provides it: add it to requirements.txt"
            )
        elif _normal(names[0]) not in listed or names[0] in _OF_TORCH:
            requirement = _requirement(metadata.distribution(names[0]))
            found[_normal(names[0])] = requirement
            if not requirement:
                doubts.append(f"{names[0]} is installed here from a folder, which no package index has")
    return Packages(
        of_torch=tuple(found.get(name) or name for name in _OF_TORCH if name == "torch" or name in found),
        others=tuple(text for name, text in found.items() if text and name not in _OF_TORCH),
        doubts=tuple(doubts),
    )


def _requirement(distribution: metadata.Distribution) -> str:
    """Return the requirement of the installed version: a release or a commit of a repository; "" for a local folder."""
    name, origin = distribution.metadata["Name"], json.loads(distribution.read_text("direct_url.json") or "{}")
    if "vcs_info" in origin:
        return f"{name} @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    if "dir_info" in origin:
        return ""
    version = distribution.version.partition("+")[0]  # an index has no local builds
    return f"{name}=={version}" if _RELEASE.fullmatch(version) else name


def _listed(requirements: Path) -> Iterator[str]:
    """Yield the normal names of the packages in a requirements file."""
    if requirements.is_file():
        for line in read_regular_file(requirements).decode(errors="replace").splitlines():
            if named := _REQUIRED.match(line):
                yield _normal(named[1])


def _normal(name: str) -> str:
    """Return the name as indexes compare it (packaging.python.org, "Name normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()
