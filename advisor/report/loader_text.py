"""Writes the sentence about the vCPUs that data loading needs."""

from collections.abc import Iterator

from advisor import units
from advisor.records.answer import Job, Quote


def loader_notes(quote: Quote, job: Job) -> Iterator[str]:
    """Yield a note on the vCPUs that data loading needs; nothing if the loader's speed is unknown."""
    if job.loader_s_per_sample is None or quote.loader_vcpus is None or quote.vcpus is None:
        return
    each = f"data loading ({units.format_duration(job.loader_s_per_sample)} of vCPU time per sample)"
    needed = units.format_significant(quote.loader_vcpus, digits=2)
    if quote.device.kind == "cpu":
        plural = "" if quote.vcpus == 1 else "s"
        yield f"{each} uses {needed} of the {quote.vcpus:,} vCPU{plural}, which the model then cannot use."
        return
    fed = f"{each} needs {needed} vCPUs to keep the GPU busy, including one for the GPU itself; it has {quote.vcpus:,}"
    yield f"{fed}: the GPU waits for data." if quote.bound == "loader" else f"{fed}."
