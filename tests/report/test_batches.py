from dataclasses import replace

from advisor.records.answer import BatchPoint, BatchSweep, Interval
from advisor.records.generation import Generation
from tests.report.toys import L4, recommendation, render_text


def point(batch: int, **changes: object) -> BatchPoint:
    """10 ms a sample on a device of 16 GiB, of which each takes one."""
    values = {
        "batch": batch,
        "step_s": Interval(mid=0.01 * batch, low=0.009 * batch, high=0.011 * batch),
        "samples_per_s": 100.0,
        "usd_per_million_samples": 2.5,
        "peak_memory_bytes": batch * 2.0**30,
        "fits": batch <= 16,
        "bound": "compute",
    }
    return BatchPoint(**(values | changes))  # type: ignore[arg-type]


SWEEP = BatchSweep(
    id=L4.id,
    provider=L4.provider,
    instance=L4.instance,
    device=L4.device,
    precision="amp-bf16",
    usd_per_hour=0.9,
    batch=8,
    device_memory_bytes=16 * 2.0**30,
    points=(point(1), point(8), point(32)),
)


def text(batch: str) -> str:
    answer = recommendation(L4)
    answer = replace(answer, job=replace(answer.job, batch=batch), batch_sweeps=(SWEEP,))
    return render_text(answer, width=80, color=False)


def test_a_range_of_batches_is_a_table() -> None:
    lines = text("1..32").splitlines()
    start = lines.index("By batch on aws g6.xlarge (L4), amp-bf16:")
    assert [line.split() for line in lines[start + 1 : start + 5]] == [
        ["batch", "step", "[90", "%]", "samples/s", "per", "million", "memory", "bound"],
        ["1", "10", "ms", "[9-11]", "100", "$2.50", "6", "%", "compute"],
        ["*8", "80", "ms", "[72-88]", "100", "$2.50", "50", "%", "compute"],
        ["32", "320", "ms", "[288-352]", "100", "$2.50", "200", "%:", "does", "not", "fit", "compute"],
    ]


def test_several_batches_are_one_too() -> None:
    assert "By batch on" in text("1,8,32")


def test_where_the_batch_is_chosen_there_is_none() -> None:
    assert "By batch on" not in text("auto")
    assert "By batch on" not in text("8")


def test_of_a_language_model_in_service_it_is_of_tokens() -> None:
    # $2.50 for per million requests of 90 + 10 tokens: $0.025 for per million tokens; 100 requests/s of 10 tokens each.
    answer = recommendation(L4)
    sweep = replace(SWEEP, points=(point(8, ttft_s=0.2, tpot_s=0.02),))
    job = replace(answer.job, batch="8,16", generation=Generation(prompt_tokens=90, output_tokens=10))
    lines = render_text(replace(answer, job=job, batch_sweeps=(sweep,)), width=80, color=False).splitlines()
    start = lines.index("By requests in flight on aws g6.xlarge (L4), amp-bf16:")

    assert lines[start + 1].split() == ["in", "flight", "TTFT", "TPOT", "tokens/s", "per", "Mtok", "memory", "bound"]
    assert lines[start + 2].split() == ["*8", "200", "ms", "20", "ms", "1,000", "$0.025", "50", "%", "compute"]
