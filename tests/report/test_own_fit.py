from typing import Any

from advisor.records.device import Gpu
from advisor.records.measurement import OwnFit
from advisor.report.content import View
from advisor.report.devices import own_fit_content, own_fit_sentences
from advisor.report.terminal import to_text
from tests.answers.toys import failed
from tests.says import assert_says


def render_own_fit(found: OwnFit, *, view: View) -> str:
    return to_text(own_fit_content(found, top=view.top), view)


TOY = Gpu(
    id="toy",
    name="Toy 9000",
    vendor="Acme",
    generation="First",
    sm_count=1,
    boost_hz=1e9,
    memory_bytes=1e9,
    memory_bytes_per_s=1e11,
    fp32_flops_per_s=1e12,
    sustained_compute_ratio=0.9312,
    sustained_memory_ratio=1.0,
    source="by hand",
)


def fit(**changes: Any) -> OwnFit:
    values: dict[str, Any] = {
        "profile": TOY,
        "compute_log_sigma": 0.03,
        "memory_log_sigma": 0.15,
        "n": 1200,
        "model_count": 6,
        "mape_without": 0.23,
        "mape": 0.09,
        "left_out_mape": 0.11,
        "failed": (),
    }
    return OwnFit(**(values | changes))


def test_each_figure_comes_with_how_sure_it_is() -> None:
    lines = [" ".join(line.split()) for line in render_own_fit(fit(), view=View()).splitlines()]
    assert "Toy 9000 (toy)" in lines
    assert "sustained_compute_ratio 0.931 3 %" in lines
    (unsure,) = (line for line in lines if line.startswith("sustained_memory_ratio 1.000 15 % "))
    assert "rows" in unsure


def test_the_sentences_tell_the_error_without_with_and_on_models_left_out() -> None:
    first, second = own_fit_sentences(fit())
    assert_says(first, "1,200", "steps", "6 models", "1 +- 15 %")
    assert_says(second, "23 %", "9 %", "11 %")
    text = " ".join(render_own_fit(fit(), view=View()).split())
    assert first in text
    assert second in text


def test_what_could_not_be_predicted_is_listed_and_what_is_not_shown_is_counted() -> None:
    lost = fit(failed=(failed("no kernels", line=7), failed("a riddle", line=8), failed("a riddle", line=9)))
    *_, first, second, hidden = render_own_fit(lost, view=View(top=2)).splitlines()
    assert [first, second] == ["  mine.csv:7: no kernels", "  mine.csv:8: a riddle"]
    assert_says(hidden, "1 more", "--top 3")
    assert "Not predicted" not in render_own_fit(fit(), view=View())
