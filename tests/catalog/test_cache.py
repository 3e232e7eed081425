import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.cache import catalog_from_json, catalog_to_json, content_key, read_cached, write_cached
from advisor.records.device import Cpu, Efficiency, FamilyEfficiency, Gpu, MeasuredBandwidth
from advisor.records.price import Catalog, ExchangeRate, Offer, Price
from advisor.records.rejection import Rejection

EMPTY = Catalog(gpus={}, cpus={}, efficiencies=(), offers=(), rejected=(), overlays=())
POSITIVE = st.floats(min_value=1e-9, max_value=1e18)
TEXTS = st.lists(st.text(max_size=5), max_size=3).map(tuple)


def records(record: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Every field by its type; the catalog's doors let only finite numbers in."""
    numbers = st.dictionaries(st.text(max_size=5), POSITIVE, max_size=3)
    by_hint = {
        float: POSITIVE,
        float | None: st.none() | POSITIVE,
        tuple[str, ...]: TEXTS,
        Mapping[str, float]: numbers,
        tuple[MeasuredBandwidth, ...]: st.lists(
            st.builds(MeasuredBandwidth, cores=POSITIVE, read_bytes_per_s=POSITIVE), max_size=2
        ).map(tuple),
    }
    hints = get_type_hints(record).items()
    every = {
        name: by_hint[hint] if hint in by_hint else st.from_type(hint) for name, hint in hints if name not in fields
    }
    return st.builds(record, **every, **fields)


OFFERS = records(Offer, prices=st.lists(records(Price), max_size=4).map(tuple))
EFFICIENCIES = records(Efficiency, families=st.dictionaries(st.text(max_size=5), records(FamilyEfficiency), max_size=3))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    gpus = draw(st.lists(records(Gpu), max_size=3))
    cpus = draw(st.lists(records(Cpu), max_size=3))
    return Catalog(
        gpus={gpu.id: gpu for gpu in gpus},
        cpus={cpu.id: cpu for cpu in cpus},
        efficiencies=tuple(draw(st.lists(EFFICIENCIES, max_size=2))),
        offers=tuple(draw(st.lists(OFFERS, max_size=4))),
        rejected=tuple(draw(st.lists(records(Rejection), max_size=3))),
        overlays=draw(TEXTS),
        exchange_rates=tuple(draw(st.lists(records(ExchangeRate), max_size=2))),
    )


@given(catalogs())
def test_a_catalog_written_and_read_is_the_same(catalog: Catalog) -> None:
    assert catalog_from_json(catalog_to_json(catalog)) == catalog


def test_the_shipped_catalog_written_and_read_is_the_same(shipped: Catalog) -> None:
    assert catalog_from_json(catalog_to_json(shipped)) == shipped


def test_a_stored_catalog_is_found_under_its_key_only(tmp_path: Path) -> None:
    write_cached(EMPTY, tmp_path, key="one")
    assert read_cached(tmp_path, key="one") == EMPTY
    assert read_cached(tmp_path, key="two") is None


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"not\njson", b"\x80\x04K\x01."], ids=["empty", "json", "text", "pickle"]
)
def test_a_cache_file_with_something_else_in_it_is_ignored(tmp_path: Path, damage: bytes) -> None:
    write_cached(EMPTY, tmp_path, key="one")
    (file,) = tmp_path.glob("catalog-*.json")
    file.write_bytes(damage)
    assert read_cached(tmp_path, key="one") is None


def test_a_cache_file_with_one_byte_changed_or_missing_is_ignored(tmp_path: Path, shipped: Catalog) -> None:
    write_cached(shipped, tmp_path, key="one")
    (file,) = tmp_path.glob("catalog-*.json")
    whole = file.read_bytes()
    position = whole.index(b"1.006")
    for damaged in (whole[:position] + b"9.006" + whole[position + 5 :], whole[:-1]):
        file.write_bytes(damaged)
        assert read_cached(tmp_path, key="one") is None


def first_price(document: Any) -> Any:
    return document["offers"][0]["prices"][0]


FORGED: dict[str, Any] = {
    "nothing": lambda document: document.clear(),
    "a device without its figures": lambda document: next(iter(document["gpus"].values())).pop("sm_count"),
    "a figure that is text": lambda document: next(iter(document["gpus"].values())).update(sm_count="40"),
    "a figure that is no number": lambda document: next(iter(document["cpus"].values())).update(
        memory_bytes_per_s=float("nan")
    ),
    "a name that is a number": lambda document: next(iter(document["cpus"].values())).update(name=3),
    "a price that is text": lambda document: first_price(document).update(usd_per_hour="1"),
    "a price below nothing": lambda document: first_price(document).update(usd_per_hour=-1.0),
    "a price of nothing": lambda document: first_price(document).update(usd_per_hour=0.0),
    "a price of no kind": lambda document: first_price(document).update(kind="gift"),
    "a price of no day": lambda document: first_price(document).update(date="soon"),
    "a source that is a number": lambda document: first_price(document).update(source=10**6),
    "an offer without a field": lambda document: document["offers"][0].pop("vcpus"),
    "a device that is not there": lambda document: [one.update(cpu="x") for one in document["offers"]],
    "a GPU machine without GPUs": lambda document: [one.update(gpu_count=0) for one in document["offers"]],
    "an efficiency that is text": lambda document: document["efficiencies"][0].update(families="*"),
    "a family that is a number": lambda document: document["efficiencies"][0]["families"].update({"*": 1.0}),
    "overlays that are a number": lambda document: document.update(overlays=[1]),
    "deep nesting": None,
}


@pytest.mark.parametrize("name", FORGED)
def test_an_entry_with_a_right_digest_and_wrong_content_is_ignored(tmp_path: Path, shipped: Catalog, name: str) -> None:
    write_cached(shipped, tmp_path, key="one")
    (file,) = tmp_path.glob("catalog-*.json")
    document = json.loads(file.read_bytes().partition(b"\n")[2])
    if forge := FORGED[name]:
        forge(document)
        payload = json.dumps(document).encode()
    else:
        payload = b"[" * 100_000
    file.write_bytes(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
    assert read_cached(tmp_path, key="one") is None


def test_a_cache_file_that_is_a_pipe_is_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "catalog-one.json")
    assert read_cached(tmp_path, key="one") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    write_cached(EMPTY, blocked / "cache", key="one")
    assert read_cached(blocked / "cache", key="one") is None


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    write_cached(EMPTY, tmp_path, key="one")
    assert list(tmp_path.iterdir()) == []


def test_only_the_catalogs_used_last_are_kept(tmp_path: Path) -> None:
    for index in range(8):
        write_cached(EMPTY, tmp_path, key=f"key{index}")
        os.utime(tmp_path / f"catalog-key{index}.json", (index, index))
    assert read_cached(tmp_path, key="key0") == EMPTY
    write_cached(EMPTY, tmp_path, key="last")
    assert len(list(tmp_path.iterdir())) == 8
    assert read_cached(tmp_path, key="last") == EMPTY
    assert read_cached(tmp_path, key="key0") == EMPTY
    assert read_cached(tmp_path, key="key1") is None


def test_the_key_changes_with_content_name_order_and_roles_of_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("a: 1")
    two.write_text("a: 1")
    keys = [content_key(files, roles="") for files in ([one], [two], [one, two], [two, one])]
    keys.append(content_key([one], roles="own rates"))
    one.write_text("a: 2")
    keys.append(content_key([one], roles=""))
    assert len(set(keys)) == 6
    one.write_text("a: 1")
    assert content_key([one], roles="") == keys[0]
