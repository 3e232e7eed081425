from dataclasses import replace
from typing import Any

from advisor.records.answer import Interval, QuotedDevice
from advisor.records.explained_step import Change, ExplainedGroup, ExplainedStep, Explanation, SequentialChain
from advisor.records.generation import Generation
from advisor.report.explanation import explanation_content
from advisor.report.terminal import to_text
from advisor.report.view import View


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
    assert text(step(), width=80).splitlines() == [
        "toy: an inference step on aws g6.xlarge (L4) takes 10 ms [8-12.5] at batch 64 in",
        "amp-bf16, bound by compute.",
        "",
        "Why:",
        "  the kernels take 10 ms, which hides their dispatch by the host (1 ms) and the",
        "  copies of the inputs (2 ms).",
        "  the plain roofline, with every operator at the datasheet's peak or bandwidth,",
        "  is 5 ms; the step runs at 50 % of it.",
        "",
        "family       time  share  bound    FLOP   bytes    FLOP/B  roofline",
        "all         10 ms  100 %  compute   6 G  60 MiB  95 / 153      50 %",
        "matmul     7.5 ms   75 %  compute   6 G  60 MiB  95 / 153      50 %",
        "pointwise  2.5 ms   25 %  memory      0  60 MiB         -         -",
        "",
        "module         time  share  bound    roofline",
        "all           10 ms  100 %  compute      50 %",
        "layers.*.fc  7.5 ms   75 %  compute      50 %",
        "(forward)    2.5 ms   25 %  memory          -",
        "",
        "FLOP/B: arithmetic intensity / ridge point; at the ridge point, compute at the",
        "peak of the unit that does most of the FLOP takes as long as memory traffic at",
        "full bandwidth (both from the datasheet).",
        "roofline: achieved share of the plain roofline; above 100 % if caches or",
        "Winograd convolutions save work that it counts.",
    ]


def test_a_language_model_in_service_has_requests_in_flight() -> None:
    served = {"generation": Generation(prompt_tokens=1024, output_tokens=256)}
    one = replace(explanation(step(job_usd=Interval(mid=2.0, low=1.0, high=3.0))), **served)
    shown = render_explanation(one, view=View(width=200))
    assert "toy: an answer to each request in flight on aws g6.xlarge (L4) takes 10 ms [8-12.5] with 64 req" in shown
    assert "Largest savings, of $2.00 for 1,000,000 requests:" in shown
    assert "none: neither narrower weights nor another instance saves 1 %." in shown
    two = replace(explanation(step(), step(batch=8)), **served)
    shown = render_explanation(two, view=View(width=200))
    assert "toy: an answer to each request in flight on:\n" in shown
    assert "Time per request, largest difference first." in shown
    assert "batch" not in shown
    assert "sample" not in shown


def test_groups_beyond_the_top_are_added_up() -> None:
    assert text(step(), top=1).count("1 more with 25 % of the time (--top 2 shows all).\n") == 2


def test_what_the_pace_is_set_by_is_said_in_words() -> None:
    # Kernels of 10 ms, a dispatch of 1 ms, copies of 2 ms.
    assert "the host takes 1 ms to dispatch the operators, and the GPU waits: its kernels take 10 ms" in text(
        step(bound="dispatch")
    )
    assert "the copies of the inputs take 2 ms, and the GPU waits: its kernels take 10 ms" in text(
        step(bound="transfer")
    )
    assert "the kernels take 10 ms and their dispatch 1 ms, on the same cores." in text(step(**CPU))


def test_a_cpu_is_named_with_its_cores_and_one_gpu_of_several_as_such() -> None:
    assert "on aws c7a.xlarge (AMD EPYC 9R14, 4 cores) takes" in text(step(**CPU))
    assert "(AMD EPYC 9R14, 1 core) takes" in text(step(**(CPU | {"core_count": 1.0})))
    four = QuotedDevice(id="l4", name="L4", kind="gpu", count=4)
    assert "on aws g6.xlarge (1 of 4 L4) takes" in text(step(device=four))


def test_phases_are_told_where_there_are_several() -> None:
    phases = (group("backward", 0.006, step_s=0.01), group("forward", 0.004, step_s=0.01))
    assert "  by phase: backward 60 %, forward 40 %.\n" in text(step(phases=phases))
    assert "by phase" not in text(step())


def test_chains_are_named() -> None:
    chain = SequentialChain(module="encoder.lstm", op="rnn_backward", kernel_count=1604)
    assert (
        "  encoder.lstm, backward: the time steps of its recurrent layers "
        "are 1,604 kernels in sequence, which a GPU cannot run in parallel.\n"
    ) in text(step(sequential=(chain,)))


def test_two_devices_stand_side_by_side_the_largest_difference_first() -> None:
    lines = text(step(10, **CPU), step(), width=80).splitlines()
    table = lines.index("Time per step, largest difference first.")
    assert lines[1] == "  A  aws c7a.xlarge (AMD EPYC 9R14, 4 cores) takes 100 ms [80-125] at batch 64"
    assert "Why A:" in lines
    assert "Why B:" in lines
    assert lines[table + 2 :] == [
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
    assert "Time per sample, largest difference first." in lines
    # 10 ms of 10 samples and of 40.
    assert "all          1 ms  compute   250 us  compute  750 us" in lines


def test_what_the_second_device_loses_is_negative() -> None:
    assert "all         10 ms  compute  20 ms  compute   -10 ms" in text(step(), step(2)).splitlines()


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
    at = lines.index("Largest savings, of $0.50 for 1,000,000 samples:")
    assert lines[at + 1 : at + 3] == ["  torch.compile: 40 % ($0.20), to $0.30.", "  gcp g2: 40 % ($0.20), to $0.30."]


def test_that_nothing_saves_is_said_too() -> None:
    assert "none: no other precision, batch, layout, attention or instance" in text(step(**PRICED))


def test_of_a_device_that_nobody_rents_out_there_is_nothing_to_save() -> None:
    assert "save most" not in text(step())


def test_side_by_side_each_device_has_its_own_savings() -> None:
    both = text(step(**PRICED, changes=(COMPILED,)), step(2.0, **CPU, **PRICED))
    assert "Largest savings on A, of $0.50" in both
    assert "Largest savings on B, of $0.50" in both


def test_loading_is_part_of_the_pace() -> None:
    waiting = text(step(bound="loader", loading_s=0.02))
    assert "loading a batch takes the host 20 ms, and the GPU waits: its kernels take 10 ms" in waiting
    assert "and data loading 20 ms, on the same cores." in text(step(**CPU, loading_s=0.02))
