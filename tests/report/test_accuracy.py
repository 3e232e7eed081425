from advisor.answers.accuracy_score import score
from advisor.records.measurement import Accuracy
from advisor.report.accuracy import accuracy_content
from advisor.report.content import View
from advisor.report.terminal import to_text
from tests.answers.toys import failed, predicted
from tests.says import assert_says


def render_accuracy(accuracy: Accuracy, *, view: View) -> str:
    return to_text(accuracy_content(accuracy, top=view.top), view)


ACCURACY = score(
    [
        predicted(1.25, device="t4", usd_per_hour=1.0),
        predicted(1.0, device="v100", usd_per_hour=2.0),
        predicted(1.0, device="v100", batch=16),
    ],
    [
        failed("no kernels\n  and more", line=7),
        failed("no kernels\n  or less", line=9),
        failed("it is a riddle", line=8),
    ],
)


def test_the_whole_comes_first_then_each_grouping() -> None:
    lines = render_accuracy(ACCURACY, view=View()).splitlines()
    # Errors 0.25, 0, 0 and three times 1: 3.25 / 6 is 54 %, the median lies between 0.25 and 1.
    assert_says(lines[0], "Mean", "54 %", "median", "62 %", "6", "3")
    assert [line.split()[0] for line in lines if " 90th " in line and " FLOP " in line] == [
        "device", "kind", "mode", "precision", "family",
    ]  # fmt: skip


def test_peak_memory_has_a_heading_only_where_runs_measured_it() -> None:
    assert "Peak memory" not in render_accuracy(ACCURACY, view=View())


def test_what_was_known_comes_first_with_the_width_of_its_intervals() -> None:
    rows = [predicted(2.0, known="other-vendor"), predicted(2.0, known="device"), predicted(1.0, known="calibrated")]
    lines = [line.split() for line in render_accuracy(score(rows, [failed()]), view=View()).splitlines()]
    start = lines.index(["known", "n", "mean", "med.", "bias", "in", "90", "width"])
    rows_shown = lines[start + 1 : start + 6]
    assert [row[0] for row in rows_shown] == ["all", "calibrated", "device", "other-vendor", "not"]
    # Twice the measurement is off by 100 %. Half of ln(1.1 / 0.9) is 0.1003; over an error of ln 2 = 0.6931: 0.14.
    assert rows_shown[2] == ["device", "1", "100.0", "100.0", "+100.0", "0.0", "0.14"]
    assert rows_shown[1] == ["calibrated", "1", "0.0", "0.0", "+0.0", "100.0"]  # no error, so no ratio


def test_a_group_shows_its_numbers_in_percent() -> None:
    rows = [line.split() for line in render_accuracy(ACCURACY, view=View()).splitlines()]
    # The V100's two rows are exact and inside their intervals; its rooflines are half: 50 %. One FLOP takes 1 s each.
    assert ["v100", "2", "0.0", "0.0", "0.0", "+0.0", "100.0", "50.0", "0.0"] in rows


def test_the_choice_of_a_device_is_told_where_there_was_one() -> None:
    text = render_accuracy(ACCURACY, view=View(width=200))
    (line,) = (line for line in text.splitlines() if "cheapest" in line)
    assert_says(line, "100 %", "0 %")
    assert "cheapest" not in render_accuracy(score([predicted(1.0)], []), view=View())


def test_reasons_come_with_their_rows_the_most_frequent_first() -> None:
    text = render_accuracy(ACCURACY, view=View())
    assert_says(text, "2 rows", "mine.csv:7: no kernels", "1 rows", "mine.csv:8: it is a riddle")
    assert "mine.csv:9" not in text


def test_a_short_view_says_what_it_leaves_out() -> None:
    text = render_accuracy(ACCURACY, view=View(top=1))
    assert_says(text, "1 more", "--top 2", "1 more", "-o json")


def test_the_error_without_own_figures_has_a_column_where_some_device_has_any() -> None:
    own = score([predicted(1.0, without_own_s=1.5), predicted(1.25, device="v100")], [])
    text = render_accuracy(own, view=View(width=200))
    # 0.5 and 0.25 without them.
    assert_says(text.splitlines()[1], "1", "advise fit-device", "38 %")
    rows = [line.split() for line in text.splitlines()]
    assert ["device", "n", "mean", "med.", "90th", "bias", "in", "90", "roof", "FLOP", "tau", "bare"] in rows
    with_own, without = (next(row for row in rows if row[:2] == [device, "1"]) for device in ("t4", "v100"))
    assert (with_own[-1], len(with_own)) == ("50.0", len(without) + 1)
    assert "bare" not in render_accuracy(ACCURACY, view=View())


def test_no_line_is_wider_than_the_view() -> None:
    long = predicted(1.0, device="intel-xeon-platinum-8380@4")
    own = predicted(1.0, device="intel-xeon-platinum-8380@4", without_own_s=10.0)
    for row in (long, own):
        text = render_accuracy(score([row], [failed("x" * 200)]), view=View(width=80))
        assert max(map(len, text.splitlines())) <= 80
