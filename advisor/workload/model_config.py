"""Finds the config of a Hugging Face model without a network: by path, in the local cache, or among the shipped ones.

The shipped ones, `model_configs/ORG--NAME.json`, have the keys that fix shapes; `models.csv` beside them has the
sources, licences and parameter counts.
"""

import os
import re
from pathlib import Path

from advisor.errors import LoadError, did_you_mean
from advisor.files.regular_file import read_regular_file

SHIPPED = Path(__file__).parent / "model_configs"
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
"""`ORG/NAME`, or the NAME alone of an older id such as `gpt2`. It cannot name a folder above."""
_FILE = "config.json"


def find_config(reference: str) -> Path:
    """Return the config of a folder, a file or a model id; raise `LoadError` with the closest ids if there is none.

    The current config in the local cache comes first, then the shipped ones.
    """
    path = Path(reference)
    if _is_there(path):
        return path / _FILE if path.is_dir() else path
    is_id = _ID.fullmatch(reference) is not None
    found = _by_id(reference)
    if found is None:
        places = f"; looked in {hub_cache()}, and among the {len(shipped_ids())} models that ship with advise"
        close = did_you_mean(reference, known_ids(), otherwise=" ").replace("?", "? If not,")
        download = f"download it once with `hf download {reference} {_FILE}`, or name" if is_id else "name"
        raise LoadError(
            f"there is no config {reference}" + (places if is_id else ""),
            hint=f"{close} {download} a folder with a {_FILE}, or the JSON file".strip(),
        )
    return found


def is_known_id(reference: str) -> bool:
    """Return True for the id of a model whose config is in the local cache or shipped."""
    return _by_id(reference) is not None


def shipped_ids() -> list[str]:
    """Return the ids of the models whose configs are shipped, sorted."""
    return sorted(file.stem.replace("--", "/", 1) for file in SHIPPED.glob("*.json"))


def known_ids() -> list[str]:
    """Return the ids of the models whose configs are in the local cache or shipped, sorted."""
    try:
        folders = os.listdir(hub_cache())
    except OSError:  # nothing was downloaded
        folders = []
    cached = (name.removeprefix("models--").replace("--", "/", 1) for name in folders if name.startswith("models--"))
    return sorted({*shipped_ids(), *(one for one in cached if _ID.fullmatch(one) and _cached(one))})


def hub_cache() -> Path:
    """Return the folder of downloaded models, found as huggingface_hub finds it."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", os.path.join(cache, "huggingface"))
    hub = os.environ.get("HF_HUB_CACHE", os.environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub")))
    return Path(os.path.expandvars(hub)).expanduser()


def _by_id(reference: str) -> Path | None:
    return (_cached(reference) or _shipped(reference)) if _ID.fullmatch(reference) else None


def _is_there(path: Path) -> bool:
    """Return True for a file or folder; opened, because the record of what a trace reads would miss a `stat`."""
    try:
        os.close(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)))
    except OSError as error:
        return not isinstance(error, (FileNotFoundError, NotADirectoryError))
    except ValueError:  # a NUL in the name
        return False
    return True


def _cached(model_id: str) -> Path | None:
    """Return the config of the branch `main`, else of the newest snapshot, in the local cache."""
    folder = hub_cache() / f"models--{model_id.replace('/', '--')}"
    snapshots = folder / "snapshots"
    try:
        commit = read_regular_file(folder / "refs" / "main").decode("utf-8").strip()
        current = snapshots / Path(commit).name / _FILE
        if _is_there(current):
            return current
    except (OSError, ValueError):
        pass  # only other branches were downloaded, or nothing
    try:
        found = [file for name in os.listdir(snapshots) if _is_there(file := snapshots / name / _FILE)]
        return max(found, key=lambda file: file.stat().st_mtime, default=None)
    except OSError:
        return None


def _shipped(model_id: str) -> Path | None:
    """Return the shipped config of the id; a name alone stands for the only model of that name."""
    if "/" in model_id:
        file = SHIPPED / f"{model_id.replace('/', '--')}.json"
        return file if file.is_file() else None
    found = [one for one in shipped_ids() if one.partition("/")[2] == model_id]
    return _shipped(found[0]) if len(found) == 1 else None
