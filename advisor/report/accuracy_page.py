"""Makes the page of `advise validate`, and its chart of predicted against measured step times."""

from collections.abc import Iterable, Mapping
from datetime import date

from advisor import __version__
from advisor.errors import UsageError
from advisor.records.measurement import Accuracy, Known, PredictedRow
from advisor.report.accuracy import (
    accuracy_headline,
    device_sentences,
    failure_listings,
    score_legend,
    score_tables,
)
from advisor.report.content import Axis, Chart, Color, Document, Point, Section, Series, Symbol
from advisor.report.tables import ColumnOf, column, numbers, table_of
from advisor.units import format_duration

_BAND_RATIO = 0.25
_MARKS: Mapping[Known, tuple[Color, Symbol, str]] = {
    "calibrated": (6, "diamond", "this machine, calibrated"),
    "device": (1, "circle", "the device was in the fit"),
    "generation": (3, "square", "another device of its generation was"),
    "vendor": (5, "triangle", "another generation of its vendor was"),
    "other-vendor": (2, "star", "nothing of its vendor was"),
}
_COLUMNS: tuple[ColumnOf[PredictedRow], ...] = (
    column("model", lambda row: row.measurement.model),
    column("mode", lambda row: row.measurement.mode, is_choice=True),
    column("precision", lambda row: row.measurement.precision, is_choice=True),
    numbers("batch", lambda row: row.measurement.batch, str),
    column("device", lambda row: row.device, is_choice=True),
    column("known", lambda row: row.known, is_choice=True),
    numbers("measured", lambda row: row.measurement.step_s, format_duration),
    numbers("predicted", lambda row: row.predicted_s, format_duration),
    numbers("error", lambda row: row.predicted_s / row.measurement.step_s - 1, lambda error: f"{error * 100:+.1f} %"),
)


def predicted_against_measured(accuracy: Accuracy) -> Chart:
    """Return the chart of every predicted row. Raises `UsageError` if there is none."""
    rows = accuracy.predicted
    if not rows:
        raise UsageError(
            "none of the measured steps could be predicted, so there is nothing to draw",
            hint="-o table lists the reasons",
        )
    times_s = [row.measurement.step_s for row in rows]
    diagonal = Series(
        name="exact",
        color=7,
        symbol=None,
        has_line=True,
        points=tuple(
            Point(x=at, y=at, y_low=at * (1 - _BAND_RATIO), y_high=at * (1 + _BAND_RATIO), text="")
            for at in (min(times_s), max(times_s))
        ),
    )
    return Chart(
        title="Predicted against measured step times",
        notes=("The line: predicted = measured. The band: 25 % more or less.",),
        x=Axis(label="measured", unit="s"),
        y=Axis(label="predicted", unit="s"),
        series=(diagonal, *(one for known in _MARKS if (one := _series(known, rows)).points)),
        table=table_of(rows, _COLUMNS, title="every predicted step"),
    )


def accuracy_document(accuracy: Accuracy, *, made_on: date) -> Document:
    """Return the page: the chart, the scores of every group, and the rows that could not be predicted."""
    chart = (predicted_against_measured(accuracy),) if accuracy.predicted else ()
    scores = tuple(score_tables(accuracy, top=len(accuracy.groups)))
    failures = tuple(failure_listings(accuracy, top=len(accuracy.failed)))
    sections = (
        Section(id="chart", title="Predicted and measured", plots=chart),
        Section(id="scores", title="Scores", lead=score_legend(accuracy), tables=scores),
        Section(id="failed", title="Not predicted, and notes", lists=failures),
    )
    return Document(
        title="Accuracy of predicted step times",
        headline=accuracy_headline(accuracy),
        answer=" ".join(device_sentences(accuracy)),
        figures=(),
        warnings=(),
        sections=tuple(one for one in sections if one.plots or one.tables or one.lists),
        money="$",
        footer=f"device-advisor {__version__}, {made_on.isoformat()}",
    )


def _series(known: Known, rows: Iterable[PredictedRow]) -> Series:
    color, symbol, name = _MARKS[known]
    points = tuple(_point(row) for row in rows if row.known == known)
    return Series(name=f"{name} ({len(points):,})", color=color, symbol=symbol, points=points, is_faint=True)


def _point(row: PredictedRow) -> Point:
    asked = row.measurement
    times = f"measured {format_duration(asked.step_s)}, predicted {format_duration(row.predicted_s)}"
    return Point(x=asked.step_s, y=row.predicted_s, text=f"{asked.model}, batch {asked.batch}, {row.device}\n{times}")
