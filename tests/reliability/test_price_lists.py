"""Providers' lists that lie, through the whole of a refresh: refused whole, or no trusted price is moved far."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pytest

from advisor import price_refresh
from advisor.catalog.invariants import broken_invariants
from advisor.catalog.strict_yaml import read_documents
from advisor.errors import AdvisorError
from advisor.price_refresh import refresh_prices
from advisor.records.price import Offer
from tests.refresh.lists import KEYS, LISTS, ProviderList, client_of, small_layer
from tests.reliability.attack import Attack

_TODAY = date(2026, 11, 21)
_MOST_RATIO = 3.0
"""By how much a trusted price may move at once."""
_LEAST_KEPT_RATIO = 0.8
_WRONG_VALUES: tuple[Any, ...] = (
    None, True, False, "", "N/A", "free", "nan", "inf", [], {}, [[]], -1, 0, -0.5, 1e-300, 1e300, 5e-324,
    math.nan, math.inf, -math.inf, 10**400, "9" * 5000, "\x00", "\u202e", "12\n34", "EUR", "1/Month", "1 Day",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _small_and_keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_refresh, "shipped_layer", small_layer)
    for key in KEYS:
        monkeypatch.setenv(key, "s3cr3t")


@pytest.mark.slow
def test_hostile_price_lists(attack: Attack, tmp_path: Path) -> None:
    def check(chance: Random) -> None:
        one = chance.choice(LISTS)
        file = tmp_path / f"{one.provider}.yaml"
        file.write_text(one.file())
        for _ in range(chance.choice((1, 2))):
            replies = _attacked(chance, one)
            _check_refresh(one, file, replies)
            _check_refresh(one, file, replies)  # what was doubted once is doubted again

    attack.each(check)


def _check_refresh(one: ProviderList, file: Path, replies: Mapping[str, bytes]) -> None:
    """Refused whole with the file as it was, or written with prices that hold what every price file holds."""
    text = file.read_text()
    before = _offers(one, text)
    try:
        refresh_prices(one.provider, file=file, today=_TODAY, make_client=lambda: client_of(replies))
    except AdvisorError as error:
        refusal: AdvisorError | None = error
    else:
        refusal = None
    if refusal:
        assert refusal.message
        assert refusal.hint
        assert "s3cr3t" not in f"{refusal.message} {refusal.hint}"
        assert file.read_text() == text
    else:
        after = _offers(one, file.read_text())
        assert broken_invariants(after, today=_TODAY) == ()
        old, new = _trusted(before), _trusted(after)
        for key in old.keys() & new.keys():
            assert 1 / _MOST_RATIO <= new[key] / old[key] <= _MOST_RATIO, (key, old[key], new[key])
        kept = {offer.id for offer in before} & {offer.id for offer in after}
        assert len(kept) >= _LEAST_KEPT_RATIO * len(before), f"{len(before) - len(kept)} of {len(before)} were dropped"
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []
    assert len(read_documents(file)) == 1


def _offers(one: ProviderList, text: str) -> list[Offer]:
    return price_refresh._offers(text, one.provider)


def _trusted(offers: list[Offer]) -> dict[tuple[str, str], float]:
    return {
        (offer.id, price.kind): price.usd_per_hour
        for offer in offers
        for price in offer.prices
        if not (price.stale or price.suspect)
    }


def _attacked(chance: Random, one: ProviderList) -> dict[str, bytes]:
    """The answers of a list whose prices moved by up to a tenth, of which one or all were tampered with."""
    replies = one.replies({name: usd * chance.uniform(0.9, 1.1) for name, usd in one.usd().items()})
    for url in chance.sample(sorted(replies), k=chance.randint(1, len(replies))):
        for _ in range(chance.randint(1, 3)):
            attack = chance.choice(_ATTACKS)
            replies[url] = attack(chance, replies[url])
    return replies


def _truncated(chance: Random, body: bytes) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def _as_page(chance: Random, body: bytes) -> bytes:
    return chance.choice((b"<!doctype html><title>503</title>", b"", b"null", b"[]", b"{}", b"\xef\xbb\xbf" + body))


def _nested(chance: Random, body: bytes) -> bytes:
    depth = chance.choice((100, 2_000, 200_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"data":', b"}")))
    inner = body if chance.random() < 0.5 else b"1"
    return opening * depth + inner + closing * chance.choice((depth, 0))


def _with_bytes_changed(chance: Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.randint(1, 20)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _with_numbers_scaled(chance: Random, body: bytes) -> bytes:
    """All prices, or some of them, in cents, for a month, of a GPU, in another currency."""
    factor = chance.choice((100, 0.01, 730, 1000, 0.001, 8, 1 / 8, 5, 0.2, 2.5, -1))
    share = chance.choice((0.1, 0.3, 0.6, 1.0))

    def scaled(value: Any) -> Any:
        if isinstance(value, bool) or chance.random() > share:
            return value
        try:
            moved = float(value) * factor
        except (OverflowError, TypeError, ValueError):
            return value
        return f"{moved:.10f}" if isinstance(value, str) else moved

    return _edited(body, lambda content: _mapped(content, scaled))


def _with_types_swapped(chance: Random, body: bytes) -> bytes:
    def edit(content: Any) -> Any:
        for _ in range(chance.choice((1, 2, 10))):
            places = list(_places(content))
            if places:
                holder, key = chance.choice(places)
                holder[key] = deepcopy(chance.choice(_WRONG_VALUES))
        return content

    return _edited(body, edit)


def _with_rows_gone_or_repeated(chance: Random, body: bytes) -> bytes:
    def edit(content: Any) -> Any:
        holders = [holder for holder in _holders(content) if len(holder) > 1]
        if holders:
            holder = chance.choice(holders)
            share = chance.choice((0.1, 0.5, 0.9))
            if isinstance(holder, dict):
                for key in [key for key in holder if chance.random() < share]:
                    del holder[key]
            elif chance.random() < 0.6:
                holder[:] = [item for item in holder if chance.random() > share]
            else:
                holder += json.loads(json.dumps(chance.choices(holder, k=3)))
                chance.shuffle(holder)
        return content

    return _edited(body, edit)


_ATTACKS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _truncated,
    _as_page,
    _nested,
    _with_bytes_changed,
    _with_numbers_scaled,
    _with_numbers_scaled,
    _with_types_swapped,
    _with_types_swapped,
    _with_rows_gone_or_repeated,
    _with_rows_gone_or_repeated,
)


def _edited(body: bytes, edit: Callable[[Any], Any]) -> bytes:
    """The body with its content changed, whether it is JSON, JSON in a call or CSV; one that is none stays."""
    start, end = (body.find(b"("), body.rfind(b")")) if body.startswith(b"callback(") else (-1, len(body))
    try:
        content = json.loads(body[start + 1 : end])
    except (ValueError, RecursionError):
        if not body.startswith(b'"FormatVersion"'):
            return body
        rows = list(csv.reader(io.StringIO(body.decode("utf-8", errors="replace"))))
        out = io.StringIO()
        edited = [row for row in edit(rows) if isinstance(row, list)]
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(edited)
        return out.getvalue().encode("utf-8", errors="replace")
    try:
        return body[: start + 1] + json.dumps(edit(content)).encode() + body[end:]
    except RecursionError:
        return body


def _holders(content: Any) -> Iterator[Any]:
    """Every list and mapping, however deep."""
    waiting = [content]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict | list):
            yield found
            waiting += found.values() if isinstance(found, dict) else found


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    for holder in _holders(content):
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            yield holder, key


def _mapped(content: Any, change: Callable[[Any], Any]) -> Any:
    for holder, key in list(_places(content)):
        if not isinstance(holder[key], dict | list):
            holder[key] = change(holder[key])
    return content
