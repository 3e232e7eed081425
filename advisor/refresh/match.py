"""A GPU as a provider names it in, the rows of the price file that rent it out."""

from advisor.records.listing import Wanted


def rows_of_gpu(name: str, wanted: Wanted, *, memory_gib: float | None = None) -> tuple[tuple[str, str], ...]:
    """The (instance, region) whose machine has the GPU that `name` is: "A100 (40 GB SXM4)", "RTX 4090"."""
    identifier = wanted.gpu_id(name, memory_gib)
    return tuple(sorted(row for row in wanted.rows if identifier and wanted.types[row[0]].gpu == identifier))
