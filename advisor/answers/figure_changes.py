"""Compares the figures of one step before and after a change."""

from collections.abc import Iterator, Sequence

from advisor.records.answer import Group, Interval, Totals
from advisor.records.change import Change, Measure, ModuleChange


def change(measure: Measure, before: float, after: float) -> Change:
    """Return the change of a figure that is known exactly."""
    return Change(measure=measure, before=before, after=after, ratio=after / before if before else None)


def predicted_change(measure: Measure, before: Interval, after: Interval) -> Change:
    """Return the change of a predicted figure."""
    return Change(
        measure=measure,
        before=before.mid,
        after=after.mid,
        ratio=after.mid / before.mid if before.mid else None,
        is_inside_interval=before.low <= after.mid <= before.high,
    )


def counted_changes(before: Totals, after: Totals) -> tuple[Change, ...]:
    """Return the changes of FLOP, bytes and memory of one step."""
    return (
        change("flops", before.flops, after.flops),
        change("moved_bytes", before.read_bytes + before.write_bytes, after.read_bytes + after.write_bytes),
        change("parameter_count", before.parameter_count, after.parameter_count),
        change("peak_memory_bytes", before.peak_memory_bytes, after.peak_memory_bytes),
    )


def module_changes(before: Sequence[Group], after: Sequence[Group]) -> tuple[ModuleChange, ...]:
    """Return the modules whose FLOP or bytes differ; largest difference in FLOP, then in bytes, first."""
    return tuple(
        sorted(
            _differing(before, after),
            key=lambda module: (-_difference(module.flops), -_difference(module.moved_bytes), module.name),
        )
    )


def _differing(before: Sequence[Group], after: Sequence[Group]) -> Iterator[ModuleChange]:
    old, new = ({group.name: group for group in groups} for groups in (before, after))
    for name in {**old, **new}:
        (old_flops, old_bytes), (new_flops, new_bytes) = (_sizes(groups.get(name)) for groups in (old, new))
        if (old_flops, old_bytes) != (new_flops, new_bytes):
            yield ModuleChange(
                name=name,
                flops=change("flops", old_flops, new_flops),
                moved_bytes=change("moved_bytes", old_bytes, new_bytes),
            )


def _sizes(group: Group | None) -> tuple[float, float]:
    return (0.0, 0.0) if group is None else (group.flops, group.read_bytes + group.write_bytes)


def _difference(one: Change) -> float:
    return abs(one.after - one.before)
