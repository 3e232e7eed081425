"""Computes totals, groups and formula coverage of a Workload at a batch size."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple

from advisor.ops.evaluate import bytes_at, row_cost
from advisor.ops.registry import formula_of
from advisor.records.answer import Group, GroupBy, Totals, WorkloadSummary
from advisor.records.workload import MemoryLine, Row, StoredBytes, Workload

KINDS = ("parameters", "buffers", "gradients", "optimizer_state", "activations", "temporaries", "kv_cache")


def summarize(workload: Workload, *, batch: int) -> WorkloadSummary:
    """Return the summary of the workload that answers contain."""
    return WorkloadSummary(
        name=workload.name,
        totals=totals(workload, batch=batch),
        coverage_ratio=coverage_ratio(workload),
        unknown_ops=workload.unknown_ops,
        method=workload.method,
        optimizer=workload.optimizer,
        assumptions=workload.assumptions,
    )


def totals(workload: Workload, *, batch: int) -> Totals:
    """Return the totals of one step at `batch`, in the traced dtypes."""
    groups = group_rows(workload, by="phase", batch=batch)

    def line_bytes(line: MemoryLine) -> float:
        kinds: list[StoredBytes] = [getattr(line, kind) for kind in KINDS]
        growths = (of_dtype for kind in kinds for of_dtype in astuple(kind))
        return sum(float(bytes_at(growth, batch=batch)) for growth in growths)

    return Totals(
        batch=batch,
        flops=sum(group.flops for group in groups),
        read_bytes=sum(group.read_bytes for group in groups),
        write_bytes=sum(group.write_bytes for group in groups),
        peak_memory_bytes=max(map(line_bytes, workload.memory), default=0.0),
        parameter_count=workload.parameter_count,
        op_count=sum(group.op_count for group in groups),
    )


def group_rows(workload: Workload, *, by: GroupBy, batch: int) -> tuple[Group, ...]:
    """Return the groups of a step at `batch`, sorted by FLOP and then by bytes, largest first."""
    sums: dict[str, list[float]] = {}
    for row in workload.rows:
        cost = row_cost(row, batch=batch)
        entry = sums.setdefault(getattr(row, by), [0.0, 0.0, 0.0, 0.0])
        for index, amount in enumerate((cost.flops, cost.read_bytes, cost.write_bytes, 1)):
            entry[index] += amount * row.count
    all_flops = sum(entry[0] for entry in sums.values())
    groups = [
        Group(
            name=name,
            flops=flops,
            read_bytes=read_bytes,
            write_bytes=write_bytes,
            op_count=int(count),
            flops_ratio=flops / all_flops if all_flops else 0.0,
        )
        for name, (flops, read_bytes, write_bytes, count) in sums.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.flops, -group.read_bytes - group.write_bytes, group.name)))


def coverage_ratio(workload: Workload) -> float:
    """Return the share of operator calls that a formula counts; 1.0 is all of them. Views are left out."""
    total = sum(row.count for row in workload.rows)
    return 1.0 - sum(unknown_ops(workload.rows).values()) / total if total else 1.0


def unknown_ops(rows: Iterable[Row]) -> dict[str, int]:
    """Return the operators without a formula, with their number of calls."""
    counts: Counter[str] = Counter()
    for row in rows:
        if formula_of(row.op) is None and row.family != "pointwise":
            counts[row.op] += row.count
    return dict(counts)
