from dataclasses import replace
from typing import Any, get_args

from advisor.records.answer import Interval, QuotedDevice
from advisor.records.explained_step import (
    Change,
    ExplainedGroup,
    ExplainedStep,
    Explanation,
    SequentialChain,
    UnfusedAttention,
    WhyUnfused,
)
from advisor.records.generation import Generation
from advisor.report.content import View
from advisor.report.explanation import explanation_content, reasons
from advisor.report.terminal import to_text
from tests.says import assert_says


def render_explanation(answer: Explanation, *, view: View) -> str:
    return to_text(explanation_content(answer, top=view.top), view)


def group(name: str, time_s: float, *, step_s: float, **changes: Any) -> ExplainedGroup:
    """A group that computes 6 GFLOP and moves 60 MB; a perfect device would take half the time."""
    values: dict[str, Any] = {
        "bound": "memory",
        "kernels_s": time_s,
        "compute_s": time_s / 2,
        "memory_s": time_s,
        "launch_s": 0.0,
        "dispatch_s": time_s / 10,
        "op_count": 1,
        "flops": 6e9,
        "moved_bytes": 60 * 2**20,
        "flops_per_byte": 95.4,
        "ridge_flops_per_byte": 153.0,
        "roofline_s": time_s / 2,
        "roofline_ratio": 0.5,
    }
    return ExplainedGroup(name=name, time_s=time_s, time_ratio=time_s / step_s, **(values | changes))


def step(scale: float = 1.0, **changes: Any) -> ExplainedStep:
    """10 ms on an L4: 7.5 ms of products and 2.5 ms of additions without a FLOP."""
    step_s = 0.01 * scale
    add = {"flops": 0.0, "flops_per_byte": 0.0, "ridge_flops_per_byte": None, "roofline_ratio": None}
    families = (
        group("matmul", 0.75 * step_s, step_s=step_s, bound="compute"),
        group("pointwise", 0.25 * step_s, step_s=step_s, **add),
    )
    values: dict[str, Any] = {
        "batch": 64,
        "precision": "amp-bf16",
        "step_s": Interval(mid=step_s, low=0.8 * step_s, high=1.25 * step_s),
        "bound": "compute",
        "time_source": "fitted",
        "name": "aws g6.xlarge",
        "device": QuotedDevice(id="l4", name="L4", kind="gpu", count=1),
        "core_count": 58.0,
        "memory_bytes_per_s": 300e9,
        "transfer_s": 0.002 * scale,
        "total": group("all", step_s, step_s=step_s, bound="compute"),
        "families": families,
        "modules": tuple(
            replace(one, name=name) for one, name in zip(families, ("layers.*.fc", "(forward)"), strict=True)
        ),
        "phases": (group("forward", step_s, step_s=step_s),),
        "sequential": (),
    }
    return ExplainedStep(**(values | changes))


CPU = {
    "name": "aws c7a.xlarge",
    "device": QuotedDevice(id="epyc", name="AMD EPYC 9R14", kind="cpu", count=1),
    "core_count": 4.0,
    "precision": "fp32",
}


def explanation(*steps: ExplainedStep, warnings: tuple[str, ...] = ()) -> Explanation:
    return Explanation(
        schema_version=1,
        workload="toy",
        mode="inference",
        samples=1_000_000,
        layout="nchw",
        compile="eager",
        steps=steps,
        warnings=warnings,
    )


def text(*steps: ExplainedStep, **changes: Any) -> str:
    return render_explanation(explanation(*steps), view=View(**({"width": 200} | changes)))


def test_one_device_is_explained_in_full() -> None:
    shown = text(step(), width=80)
    assert max(map(len, shown.splitlines())) <= 80
    assert_says(shown, "toy", "aws g6.xlarge", "L4", "10 ms [8-12.5]", "batch 64", "amp-bf16", "compute")
    assert_says(shown, "kernels", "10 ms", "dispatch", "1 ms", "copies", "2 ms", "roofline", "5 ms", "50 %")
    assert shown.split("\n\n")[2:4] == [
        "family       time  share  bound    FLOP   bytes    FLOP/B  roofline\n"
        "all         10 ms  100 %  compute   6 G  60 MiB  95 / 153      50 %\n"
        "matmul     7.5 ms   75 %  compute   6 G  60 MiB  95 / 153      50 %\n"
        "pointwise  2.5 ms   25 %  memory      0  60 MiB         -         -",
        "module         time  share  bound    roofline\n"
        "all           10 ms  100 %  compute      50 %\n"
        "layers.*.fc  7.5 ms   75 %  compute      50 %\n"
        "(forward)    2.5 ms   25 %  memory          -",
    ]
    assert_says(shown.split("\n\n")[4], "FLOP/B", "roofline")  # the legend


def test_a_language_model_in_service_has_requests_in_flight() -> None:
    served = {"generation": Generation(prompt_tokens=1024, output_tokens=256)}
    one = replace(explanation(step(job_usd=Interval(mid=2.0, low=1.0, high=3.0))), **served)
    shown = render_explanation(one, view=View(width=200))
    assert_says(shown, "toy", "one request", "aws g6.xlarge", "L4", "10 ms [8-12.5] end to end", "64 requests")
    assert_says(shown, "$2.00", "1,000,000 requests", "none", "weights")
    two = replace(explanation(step(), step(batch=8)), **served)
    shown = render_explanation(two, view=View(width=200))
    assert_says(shown, "toy", "one request", "per request")
    assert "batch" not in shown
    assert "sample" not in shown


def test_groups_beyond_the_top_are_added_up() -> None:
    shown = text(step(), top=1)
    assert shown.count("1 more") == shown.count("--top 2") == 2
    assert_says(shown, "1 more", "25 %", "--top 2", "1 more", "25 %", "--top 2")


def test_what_the_pace_is_set_by_is_said_in_words() -> None:
    # Kernels of 10 ms, a dispatch of 1 ms, copies of 2 ms.
    assert_says(text(step(bound="dispatch")), "host", "1 ms", "GPU waits", "10 ms")
    assert_says(text(step(bound="transfer")), "copies", "2 ms", "GPU waits", "10 ms")
    on_cpu = text(step(**CPU))
    assert_says(on_cpu, "kernels", "10 ms", "dispatch", "1 ms", "cores")
    assert "waits" not in on_cpu


def test_a_cpu_is_named_with_its_cores_and_one_gpu_of_several_as_such() -> None:
    assert_says(text(step(**CPU)), "aws c7a.xlarge", "AMD EPYC 9R14", "4 cores")
    assert_says(text(step(**(CPU | {"core_count": 1.0}))), "AMD EPYC 9R14", "1 core")
    four = QuotedDevice(id="l4", name="L4", kind="gpu", count=4)
    assert_says(text(step(device=four)), "aws g6.xlarge", "1 of 4 L4")


def test_phases_are_told_where_there_are_several() -> None:
    phases = (group("backward", 0.006, step_s=0.01), group("forward", 0.004, step_s=0.01))
    assert_says(text(step(phases=phases)), "backward 60 %", "forward 40 %")
    assert "forward 100 %" not in text(step())


def test_chains_are_named() -> None:
    chain = SequentialChain(module="encoder.lstm", op="rnn_backward", kernel_count=1604)
    assert_says(text(step(sequential=(chain,))), "encoder.lstm", "backward", "1,604 kernels", "GPU")


def test_two_devices_stand_side_by_side_the_largest_difference_first() -> None:
    lines = text(step(10, **CPU), step(), width=80).splitlines()
    table = next(at for at, line in enumerate(lines) if line.startswith("family  "))
    assert_says(lines[1], "A", "aws c7a.xlarge", "AMD EPYC 9R14", "4 cores", "100 ms [80-125]", "batch 64")
    assert "Why A:" in lines
    assert "Why B:" in lines
    assert lines[table:] == [
        "family          A  bound         B  bound      A - B",
        "all        100 ms  compute   10 ms  compute    90 ms",
        "matmul      75 ms  compute  7.5 ms  compute  67.5 ms",
        "pointwise   25 ms  memory   2.5 ms  memory   22.5 ms",
        "",
        "module            A  bound         B  bound      A - B",
        "all          100 ms  compute   10 ms  compute    90 ms",
        "layers.*.fc   75 ms  compute  7.5 ms  compute  67.5 ms",
        "(forward)     25 ms  memory   2.5 ms  memory   22.5 ms",
    ]


def test_devices_at_different_batches_are_compared_by_the_sample() -> None:
    lines = text(step(batch=10), step(batch=40)).splitlines()
    assert_says("\n".join(lines), "per sample")
    # 10 ms of 10 samples and of 40.
    assert ["all", "1", "ms", "compute", "250", "us", "compute", "750", "us"] in [line.split() for line in lines]


def test_what_the_second_device_loses_is_negative() -> None:
    rows = [line.split() for line in text(step(), step(2)).splitlines()]
    assert ["all", "10", "ms", "compute", "20", "ms", "compute", "-10", "ms"] in rows


def test_a_group_that_one_device_lacks_takes_no_time_there() -> None:
    waiting = group("(inputs)", 0.004, step_s=0.01, bound="transfer")
    lines = text(step(), step(families=(waiting, *step().families))).splitlines()
    assert ["(inputs)", "0", "us", "-", "4", "ms", "transfer", "-4", "ms"] in [line.split() for line in lines]


def test_of_more_devices_the_times_stand_alone() -> None:
    lines = text(step(), step(2), step(3)).splitlines()
    assert "all         10 ms  20 ms    30 ms" in lines
    assert [line.split() for line in lines if line.startswith("family")] == [["family", "A", "B", "C"]]


def test_warnings_come_last() -> None:
    shown = render_explanation(explanation(step(), warnings=("no formula",)), view=View())
    assert shown.endswith("\n\nWarnings:\n  no formula\n")


def test_six_devices_fit_80_columns() -> None:
    shown = text(*(step(1.234 * (place + 1)) for place in range(6)), width=80)
    assert max(map(len, shown.splitlines())) <= 80
    # 2.5 ms x 1.234 x 1, 2, 3
    assert "pointwise  3.08 ms  6.17 ms  9.25 ms" in shown


def test_an_explanation_shows_itself_as_its_tables() -> None:
    assert repr(explanation(step())) == text(step(), width=80)


COMPILED = Change(
    kind="compile",
    to="compile",
    step_s=Interval(mid=0.005, low=0.004, high=0.006),
    batch=64,
    job_usd=Interval(mid=0.3, low=0.2, high=0.4),
    saved_usd=0.2,
    saved_ratio=0.4,
)
PRICED = {"job_usd": Interval(mid=0.5, low=0.4, high=0.6)}


def test_what_would_save_most_is_said_of_the_whole_job() -> None:
    lines = text(step(**PRICED, changes=(COMPILED, replace(COMPILED, kind="instance", to="gcp g2")))).splitlines()
    at = next(at for at, line in enumerate(lines) if "$0.50" in line)
    assert_says(lines[at], "$0.50", "1,000,000 samples")
    assert_says(lines[at + 1], "torch.compile", "40 %", "$0.20", "$0.30")
    assert_says(lines[at + 2], "gcp g2", "40 %", "$0.20", "$0.30")


def test_that_nothing_saves_is_said_too() -> None:
    assert_says(text(step(**PRICED)), "$0.50", "none", "precision")


def test_of_a_device_that_nobody_rents_out_there_is_nothing_to_save() -> None:
    assert "$" not in text(step())


def test_side_by_side_each_device_has_its_own_savings() -> None:
    both = text(step(**PRICED, changes=(COMPILED,)), step(2.0, **CPU, **PRICED))
    on_a, on_b = (line for line in both.splitlines() if "$0.50" in line)
    assert_says(on_a, "A", "$0.50")
    assert_says(on_b, "B", "$0.50")


def test_loading_is_part_of_the_pace() -> None:
    waiting = text(step(bound="loader", loading_s=0.02))
    assert_says(waiting, "loading", "20 ms", "GPU waits", "10 ms")
    assert_says(text(step(**CPU, loading_s=0.02)), "10 ms", "1 ms", "loading 20 ms", "cores")


def test_unfused_attention_is_a_reason_with_its_modules_and_every_cause_has_one() -> None:
    whys = get_args(WhyUnfused)
    unfused = tuple(UnfusedAttention(why=why, modules=("a", "", "c", "d", "e")) for why in whys)
    found = [line for line in reasons(step(unfused=unfused)) if "scores" in line]
    assert len(set(found)) == len(whys)
    for line in found:
        assert_says(line, "a", "the model", "c", "2 more")
