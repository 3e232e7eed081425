from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.catalog.locate import shipped_profiles
from advisor.catalog.strict_yaml import parse_documents, read_documents
from advisor.catalog.yaml_text import flow, quoted, yaml_text

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
