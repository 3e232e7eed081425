"""Tables from records, and content in every format that shows any."""

import re

from advisor.records.answer import Interval
from advisor.report.as_markdown import to_markdown
from advisor.report.content import Block, Listing, Paragraph, Section, Table, View, Warnings, shown
from advisor.report.notebook import to_fragment
from advisor.report.tables import ColumnOf, column, more_note, numbers, starred, table_of
from advisor.report.terminal import to_text
from tests.says import assert_says

ROWS = (("a", 2.0), ("b", None))
NAME: ColumnOf[tuple[str, float | None]] = column("name", lambda row: row[0], is_choice=True)
SIZE: ColumnOf[tuple[str, float | None]] = numbers("size", lambda row: row[1], lambda size: f"{size:g} m")


def content() -> list[Block]:
    return [
        Paragraph(title="A headline.", sentences=("More of it.",)),
        Listing(title="Why", items=("a reason.",), more=("a detail.",)),
        Listing(title="Nothing", items=()),
        table_of(ROWS, [NAME, SIZE], title="Sizes", notes=["a note."], more=["a mark."]),
        table_of(ROWS[:0], [NAME, SIZE], title="No sizes"),
        Warnings(items=("old.",)),
        Warnings(items=()),
    ]


def test_a_column_gives_each_row_its_text_and_the_number_behind_it() -> None:
    table = table_of(ROWS, [NAME, SIZE])
    assert table.rows == (("a", "2 m"), ("b", "-"))
    name, size = table.columns
    assert (name.is_number, name.keys, name.is_choice) == (False, (), True)
    assert (size.is_number, size.keys) == (True, (2.0, None))


def test_an_interval_sorts_by_its_middle() -> None:
    height: ColumnOf[Interval] = numbers("height", lambda row: row, lambda one: f"{one.low:g}-{one.high:g}")
    table = table_of([Interval(mid=2.0, low=1.0, high=4.0)], [height])
    assert (table.rows, table.columns[0].keys) == ((("1-4",),), (2.0,))


def test_a_star_marks_a_row_and_leaves_its_number() -> None:
    table = table_of(ROWS, [starred(SIZE, lambda row: row[0] == "a")])
    assert (table.rows, table.columns[0].keys) == ((("*2 m",), ("-",)), (2.0, None))


def test_hidden_rows_are_counted() -> None:
    (note,) = more_note(12, top=10, what=" rows")
    assert_says(note, "2 more rows", "--top 12")
    assert more_note(10, top=10) == ()


def test_what_is_empty_is_not_shown() -> None:
    assert [type(block) for block in shown(content())] == [Paragraph, Listing, Table, Warnings]
    made = Section(id="id", title="Title", lists=(Listing(title="Nothing", items=()),), tables=(table_of((), [NAME]),))
    assert (made.lists, made.plots, made.tables) == ((), (), ())


def test_a_terminal_shows_all_blocks_one_line_apart() -> None:
    assert to_text(content(), View()) == (
        "A headline.\nMore of it.\n\n"
        "Why:\n  a reason.\n  a detail.\n\n"
        "Sizes:\nname  size\na      2 m\nb        -\na note.\na mark.\n\n"
        "Warnings:\n  old.\n"
    )  # fmt: skip


def test_a_terminal_folds_the_details_on_request_and_counts_them() -> None:
    blocks = [*content(), Listing(title="Left out", more=("one.", "two."))]
    text = to_text(blocks, View(folded="-v"))
    assert "Why (1 more: -v):\n  a reason.\n\n" in text
    assert "a note.\nHidden: 1 note (-v).\n" in text
    assert text.endswith("\n\nLeft out (all: -v)\n")
    assert not [hidden for hidden in ("a detail.", "a mark.", "one.", "two.") if hidden in text]


def test_markdown_shows_all_blocks() -> None:
    assert to_markdown(content()).splitlines() == [
        "**A headline.**", "", "More of it.", "", "Why:", "", "- a reason.", "- a detail.", "", "Sizes:", "",
        "| name | size |", "|---|---:|", "| a | 2 m |", "| b | - |", "", "Rows:", "", "- a note.", "- a mark.", "",
        "Warnings:", "", "- old.",
    ]  # fmt: skip


def test_a_notebook_shows_all_blocks() -> None:
    words = " ".join(re.sub("<[^>]*>", " ", to_fragment(content())).split())
    assert (
        words
        == "A headline. More of it. Why a reason. a detail. Sizes name size a 2 m b - a note. a mark. Warning: old."
    )
