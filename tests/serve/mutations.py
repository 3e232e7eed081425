"""Valid requests in, broken ones out: what a careless or hostile client may send."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

NUMBERS: tuple[Any, ...] = (
    [100, -1], [-5, 0.1], [[1, 2]], [], {}, "", "3", "NaN", True, None,
    -1, 0, 0.5, 1e-300, 1e300, -1e300, -(2**63), 2**63, 2**64 + 1, 10**40,
)  # fmt: skip
RAW = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 20_000, '{"a":' * 20_000, '"\\ud800"', "tru", "'x'")
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("samples", -5), ("samples", 0), ("samples", 1.5), ("samples", 1e300), ("samples", "many"), ("samples", [1]),
    ("epochs", 3), ("steps", -1), ("tokens", "1e99"), ("requests_per_day", 0), ("batch", "0"), ("batch", -4),
    ("batch", "9" * 5000), ("batch", "²"), ("batch", "1..99999999999"), ("batch", ",".join(map(str, range(1, 30)))),
    ("deadline", "24 parsecs"), ("deadline", -1), ("deadline", 0), ("max_latency", "50 GB"), ("max_usd", -1),
    ("max_usd", "lots"), ("max_hourly", 0), ("min_throughput", "1e999"), ("mode", "playing"), ("precision", 16),
    ("layout", None), ("compile", True), ("price", "free"), ("provider", 7), ("provider", ["nobody"]),
    ("provider", ["aws"] * 200), ("region", [None]), ("tier", "cheap"), ("device", ["local"]), ("device", "abacus"),
    ("objective", {"cost": 1}), ("profiles", "/etc"), ("prices", ["/etc/passwd"]), ("input", "3x224x224"),
    ("attention", "eager"), ("timeout", 1e9), ("no_local", True), ("top", 0), ("top", -3), ("strict", "yes"),
    ("max_price_age", -1), ("drop_prices", 3), ("currency", "XXX"), ("nonsense", 1), ("checkpoint_every", "-1h"),
)  # fmt: skip


def broken_requests(request: dict[str, Any], *, count: int, seed: int) -> Iterator[bytes]:
    """`count` bodies, each with something wrong in it; the same ones for the same seed."""
    draw = random.Random(seed)
    makers: tuple[Callable[[dict[str, Any], random.Random], bytes], ...] = (
        *[_other_value] * 3, _missing_key, _unknown_key, _raw_number, _cut, _other_option, _garbled,
    )  # fmt: skip
    for _ in range(count):
        yield draw.choice(makers)(copy.deepcopy(request), draw)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _place(request: dict[str, Any], draw: random.Random) -> tuple[Any, Any]:
    """A place that counts: the totals that a workload states for readers are not read."""
    for_readers = (
        "totals", "by_family", "by_module", "by_phase", "coverage_ratio", "unknown_ops", "assumptions", "torch_version",
    )  # fmt: skip
    read = {name: value for name, value in request["workload"].items() if name not in for_readers}
    return draw.choice(list(_places(read)))


def _other_value(request: dict[str, Any], draw: random.Random) -> bytes:
    container, key = _place(request, draw)
    container[key] = draw.choice(NUMBERS)
    return json.dumps(request).encode()


def _missing_key(request: dict[str, Any], draw: random.Random) -> bytes:
    del request["workload"][draw.choice(["schema_version", "name", "mode", "batch", "rows", "memory", "inputs"])]
    return json.dumps(request).encode()


def _unknown_key(request: dict[str, Any], draw: random.Random) -> bytes:
    draw.choice([request, request["workload"], request["workload"]["rows"]])["surprise"] = 1
    return json.dumps(request).encode()


def _raw_number(request: dict[str, Any], draw: random.Random) -> bytes:
    request["workload"]["parameter_count"] = "@"
    return json.dumps(request).replace('"@"', draw.choice(RAW)).encode()


def _cut(request: dict[str, Any], draw: random.Random) -> bytes:
    text = json.dumps(request).encode()
    return text[: draw.randrange(len(text))]


def _other_option(request: dict[str, Any], draw: random.Random) -> bytes:
    name, value = draw.choice(OPTIONS)
    request["options"] = {name: value}
    return json.dumps(request).encode()


def _garbled(request: dict[str, Any], draw: random.Random) -> bytes:
    text = bytearray(json.dumps(request).encode())
    for _ in range(draw.randrange(1, 6)):
        text[draw.randrange(len(text))] = draw.randrange(256)
    return bytes(text)
