"""A quote and its job in, what loading its data asks of the machine out, as a sentence."""

from collections.abc import Iterator

from advisor import units
from advisor.records.answer import Job, Quote


def loader_notes(quote: Quote, job: Job) -> Iterator[str]:
    """The vCPUs that loading needs, beside those that there are; nothing where nothing is known of the loader."""
    if job.loader_s_per_sample is None or quote.loader_vcpus is None or quote.vcpus is None:
        return
    each = f"loading, at {units.format_duration(job.loader_s_per_sample)} of a vCPU a sample,"
    needed = units.format_significant(quote.loader_vcpus, digits=2)
    if quote.device.kind == "cpu":
        plural = "" if quote.vcpus == 1 else "s"
        yield f"{each} takes {needed} of the {quote.vcpus:,} vCPU{plural} from the computing."
        return
    fed = f"{each} needs {needed} vCPUs, one of them for the GPU itself, to keep the GPU busy; it has {quote.vcpus:,}"
    yield f"{fed}: the GPU waits for data." if quote.bound == "loader" else f"{fed}."
