import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.strict_yaml import parse_documents, read_documents
from advisor.errors import ProfileError


def value_of(text: str) -> object:
    (document,) = parse_documents(f"key: {text}", label="file.yaml")
    return document.values["key"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("989e12", 989e12),  # YAML 1.1 wants a point and a sign, and reads text
        ("9.89e+14", 9.89e14),
        ("16", 16),
        ("-3", -3),
        (".5", 0.5),
        ("true", True),
        ("null", None),
        ("", None),
    ],
)
def test_a_plain_scalar_is_what_json_would_make_of_it(text: str, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize("text", ["010", "0x10", "3:30", "no", "yes", "on", "1_000", "2026-09-01", "1.2.3", "12 GB"])
def test_what_yaml_1_1_takes_for_a_number_or_a_boolean_stays_text(text: str) -> None:
    assert value_of(text) == text


def test_a_number_of_thousands_of_digits_is_read_so_that_it_can_be_refused() -> None:
    assert value_of("9" * 5000) == math.inf
    assert value_of("-" + "9" * 5000) == -math.inf
    assert value_of("1" + "0" * 30) == 1e30


def test_a_file_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.catalog.strict_yaml._MOST_NODES", 10)
    assert parse_documents("[1, 2, 3, 4, 5, 6, 7, 8, 9]", label="file.yaml")
    with pytest.raises(ProfileError, match="more than 10 values"):
        parse_documents("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", label="file.yaml")


def test_a_quoted_number_is_text() -> None:
    assert value_of('"16"') == "16"


def test_not_a_number_is_read_so_that_it_can_be_refused() -> None:
    value = value_of(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)
    assert value_of("-.Inf") == -math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "file.yaml:3: a: this key is repeated"),
        ("a: {b: 1, b: 2}\n", "file.yaml:1: b: this key is repeated"),
        ("a: &shared [1]\nb: *shared\n", "file.yaml:1: anchors and aliases"),
        ("a: 1\nb: !!python/name:os.system x\n", "file.yaml:2: tag"),
        ("a: [1,\nb: 2\n", "file.yaml:3: not valid YAML"),
        ("a: 1\n[b]: 2\n", "file.yaml:2: a key must be text"),
        ("a: *nobody\n", "file.yaml:1: anchors and aliases"),
        ("[" * 3000 + "]" * 3000, "file.yaml:1: nested too deeply"),
        ("[" * 30_000, "file.yaml:1: nested too deeply"),  # on libyaml's own trees a segmentation fault
        ("- " * 30_000, "file.yaml:1: nested too deeply"),
        ("? " * 30_000, "file.yaml:1: a key must be text"),
    ],
)
def test_what_is_not_strict_yaml_is_refused_with_its_line_and_a_remedy(text: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_documents(text, label="file.yaml")
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_a_value_knows_the_file_line_and_key_it_was_written_at() -> None:
    text = "instances:\n  g5.xlarge:\n    machine: {vcpus: 4}\n    list:\n      - one\n      - two\n"
    (document,) = parse_documents(text, label="prices.yaml")
    assert document.where(("instances", "g5.xlarge", "machine", "vcpus")) == (
        "prices.yaml:3: instances.g5.xlarge.machine.vcpus"
    )
    assert document.where(("instances", "g5.xlarge", "list", 1)) == "prices.yaml:6: instances.g5.xlarge.list.1"
    assert document.where(("instances", "g5.xlarge", "absent")) == "prices.yaml:2: instances.g5.xlarge.absent"
    assert document.where(()) == "prices.yaml:1"


def test_a_file_may_hold_several_documents(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("a: 1\n---\nb: 2\n")
    assert [document.values for document in read_documents(file)] == [{"a": 1}, {"b": 2}]


def test_a_file_that_is_not_utf_8_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ProfileError, match="byte 9 is not UTF-8"):
        read_documents(file)
    with pytest.raises(ProfileError, match="No such file"):
        read_documents(tmp_path / "absent.yaml")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.floats(allow_nan=False), max_size=5))
def test_every_number_python_writes_is_read_back(numbers: dict[str, float]) -> None:
    names = {value: {math.inf: ".inf", -math.inf: "-.inf"}.get(value, repr(value)) for value in numbers.values()}
    text = "\n".join(f"{key}: {names[value]}" for key, value in numbers.items()) or "{}"
    # "yes", "no", "on", "true" and the like are keys here, and keys are always text.
    assert parse_documents(text, label="numbers.yaml")[0].values == numbers
