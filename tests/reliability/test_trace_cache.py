"""Kept traces that were damaged or forged: a miss or the same trace, and never an end of the run."""

import gzip
import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import platformdirs
import pytest

from advisor.records.workload import Workload
from advisor.workload import trace_cache
from advisor.workload.dependencies import recorded_dependencies
from advisor.workload.file import workload_to_json
from advisor.workload.spawn import ProfileRequest
from advisor.workload.summary import summarize
from tests.predict.toys import linear_row, workload
from tests.reliability.attack import Attack

SAVED = workload(linear_row())
REQUEST = ProfileRequest(source="net.py")
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1e300, 10**400, float("nan"), float("inf"), "", "\0", "x" * 10_000, "\ud800", [], {}, [[]],
    "/dev/zero", "file ", {"dependencies": {}},
)  # fmt: skip


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a trace was kept in."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("SIZE = 1")
    with recorded_dependencies("net.py") as dependencies:
        pass
    trace_cache.write(REQUEST, workload_to_json(SAVED), dependencies=dependencies)
    (file,) = trace_cache.folder().iterdir()
    return file


@pytest.mark.slow
def test_corrupted_cached_traces(attack: Attack, entry: Path) -> None:
    whole = entry.read_bytes()

    def check(chance: Random) -> None:
        entry.write_bytes(_damaged(whole, chance))
        assert trace_cache.read(REQUEST) in (None, SAVED)

    attack.each(check)


@pytest.mark.slow
def test_forged_cached_traces(attack: Attack, entry: Path) -> None:
    document = json.loads(gzip.decompress(entry.read_bytes()))

    def check(chance: Random) -> None:
        forged = json.loads(json.dumps(document))
        for _ in range(chance.randrange(1, 4)):
            _forge(forged, chance)
        text = json.dumps(forged)
        if chance.random() < 0.1:
            text = "[" * chance.randrange(1, 200_000) + text
        entry.write_bytes(gzip.compress(text.encode("utf-8", "surrogatepass")))
        found = trace_cache.read(REQUEST)
        if found is not None:  # what cannot be told from a trace is one that can be counted
            assert isinstance(found, Workload)
            summarize(found, batch=found.batch)

    attack.each(check)


def _damaged(whole: bytes, chance: Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return whole[: chance.randrange(len(whole))]
    if kind == 1:
        return whole + chance.randbytes(chance.randrange(1, 40))
    if kind == 2:
        return chance.randbytes(chance.randrange(2_000))
    damaged = bytearray(whole)
    for _ in range(chance.randrange(1, 9)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def _forge(document: Any, chance: Random) -> None:
    """Put something odd somewhere, take something away, or say something twice."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = chance.choice(keys)
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or chance.random() < 0.15:
            break
        place = inner
    kind = chance.randrange(3)
    if kind == 0:
        place[key] = deepcopy(chance.choice(ODD))
    elif kind == 1:
        del place[key]
    elif isinstance(place, list):
        place.append(deepcopy(inner))
    else:
        place[f"{key}2"] = deepcopy(inner)
