from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from advisor.catalog.fields import base_unit, read_record
from advisor.catalog.strict_yaml import parse_documents
from advisor.errors import ProfileError


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    share_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    name: str
    kind: Literal["cpu", "gpu"] = "gpu"
    memory_bytes: float
    memory_bytes_per_s: float | None = None
    core_count: int | None = None
    spread: float = 0.0
    aliases: tuple[str, ...] = ()
    parts: Mapping[str, Part] | None = None


def read(text: str, **options: Any) -> Toy:
    (document,) = parse_documents(text, label="toy.yaml")
    return read_record(Toy, document.root, **options)


def test_keys_may_carry_any_unit_and_the_record_holds_base_units() -> None:
    toy = read("{name: a, memory_gib: 1.5, memory_gb_per_s: 320, core_count: 4, aliases: [b, c]}")
    # 1.5 GiB = 1.5 x 2^30 = 1,610,612,736 bytes; 320 GB/s = 320e9 bytes/s
    assert toy == Toy(name="a", memory_bytes=1610612736.0, memory_bytes_per_s=320e9, core_count=4, aliases=("b", "c"))
    assert read("{name: a, memory_bytes: 1610612736}").memory_bytes == 1610612736.0


def test_a_decimal_unit_keeps_the_digits_that_were_written() -> None:
    # In binary floating point 8.14 x 10^12 is 8140000000000.001.
    assert read("{name: a, memory_gib: 1, memory_gb_per_s: 8.14}").memory_bytes_per_s == 8140000000.0


@pytest.mark.parametrize(
    ("key", "name", "factor"),
    [
        ("memory_gib", "memory_bytes", 2**30),
        ("l2_mib", "l2_bytes", 2**20),
        ("fp16_tensor_tflops", "fp16_tensor_flops_per_s", 10**12),
        ("boost_mhz", "boost_hz", 10**6),
        ("measured_read_gb_per_s_8_vcpu", "measured_read_bytes_per_s_8_vcpu", 10**9),
        ("sm_count", "sm_count", 1),
    ],
)
def test_a_unit_in_a_key_says_its_field_and_factor(key: str, name: str, factor: int) -> None:
    assert base_unit(key) == (name, factor)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("{name: a, memroy_gib: 1}", "toy.yaml:1: memroy_gib: unknown key", "did you mean memory_gib?"),
        (
            "{name: a, memory_gib: 1,\nmemory_mib: 1024}",
            "toy.yaml:2: memory_mib: memory_bytes is given twice",
            "remove one",
        ),
        ("{name: a}", "toy.yaml:1: memory_bytes is missing", "memory_gib, memory_mib"),
        (
            "{name: a, memory_gib: 0}",
            "toy.yaml:1: memory_gib: expected a number that is more than 0, found 0",
            "correct",
        ),
        ("{name: a, memory_gib: -1}", "toy.yaml:1: memory_gib: expected a number that is more than 0", "correct"),
        ("{name: a, memory_gib: .nan}", "toy.yaml:1: memory_gib: expected a number that is more than 0", "correct"),
        ("{name: a, memory_gib: 010}", "toy.yaml:1: memory_gib: expected a number, found '010'", "for example"),
        ("{name: a, memory_gib: true}", "toy.yaml:1: memory_gib: expected a number, found True", "for example"),
        ("{name: a, memory_gib: 1, core_count: 1.5}", "toy.yaml:1: core_count: expected a whole number", "decimals"),
        ("{name: 5, memory_gib: 1}", "toy.yaml:1: name: expected text, found 5", "quotes"),
        ("{name: a, memory_gib: 1, kind: tpu}", "toy.yaml:1: kind: expected one of cpu, gpu, found 'tpu'", "use"),
        ("{name: a, memory_gib: 1, aliases: b}", "toy.yaml:1: aliases: expected a list, found 'b'", "[one, two]"),
        ("{name: a, memory_gib: 1, parts: {x: {share_ratio: -1}}}", "toy.yaml:1: parts.x.share_ratio: exp", "correct"),
        ("just text", "toy.yaml:1: expected keys and values", "lines"),
    ],
)
def test_a_wrong_value_is_refused_at_its_line_with_what_was_found_and_what_to_do(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        read(text)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


def test_zero_is_allowed_only_where_it_has_a_meaning() -> None:
    assert read("{name: a, memory_gib: 1, spread: 0}", zero_allowed=("spread",)).spread == 0
    with pytest.raises(ProfileError, match=r"\bspread: .*\b0\b"):
        read("{name: a, memory_gib: 1, spread: 0}")


def test_records_within_records_are_read_too() -> None:
    toy = read("{name: a, memory_gib: 1, parts: {x: {share_ratio: 0.5}}}")
    assert toy.parts == {"x": Part(share_ratio=0.5)}
