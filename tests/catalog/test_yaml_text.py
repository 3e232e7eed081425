from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.device_files import read_cpus, read_gpus
from advisor.catalog.overlay import shipped_profiles
from advisor.catalog.strict_yaml import parse_documents, read_documents
from advisor.catalog.yaml_text import device_yaml, flow, quoted, yaml_text
from advisor.records.price import Catalog

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def read(text: str) -> Any:
    (document,) = parse_documents(text, label="text")
    return document.values


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_what_is_saved_loads_as_it_was_and_saves_as_the_same_text(values: dict[str, Any]) -> None:
    text = yaml_text(values)
    assert read(text) == values
    assert yaml_text(read(text)) == text


@given(VALUES)
def test_a_value_on_one_line_is_one_line_that_reads_as_it(value: Any) -> None:
    line = flow({"key": value})
    assert len(line.splitlines()) == 1
    assert read(line) == {"key": value}


@pytest.mark.parametrize("file", sorted((shipped_profiles() / "prices").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_shipped_price_file_loads_saves_and_loads_as_the_same(file: Any) -> None:
    (document,) = read_documents(file)
    text = yaml_text(document.values)
    assert read(text) == document.values
    # The same lines, but for the comments.
    written = [line.split("  # ")[0] for line in file.read_text().splitlines() if not line.startswith("#")]
    assert text.splitlines() == written


def test_one_line_for_each_type_and_region() -> None:
    row = {"on_demand": [0.93, "my list"], "note": "a: b"}
    values = {"provider": "aws", "instances": {"g5": {"usd_per_hour": {"us": row}}}, "discounts": [{"percent": 5}]}
    assert yaml_text(values, comments=["Mine."]) == (
        "# Mine.\n"
        "provider: aws\n"
        "instances:\n"
        "  g5:\n"
        "    usd_per_hour:\n"
        '      us: {on_demand: [0.93, my list], note: "a: b"}\n'
        "discounts:\n"
        "  - {percent: 5}\n"
    )


def test_the_lines_of_a_script_stand_below_each_other() -> None:
    assert yaml_text({"job": {"run": "cd a\npython b.py # c: d\n", "then": []}, "no": "\nx\n"}) == (
        "job:\n"  # as the other lines of a mapping of its own do
        "  run: |\n"
        "    cd a\n"
        "    python b.py # c: d\n"
        "  then: []\n"
        '"no": "\\nx\\n"\n'
    )


def test_a_comment_ends_with_its_line_whatever_is_in_it() -> None:
    assert yaml_text({}, comments=["a\nb: 1\x00"]) == "# a b: 1 \n"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("g5.xlarge", "g5.xlarge"),
        ("2026-09-01", "2026-09-01"),
        ("no", '"no"'),
        ("5-10", '"5-10"'),
        ("a\x7f", '"a\\U0000007f"'),
    ],
)
def test_only_what_every_yaml_reader_takes_for_this_text_stands_without_quotes(text: str, written: str) -> None:
    assert quoted(text) == written


def test_every_shipped_device_reads_as_it_was_written(shipped: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "device.yaml"
    for gpu in shipped.gpus.values():
        file.write_text(device_yaml(gpu, comments=()))
        assert read_gpus([file], measured=None) == {gpu.id: gpu}
    for cpu in shipped.cpus.values():
        file.write_text(device_yaml(cpu, comments=()))
        assert read_cpus([file], measured=None) == {cpu.id: cpu}


def test_odd_texts_and_numbers_read_as_they_were_written(shipped: Catalog, tmp_path: Path) -> None:
    odd = replace(
        shipped.gpus["t4"],
        aliases=("no", "1e9", 'a "b" #c', "Ü: [x]"),
        notes="two\nlines\tand a \\",
        sustained_compute_ratio=0.1 + 0.2,
        tdp_w=123456.789e-3,
        boost_hz=1.23456789e9,
    )
    file = tmp_path / "odd.yaml"
    file.write_text(device_yaml(odd, comments=("one", "two")))
    assert file.read_text().startswith("# one\n# two\nid: ")
    assert read_gpus([file], measured=None) == {"t4": odd}


@pytest.mark.parametrize(
    ("value", "text"), [(2**35, "34359738368"), (1.413e13, "1.413e+13"), (0.526, "0.526"), (70.0, "70")]
)
def test_numbers_are_short(shipped: Catalog, value: float, text: str) -> None:
    lines = device_yaml(replace(shipped.gpus["t4"], boost_hz=float(value)), comments=()).splitlines()
    assert f"boost_hz: {text}" in lines


def test_what_is_not_known_is_left_out(shipped: Catalog) -> None:
    text = device_yaml(replace(shipped.gpus["t4"], tdp_w=None, aliases=(), notes=""), comments=())
    assert not any(key in text for key in ("tdp_w", "aliases", "notes", "null"))
