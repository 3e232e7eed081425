"""Adds a table of time and cost on 1, 2, 4, ... machines of the best offer."""

from advisor import units
from advisor.records.answer import MachinePoint, MachineSweep, Recommendation
from advisor.records.price import ExchangeRate
from advisor.report.scaling_text import plan_label
from advisor.report.text_page import Heading, Page

MACHINE_HEADINGS = ("machines", "GPUs", "time", "cost", "efficiency", "memory", "plan")


def add_machine_table(page: Page, recommendation: Recommendation) -> None:
    """Add the table if several machines were allowed."""
    sweep = recommendation.machine_sweep
    if sweep is None:
        return
    page.blank()
    page.line(
        f"By number of machines, {sweep.provider} {sweep.instance} ({sweep.device.count}x {sweep.device.name}), "
        f"{sweep.precision}:",
        style="bold",
    )
    page.table(
        [Heading(text=text, is_number=text != "plan") for text in MACHINE_HEADINGS],
        [_cells(point, sweep, rate=recommendation.exchange_rate) for point in sweep.points],
        first_row_style="",
    )
    page.line(machine_note(sweep, deadline_s=recommendation.job.limits.deadline_s), style="dim")


def machine_note(sweep: MachineSweep, *, deadline_s: float | None) -> str:
    """Return the meaning of the marks, and how many machines memory and deadline require."""
    words = ["* used in the ranking; memory is the used share of one GPU's memory."]
    fewest = sweep.points[0].instance_count
    if fewest > 1:
        words.append(f"The step does not fit on fewer than {fewest}.")
    if deadline_s is not None:
        keeping = [point.instance_count for point in sweep.points if point.keeps_deadline]
        demanded = f"requires {keeping[0]} or more" if keeping else "cannot be met"
        words.append(f"--deadline {units.format_duration(deadline_s)} {demanded}.")
    return " ".join(words)


def machine_cells(point: MachinePoint, sweep: MachineSweep, *, rate: ExchangeRate | None) -> tuple[str, ...]:
    """Return a row: machines, GPUs, time, cost, efficiency, memory, plan."""
    ratio = point.scaling_efficiency_ratio
    return (
        f"{point.instance_count:,}",
        f"{point.gpus_used:,}",
        units.format_duration(point.job_s.mid),
        units.format_money(point.job_usd.mid, rate=rate),
        "" if ratio is None else units.format_ratio(ratio),
        units.format_ratio(point.peak_memory_bytes / sweep.device_memory_bytes),
        plan_label(point.plan),
    )


def _cells(point: MachinePoint, sweep: MachineSweep, *, rate: ExchangeRate | None) -> tuple[str, ...]:
    machines, *others = machine_cells(point, sweep, rate=rate)
    return ("*" if point.instance_count == sweep.instance_count else "") + machines, *others
